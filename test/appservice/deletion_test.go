package appservice_test

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// left lists what there is of an AppService's children and of what they own.
func (w *fixture) left(name string) []string {
	w.T.Helper()
	left := slices.Collect(maps.Keys(w.children(name)))
	for _, set := range w.replicaSets(name) {
		left = append(left, "ReplicaSet "+set.Name)
	}
	for _, pod := range w.pods(name) {
		left = append(left, "Pod "+pod.Name)
	}
	return left
}

// leavesNothing is for an AppService that is gone: so are its children, and the garbage collector deletes what those
// owned.
func (w *fixture) leavesNothing(name string) {
	w.T.Helper()
	w.Expect(w.children(name)).To(BeEmpty())
	w.Eventually(func() []string { return w.left(name) }).Should(BeEmpty())
}

func TestDeletionTearsDownInReverseOrder(t *testing.T) {
	w := newManagedFixture(t)
	first := w.createReady("web", everything)
	w.scalesNoMore("web")
	mark := w.Settled()

	// When it is deleted, and kubectl has waited until it is gone
	w.kubectl("delete", "appservice", "web", "--wait", "--timeout=3m")

	// Then nothing is left,
	w.leavesNothing("web")
	// and it went in the reverse of the order in which it came, one after the other.
	deleted := w.Requests(mark).Verbs("delete")
	var order []string
	for _, request := range deleted {
		if request.Code == http.StatusConflict || request.Code == http.StatusNotFound && slices.Contains(order, request.Resource) {
			continue // the object had just been written, and is deleted again; or the cache still showed it
		}
		order = append(order, request.Resource)
		w.Expect(request.Code).To(BeNumerically("<", 300), "%s", request)
	}
	want, err := suite.DeletionOrder(appservice.Name)
	w.Expect(err).NotTo(HaveOccurred())
	if w.ReadsStale() { // then a deletion may be repeated
		order = slices.Compact(order)
	}
	w.Expect(order).To(Equal(append(want, "jobs")), "the Job of the hook is no child, and is deleted last")

	// A new one of the same name starts clean.
	second := w.createReady("web", config("B", "2"))
	w.Expect(second.UID).NotTo(Equal(first.UID))
	w.Expect(second.Status.Drifts).To(BeEmpty())
	w.Expect(harness.Read(w, "web", &corev1.ConfigMap{}).Data).To(Equal(map[string]string{"B": "2"}))
	w.Expect(w.deployment("web")).To(beOwnedBy(second))
	w.Expect(w.replicaSets("web")).To(HaveLen(1))
	w.Expect(conditions(second)).To(Not(HaveKey("IngressReady")))

	// Its deletion reads past the cache nothing of what it never had.
	mark = w.Settled()
	w.kubectl("delete", "appservice", "web", "--wait", "--timeout=3m")
	w.Expect(w.Requests(mark).Verbs("list")).To(BeEmpty())
	w.Expect(w.Requests(mark).Verbs("get").Of("ingresses", "poddisruptionbudgets", "horizontalpodautoscalers")).To(BeEmpty())
}

func TestStatusReportsWhatTheTeardownWaitsFor(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", everything)
	harness.Update(w, "team", "web", &appsv1.Deployment{}, func(d *appsv1.Deployment) { d.Finalizers = append(d.Finalizers, "team.test/keep") })

	// When another manager's finalizer holds the Deployment
	w.Expect(api.Delete(w.Ctx, harness.Read(w, "web", &v1beta1.AppService{}))).To(Succeed())

	app := w.shows("web", "DeploymentReady", "False Terminating", Equal("waiting for Deployment web to be deleted (finalizers: team.test/keep)"))
	w.Expect(app.Status.Phase).To(Equal(v1beta1.PhaseDeleting))
	w.Expect(kstatus(app)).To(Equal("Terminating"))
	w.Expect(conditions(app)).To(And(
		HaveKeyWithValue("Ready", "False Terminating"),
		HaveKeyWithValue("IngressReady", "False Terminating"),
		HaveKeyWithValue("ServiceReady", "False Terminating"),
		HaveKeyWithValue("ConfigReady", "False Terminating")))
	w.Expect(w.children("web")).To(And(HaveKey("Deployment"), Not(HaveKey(BeElementOf("Service", "ConfigMap", "Ingress")))), "nothing else waits for it")
	w.Settled()
	w.isNotHot(tenSeconds)

	// Then it goes on when that is gone.
	harness.Update(w, "team", "web", &appsv1.Deployment{}, func(d *appsv1.Deployment) {
		d.Finalizers = slices.DeleteFunc(d.Finalizers, func(f string) bool { return f == "team.test/keep" })
	})
	w.Eventually(w.IsGone("web", &v1beta1.AppService{})).Should(Succeed())
	w.leavesNothing("web")
}

