package lease

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const claimsValid = time.Minute

func names(names ...string) Namespaces { return Namespaces{Names: sets.New(names...)} }

func recorded() error { return nil }

// newClaiming is the guard of a leader that requires claims and has claimed the namespaces.
func newClaiming(t *testing.T, claimed Namespaces) *Guard {
	t.Helper()
	guard := newElected(t)
	guard.duration = time.Hour
	guard.RequireClaims("own")
	if err := guard.Claim(claimed, claimsValid, recorded); err != nil {
		t.Fatal(err)
	}
	return guard
}

func TestNamespaces(t *testing.T) {
	g := NewWithT(t)
	all := Namespaces{All: true}
	g.Expect(Namespaces{}.Empty()).To(BeTrue())
	g.Expect(all.Empty()).To(BeFalse())
	g.Expect(all.Has("a")).To(BeTrue())
	g.Expect(names("a").Has("b")).To(BeFalse())
	g.Expect(Namespaces{}.Equal(names())).To(BeTrue())
	g.Expect(all.Equal(names())).To(BeFalse())
	g.Expect(names("a").Equal(names("b"))).To(BeFalse())
	g.Expect(all.intersect(names("a"))).To(Equal(names("a")))
	g.Expect(names("a").intersect(all)).To(Equal(names("a")))
	g.Expect(names("a", "b").intersect(names("b", "c"))).To(Equal(names("b")))
}

func TestNamespaceOf(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/namespaces/a/configmaps/b":                              "a",
		"/apis/apps/v1/namespaces/a/deployments":                         "a",
		"/k8s/clusters/c/apis/apps/v1/namespaces/a/deployments":          "a",
		"/k8s/clusters/c/api/v1/namespaces/a/configmaps/b":               "a",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/b":              "",
		"/subscriptions/s/providers/Microsoft.EventHub/namespaces/a/x/b": "",
	} {
		NewWithT(t).Expect(namespaceOf(path)).To(Equal(want), path)
	}
}

func TestReconcilesAndWritesNeedAClaim(t *testing.T) {
	cases := map[string]struct {
		claimed   Namespaces
		namespace string
		elapsed   time.Duration
		reconcile bool // a reconcile runs and may write
		write     bool // a write outside of a reconcile, such as that of an Event, is sent
	}{
		"claimed":              {names("a"), "a", 0, true, true},
		"all":                  {Namespaces{All: true}, "a", 0, true, true},
		"not claimed":          {names("b"), "a", 0, false, false},
		"shortly before":       {names("a"), "a", claimsValid - time.Millisecond, true, true},
		"not renewed":          {names("a"), "a", claimsValid, false, false},
		"all, not renewed":     {Namespaces{All: true}, "a", claimsValid, false, false},
		"the own namespace":    {names("a"), "own", 0, false, true},
		"own, and not renewed": {names("own"), "own", claimsValid, false, true},
		"cluster-scoped":       {names(), "", 0, true, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				guard := newClaiming(t, c.claimed)
				elapse(c.elapsed)

				started := false
				reconciler := guard.Reconciler(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					started = true
					return reconcile.Result{}, nil
				}))
				request := reconcile.Request{}
				request.Namespace = c.namespace
				result, err := reconciler.Reconcile(t.Context(), request)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(result).To(BeZero(), "it is not retried until the namespace is claimed")
				g.Expect(started).To(Equal(c.reconcile))

				_, w, err := guard.begin(t.Context(), c.namespace)
				if !c.write {
					g.Expect(err).To(MatchError("write refused: this release has not claimed the namespace, so another release may reconcile it"))
					return
				}
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(guard.end(t.Context(), t.Context(), w, nil)).To(Succeed())
			})
		})
	}
}

func TestWritesOfAReconcileAreThoseOfItsNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newClaiming(t, names("b")), newServer()
		through := guard.RoundTripper(wire, wire, IsWrite)
		ctx := context.WithValue(t.Context(), stateKey{}, &reconcileState{namespace: "b"})
		outcome := send(ctx, t, through, http.MethodPatch) // to namespace a
		<-wire.received
		wire.answer <- nil
		g.Expect(<-outcome).To(Succeed())

		ctx = context.WithValue(t.Context(), stateKey{}, &reconcileState{namespace: "own"})
		g.Expect(<-send(ctx, t, through, http.MethodPatch)).To(MatchError(&Error{Reason: NotClaimed}), "an exempt namespace is not exempt for reconciles")
	})
}

func TestNamespaceIsGivenUpAfterItsLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newClaiming(t, names("a", "b")), newServer()
		through := guard.RoundTripper(wire, wire, IsWrite)
		pending := send(t.Context(), t, through, http.MethodPatch)
		<-wire.received

		g.Expect(guard.GiveUpAllBut(t.Context(), names("a"))).To(Succeed(), "the pending write is not in b")
		given := make(chan error, 1)
		go func() { given <- guard.GiveUpAllBut(t.Context(), names()) }()
		synctest.Wait()
		g.Expect(given).NotTo(Receive())
		g.Expect(<-send(t.Context(), t, through, http.MethodPatch)).To(MatchError(&Error{Reason: NotClaimed}), "no further write starts")

		wire.answer <- nil
		g.Expect(<-pending).To(Succeed())
		g.Expect(<-given).To(Succeed())
	})
}

