package appservice_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// substance is what an object declares: what is left without the bookkeeping.
func substance(w *fixture, object client.Object) map[string]any {
	w.T.Helper()
	raw, err := json.Marshal(object)
	w.Expect(err).NotTo(HaveOccurred())
	tree := map[string]any{}
	w.Expect(json.Unmarshal(raw, &tree)).To(Succeed())
	delete(tree, "status")
	metadata, ok := tree["metadata"].(map[string]any)
	w.Expect(ok).To(BeTrue())
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		delete(metadata, field)
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		delete(annotations, "deployment.kubernetes.io/revision")
	}
	return tree
}

// sameDrift matches one entry of status.drifts, but for its time.
func sameDrift(want v1beta1.Drift) func(v1beta1.Drift) bool {
	return func(got v1beta1.Drift) bool {
		got.Time = want.Time
		return got == want
	}
}

type driftCase struct {
	edits []edit
	// manager writes the change, under this name.
	manager string
	change  func(w *fixture, manager, name string)
	// want is without times, names and actions.
	want []v1beta1.Drift
}

// TestRevertsDriftAndReportsIt changes children as other clients do. Each change is reverted, and
// stands in the status and in an Event with who made it and what it was.
func TestRevertsDriftAndReportsIt(t *testing.T) {
	cases := map[string]driftCase{
		"scaled": {
			manager: "kubectl",
			change:  func(w *fixture, manager, name string) { w.Scale(manager, w.deployment(name), 5) },
			want:    []v1beta1.Drift{{Kind: "Deployment", Field: ".spec.replicas", Desired: "2", Found: "5"}},
		},
		"image": {
			manager: "kubectl-set",
			change: func(w *fixture, manager, name string) {
				harness.Update(w, manager, name, &appsv1.Deployment{}, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = otherImage })
			},
			want: []v1beta1.Drift{{Kind: "Deployment", Field: `.spec.template.spec.containers[name="app"].image`, Desired: `"registry.test/shop:1"`, Found: `"registry.test/shop:2"`}},
		},
		"env-value": {
			manager: "kubectl-edit",
			change: func(w *fixture, manager, name string) {
				harness.Update(w, manager, name, &appsv1.Deployment{}, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Env[0].Value = "slow" })
			},
			want: []v1beta1.Drift{{Kind: "Deployment", Field: `.spec.template.spec.containers[name="app"].env[name="MODE"].value`, Desired: redacted, Found: redacted}},
		},
		// The API server refuses an apply of the value as long as there is the source.
		"env-source": {
			manager: "kubectl-set",
			change: func(w *fixture, manager, name string) {
				harness.Update(w, manager, name, &appsv1.Deployment{}, func(d *appsv1.Deployment) {
					d.Spec.Template.Spec.Containers[0].Env[0] = corev1.EnvVar{Name: "MODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
				})
			},
			want: []v1beta1.Drift{{Kind: "Deployment", Field: `.spec.template.spec.containers[name="app"].env[name="MODE"].value`, Desired: redacted}},
		},
		"two-fields": {
			manager: "kubectl-edit",
			change: func(w *fixture, manager, name string) {
				harness.Update(w, manager, name, &appsv1.Deployment{}, func(d *appsv1.Deployment) {
					d.Spec.Replicas = ptr.To[int32](4)
					d.Spec.Template.Spec.Containers[0].Image = otherImage
				})
			},
			want: []v1beta1.Drift{
				{Kind: "Deployment", Field: ".spec.replicas", Desired: "2", Found: "4"},
				{Kind: "Deployment", Field: `.spec.template.spec.containers[name="app"].image`, Desired: `"registry.test/shop:1"`, Found: `"registry.test/shop:2"`},
			},
		},
		"selector": {
			manager: "kubectl-patch",
			change: func(w *fixture, manager, name string) {
				w.Expect(w.As(manager).Patch(w.Ctx, harness.Read(w, name, &corev1.Service{}), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"selector":{"app.kubernetes.io/name":"else"}}}`)))).To(Succeed())
			},
			want: []v1beta1.Drift{{Kind: "Service", Field: ".spec.selector", Desired: `{"app.kubernetes.io/name":"selector"}`, Found: `{"app.kubernetes.io/name":"else"}`}},
		},
		"data": {
			manager: "Mozilla",
			change: func(w *fixture, manager, name string) {
				harness.Update(w, manager, name, &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data["GREETING"] = "bye" })
			},
			want: []v1beta1.Drift{{Kind: "ConfigMap", Field: ".data.GREETING", Desired: redacted, Found: redacted}},
		},
		// The API server keeps no account of who removes a field.
		"data-removed": {
			manager: "kubectl-edit",
			change: func(w *fixture, manager, name string) {
				harness.Update(w, manager, name, &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { delete(c.Data, "GREETING") })
			},
			want: []v1beta1.Drift{{Kind: "ConfigMap", Field: ".data.GREETING", Desired: redacted}},
		},
		"label-removed": {
			manager: "kubectl-label",
			change: func(w *fixture, manager, name string) {
				harness.Update(w, manager, name, &corev1.Service{}, func(s *corev1.Service) { delete(s.Labels, "app.kubernetes.io/managed-by") })
			},
			want: []v1beta1.Drift{{Kind: "Service", Field: ".metadata.labels.app.kubernetes.io/managed-by", Desired: `"fixpoint"`}},
		},
		"max-replicas": {
			edits:   []edit{autoscaled(2, 5)},
			manager: "kubectl-edit",
			change: func(w *fixture, manager, name string) {
				harness.Update(w, manager, name, &autoscalingv2.HorizontalPodAutoscaler{}, func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MaxReplicas = 50 })
			},
			want: []v1beta1.Drift{{Kind: "HorizontalPodAutoscaler", Field: ".spec.maxReplicas", Desired: "5", Found: "50"}},
		},
		"budget": {
			edits:   []edit{budget(&v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))})},
			manager: "kubectl-edit",
			change: func(w *fixture, manager, name string) {
				harness.Update(w, manager, name, &policyv1.PodDisruptionBudget{}, func(b *policyv1.PodDisruptionBudget) {
					b.Spec.MaxUnavailable = ptr.To(intstr.FromString("100%"))
				})
			},
			want: []v1beta1.Drift{{Kind: "PodDisruptionBudget", Field: ".spec.maxUnavailable", Desired: "1", Found: `"100%"`}},
		},
		"other-budget": {
			edits:   []edit{budget(&v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))})},
			manager: "kubectl-edit",
			change: func(w *fixture, manager, name string) {
				harness.Update(w, manager, name, &policyv1.PodDisruptionBudget{}, func(b *policyv1.PodDisruptionBudget) {
					b.Spec.MaxUnavailable, b.Spec.MinAvailable = nil, ptr.To(intstr.FromInt32(1))
				})
			},
			want: []v1beta1.Drift{{Kind: "PodDisruptionBudget", Field: ".spec.maxUnavailable", Desired: "1"}},
		},
		"ingress-host": {
			edits:   []edit{ingress(&v1beta1.Ingress{Host: "a.test", IngressClassName: ptr.To(ingressClass)})},
			manager: "kubectl-edit",
			change: func(w *fixture, manager, name string) {
				harness.Update(w, manager, name, &networkingv1.Ingress{}, func(in *networkingv1.Ingress) { in.Spec.IngressClassName = ptr.To("other") })
			},
			want: []v1beta1.Drift{{Kind: "Ingress", Field: ".spec.ingressClassName", Desired: `"shared"`, Found: `"other"`}},
		},
		// Another applier with --force-conflicts, as a GitOps tool is.
		"forced-apply": {
			manager: "argocd-controller",
			change: func(w *fixture, manager, name string) {
				raw := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q},"spec":{"replicas":7}}`, name)
				w.Expect(w.As(manager).Patch(w.Ctx, w.deployment(name), client.RawPatch(types.ApplyPatchType, []byte(raw)), client.ForceOwnership)).To(Succeed())
			},
			want: []v1beta1.Drift{{Kind: "Deployment", Field: ".spec.replicas", Desired: "2", Found: "7"}},
		},
	}
	for kind := range childKinds {
		if !slices.ContainsFunc(slices.Collect(maps.Values(cases)), func(c driftCase) bool { return c.want[0].Kind == kind }) {
			t.Errorf("no case changes a %s: add one", kind)
		}
	}
	shared := newManagedFixture(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := shared.sub(t, name)
			w.createReady(name, append([]edit{config("GREETING", "hello"), env(corev1.EnvVar{Name: "MODE", Value: "fast"})}, c.edits...)...)
			kind := c.want[0].Kind
			before := harness.Read(w, name, childKinds[kind]())
			began := time.Now().Truncate(time.Second) // times of a status have whole seconds

			c.change(w, c.manager, name)

			app := harness.Eventually(w, name, &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
				g.Expect(a.Status.Drifts).To(HaveLen(len(c.want)))
			})
			for i, want := range c.want {
				want.Name, want.Action = name, v1beta1.DriftCorrected
				if want.Found != "" {
					want.Manager = c.manager
				}
				w.Expect(app.Status.Drifts[i]).To(Satisfy(sameDrift(want)), "%+v", app.Status.Drifts[i])
				w.Expect(app.Status.Drifts[i].Time.Time).To(And(BeTemporally(">=", began), BeTemporally("<=", time.Now())))
				w.Eventually(func() []string { return w.events(name) }).Should(ContainElement(told(want)))
			}
			w.ready(name)
			w.Eventually(func() map[string]any { return substance(w, harness.Read(w, name, childKinds[kind]())) }).Should(Equal(substance(w, before)))
			w.Expect(app.Status.Drifts).To(HaveLen(len(c.want)))
		})
	}
}

