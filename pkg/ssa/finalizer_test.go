package ssa

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestEnsureFinalizerSendsNothingIfItExists(t *testing.T) {
	for name, test := range map[string]struct {
		finalizers []string
		sends      bool
	}{
		"none":                                 {sends: true},
		"that of another manager":              {finalizers: []string{teardown}},
		"another finalizer of another manager": {finalizers: []string{"other.example/x"}, sends: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, server := NewWithT(t), newServer()
			live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", Finalizers: test.finalizers}}
			g.Expect(server.Create(context.Background(), live)).To(Succeed())
			before := server.requests

			finalized, err := newBenchApplier(t, server).EnsureFinalizer(context.Background(), live, teardown)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(finalized.GetFinalizers()).To(ContainElements(teardown))
			g.Expect(finalized.GetFinalizers()).To(ContainElements(test.finalizers))
			g.Expect(server.requests > before).To(Equal(test.sends))
			if entry := appliedEntry(finalized, benchManager, ""); entry != nil && test.sends {
				g.Expect(entry.FieldsV1.GetRawString()).To(MatchJSON(`{"f:metadata":{"f:finalizers":{"v:\"test.example/teardown\"":{}}}}`), "what other managers have added stays managed by them")
			}
		})
	}
}

func TestRemoveFinalizerRemovesThatOfAnotherManager(t *testing.T) {
	g, server := NewWithT(t), newServer()
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", Finalizers: []string{teardown, "other.example/x"}}}
	g.Expect(server.Create(context.Background(), live, client.FieldOwner("kubectl"))).To(Succeed())
	applier := newBenchApplier(t, server)

	g.Expect(applier.RemoveFinalizer(context.Background(), live, teardown)).To(Succeed())

	now := &corev1.ConfigMap{}
	g.Expect(server.Get(context.Background(), client.ObjectKeyFromObject(live), now)).To(Succeed())
	g.Expect(now.Finalizers).To(ConsistOf("other.example/x"))
	before := server.requests
	g.Expect(applier.RemoveFinalizer(context.Background(), now, teardown)).To(Succeed())
	g.Expect(server.requests).To(Equal(before), "it is gone")
}

func TestFinalizersOfUnknownKindsAreErrors(t *testing.T) {
	g, applier := NewWithT(t), newBenchApplier(t, newServer())
	unknown := &unknownKind{}
	unknown.SetFinalizers([]string{teardown})
	g.Expect(applier.RemoveFinalizer(context.Background(), unknown, teardown)).To(MatchError(HavePrefix("finding the kind of *ssa.unknownKind: ")))
	_, err := applier.EnsureFinalizer(context.Background(), unknown, "other.example/x")
	g.Expect(err).To(MatchError(HavePrefix("finding the kind of *ssa.unknownKind: ")))
	_, err = applier.Delete(context.Background(), unknown, *ownedBy("o"), background)
	g.Expect(err).To(MatchError(HavePrefix("finding the kind of *ssa.unknownKind: ")))
}

// unknownKind is a type that no scheme has.
type unknownKind struct{ corev1.ConfigMap }

const teardown = "test.example/teardown"

// TestFinalizersOfASuccessorStay: what was read was deleted, and another object has its name.
func TestFinalizersOfASuccessorStay(t *testing.T) {
	for name, act := range map[string]func(*Applier, client.Object) error{
		"a finalizer is removed": func(a *Applier, read client.Object) error {
			return a.RemoveFinalizer(context.Background(), read, teardown)
		},
		"a finalizer is added": func(a *Applier, read client.Object) error {
			read.SetFinalizers(nil)
			_, err := a.EnsureFinalizer(context.Background(), read, "test.example/another")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, server := NewWithT(t), newServer()
			applier := newBenchApplier(t, server)
			create := func() client.Object {
				created := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
				g.Expect(server.Create(context.Background(), created)).To(Succeed())
				finalized, err := applier.EnsureFinalizer(context.Background(), created, teardown)
				g.Expect(err).NotTo(HaveOccurred())
				return finalized
			}
			read := create()
			g.Expect(applier.RemoveFinalizer(context.Background(), read, teardown)).To(Succeed())
			g.Expect(server.Delete(context.Background(), read)).To(Succeed())
			successor := create()

			err := act(applier, read)

			g.Expect(IsStale(err)).To(BeTrue(), "%v", err)
			found := &corev1.ConfigMap{}
			g.Expect(server.Get(context.Background(), client.ObjectKeyFromObject(successor), found)).To(Succeed())
			g.Expect(found.UID).To(Equal(successor.GetUID()))
			g.Expect(found.Finalizers).To(ConsistOf(teardown))
		})
	}
}

func TestFinalizersAreAppliedAlone(t *testing.T) {
	g, server := NewWithT(t), newServer()
	applier := newBenchApplier(t, server)
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, Data: map[string]string{"a": "1"}}
	g.Expect(server.Create(t.Context(), live)).To(Succeed())

	finalized, err := applier.EnsureFinalizer(t.Context(), live, teardown)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(applier.RemoveFinalizer(t.Context(), finalized, teardown)).To(Succeed())

	g.Expect(server.patches).To(HaveLen(2))
	identity := `"namespace":"n","name":"c","uid":"` + string(live.UID) + `"`
	g.Expect(server.patches[0].body).To(MatchJSON(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + identity + `,"finalizers":["test.example/teardown"]}}`))
	g.Expect(server.patches[1].body).To(MatchJSON(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{`+identity+`}}`), "an empty list would be a claim of its own")
}

func TestRemoveFinalizerKeepsTheOthersOfTheManager(t *testing.T) {
	g, server := NewWithT(t), newServer()
	applier := newBenchApplier(t, server)
	var live client.Object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	g.Expect(server.Create(t.Context(), live)).To(Succeed())
	for _, finalizer := range []string{teardown, "test.example/another"} {
		var err error
		live, err = applier.EnsureFinalizer(t.Context(), live, finalizer)
		g.Expect(err).NotTo(HaveOccurred())
	}

	g.Expect(applier.RemoveFinalizer(t.Context(), live, teardown)).To(Succeed())

	g.Expect(server.Get(t.Context(), client.ObjectKeyFromObject(live), live)).To(Succeed())
	g.Expect(live.GetFinalizers()).To(ConsistOf("test.example/another"))
}
