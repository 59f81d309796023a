package appservice_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// resync is how often the manager of a test reconciles everything although nothing has changed.
const resync = time.Second

// newResyncingFixture has a manager that reconciles everything all the time.
func newResyncingFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	w := newFixture(t)
	options := w.options()
	options.SyncPeriod = resync
	w.StartManager(shared.Config(harness.ManagerUser), options)
	return w
}

// checked returns when the manager has checked the Deployment of an AppService and found nothing
// to do, so many times from now on.
func (w *fixture) checked(name string, times int) {
	w.T.Helper()
	w.checkedAfter(name, times, func() {})
}

// checkedAfter is the same after something that triggers a reconcile.
func (w *fixture) checkedAfter(name string, times int, act func()) {
	w.T.Helper()
	m := w.Managers[len(w.Managers)-1]
	look := func() int { return m.Checks("AppService", name, "Deployment") }
	before := look()
	act()
	w.Eventually(look).Should(BeNumerically(">=", before+times), "checks of %s", name)
}

// TestKeepsFieldsOfOtherManagers lets other field managers write fields into children. Their fields survive every
// reconcile, are no drift, and no field manager has to write twice.
func TestKeepsFieldsOfOtherManagers(t *testing.T) {
	shared := newResyncingFixture(t)
	cases := map[string]struct {
		edits []edit
		write func(w *fixture, name string)
		// stays is what the other has written.
		stays func(w *fixture, g Gomega, name string)
	}{
		"rollout-restart": {
			write: func(w *fixture, name string) { w.kubectl("rollout", "restart", "deployment/"+name) },
			stays: func(w *fixture, g Gomega, name string) {
				g.Expect(w.deployment(name).Spec.Template.Annotations).To(HaveKey("kubectl.kubernetes.io/restartedAt"))
				g.Expect(w.replicaSets(name)).To(HaveLen(2), "the pods were restarted")
			},
		},
		"autoscaler": {
			edits: []edit{autoscaled(2, 8)},
			write: func(w *fixture, name string) { w.Scale("kube-controller-manager", w.deployment(name), 6) },
			stays: func(w *fixture, g Gomega, name string) {
				g.Expect(w.deployment(name).Spec.Replicas).To(HaveValue(BeEquivalentTo(6)))
			},
		},
		"autoscaler-of-the-users-own": {
			edits: []edit{func(s *v1beta1.AppServiceSpec) { s.Replicas = nil }},
			write: func(w *fixture, name string) { w.Scale("keda", w.deployment(name), 3) },
			stays: func(w *fixture, g Gomega, name string) {
				g.Expect(w.deployment(name).Spec.Replicas).To(HaveValue(BeEquivalentTo(3)))
			},
		},
		"sidecar": {
			write: func(w *fixture, name string) {
				harness.Update(w, "injector", name, &appsv1.Deployment{}, func(d *appsv1.Deployment) {
					sidecar := corev1.Container{Name: "proxy", Image: "registry.test/proxy:1", Env: []corev1.EnvVar{{Name: "MODE", Value: "proxy"}}}
					pod := &d.Spec.Template.Spec
					pod.Containers = append([]corev1.Container{sidecar}, pod.Containers...)
				})
			},
			stays: func(w *fixture, g Gomega, name string) {
				containers := w.deployment(name).Spec.Template.Spec.Containers
				g.Expect(containers).To(HaveLen(2))
				g.Expect(containers[0].Name).To(Equal("proxy"))
				g.Expect(containers[0].Env).To(ConsistOf(corev1.EnvVar{Name: "MODE", Value: "proxy"}))
				g.Expect(containers[1].Name).To(Equal("app"))
				g.Expect(containers[1].Image).To(Equal(image))
			},
		},
		"environment-of-the-container": {
			write: func(w *fixture, name string) {
				harness.Update(w, "injector", name, &appsv1.Deployment{}, func(d *appsv1.Deployment) {
					c := &d.Spec.Template.Spec.Containers[0]
					c.Env = append(c.Env, corev1.EnvVar{Name: "TRACING", Value: "on"})
				})
			},
			stays: func(w *fixture, g Gomega, name string) {
				g.Expect(container(w, name).Env).To(ConsistOf(corev1.EnvVar{Name: "MODE", Value: "fast"}, corev1.EnvVar{Name: "TRACING", Value: "on"}))
			},
		},
		"labels-annotations-and-finalizers": {
			write: func(w *fixture, name string) {
				for _, newObject := range []func() client.Object{childKinds["Deployment"], childKinds["Service"], childKinds["ConfigMap"]} {
					harness.Update(w, "team", name, newObject(), func(o client.Object) {
						o.GetLabels()["team"] = "shop"
						o.SetAnnotations(with(o.GetAnnotations(), "team/contact", "shop@example.com"))
						o.SetFinalizers(append(o.GetFinalizers(), "team.test/keep"))
					})
				}
			},
			stays: func(w *fixture, g Gomega, name string) {
				for _, newObject := range []func() client.Object{childKinds["Deployment"], childKinds["Service"], childKinds["ConfigMap"]} {
					o := harness.Read(w, name, newObject())
					g.Expect(o.GetLabels()).To(HaveKeyWithValue("team", "shop"))
					g.Expect(o.GetAnnotations()).To(HaveKeyWithValue("team/contact", "shop@example.com"))
					g.Expect(o.GetFinalizers()).To(ContainElement("team.test/keep"))
				}
			},
		},
		// The cloud's load balancer controller, for example, writes into the Service.
		"more-ports-and-fields-of-the-service": {
			write: func(w *fixture, name string) {
				raw := `{"spec":{"ports":[{"name":"metrics","port":9100,"protocol":"TCP","targetPort":9100}],"sessionAffinity":"ClientIP"}}`
				w.Expect(w.As("prometheus").Patch(w.Ctx, harness.Read(w, name, &corev1.Service{}), client.RawPatch(types.StrategicMergePatchType, []byte(raw)))).To(Succeed())
			},
			stays: func(w *fixture, g Gomega, name string) {
				service := harness.Read(w, name, &corev1.Service{})
				g.Expect(service.Spec.Ports).To(HaveLen(2))
				g.Expect(service.Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP))
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := shared.sub(t, name)
			edits := append([]edit{config("A", "1"), env(corev1.EnvVar{Name: "MODE", Value: "fast"})}, c.edits...)
			w.createReady(name, edits...)

			// When another manager writes its fields
			c.write(w, name)

			// Then it stays, however often the manager looks,
			w.Eventually(func(g Gomega) { c.stays(w, g, name) }).Should(Succeed())
			w.ready(name)
			w.checked(name, 3)
			c.stays(w, w, name)

			// through a change of the spec,
			w.changeReady(name, withImage(otherImage), config("A", "2"))
			w.Expect(harness.Read(w, name, &corev1.ConfigMap{}).Data).To(HaveKeyWithValue("A", "2"))

			// and nobody is told of a drift.
			app := w.ready(name)
			w.Expect(app.Status.Drifts).To(BeEmpty())
			w.Expect(conditions(app)).NotTo(HaveKey("Drifted"))
			w.Expect(w.events(name)).NotTo(ContainElement(ContainSubstring("Drift")))
		})
	}
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

func TestResyncWritesNothing(t *testing.T) {
	w := newResyncingFixture(t)
	names := []string{"one", "two", "three"}
	for _, name := range names {
		w.create(name, everything)
	}
	for _, name := range names {
		w.ready(name)
		w.scalesNoMore(name)
		w.AtRest(name)
	}

	mark := w.Settled()
	for _, name := range names {
		w.checked(name, 3)
	}

	requests := w.Requests(mark)
	w.Expect(requests.WithoutWatches()).To(BeEmpty(), "requests of a manager that has nothing to do")
}
