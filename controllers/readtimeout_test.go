package controllers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// staleClient is a client whose cache never contains the manager's own writes.
type staleClient struct {
	client.Client
	waited, read int
}

func (c *staleClient) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, opts ...client.GetOption) error {
	if !(&client.GetOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
		c.waited++
		<-ctx.Done()
		return ctx.Err()
	}
	c.read++
	return nil
}

func (c *staleClient) List(ctx context.Context, _ client.ObjectList, opts ...client.ListOption) error {
	if !(&client.ListOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
		c.waited++
		<-ctx.Done()
		return ctx.Err()
	}
	c.read++
	return nil
}

func TestReadsOfAStaleCacheTimeOutOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, inner := NewWithT(t), &staleClient{}
		c := withReadTimeout(inner, clock.RealClock{})
		key := client.ObjectKey{Namespace: "default", Name: "web"}
		g.Expect(c.Get(t.Context(), key, &corev1.Service{})).To(Succeed())
		g.Expect(c.Get(t.Context(), key, &corev1.Service{})).To(Succeed())
		g.Expect(*inner).To(Equal(staleClient{waited: 1, read: 2}))
		// the wait is skipped for this object only, and only for a minute
		<-time.After(staleFor + time.Second) // in a bubble, which takes no time
		g.Expect(c.Get(t.Context(), key, &corev1.Service{})).To(Succeed())
		g.Expect(c.Get(t.Context(), key, &corev1.ConfigMap{})).To(Succeed())
		g.Expect(*inner).To(Equal(staleClient{waited: 3, read: 4}))
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "shop"}, &corev1.Service{})).To(Succeed())
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "other", Name: "web"}, &corev1.Service{})).To(Succeed())
		g.Expect(*inner).To(Equal(staleClient{waited: 5, read: 6}))
	})
}

func TestReadReturnsWhenItsContextIsCanceled(t *testing.T) {
	g, inner := NewWithT(t), &staleClient{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := withReadTimeout(inner, clock.RealClock{}).Get(ctx, client.ObjectKey{Name: "web"}, &corev1.Service{})
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(inner.read).To(BeZero())
}

func TestListsOfAStaleCacheTimeOutOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, inner, began := NewWithT(t), &staleClient{}, time.Now()
		c := withReadTimeout(inner, clock.RealClock{})
		options := []client.ListOption{client.InNamespace("default")}
		g.Expect(c.List(t.Context(), &corev1.ServiceList{}, options...)).To(Succeed())
		g.Expect(time.Since(began)).To(Equal(readTimeout))
		g.Expect(c.List(t.Context(), &corev1.ServiceList{}, options...)).To(Succeed())
		g.Expect(*inner).To(Equal(staleClient{waited: 1, read: 2}))
		g.Expect(c.List(t.Context(), &corev1.SecretList{})).To(Succeed())
		g.Expect(*inner).To(Equal(staleClient{waited: 2, read: 3}))
	})
}

// The wait is skipped for a whole minute, and not longer.
func TestAStaleCacheIsTrustedAgainAfterAMinute(t *testing.T) {
	g, now := NewWithT(t), clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	c := withReadTimeout(nil, now)
	what := read{key: client.ObjectKey{Name: "web"}}
	c.stale[what] = now.Now()
	now.SetTime(now.Now().Add(staleFor))
	g.Expect(c.isStale(what)).To(BeTrue())
	now.SetTime(now.Now().Add(1))
	g.Expect(c.isStale(what)).To(BeFalse())
	g.Expect(c.stale).To(BeEmpty(), "the memory does not grow")
}

// failingClient is a client whose reads fail. If it is stale, they fail once they do not wait for the cache any more.
type failingClient struct {
	client.Client
	err   error
	stale bool
	reads int
	last  context.Context
}

func (c *failingClient) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, opts ...client.GetOption) error {
	return c.read(ctx, (&client.GetOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency)
}

func (c *failingClient) List(ctx context.Context, _ client.ObjectList, opts ...client.ListOption) error {
	return c.read(ctx, (&client.ListOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency)
}

func (c *failingClient) read(ctx context.Context, asItIs bool) error {
	c.last = ctx
	if c.stale && !asItIs {
		<-ctx.Done()
		return ctx.Err()
	}
	c.reads++
	return c.err
}

func TestReadsThatFailAreNotRepeated(t *testing.T) {
	for name, read := range map[string]func(context.Context, client.Client) error{
		"get": func(ctx context.Context, c client.Client) error {
			return c.Get(ctx, client.ObjectKey{Name: "web"}, &corev1.Service{})
		},
		"list": func(ctx context.Context, c client.Client) error { return c.List(ctx, &corev1.ServiceList{}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, inner := NewWithT(t), &failingClient{err: errors.New("forbidden")}
				c := withReadTimeout(inner, clock.RealClock{})
				g.Expect(read(t.Context(), c)).To(BeIdenticalTo(inner.err))
				g.Expect(inner.reads).To(Equal(1))
				g.Expect(inner.last.Err()).To(MatchError(context.Canceled), "a read that has ended leaves no timer")
				g.Expect(c.stale).To(BeEmpty())

				inner.stale = true
				for range 2 { // the second one does not wait
					g.Expect(read(t.Context(), c)).To(BeIdenticalTo(inner.err), "the error of the read that does not wait for the cache")
				}
				g.Expect(inner.reads).To(Equal(3))
			})
		})
	}
}

// lateClient is a client whose reads succeed when their time is up.
type lateClient struct {
	client.Client
	reads int
}

func (c *lateClient) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	c.reads++
	<-ctx.Done()
	return nil
}

func TestAReadThatSucceedsAtTheLastMomentIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, inner := NewWithT(t), &lateClient{}
		c := withReadTimeout(inner, clock.RealClock{})
		g.Expect(c.Get(t.Context(), client.ObjectKey{Name: "web"}, &corev1.Service{})).To(Succeed())
		g.Expect(inner.reads).To(Equal(1))
		g.Expect(c.stale).To(BeEmpty())
	})
}
