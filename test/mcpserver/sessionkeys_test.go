package mcpserver_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// forwarding has every pod serve the sessions of all pods.
func forwarding(s *v1beta1.MCPServerSpec) {
	s.Transport, s.Command = v1beta1.TransportStdio, []string{"serve"}
	s.SessionRouting = v1beta1.SessionRoutingForward
}

// forwardingHTTP is the same for a server that serves HTTP.
func forwardingHTTP(s *v1beta1.MCPServerSpec) { s.SessionRouting = v1beta1.SessionRoutingForward }

// later is a clock that is ahead.
type later time.Duration

// Now implements [clock.PassiveClock].
func (l later) Now() time.Time { return time.Now().Add(time.Duration(l)) }

// Since implements [clock.PassiveClock].
func (l later) Since(t time.Time) time.Duration { return l.Now().Sub(t) }

// startManagerLater runs a manager whose clock is ahead.
func (w *fixture) startManagerLater(by time.Duration) *harness.Manager {
	w.T.Helper()
	options := w.options()
	options.Clock = later(by)
	return w.StartManager(shared.Config(harness.ManagerUser), options)
}

const keysOfTools = "tools-session-keys"

// sessionKeys waits until the Secret has this number of keys.
func (w *fixture) sessionKeys(count int) *corev1.Secret {
	w.T.Helper()
	return harness.Eventually(w, keysOfTools, &corev1.Secret{}, func(g Gomega, s *corev1.Secret) {
		g.Expect(s.Data).To(HaveLen(count))
		g.Expect(s.Data).To(HaveEach(HaveLen(32)))
	})
}

func oldestOf(keys *corev1.Secret) string { return slices.Min(slices.Collect(maps.Keys(keys.Data))) }

func TestSessionKeys(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	m := w.startManager()
	w.create("tools", unasked, replicas(2), forwarding)
	server := w.complete("tools")
	first := w.sessionKeys(1)
	w.Expect(first.Type).To(BeEquivalentTo(v1beta1.SecretTypeSessionKeys))
	w.Expect(metav1.IsControlledBy(first, server)).To(BeTrue())
	w.Expect(conditions(server)).To(HaveKeyWithValue("SessionKeysReady", "True Ready"))
	pods := w.podUIDs("tools")
	mark := w.Settled()

	// At rest, it sends nothing, and a restart keeps the key.
	w.Expect(w.Requests(mark)).To(BeEmpty())
	w.Stop(m)
	m = w.startManager()
	w.Eventually(func() int { return m.Checks("MCPServer", "tools", "Deployment") }).Should(BeNumerically(">=", 1))
	w.Settled()
	w.Expect(w.sessionKeys(1).ResourceVersion).To(Equal(first.ResourceVersion))

	// After a week there is another one,
	const day = 24 * time.Hour
	w.Stop(m)
	m = w.startManagerLater(7*day + time.Hour)
	second := w.sessionKeys(2)
	w.Expect(second.Data).To(HaveKeyWithValue(oldestOf(first), first.Data[oldestOf(first)]))
	w.Settled()
	w.Expect(w.sessionKeys(2).ResourceVersion).To(Equal(second.ResourceVersion))

	// and after two, the first one is removed.
	w.Stop(m)
	w.startManagerLater(14*day + 2*time.Hour)
	third := harness.Eventually(w, keysOfTools, &corev1.Secret{}, func(g Gomega, s *corev1.Secret) {
		g.Expect(s.Data).To(HaveLen(2))
		g.Expect(s.Data).NotTo(HaveKey(oldestOf(first)))
	})
	delete(second.Data, oldestOf(first))
	w.Expect(third.Data[oldestOf(third)]).To(Equal(second.Data[oldestOf(second)]))
	w.Expect(third.Data[oldestOf(third)]).NotTo(Equal(first.Data[oldestOf(first)]))
	w.Settled()
	w.Expect(w.podUIDs("tools")).To(ConsistOf(pods), "new keys replace no pods")
}

// The proxy of a server that serves HTTP has the keys, and goes with them.
func TestSessionKeysOfServersThatServeHTTP(t *testing.T) {
	w := newManagedFixture(t)
	w.create("tools", unasked, forwardingHTTP)
	server := w.complete("tools")
	w.sessionKeys(1)
	w.Expect(conditions(server)).To(HaveKeyWithValue("SessionKeysReady", "True Ready"))
	pod := harness.Read(w, "tools", &appsv1.Deployment{}).Spec.Template.Spec
	w.Expect(pod.Containers).To(ConsistOf(
		And(HaveField("Name", "server"), HaveField("VolumeMounts", BeEmpty())),
		And(HaveField("Name", "fixpoint-proxy"), HaveField("VolumeMounts", ConsistOf(HaveField("Name", "fixpoint-session-keys"))))))

	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.SessionRouting = "" })
	w.Eventually(w.IsGone(keysOfTools, &corev1.Secret{})).Should(Succeed())
	w.complete("tools")
	w.Expect(harness.Read(w, "tools", &appsv1.Deployment{}).Spec.Template.Spec.Containers).To(HaveLen(1))
}