// redacted is what is quoted of values that may be confidential.
const redacted = `"(redacted)"`

// told is the Event about a drift that was corrected.
func told(d v1beta1.Drift) string {
	who := d.Manager
	if who == "" {
		who = "an unknown field manager"
	}
	what := fmt.Sprintf("%s changed %s from %s to %s", who, d.Field, d.Desired, d.Found)
	if d.Found == "" {
		what = fmt.Sprintf("%s removed %s (was %s)", who, d.Field, d.Desired)
	}
	return fmt.Sprintf("Warning DriftCorrected %s %s: %s; reverted", d.Kind, d.Name, what)
}

func TestRestoresRemovedOwnerReference(t *testing.T) {
	w := newManagedFixture(t)
	app := w.createReady("web", everything)

	for kind, newObject := range childKinds {
		child := harness.Update(w, "kubectl-edit", "web", newObject(), func(o client.Object) { o.SetOwnerReferences(nil) })

		harness.Eventually(w, "web", newObject(), func(g Gomega, o client.Object) {
			g.Expect(o.GetOwnerReferences()).To(HaveLen(1), kind)
			g.Expect(o.GetOwnerReferences()[0].UID).To(Equal(app.UID), kind)
			g.Expect(o.GetUID()).To(Equal(child.GetUID()), "%s is the same object as before", kind)
		})
		harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
			g.Expect(a.Status.Drifts).To(ContainElement(And(
				HaveField("Kind", kind), HaveField("Field", HavePrefix(".metadata.ownerReferences")), HaveField("Action", v1beta1.DriftCorrected))))
		})
	}
	w.ready("web")
}

