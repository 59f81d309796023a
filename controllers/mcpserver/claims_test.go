package mcpserver

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
)

// A reconcile that is running when its namespace is given up must not start probes that never end.
func TestServerIsNotProbedInANamespaceThatWasGivenUpDuringAReconcile(t *testing.T) {
	for name, c := range map[string]struct {
		during func(g Gomega, guard *lease.Guard)
		probed bool
	}{
		"claimed": {func(Gomega, *lease.Guard) {}, true},
		"given up": {func(g Gomega, guard *lease.Guard) {
			g.Expect(guard.GiveUpAllBut(t.Context(), lease.Namespaces{})).To(Succeed())
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			probes, err := prober.New(prober.Options{Metrics: prometheus.NewRegistry()})
			g.Expect(err).NotTo(HaveOccurred())
			guard := lease.New(time.Minute, nil)
			guard.RequireClaims()
			g.Expect(guard.Claim(lease.Namespaces{Names: sets.New("team-a")}, time.Minute, func() error { return nil })).To(Succeed())
			key := types.NamespacedName{Namespace: "team-a", Name: "tools"}
			inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				c.during(g, guard)
				probes.Set(key, prober.Target{URL: "http://tools.team-a.svc/mcp"})
				return reconcile.Result{}, nil
			})
			o := Options{Options: setup.Options{Guard: guard}, Prober: probes}
			wrapped := o.probingOnlyClaimed(readers{keys: &keyReader{}, pods: nil}, func(r reconcile.Reconciler) reconcile.Reconciler { return r })(inner)

			_, err = wrapped.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})

			g.Expect(err).NotTo(HaveOccurred())
			_, probed := probes.Result(key)
			g.Expect(probed).To(Equal(c.probed))
		})
	}
}
