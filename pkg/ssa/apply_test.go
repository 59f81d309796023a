package ssa

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

func TestDriftOfASecretQuotesNoValue(t *testing.T) {
	g, server := NewWithT(t), newServer()
	applier := newBenchApplier(t, server)
	desired := func() *corev1ac.SecretApplyConfiguration {
		return corev1ac.Secret("s", "n").WithData(map[string][]byte{"password": []byte("desired")})
	}
	applied, err := applier.Apply(context.Background(), Request{Desired: desired(), Owner: ownedBy("o")})
	g.Expect(err).NotTo(HaveOccurred())
	live, _ := applied.Live.(*corev1.Secret)
	live.Data["password"] = []byte("actual")
	g.Expect(server.Update(context.Background(), live, client.FieldOwner("kubectl-edit"))).To(Succeed())

	d, err := applier.Decide(Request{Desired: desired(), Live: live, Owner: ownedBy("o")})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Drifts).To(HaveLen(1))
	g.Expect(d.Drifts[0].String()).To(Equal(`kubectl-edit changed .data.password from "(redacted)" to "(redacted)"`))
}

func TestAdoptionFollowsThePolicyOfTheRequest(t *testing.T) {
	g, server := NewWithT(t), newServer()
	applier := newBenchApplier(t, server)
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, Data: map[string]string{"b": "1"}}
	g.Expect(server.Create(context.Background(), live)).To(Succeed())
	refused, adopted := applies.WithLabelValues("ConfigMap", "main", "NotOwned"), applies.WithLabelValues("ConfigMap", "main", "Adopt")
	beforeRefused, beforeAdopted := testutil.ToFloat64(refused), testutil.ToFloat64(adopted)
	request := Request{Desired: data("a", "1"), Live: live, Owner: ownedBy("o"), Adoption: AdoptNever}

	_, err := applier.Apply(context.Background(), request)
	typed := &Error{}
	g.Expect(errors.As(err, &typed)).To(BeTrue())
	g.Expect(typed.Reason).To(Equal(ReasonNotOwned))
	g.Expect(testutil.ToFloat64(refused) - beforeRefused).To(Equal(1.0))

	request.Adoption = AdoptIfUnowned
	result, err := applier.Apply(context.Background(), request)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Action).To(Equal(ActionAdopt))
	g.Expect(result.Drifts).To(BeEmpty())
	g.Expect(result.Live).To(HaveField("Data", map[string]string{"a": "1", "b": "1"}))
	g.Expect(testutil.ToFloat64(adopted) - beforeAdopted).To(Equal(1.0))
}

// The record says whose the object is, so a removed owner reference is drift, and no reason to adopt.
func TestOwnerReferenceThatWasRemovedIsRestored(t *testing.T) {
	g, server := NewWithT(t), newServer()
	applier := newBenchApplier(t, server)
	applied, err := applier.Apply(context.Background(), Request{Desired: data("a", "1"), Owner: ownedBy("o")})
	g.Expect(err).NotTo(HaveOccurred())
	applied.Live.SetOwnerReferences(nil)
	g.Expect(server.Update(context.Background(), applied.Live)).To(Succeed())

	result, err := newBenchApplier(t, server).Apply(context.Background(), Request{Desired: data("a", "1"), Live: applied.Live, Owner: ownedBy("o"), Adoption: AdoptNever})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Action).To(Equal(ActionCorrect))
	g.Expect(metav1.IsControlledBy(result.Live, &metav1.ObjectMeta{UID: "o"})).To(BeTrue())
}

func TestOutcomesAreCountedOnce(t *testing.T) {
	g, server := NewWithT(t), newServer()
	applier := newBenchApplier(t, server)
	var live client.Object
	for _, step := range []struct {
		value string
		want  Action
	}{{"1", ActionCreate}, {"1", ActionNone}, {"2", ActionUpdate}} {
		counter := applies.WithLabelValues("ConfigMap", "main", string(step.want))
		before := testutil.ToFloat64(counter)
		result, err := applier.Apply(context.Background(), Request{Desired: data("a", step.value), Live: live, Owner: ownedBy("o")})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.Action).To(Equal(step.want))
		g.Expect(testutil.ToFloat64(counter) - before).To(Equal(1.0))
		live = result.Live
	}
}

func TestWritesAreWhatExecuteSends(t *testing.T) {
	g, server := NewWithT(t), newServer()
	applier := newBenchApplier(t, server)
	former := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", OwnerReferences: []metav1.OwnerReference{*ownedBy("o")}}, Data: map[string]string{"b": "1"}}
	g.Expect(server.Create(context.Background(), former, client.FieldOwner(benchManager))).To(Succeed())
	for name, live := range map[string]client.Object{"a new object": nil, "an object of a former manager": former} {
		d, err := applier.Decide(Request{Desired: data("a", "1"), Live: live, Owner: ownedBy("o")})
		g.Expect(err).NotTo(HaveOccurred())
		entries, body, err := applier.Writes(d)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(body.Object).To(HaveKeyWithValue("data", map[string]any{"a": "1"}), name)
		if live == nil {
			g.Expect(entries).To(BeNil())
			g.Expect(body.GetResourceVersion()).To(Equal("1"), "no object has it, so the apply creates or fails")
			continue
		}
		g.Expect(entries).To(ConsistOf(And(HaveField("Manager", benchManager), HaveField("Operation", metav1.ManagedFieldsOperationApply))))
		g.Expect(body.GetUID()).To(Equal(former.UID))
	}
}

func TestOutcomesAreServedByTheManager(t *testing.T) {
	err := metrics.Registry.Register(applies)
	NewWithT(t).Expect(err).To(Equal(prometheus.AlreadyRegisteredError{ExistingCollector: applies, NewCollector: applies}))
}