func TestGivingUpDoesNotWaitForWritesThatNeedNoClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard := newClaiming(t, names("a"))
		for name, namespace := range map[string]string{"in a namespace that is exempt": "own", "outside of namespaces": ""} {
			_, w, err := guard.begin(t.Context(), namespace)
			g.Expect(err).NotTo(HaveOccurred(), name)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			g.Expect(guard.GiveUpAllBut(ctx, names())).To(Succeed(), name)
			g.Expect(guard.waitForWrites(ctx, func(*write) bool { return true })).NotTo(Succeed(), "the write is pending")
			g.Expect(guard.end(t.Context(), t.Context(), w, nil)).To(Succeed(), name)
		}
	})
}

func TestGivingUpWaitsForEveryWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard := newClaiming(t, names("a", "b"))
		_, first, err := guard.begin(t.Context(), "a")
		g.Expect(err).NotTo(HaveOccurred())
		_, kept, err := guard.begin(t.Context(), "b")
		g.Expect(err).NotTo(HaveOccurred())
		given := make(chan error, 1)
		go func() { given <- guard.GiveUpAllBut(t.Context(), names("b")) }()
		synctest.Wait()
		g.Expect(given).NotTo(Receive())
		g.Expect(guard.end(t.Context(), t.Context(), first, nil)).To(Succeed())
		g.Expect(<-given).To(Succeed())
		g.Expect(guard.end(t.Context(), t.Context(), kept, nil)).To(Succeed())
	})
}

func TestGivingUpEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard := newClaiming(t, names("a"))
		_, w, err := guard.begin(t.Context(), "a")
		g.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g.Expect(guard.GiveUpAllBut(ctx, names())).To(MatchError(context.DeadlineExceeded))
		g.Expect(guard.waits).To(BeEmpty())
		g.Expect(guard.end(t.Context(), t.Context(), w, nil)).To(Succeed())
		g.Expect(guard.GiveUpAllBut(t.Context(), names())).To(Succeed())
	})
}

func TestClaimThatIsNotRecordedPermitsNothing(t *testing.T) {
	g := NewWithT(t)
	guard := newClaiming(t, names("a"))
	conflict := errors.New("conflict")
	g.Expect(guard.Claim(names("a", "b"), claimsValid, func() error { return conflict })).To(MatchError(conflict))
	g.Expect(guard.Claimed()).To(Equal(names("a")))
}

func TestClaimIsValidFromWhenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard := newClaiming(t, names())
		g.Expect(guard.Claim(names("a"), claimsValid, func() error { elapse(claimsValid - time.Second); return nil })).To(Succeed())
		g.Expect(guard.Claimed()).To(Equal(names("a")))
		elapse(time.Second)
		g.Expect(guard.Claimed().Empty()).To(BeTrue())
	})
}

func TestSubscribersLearnOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard := newClaiming(t, names("a"))
		var gained, lost []string
		guard.Subscribe(func(change Change) {
			for _, namespace := range []string{"a", "b"} {
				if change.Gained(namespace) {
					gained = append(gained, namespace)
				}
				if change.Lost(namespace) {
					lost = append(lost, namespace)
				}
			}
		})
		g.Expect(gained).To(Equal([]string{"a"}), "what was claimed before")

		g.Expect(guard.Claim(names("a", "b"), claimsValid, recorded)).To(Succeed())
		g.Expect(gained).To(Equal([]string{"a", "b"}))
		g.Expect(guard.GiveUpAllBut(t.Context(), names("b"))).To(Succeed())
		g.Expect(lost).To(Equal([]string{"a"}))

		elapse(claimsValid)
		g.Expect(guard.Claim(names("b"), claimsValid, recorded)).To(Succeed())
		g.Expect(gained).To(Equal([]string{"a", "b", "b"}), "reconciles were refused since the claim expired")
		g.Expect(lost).To(Equal([]string{"a"}))

		elapse(claimsValid)
		g.Expect(guard.GiveUpAllBut(t.Context(), names())).To(Succeed())
		g.Expect(lost).To(Equal([]string{"a", "b"}), "another release has claimed it since the claim expired")
	})
}

func TestSubscriberIsNotCalledWithoutAChange(t *testing.T) {
	g := NewWithT(t)
	guard := newClaiming(t, names())
	guard.Subscribe(func(change Change) { t.Errorf("nothing has changed: %v", change) })
	g.Expect(guard.Claim(names(), claimsValid, recorded)).To(Succeed())
}

func TestGuardWithoutClaims(t *testing.T) {
	g := NewWithT(t)
	var none *Guard
	g.Expect(none.RequiresClaims()).To(BeFalse())
	g.Expect(newElected(t).RequiresClaims()).To(BeFalse())
	g.Expect(newClaiming(t, names()).RequiresClaims()).To(BeTrue())
}