func TestDeletedSessionKeysAreCreatedAgain(t *testing.T) {
	w := newManagedFixture(t)
	w.create("tools", unasked, forwarding)
	w.complete("tools")
	before := w.sessionKeys(1)
	pods := w.podUIDs("tools")

	w.Expect(api.Delete(w.Ctx, before)).To(Succeed())

	after := harness.Eventually(w, keysOfTools, &corev1.Secret{}, func(g Gomega, s *corev1.Secret) { g.Expect(s.UID).NotTo(Equal(before.UID)) })
	w.Expect(after.Data).To(HaveLen(1))
	w.Expect(slices.Collect(maps.Values(after.Data))).NotTo(Equal(slices.Collect(maps.Values(before.Data))))
	w.complete("tools")
	w.Expect(w.podUIDs("tools")).To(ConsistOf(pods))
}

// What another client writes is not reported with its value, even if the user wants to see values.
func TestSessionKeysAreInTheirSecretAlone(t *testing.T) {
	w := newManagedFixture(t)
	w.create("tools", unasked, forwarding)
	w.complete("tools")
	keys := w.sessionKeys(1)
	written := bytes.Repeat([]byte("w"), 32)
	harness.Update(w, "user", "tools", &v1beta1.MCPServer{}, func(m *v1beta1.MCPServer) {
		m.Annotations = map[string]string{v1beta1.DriftValuesAnnotation: v1beta1.DriftValuesShow}
	})
	harness.Update(w, "kubectl-edit", keysOfTools, &corev1.Secret{}, func(s *corev1.Secret) {
		s.Data[oldestOf(keys)] = written
		s.Labels["app.kubernetes.io/name"] = "edited"
	})
	harness.Eventually(w, keysOfTools, &corev1.Secret{}, func(g Gomega, s *corev1.Secret) {
		g.Expect(s.Labels).To(HaveKeyWithValue("app.kubernetes.io/name", "tools"))
	})
	server := harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(m.Status.Drifts).To(ContainElement(HaveField("Manager", "kubectl-edit")))
	})
	text, err := json.Marshal(server)
	w.Expect(err).NotTo(HaveOccurred())
	shown := string(text) + strings.Join(w.events("tools"), "\n")
	for _, key := range [][]byte{keys.Data[oldestOf(keys)], written} {
		w.Expect(shown).NotTo(Or(ContainSubstring(base64.StdEncoding.EncodeToString(key)), ContainSubstring(string(key))))
	}
}

func TestSessionKeysAreDeletedOnceUnused(t *testing.T) {
	w := newManagedFixture(t)
	w.create("tools", unasked, forwarding)
	w.complete("tools")
	w.sessionKeys(1)

	// Without session routing, the Secret is deleted once no pod mounts it.
	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.SessionRouting = v1beta1.SessionRoutingNone })
	w.Eventually(w.IsGone(keysOfTools, &corev1.Secret{})).Should(Succeed())
	w.complete("tools")
	// The status follows the deletion: until then the condition says that the Secret is being deleted.
	server := harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(conditions(m)).NotTo(HaveKey("SessionKeysReady"))
	})
	w.Expect(harness.Read(w, "tools", &appsv1.Deployment{}).Spec.Template.Spec.Volumes).NotTo(ContainElement(HaveField("Secret", Not(BeNil()))))

	// With the MCPServer, it is deleted, too.
	w.changeReady("tools", forwarding)
	w.sessionKeys(1)
	w.Expect(api.Delete(w.Ctx, server)).To(Succeed())
	w.Eventually(w.IsGone("tools", &v1beta1.MCPServer{})).Should(Succeed())
	w.Expect(w.IsGone(keysOfTools, &corev1.Secret{})()).To(Succeed())
}

func TestSecretOfAUserIsNotUsedForSessionKeys(t *testing.T) {
	w := newManagedFixture(t)
	w.createSecret(keysOfTools, "mine", "yes")
	before := harness.Read(w, keysOfTools, &corev1.Secret{})
	w.create("tools", unasked, forwarding, func(s *v1beta1.MCPServerSpec) { s.AdoptionPolicy = v1beta1.AdoptionIfUnowned })

	w.shows("tools", "SessionKeysReady", "False NotOwned", ContainSubstring(keysOfTools+" exists and no controller owns it, so it is not changed"))
	w.Settled()
	w.Expect(harness.Read(w, keysOfTools, &corev1.Secret{}).ResourceVersion).To(Equal(before.ResourceVersion))
	w.Expect(w.IsGone("tools", &appsv1.Deployment{})()).To(Succeed(), "pods need the keys")

	// Its deletion is noticed.
	w.Expect(api.Delete(w.Ctx, before, client.Preconditions{UID: &before.UID})).To(Succeed())
	w.complete("tools")
	w.sessionKeys(1)
}

// An MCPServer that is restored with its Secret keeps the keys, so that sessions survive.
func TestAdoptsSessionKeysOfAnOrphanedSecret(t *testing.T) {
	w := newManagedFixture(t)
	w.create("tools", unasked, forwarding)
	server := w.complete("tools")
	before := w.sessionKeys(1)
	w.Expect(api.Delete(w.Ctx, server, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
	w.Eventually(w.IsGone("tools", &v1beta1.MCPServer{})).Should(Succeed())

	w.create("tools", unasked, forwarding)
	w.shows("tools", "SessionKeysReady", "False NotOwned", HaveSuffix("or set spec.adoptionPolicy to IfUnowned"))

	w.changeReady("tools", func(s *v1beta1.MCPServerSpec) { s.AdoptionPolicy = v1beta1.AdoptionIfUnowned })
	after := w.sessionKeys(1)
	w.Expect(after.UID).To(Equal(before.UID))
	w.Expect(after.Data).To(Equal(before.Data))
}
