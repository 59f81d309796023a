package controllers

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// laggard is a client whose cache never shows what was written.
type laggard struct {
	client.Client
	waited, read int
}

func (l *laggard) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, opts ...client.GetOption) error {
	if !(&client.GetOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
		l.waited++
		<-ctx.Done()
		return ctx.Err()
	}
	l.read++
	return nil
}

func TestACacheThatNeverShowsAWriteIsNotWaitedForForEver(t *testing.T) {
	g, now, lags := NewWithT(t), testingclock.NewFakePassiveClock(time.Now()), &laggard{}
	c := patiently(lags, now)
	key := client.ObjectKey{Namespace: "default", Name: "web"}
	g.Expect(c.Get(t.Context(), key, &corev1.Service{})).To(Succeed())
	g.Expect(c.Get(t.Context(), key, &corev1.Service{})).To(Succeed())
	g.Expect(*lags).To(Equal(laggard{waited: 1, read: 2}))
	// what lags is one object, for a while
	now.SetTime(now.Now().Add(behindFor + time.Second))
	g.Expect(c.Get(t.Context(), key, &corev1.Service{})).To(Succeed())
	g.Expect(c.Get(t.Context(), key, &corev1.ConfigMap{})).To(Succeed())
	g.Expect(*lags).To(Equal(laggard{waited: 3, read: 4}))
}

func TestAReadEndsWithItsContext(t *testing.T) {
	g, lags := NewWithT(t), &laggard{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := patiently(lags, testingclock.NewFakePassiveClock(time.Now())).Get(ctx, client.ObjectKey{Name: "web"}, &corev1.Service{})
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(lags.read).To(BeZero())
}