// TestRecreatesDeletedChild deletes every child, as kubectl does by default and as it does
// with --cascade=foreground.
func TestRecreatesDeletedChild(t *testing.T) {
	shared := newManagedFixture(t)
	for kind, newObject := range childKinds {
		for _, how := range []string{"Background", "Foreground"} {
			name := strings.ToLower(kind + "-" + how)
			t.Run(kind+"/"+how, func(t *testing.T) {
				w := shared.sub(t, name)
				w.createReady(name, everything)
				before := harness.Read(w, name, newObject())

				w.Expect(api.Delete(w.Ctx, before, client.PropagationPolicy(how))).To(Succeed())

				after := harness.Eventually(w, name, newObject(), func(g Gomega, o client.Object) {
					g.Expect(o.GetUID()).NotTo(Equal(before.GetUID()))
				})
				w.Expect(after.GetLabels()).To(Equal(before.GetLabels()))
				harness.Eventually(w, name, &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
					g.Expect(conditions(a)).To(HaveKeyWithValue("Ready", "True Ready"))
					g.Expect(a.Status.Drifts).To(HaveLen(1))
					g.Expect(a.Status.Drifts[0]).To(Satisfy(sameDrift(v1beta1.Drift{Kind: kind, Name: name, Action: v1beta1.DriftCorrected})))
				})
				w.Eventually(func() []string { return w.events(name) }).Should(ContainElement(
					"Warning DriftCorrected " + kind + " " + name + " was deleted; recreated"))
			})
		}
	}
}

func TestStatusKeepsTheLastTenDrifts(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web")

	for n := int32(3); n <= 14; n++ {
		w.Scale("kubectl", w.deployment("web"), n)
		harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
			g.Expect(a.Status.Drifts).NotTo(BeEmpty())
			g.Expect(a.Status.Drifts[0].Found).To(Equal(fmt.Sprint(n)))
		})
	}

	drifts := w.ready("web").Status.Drifts
	w.Expect(drifts).To(HaveLen(v1beta1.DefaultDriftHistoryLimit))
	w.Expect(drifts[0].Found).To(Equal("14"))
	w.Expect(drifts[9].Found).To(Equal("5"))
}

func TestRevertsStatusEditedByHand(t *testing.T) {
	w := newManagedFixture(t)
	before := w.createReady("web")
	w.Settled()

	w.Expect(w.As("kubectl-edit").Status().Patch(w.Ctx, before.DeepCopy(), client.RawPatch(types.MergePatchType,
		[]byte(`{"status":{"phase":"Failed","url":"http://evil.test","readyReplicas":0,"observedGeneration":99,"conditions":[{"type":"Ready","status":"False","reason":"Lie","message":"not true","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`)))).To(Succeed())

	harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
		g.Expect(conditions(a)).To(Equal(conditions(before)))
		g.Expect(a.Status.Phase).To(Equal(v1beta1.PhaseRunning))
		g.Expect(a.Status.URL).To(Equal(before.Status.URL))
		g.Expect(a.Status.ReadyReplicas).To(Equal(before.Status.ReadyReplicas))
		g.Expect(a.Status.ObservedGeneration).To(Equal(a.Generation))
	})
}
