package ssa

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestExecuteSendsOnePatchAndOneApply: migration, handing over and removing fields are one patch.
func TestExecuteSendsOnePatchAndOneApply(t *testing.T) {
	g, server := NewWithT(t), newServer()
	surge := intstr.FromInt32(1)
	live := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d", OwnerReferences: []metav1.OwnerReference{*ownedBy("o")}, Labels: map[string]string{"former": "x"}},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(5)), Strategy: appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge},
		}},
	}
	g.Expect(server.Create(context.Background(), live, client.FieldOwner(benchManager))).To(Succeed())
	server.Writes()

	result, err := newBenchApplier(t, server).Apply(context.Background(), Request{
		Desired: appsv1ac.Deployment("d", "n").WithSpec(appsv1ac.DeploymentSpec().
			WithStrategy(appsv1ac.DeploymentStrategy().WithType(appsv1.RecreateDeploymentStrategyType))),
		Live: live, Owner: ownedBy("o"),
		HandOver: []string{"spec.replicas"}, RemoveFields: []string{"spec.strategy.rollingUpdate"},
	})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Action).To(Equal(ActionUpdate))
	g.Expect(server.Writes()).To(Equal([]string{"patch Deployment d", "update Deployment d"}))
	applied, _ := result.Live.(*appsv1.Deployment)
	g.Expect(applied.Spec.Replicas).To(HaveValue(Equal(int32(5))))
	g.Expect(applied.Spec.Strategy).To(Equal(appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}))
	g.Expect(applied.Labels).To(BeEmpty())
}

