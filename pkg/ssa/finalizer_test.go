package ssa

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
