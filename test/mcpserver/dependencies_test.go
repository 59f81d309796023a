package mcpserver_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func TestWaitsForMissingDependencies(t *testing.T) {
	w := newManagedFixture(t)
	w.create("tools", unasked, fromSecrets("tokens"), func(s *v1beta1.MCPServerSpec) {
		s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Name: "robot"}
		s.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "a"}}}}
		s.Mounts = []v1beta1.MCPServerMount{{Name: "data", MountPath: "/data", PersistentVolumeClaim: &v1beta1.MCPServerMountedClaim{ClaimName: "data"}}}
	})

	server := w.shows("tools", "DependenciesReady", "False DependencyMissing",
		Equal("missing: ConfigMap settings, PersistentVolumeClaim data, Secret tokens, ServiceAccount robot; create the missing objects and keys, or mark the references optional"))
	w.Expect(conditions(server)).To(HaveKeyWithValue("DeploymentReady", "Unknown Blocked"))
	w.Expect(w.IsGone("tools", &corev1.Service{})()).To(Succeed(), "the phases after an unready phase create nothing")

	w.createSecret("tokens", "t", "1")
	meta := metav1.ObjectMeta{Namespace: w.Namespace}
	settings := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"b": "2"}}
	settings.Name = "settings"
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	account.Name = "robot"
	w.Expect(api.Create(w.Ctx, settings)).To(Succeed())
	w.Expect(api.Create(w.Ctx, account)).To(Succeed())
	w.shows("tools", "DependenciesReady", "False DependencyMissing", HavePrefix("missing: PersistentVolumeClaim data, key a of ConfigMap settings;"))

	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.Mounts = nil })
	harness.Update(w, "kubectl-edit", "settings", &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data["a"] = "1" })
	w.complete("tools")
}

func TestRotatedSecretRollsPodsOnce(t *testing.T) {
	w := newManagedFixture(t)
	w.createSecret("one", "k", "1")
	w.createSecret("two", "k", "1")
	w.createSecret("three", "k", "1")
	w.createReady("tools", unasked, replicas(2), fromSecrets("one", "two", "three"))
	before := w.podUIDs("tools")
	mark := w.Settled()

	// What is said about a Secret is not in it.
	w.checkedAfter("tools", func() {
		harness.Update(w, "labeller", "one", &corev1.Secret{}, func(s *corev1.Secret) {
			s.Labels, s.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
		})
	})
	w.Settled()
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())
	w.Expect(w.podUIDs("tools")).To(ConsistOf(before))

	// When all three are rotated together, within half of the time in which the manager collects changes. On a busy machine
	// that may take several attempts.
	var sets int
	w.Eventually(func() time.Duration {
		w.complete("tools")
		mark = w.Settled()
		before, sets = w.podUIDs("tools"), len(w.replicaSets("tools"))
		took := w.rotateTogether("k", fmt.Sprint(sets+1), "one", "two", "three")
		// Each version of a Secret is read once.
		w.Eventually(func() int { return len(w.Requests(mark).Verbs("get").Of("secrets")) }).Should(BeNumerically(">=", 3))
		return took
	}).Should(BeNumerically("<=", time.Second))
	w.Eventually(func() int { return len(w.replicaSets("tools")) }).Should(Equal(sets + 1))
	w.complete("tools")
	w.Settled()

	// Then the pods were replaced once, all of them.
	w.Expect(w.replicaSets("tools")).To(HaveLen(sets + 1))
	w.Expect(w.Requests(mark).Applies().Of("deployments.apps")).To(HaveLen(1))
	w.Expect(w.podUIDs("tools")).To(HaveLen(2))
	w.Expect(w.podUIDs("tools")).NotTo(ContainElements(before))
}

func TestReadsEachVersionOfASecretOnce(t *testing.T) {
	w := newManagedFixture(t)
	w.createSecret("one", "k", "1")
	w.createReady("tools", unasked, fromSecrets("one"))
	mark := w.Settled()
	reads := w.Requests(w.Began).Verbs("get").Of("secrets")
	w.Expect(len(reads)).To(BeNumerically("<=", 2), "%s", reads) // two reconciles may coincide at the first read

	w.rotate("one", "k", "2")
	w.Eventually(func() int { return len(w.replicaSets("tools")) }).Should(Equal(2))
	w.complete("tools")
	w.Settled()

	w.Expect(w.Requests(mark).Verbs("get").Of("secrets")).To(HaveLen(1))
	w.Expect(w.Requests(w.Began).Verbs("list", "watch").Of("secrets").Where(isOfManager)).NotTo(BeEmpty())
}

