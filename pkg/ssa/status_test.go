package ssa

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// replicas is a status.
type replicas struct {
	Replicas      int32 `json:"replicas,omitempty"`
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
}

func statusOf(live client.Object, status replicas) Configuration {
	return StatusOf(live, appsv1.SchemeGroupVersion.WithKind("Deployment"), status)
}

// reported is a Deployment whose status the applier has written.
func reported(t *testing.T, server *countingServer) *appsv1.Deployment {
	t.Helper()
	live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d"}}
	g := NewWithT(t)
	g.Expect(server.Create(context.Background(), live)).To(Succeed())
	applied, err := newBenchApplier(t, server).ApplyStatus(context.Background(), statusOf(live, replicas{Replicas: 1}), live)
	g.Expect(err).NotTo(HaveOccurred())
	live, ok := applied.Live.(*appsv1.Deployment)
	g.Expect(ok).To(BeTrue())
	return live
}

func TestStatusIsSentOnlyIfItDiffers(t *testing.T) {
	for name, test := range map[string]struct {
		edit   func(*appsv1.Deployment) // by another manager
		status replicas
		sends  bool
	}{
		"as it was applied":              {status: replicas{Replicas: 1}},
		"another value":                  {status: replicas{Replicas: 2}, sends: true},
		"another field":                  {status: replicas{Replicas: 1, ReadyReplicas: 1}, sends: true},
		"a field of another manager":     {status: replicas{Replicas: 1}, edit: func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 5 }},
		"changed by another manager":     {status: replicas{Replicas: 1}, edit: func(d *appsv1.Deployment) { d.Status.Replicas = 5 }, sends: true},
		"its spec changed, not a status": {status: replicas{Replicas: 1}, edit: func(d *appsv1.Deployment) { d.Spec.Paused = true }},
	} {
		t.Run(name, func(t *testing.T) {
			g, server := NewWithT(t), newServer()
			live := reported(t, server)
			applier := newBenchApplier(t, server) // another process
			if test.edit != nil {
				paused := live.Spec.Paused
				test.edit(live)
				if live.Spec.Paused != paused {
					g.Expect(server.Update(context.Background(), live)).To(Succeed())
				} else {
					g.Expect(server.Status().Update(context.Background(), live)).To(Succeed())
				}
			}
			counter := applies.WithLabelValues("Deployment", "status", string(map[bool]Action{true: ActionUpdate, false: ActionNone}[test.sends]))
			before, counted := server.requests, testutil.ToFloat64(counter)

			result, err := applier.ApplyStatus(context.Background(), statusOf(live, test.status), live)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.Action == ActionUpdate).To(Equal(test.sends))
			g.Expect(server.requests > before).To(Equal(test.sends))
			g.Expect(testutil.ToFloat64(counter) - counted).To(Equal(1.0))
			g.Expect(result.Live).To(HaveField("Status.Replicas", test.status.Replicas))
			if !test.sends {
				g.Expect(result.Live).To(BeIdenticalTo(live))
			}
			before = server.requests
			again, err := applier.ApplyStatus(context.Background(), statusOf(live, test.status), result.Live)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(Equal(Result{Action: ActionNone, Live: result.Live}))
			g.Expect(server.requests).To(Equal(before))
		})
	}
}

func TestStatusOfAnotherObjectIsStale(t *testing.T) {
	for name, change := range map[string]func(*appsv1.Deployment){
		"an old version":    func(d *appsv1.Deployment) { d.ResourceVersion = "1" },
		"recreated":         func(d *appsv1.Deployment) { d.UID = "another" },
		"it does not exist": func(d *appsv1.Deployment) { d.Name = "gone" },
	} {
		t.Run(name, func(t *testing.T) {
			g, server := NewWithT(t), newServer()
			live := reported(t, server)
			change(live)
			_, err := newBenchApplier(t, server).ApplyStatus(context.Background(), statusOf(live, replicas{Replicas: 2}), live)
			g.Expect(IsStale(err)).To(BeTrue(), "%v", err)
		})
	}
}

func TestStatusOfAFormerManagerIsReplaced(t *testing.T) {
	g, server := NewWithT(t), newServer()
	live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d"}}
	g.Expect(server.Create(context.Background(), live)).To(Succeed())
	live.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1}
	g.Expect(server.Status().Update(context.Background(), live, client.FieldOwner(benchManager))).To(Succeed())
	server.Writes()

	result, err := newBenchApplier(t, server).ApplyStatus(context.Background(), statusOf(live, replicas{Replicas: 1}), live)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Live).To(HaveField("Status", appsv1.DeploymentStatus{Replicas: 1}))
	g.Expect(hasEntry(result.Live, benchManager+migrationSuffix)).To(BeFalse())
}

func TestMalformedStatusIsRefused(t *testing.T) {
	g, server := NewWithT(t), newServer()
	live := reported(t, server)
	before := server.requests
	applier := newBenchApplier(t, server)
	_, err := applier.ApplyStatus(context.Background(), statusOf(live, replicas{Replicas: 1}), nil)
	g.Expect(err).To(MatchError("applying the status of Deployment n/d: the live object is nil"))
	_, err = applier.ApplyStatus(context.Background(), statusOf(&appsv1.Deployment{}, replicas{}), live)
	g.Expect(err).To(MatchError(ContainSubstring("has no metadata.name")))
	g.Expect(server.requests).To(Equal(before))
}

