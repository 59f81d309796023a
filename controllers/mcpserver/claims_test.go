package mcpserver

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// The wrapper, which is that of the guard, decides whether a server is reconciled.
func TestReconcilesOfProbedServersAreWrapped(t *testing.T) {
	failed := errors.New("refused")
	for namespace, kept := range map[string]int{"team-a": 1, "team-b": 0} {
		t.Run(namespace, func(t *testing.T) {
			g := NewWithT(t)
			guard, probes := claiming(t, "team-a")
			key := types.NamespacedName{Namespace: namespace, Name: "tools"}
			r := cachedReaders(key)
			refusing := func(reconcile.Reconciler) reconcile.Reconciler {
				return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					return reconcile.Result{RequeueAfter: time.Hour}, failed
				})
			}
			o := Options{Options: setup.Options{Guard: guard}, Prober: probes}
			reconciler := o.probingOnlyClaimed(r, refusing)(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				t.Error("reconciled")
				return reconcile.Result{}, nil
			}))

			result, err := reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})

			g.Expect(err).To(MatchError(failed))
			g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: time.Hour}))
			g.Expect(r.keys.known).To(HaveLen(kept), "nothing is kept of a namespace that is not claimed")
		})
	}
}

// claiming is a guard that has claimed a namespace, and a prober.
func claiming(t *testing.T, namespace string) (*lease.Guard, *prober.Prober) {
	t.Helper()
	g := NewWithT(t)
	probes, err := prober.New(prober.Options{Metrics: prometheus.NewRegistry()})
	g.Expect(err).NotTo(HaveOccurred())
	guard := lease.New(time.Minute, nil)
	guard.RequireClaims()
	g.Expect(guard.Claim(lease.Namespaces{Names: sets.New(namespace)}, time.Minute, func() error { return nil })).To(Succeed())
	return guard, probes
}

func TestControllerStopsProbesInNamespacesThatAreGivenUp(t *testing.T) {
	g := NewWithT(t)
	m, o := newFailingManager(t)
	o.Guard, o.Prober = claiming(t, "acme")
	server := stored()
	key := client.ObjectKeyFromObject(server)
	g.Expect(m.Server.Create(t.Context(), server)).To(Succeed())
	g.Expect(Setup(t.Context(), m, o)).To(Succeed())
	o.Prober.Set(key, prober.Target{URL: "http://tools.acme.svc/mcp"})

	g.Expect(o.Guard.GiveUpAllBut(t.Context(), lease.Namespaces{})).To(Succeed())

	g.Eventually(func() bool {
		_, isProbed := o.Prober.Result(key)
		return isProbed
	}).Should(BeFalse())
}

// An MCPServer whose namespace is not claimed is enqueued at the start as well.
func TestControllerDoesNotProbeInNamespacesThatAreNotClaimed(t *testing.T) {
	g := NewWithT(t)
	m, o := newFailingManager(t)
	o.Guard, o.Prober = claiming(t, "other")
	o.NoClusterRights = true
	server := stored()
	key := client.ObjectKeyFromObject(server)
	g.Expect(m.Server.Create(t.Context(), server)).To(Succeed())
	g.Expect(Setup(t.Context(), m, o)).To(Succeed())
	o.Prober.Set(key, prober.Target{URL: "http://tools.invalid/mcp", Addresses: []string{"127.0.0.1:1"}, Interval: time.Hour})
	stop := m.Run()
	defer stop()

	g.Eventually(func() bool {
		m.Send(server)
		_, isProbed := o.Prober.Result(key)
		return isProbed
	}, time.Minute).Should(BeFalse())
}
