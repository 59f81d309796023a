package ssa

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	m, err := parseManagedFields(live)
	if err != nil {
		return false
	}
	for _, entry := range m.entries {
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
		"recreated meanwhile":                              {cached: func(live client.Object) client.Object { live.SetUID("another"); return live }, desire: []string{"a", "2"}},
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
	typed := &Error{}
	NewWithT(t).Expect(err).To(HaveOccurred())
	NewWithT(t).Expect(errors.As(err, &typed)).To(BeFalse())
}