// TestDryRunChangesNothing: it is answered as the write would be, whatever the applier sends.
func TestDryRunChangesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(a *Applier, live *appsv1.Deployment) (Action, error)
		want Action
	}{
		"a status that differs": {func(a *Applier, live *appsv1.Deployment) (Action, error) {
			result, err := a.ApplyStatus(context.Background(), statusOf(live, replicas{Replicas: 7}), live)
			return result.Action, err
		}, ActionUpdate},
		"an object that does not exist": {func(a *Applier, _ *appsv1.Deployment) (Action, error) {
			result, err := a.Apply(context.Background(), Request{Desired: data("a", "1"), Owner: ownedBy("o")})
			return result.Action, err
		}, ActionCreate},
		"a finalizer": {func(a *Applier, live *appsv1.Deployment) (Action, error) {
			finalized, err := a.EnsureFinalizer(context.Background(), live, teardown)
			if err == nil && len(finalized.GetFinalizers()) == 1 {
				return ActionUpdate, nil
			}
			return ActionNone, err
		}, ActionUpdate},
		"a deletion": {func(a *Applier, live *appsv1.Deployment) (Action, error) {
			live.OwnerReferences = []metav1.OwnerReference{*ownedBy("o")}
			_, err := a.Delete(context.Background(), live, *ownedBy("o"), background)
			return ActionDelete, err
		}, ActionDelete},
	} {
		t.Run(name, func(t *testing.T) {
			g, server := NewWithT(t), newServer()
			live := reported(t, server)
			applier := newBenchApplier(t, server)
			server.Writes()

			for range 2 { // it remembers nothing either
				action, err := test.do(applier.DryRun(), live.DeepCopy())
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(action).To(Equal(test.want))
			}

			g.Expect(server.Writes()).To(BeEmpty())
		})
	}
}

func TestDryRunOfAnUpdateSaysWhetherAnythingChanges(t *testing.T) {
	g, server := NewWithT(t), newServer()
	applier := newBenchApplier(t, server)
	created, err := applier.Apply(context.Background(), Request{Desired: data("a", "1"), Owner: ownedBy("o")})
	g.Expect(err).NotTo(HaveOccurred())
	server.Writes()
	for value, want := range map[string]Action{"1": ActionNone, "2": ActionUpdate} {
		result, err := applier.DryRun().Apply(context.Background(), Request{Desired: data("a", value), Owner: ownedBy("o"), Live: created.Live})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.Action).To(Equal(want))
		g.Expect(result.Live).To(HaveField("Data", map[string]string{"a": value}))
	}
	g.Expect(server.Writes()).To(BeEmpty())
}

// A version whose status was found as desired, or was answered so, is not compared again.
func TestStatusOfOneVersionIsComparedOnce(t *testing.T) {
	g, server := NewWithT(t), newServer()
	live := reported(t, server)
	applier := newBenchApplier(t, server)
	for _, status := range []replicas{{Replicas: 1}, {Replicas: 2}} {
		result, err := applier.ApplyStatus(t.Context(), statusOf(live, status), live)
		g.Expect(err).NotTo(HaveOccurred())
		live, _ = result.Live.(*appsv1.Deployment)
		stripped := live.DeepCopy()
		stripped.ManagedFields = nil
		before := server.requests
		g.Expect(applier.ApplyStatus(t.Context(), statusOf(live, status), stripped)).To(Equal(Result{Action: ActionNone, Live: stripped}))
		g.Expect(server.requests).To(Equal(before))
	}
}

func TestConfigurationWithoutAStatusChangesNothing(t *testing.T) {
	g, server := NewWithT(t), newServer()
	live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d"}}
	g.Expect(server.Create(t.Context(), live)).To(Succeed())
	result, err := newBenchApplier(t, server).ApplyStatus(t.Context(), appsv1ac.Deployment("d", "n"), live)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Action).To(Equal(ActionNone))
	g.Expect(result.Live).To(HaveField("ResourceVersion", live.ResourceVersion))
}

func TestStatusThatCannotBeComparedIsAnError(t *testing.T) {
	for name, edit := range map[string]func(g *WithT, a *Applier, live *appsv1.Deployment) client.Object{
		"the object": func(_ *WithT, _ *Applier, live *appsv1.Deployment) client.Object { return &unreadable{Object: live} },
		"the answer to the last apply": func(g *WithT, a *Applier, live *appsv1.Deployment) client.Object {
			answered, err := a.prepare(statusOf(live, replicas{Replicas: 1}), nil, statusSubresource)
			g.Expect(err).NotTo(HaveOccurred())
			answered.expect("[]")
			a.remember(answered, live)
			appliedEntry(live, benchManager, statusSubresource).FieldsV1 = metav1.NewFieldsV1("[]")
			live.ResourceVersion = "another"
			return live
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, server := NewWithT(t), newServer()
			live, applier := reported(t, server), newBenchApplier(t, server)
			_, err := applier.ApplyStatus(t.Context(), statusOf(live, replicas{Replicas: 1}), edit(g, applier, live))
			g.Expect(err).To(MatchError(HavePrefix("comparing the status of Deployment n/d: ")))
		})
	}
}
