package lease

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func reconcileBy(guard *Guard, do func(ctx context.Context) error) (reconcile.Result, error) {
	inner := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, do(ctx)
	})
	return guard.Reconciler(inner).Reconcile(context.Background(), reconcile.Request{})
}

func TestReconcileWithRefusedWriteReturnsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newElected(t), newServer()
		through := guard.RoundTripper(wire, wire, IsWrite)

		result, err := reconcileBy(guard, func(ctx context.Context) error {
			elapse(duration)
			return <-send(ctx, t, through, http.MethodPatch)
		})

		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.RequeueAfter).To(Equal(retryDelay))
	})
}

// Otherwise a status would report an error of the replica on the object.
func TestWritesAfterARefusalAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newElected(t), newServer()
		through := guard.RoundTripper(wire, wire, IsWrite)

		result, err := reconcileBy(guard, func(ctx context.Context) error {
			elapse(duration)
			first := <-send(ctx, t, through, http.MethodPatch)
			guard.renewed(guard.now())
			second := <-send(ctx, t, through, http.MethodPatch)
			g.Expect(second).To(Equal(first))
			return nil
		})

		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.RequeueAfter).To(Equal(retryDelay))
		g.Expect(wire.received).NotTo(Receive())
	})
}

func TestReconcileDoesNotStartWithoutTheLease(t *testing.T) {
	g := NewWithT(t)
	result, err := reconcileBy(New(duration, nil), func(context.Context) error { return errors.New("the reconcile was started") })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(Equal(retryDelay))
}

func TestOtherErrorsAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := reconcileBy(newElected(t), func(context.Context) error { return errors.New("broken") })
		NewWithT(t).Expect(err).To(MatchError("broken"))
	})
}

func TestResultsAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := reconcile.Result{RequeueAfter: time.Minute}
		inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return want, nil })
		got, err := newElected(t).Reconciler(inner).Reconcile(t.Context(), reconcile.Request{})
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got).To(Equal(want))
	})
}

func TestNilGuard(t *testing.T) {
	_, err := reconcileBy(nil, func(context.Context) error { return errors.New("broken") })
	NewWithT(t).Expect(err).To(MatchError("broken"))
}