func TestUnrelatedChangesDoNotRollPods(t *testing.T) {
	w := newManagedFixture(t)
	inOrder := func(s *v1beta1.MCPServerSpec) {
		s.Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}
		s.Mounts = []v1beta1.MCPServerMount{
			{Name: "one", MountPath: "/one", EmptyDir: &v1beta1.MCPServerEmptyDir{}}, {Name: "two", MountPath: "/two", EmptyDir: &v1beta1.MCPServerEmptyDir{}}}
	}
	w.createReady("tools", unasked, replicas(3), files("/etc/a", "1", "/etc/b", "2"), inOrder)
	before := w.podUIDs("tools")
	mark := w.Settled()

	w.checkedAfter("tools", func() {
		harness.Update(w, "user", "tools", &v1beta1.MCPServer{}, func(m *v1beta1.MCPServer) { m.Labels = map[string]string{"team": "a"} })
	})
	w.Settled()
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())

	// What means the same, written in another order, is the same.
	w.change("tools", func(s *v1beta1.MCPServerSpec) {
		slices.Reverse(s.Files)
		slices.Reverse(s.Env)
		slices.Reverse(s.Mounts)
	})
	w.complete("tools")
	w.Settled()
	w.Expect(w.Requests(mark).Writes().Except("mcpservers.fixpoint.dev")).To(BeEmpty())
	w.Expect(w.podUIDs("tools")).To(ConsistOf(before))

	w.changeReady("tools", replicas(2))
	w.Eventually(func() int { return len(w.podUIDs("tools")) }).Should(Equal(2))
	w.Expect(w.podUIDs("tools")).To(HaveEach(BeElementOf(before)))
	w.Expect(w.replicaSets("tools")).To(HaveLen(1))

	w.changeReady("tools", files("/etc/a", "2"))
	w.Expect(w.replicaSets("tools")).To(HaveLen(2))
}

// TestRemovesServiceAccountThatIsNoLongerDesired: the API server keeps the name in a second field, from
// which it would come back.
func TestRemovesServiceAccountThatIsNoLongerDesired(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("tools", unasked, func(s *v1beta1.MCPServerSpec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Create: true} })
	w.Expect(w.deployment("tools").Spec.Template.Spec.ServiceAccountName).To(Equal("tools"))

	w.changeReady("tools", func(s *v1beta1.MCPServerSpec) { s.ServiceAccount = nil })

	w.Expect(w.deployment("tools").Spec.Template.Spec.ServiceAccountName).To(BeEmpty())
	w.Eventually(w.IsGone("tools", &corev1.ServiceAccount{})).Should(Succeed())
}

func TestBadOverridesAreInvalidUntilCorrected(t *testing.T) {
	w := newManagedFixture(t)
	w.create("tools", unasked, overrides(`{"containers":[{"name":"server","resources":{"limits":{"memory":"much"}}}]}`))
	server := w.shows("tools", "DeploymentReady", "False Invalid", And(HavePrefix("spec.podOverrides is not a valid part of a pod template: "), HaveSuffix("; correct spec.podOverrides")))
	w.Expect(conditions(server)).To(HaveKey("Stalled"))
	w.Expect(server.Status.Phase).To(Equal(v1beta1.PhaseFailed))

	// This is a pod, and no valid one: the API server says so.
	w.change("tools", overrides(`{"containers":[{"name":"log",`+restrictedContext+`}]}`))
	w.shows("tools", "DeploymentReady", "False Invalid", ContainSubstring("image"))

	w.change("tools", overrides(`{"containers":[{"name":"server","tty":true},{"name":"log","image":"registry.test/log:1",`+restrictedContext+`}]}`))
	w.complete("tools")
	containers := w.deployment("tools").Spec.Template.Spec.Containers
	w.Expect(containers).To(HaveLen(2))
	w.Expect(containers[0].TTY).To(BeTrue())
	mark := w.Settled()
	w.Expect(w.Requests(mark)).To(BeEmpty())
}

func TestDoesNotTouchUnmanagedObjectOfTheSameName(t *testing.T) {
	w := newManagedFixture(t)
	taken := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "tools"}}
	taken.Spec.Ports = []corev1.ServicePort{{Port: 1}}
	w.Expect(api.Create(w.Ctx, taken)).To(Succeed())

	w.create("tools", unasked)
	w.shows("tools", "ServiceReady", "False NotOwned", And(ContainSubstring("Service "+w.Namespace+"/tools"), ContainSubstring("set spec.adoptionPolicy to IfUnowned to adopt it")))
	w.Expect(harness.Read(w, "tools", &corev1.Service{}).ResourceVersion).To(Equal(taken.ResourceVersion))

	w.Expect(api.Delete(w.Ctx, taken)).To(Succeed())
	w.complete("tools")
}