// TestDropsFieldsThatBeforeFirstApplyHolds: the API server gives every field of an object without
// managed fields to before-first-apply, and a field that two managers hold would stay.
func TestDropsFieldsThatBeforeFirstApplyHolds(t *testing.T) {
	for name, owner := range map[string]*metav1.OwnerReference{"adopted": ownedBy("o"), "shared": nil} {
		t.Run(name, func(t *testing.T) {
			g, server := NewWithT(t), newServer()
			applier := newBenchApplier(t, server)
			live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, Data: map[string]string{"a": "1", "b": "1"}}
			g.Expect(server.Create(context.Background(), live)).To(Succeed())
			wipe := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`))
			g.Expect(server.Patch(context.Background(), live, wipe)).To(Succeed())
			request := Request{Desired: data("a", "1"), Live: live, Owner: owner, Adoption: AdoptIfUnowned}
			taken, err := applier.Apply(context.Background(), request)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(hasEntry(taken.Live, beforeFirstApply)).To(BeTrue())
			server.Writes()

			request.Desired, request.Live = data(), taken.Live
			dropped, err := applier.Apply(context.Background(), request)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(dropped.Live).To(HaveField("Data", map[string]string{"b": "1"}))
			g.Expect(server.Writes()).To(Equal([]string{"patch ConfigMap c", "update ConfigMap c"}))
		})
	}
}

func hasEntry(live client.Object, manager string) bool {
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == manager {
			return true
		}
	}
	return false
}

// TestExecuteIsStaleWhenTheObjectHasChanged: the caller reads the object again, and decides again.
func TestExecuteIsStaleWhenTheObjectHasChanged(t *testing.T) {
	for name, test := range map[string]struct {
		cached func(live client.Object) client.Object
		desire []string
		shared bool
	}{
		"created meanwhile": {cached: func(client.Object) client.Object { return nil }},
		"shared, and created meanwhile with another value": {cached: func(client.Object) client.Object { return nil }, desire: []string{"a", "2"}, shared: true},
		"changed meanwhile, with managed fields to replace": {desire: []string{"a", "2"}, cached: func(live client.Object) client.Object {
			live.SetManagedFields(append(live.GetManagedFields(), managed(benchManager, byUpdate, "", `{"f:data":{"f:z":{}}}`)))
			live.SetResourceVersion("1")
			return live
		}},
		"recreated meanwhile": {cached: func(live client.Object) client.Object { live.SetUID("another"); return live }, desire: []string{"a", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			g, server := NewWithT(t), newServer()
			applier := newBenchApplier(t, server)
			created, err := applier.Apply(context.Background(), Request{Desired: data("a", "1"), Owner: ownedBy("o")})
			g.Expect(err).NotTo(HaveOccurred())
			request := Request{Desired: data(test.desire...), Owner: ownedBy("o"), Live: test.cached(created.Live)}
			if test.shared {
				applier, err = New(Options{Client: server, FieldManager: "another"})
				g.Expect(err).NotTo(HaveOccurred())
				request.Owner = nil
			}
			d, err := applier.Decide(request)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(d.Writes()).To(BeTrue())

			_, err = applier.Execute(context.Background(), d)

			g.Expect(IsStale(err)).To(BeTrue(), "%v", err)
		})
	}
}

func TestApplyGivesUpWhenTheObjectKeepsChanging(t *testing.T) {
	g, server := NewWithT(t), newServer()
	missing := &emptyReader{Client: server}
	applier, err := New(Options{Client: server, Reader: missing, FieldManager: benchManager})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = newBenchApplier(t, server).Apply(context.Background(), Request{Desired: data("a", "1"), Owner: ownedBy("o")})
	g.Expect(err).NotTo(HaveOccurred())
	before := server.requests

	_, err = applier.Apply(context.Background(), Request{Desired: data("a", "1"), Owner: ownedBy("o")})

	g.Expect(IsStale(err)).To(BeTrue(), "%v", err)
	g.Expect(server.requests - before).To(Equal(attempts))
	g.Expect(missing.reads).To(Equal(attempts - 1))
}

// emptyReader finds nothing.
type emptyReader struct {
	client.Client
	reads int
}

func (r *emptyReader) Get(ctx context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.reads++
	return r.Client.Get(ctx, client.ObjectKey{Namespace: "none", Name: "none"}, into)
}

func TestExecuteOfADecisionWithoutAWriteSendsNothing(t *testing.T) {
	for _, action := range []Action{ActionNone, ActionReport} {
		g := NewWithT(t)
		server, live := newServer(), &corev1.ConfigMap{}

		result, err := newBenchApplier(t, server).Execute(context.Background(), Decision{Request: Request{Live: live}, Action: action, Left: true})

		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result).To(Equal(Result{Action: action, Live: live, Left: true}))
		g.Expect(server.requests).To(BeZero())
	}
}

func TestExecuteRefusesADecisionThatDecideDidNotReturn(t *testing.T) {
	_, err := newBenchApplier(t, newServer()).Execute(context.Background(), Decision{Action: ActionCreate})
	NewWithT(t).Expect(err).To(MatchError("executing a decision that Decide did not return"))
}

func TestApplyFailsIfItCannotReadPastTheCache(t *testing.T) {
	g, server := NewWithT(t), newServer()
	g.Expect(server.Create(t.Context(), owned("c", "o"))).To(Succeed())
	applier, err := New(Options{Client: server, Reader: brokenReader{}, FieldManager: benchManager})
	g.Expect(err).NotTo(HaveOccurred())

	_, err = applier.Apply(t.Context(), Request{Desired: data("a", "1"), Owner: ownedBy("o")})

	g.Expect(err).To(MatchError(HavePrefix("reading ConfigMap n/c: ")))
}

func TestSendRefusesWhatHasNoJSON(t *testing.T) {
	_, err := newBenchApplier(t, newServer()).send(t.Context(), deployment, &unstructured.Unstructured{Object: map[string]any{"spec": func() {}}}, true, "")
	NewWithT(t).Expect(err).To(MatchError(HavePrefix("serializing the apply configuration of Deployment shop/web: ")))
}

// An object that is created is written with force, so that one that was created meanwhile is stale, and no conflict.
func TestRequestsCarryTheManagerAndForceWhatIsOwnedOrNew(t *testing.T) {
	type request struct {
		manager            string
		force, doesNotWait bool
	}
	for name, test := range map[string]struct {
		exists, owned, dryRun bool
		want                  []request
	}{
		"a new object that is owned":          {owned: true, want: []request{{benchManager, true, false}}},
		"a new object that is shared":         {want: []request{{benchManager, true, false}}},
		"a dry run":                           {owned: true, dryRun: true, want: []request{{benchManager, true, true}}},
		"an owned object of earlier writes":   {exists: true, owned: true, want: []request{{benchManager + "-migration", false, false}, {benchManager, true, false}}},
		"a shared object of earlier writes":   {exists: true, want: []request{{benchManager + "-migration", false, false}, {benchManager, false, false}}},
		"a dry run for one of earlier writes": {exists: true, owned: true, dryRun: true, want: []request{{benchManager, true, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			g, server, req := NewWithT(t), newServer(), Request{Desired: data("a", "1")}
			applier := newBenchApplier(t, server)
			if test.exists {
				req.Live = owned("c", "o")
				g.Expect(server.Create(t.Context(), req.Live, client.FieldOwner(benchManager))).To(Succeed())
			}
			if test.owned {
				req.Owner = ownedBy("o")
			}
			if test.dryRun {
				applier = applier.DryRun()
			}

			_, err := applier.Apply(t.Context(), req)

			g.Expect(err).NotTo(HaveOccurred())
			var sent []request
			for _, patch := range server.patches {
				sent = append(sent, request{patch.options.FieldManager, patch.options.Force != nil, patch.options.DisableReadYourWritesConsistency})
				g.Expect(patch.options.FieldValidation).To(Equal(metav1.FieldValidationIgnore), "the API server parses it once")
			}
			g.Expect(sent).To(Equal(test.want))
		})
	}
}

// The API server would answer a dry run as if the other managers kept their fields.
func TestDryRunIsNotSentWhereOtherManagersMustLoseFieldsFirst(t *testing.T) {
	add := func(entry metav1.ManagedFieldsEntry) func(client.Object) {
		return func(live client.Object) { live.SetManagedFields(append(live.GetManagedFields(), entry)) }
	}
	for name, test := range map[string]struct {
		edit    func(*corev1.ConfigMap)
		holds   func(live client.Object)
		desired []string
		remove  string
		sent    int
	}{
		"the applier alone holds the removed field": {desired: []string{"a", "1"}, remove: "data.b", sent: 1},
		"another manager holds the removed field":   {edit: func(c *corev1.ConfigMap) { c.Data["b"] = "9" }, desired: []string{"a", "1"}, remove: "data.b"},
		"an earlier version of the operator wrote":  {holds: add(managed(benchManager, byUpdate, "", `{"f:data":{"f:z":{}}}`)), desired: []string{"a", "2"}, sent: 1},
		"another manager holds what becomes empty":  {holds: add(managed("other", byUpdate, "", `{"f:data":{}}`))},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			applier, live, owner := appliedThenEdited(t, decideTest{edit: test.edit})
			if test.holds != nil {
				test.holds(live)
			}
			server, _ := applier.client.(*countingServer)
			server.requests = 0

			result, err := applier.DryRun().Apply(t.Context(), Request{Desired: data(test.desired...), Live: live, Owner: owner, RemoveFields: []string{test.remove}})

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.Action).To(Equal(ActionUpdate))
			g.Expect(server.requests).To(Equal(test.sent))
			if test.sent == 0 {
				g.Expect(result.Live).To(BeIdenticalTo(live))
			}
		})
	}
}

func TestNothingIsAppliedIfManagedFieldsCannotBeReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		act func(*Applier, client.Object) error
		err string
	}{
		"apply": {func(a *Applier, live client.Object) error {
			_, err := a.Apply(t.Context(), Request{Desired: appsv1ac.Deployment("d", "n"), Owner: ownedBy("o"), Live: live})
			return err
		}, "Deployment n/d: "},
		"apply a status": {func(a *Applier, live client.Object) error {
			_, err := a.ApplyStatus(t.Context(), statusOf(live, replicas{Replicas: 2}), live)
			return err
		}, "Deployment n/d: "},
		"remove a finalizer": {func(a *Applier, live client.Object) error {
			return a.RemoveFinalizer(t.Context(), live, teardown)
		}, "removing the finalizer test.example/teardown of Deployment n/d from its other managers: "},
	} {
		t.Run(name, func(t *testing.T) {
			g, server := NewWithT(t), newServer()
			live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d", Finalizers: []string{teardown}, OwnerReferences: []metav1.OwnerReference{*ownedBy("o")}}}
			g.Expect(server.Create(t.Context(), live, client.FieldOwner(benchManager))).To(Succeed())
			live.Status.Replicas = 1
			g.Expect(server.Status().Update(t.Context(), live, client.FieldOwner(benchManager))).To(Succeed())
			server.Writes()
			server.refuse = "patch"

			err := test.act(newBenchApplier(t, server), live)

			g.Expect(err).To(MatchError(HavePrefix(test.err)))
			typed, _ := errors.AsType[*Error](err)
			g.Expect(typed).To(HaveField("Reason", ReasonForbidden))
			g.Expect(server.Writes()).To(BeEmpty())
		})
	}
}

// What was left out of the apply must show as missing in the next decision, although the API server answered without it.
func TestDriftThatWasLeftIsReportedAgain(t *testing.T) {
	g := NewWithT(t)
	applier, live, owner := appliedThenEdited(t, decideTest{edit: func(c *corev1.ConfigMap) { c.Data["a"] = "9" }})
	request := Request{Desired: data("a", "1", "b", "2"), Live: live, Owner: owner, Drift: ReportDrift}
	for _, want := range []Action{ActionUpdate, ActionReport} {
		result, err := applier.Apply(t.Context(), request)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.Action).To(Equal(want))
		g.Expect(result.Left).To(BeTrue())
		g.Expect(result.Drifts).To(ConsistOf(HaveField("Path", ".data.a")))
		g.Expect(result.Live).To(HaveField("Data", map[string]string{"a": "9", "b": "2"}))
		request.Live = result.Live
	}
}

// strippingServer answers without managed fields, as a client does that drops them.
type strippingServer struct{ *countingServer }

func (s strippingServer) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	err := s.countingServer.Patch(ctx, object, patch, opts...)
	object.SetManagedFields(nil)
	return err
}

func TestAnswerMayLackManagedFields(t *testing.T) {
	g := NewWithT(t)
	applier, err := New(Options{Client: strippingServer{newServer()}, FieldManager: benchManager})
	g.Expect(err).NotTo(HaveOccurred())
	result, err := applier.Apply(t.Context(), Request{Desired: data("a", "1"), Owner: ownedBy("o")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Action).To(Equal(ActionCreate))
}
