package ssa_test

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestFirst(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	ns := newNamespace(ctx, g, nil)
	owner := newOwner(ctx, g, ns, "owner")
	a, log := newApplier(api)
	cm := func() *corev1ac.ConfigMapApplyConfiguration {
		return corev1ac.ConfigMap("x", ns).WithData(map[string]string{"a": "b"})
	}
	r, err := a.Apply(ctx, ssa.Request{Desired: cm(), Owner: &owner})
	fmt.Println(r.Action, err, len(log.bodies))
	g.Expect(err).NotTo(HaveOccurred())
	r, err = a.Apply(ctx, ssa.Request{Desired: cm(), Owner: &owner})
	fmt.Println(r.Action, err, len(log.bodies))
	r, err = a.Apply(ctx, ssa.Request{Desired: cm(), Owner: &owner, Live: r.Live})
	fmt.Println(r.Action, err, len(log.bodies))
	b, log := newApplier(api)
	r, err = b.Apply(ctx, ssa.Request{Desired: cm(), Owner: &owner, Live: r.Live})
	fmt.Println(r.Action, err, len(log.bodies))
	fmt.Println(r.Live.GetAnnotations())
	other := newOwner(ctx, g, ns, "other")
	r, err = b.Apply(ctx, ssa.Request{Desired: cm(), Owner: &other})
	fmt.Println(r.Action, err, len(log.bodies))
}
