package controllers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
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