func TestDeletionDuringCreation(t *testing.T) {
	shared := newManagedFixture(t)
	cases := map[string][]edit{
		"at-once":         {everything},
		"while-stalled":   {withImage(cluster.ImagePullFails)},
		"while-invalid":   {env(corev1.EnvVar{Name: "A=B", Value: "x"})},
		"while-classless": {ingress(&v1beta1.Ingress{Host: "a.test"})},
	}
	for name, edits := range cases {
		t.Run(name, func(t *testing.T) {
			w := shared.sub(t, name)
			a := w.app(name, edits...)
			w.Expect(api.Create(w.Ctx, a)).To(Succeed())
			if name != "at-once" {
				harness.Eventually(w, name, &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
					g.Expect(conditions(a)).To(HaveKeyWithValue("Ready", HavePrefix("False ")))
				})
			}

			w.Expect(api.Delete(w.Ctx, a)).To(Succeed())

			w.Eventually(w.IsGone(name, &v1beta1.AppService{})).Should(Succeed())
			w.Eventually(func() []string { return w.left(name) }).Should(BeEmpty())
		})
	}
}

func TestOrphaningDeletionKeepsChildren(t *testing.T) {
	w := newManagedFixture(t)
	app := w.createReady("web", config("A", "1"))
	pods := w.podUIDs("web")

	w.Expect(api.Delete(w.Ctx, app, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
	w.Eventually(w.IsGone("web", &v1beta1.AppService{})).Should(Succeed())

	for _, kind := range []string{"ConfigMap", "Service", "Deployment"} {
		child := harness.Read(w, "web", childKinds[kind]())
		w.Expect(child.GetOwnerReferences()).To(BeEmpty(), kind)
		w.Expect(child.GetDeletionTimestamp()).To(BeNil(), kind)
	}
	w.Expect(w.podUIDs("web")).To(ConsistOf(pods))

	// A new one may take them over, with the pods that run.
	adopter := w.createReady("web", config("A", "1"), adoption(v1beta1.AdoptionIfUnowned))
	w.Expect(w.deployment("web")).To(beOwnedBy(adopter))
	w.Expect(w.podUIDs("web")).To(ConsistOf(pods))
}

func TestForegroundDeletionIsComplete(t *testing.T) {
	w := newManagedFixture(t)
	app := w.createReady("web", everything)

	w.Expect(api.Delete(w.Ctx, app, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())

	w.Eventually(w.IsGone("web", &v1beta1.AppService{})).Should(Succeed())
	w.leavesNothing("web")
}

// TestRemovesFinalizerWhoeverAddedIt: a restored backup or a copied manifest brings it along.
func TestRemovesFinalizerWhoeverAddedIt(t *testing.T) {
	w := newManagedFixture(t)
	a := w.app("web")
	a.Finalizers = []string{"fixpoint.dev/teardown", "backup.test/hold"}
	w.Expect(w.As("velero-server").Create(w.Ctx, a)).To(Succeed())
	w.ready("web")

	w.Expect(api.Delete(w.Ctx, a)).To(Succeed())

	// The finalizers of others stay.
	harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
		g.Expect(a.Finalizers).To(ConsistOf("backup.test/hold"))
	})
	w.leavesNothing("web")
	harness.Update(w, "velero-server", "web", &v1beta1.AppService{}, func(a *v1beta1.AppService) { a.Finalizers = nil })
	w.Eventually(w.IsGone("web", &v1beta1.AppService{})).Should(Succeed())
}

func TestDeletionWhileSuspended(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", everything)
	w.change("web", suspend(true))
	w.shows("web", "Suspended", "True Suspended", Not(BeEmpty()))

	w.kubectl("delete", "appservice", "web", "--wait", "--timeout=3m")

	w.leavesNothing("web")
}

func TestTeardownKeepsUnmanagedObjectsOfTheSameName(t *testing.T) {
	w := newManagedFixture(t)
	w.Expect(api.Create(w.Ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"}})).To(Succeed())
	app := w.createReady("web") // without config it needs no ConfigMap

	w.Expect(api.Delete(w.Ctx, app)).To(Succeed())
	w.Eventually(w.IsGone("web", &v1beta1.AppService{})).Should(Succeed())

	w.Expect(harness.Read(w, "web", &corev1.ConfigMap{}).DeletionTimestamp).To(BeNil())
	w.Expect(w.children("web")).To(And(HaveLen(1), HaveKey("ConfigMap")))
	w.Eventually(func() []string { return w.left("web") }).Should(Equal([]string{"ConfigMap"}))
}

func TestNamespaceWithAppServicesCanBeDeleted(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", everything)
	w.create("stuck", withImage(cluster.ImagePullFails))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}

	w.Expect(api.Delete(w.Ctx, namespace)).To(Succeed())

	// Kubernetes' namespace controller tries again after 5, 10, 20 and 40 s, and so on.
	w.Eventually(func() bool {
		err := api.Get(w.Ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{})
		return err != nil && client.IgnoreNotFound(err) == nil
	}).Should(BeTrue(), "the namespace stays")
}
