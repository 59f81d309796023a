package lease

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// renewShare is the fraction of LeaseDuration, 1/renewShare, after which a Lease is renewed.
const renewShare = 8

// Lock wraps the resource lock of the leader election, so that the guard observes renewals.
//
// The retry period of the election is both how often a standby replica checks the Lease and how often the
// leader renews it. The former should be short, because it bounds the time of a handover. So renewals
// within an eighth of LeaseDuration after the last one are not sent.
func (g *Guard) Lock(inner resourcelock.Interface) resourcelock.Interface {
	return &lock{Interface: inner, guard: g}
}

// lock is used by one goroutine, the election's.
type lock struct {
	resourcelock.Interface
	guard *Guard
	// holder is the holder of the Lease by the last read or own write.
	holder string
	// leading is true once this replica has held the Lease; renewedAt is when the last renewal was sent.
	leading   bool
	renewedAt instant
}

// Get implements [resourcelock.Interface].
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	l.holder = record.HolderIdentity
	if l.leading && l.holder != l.Identity() {
		klog.FromContext(ctx).Info("Lost the Lease to another replica", "lock", l.Describe(), "holder", l.holder)
		l.guard.lose()
	}
	return record, raw, nil
}

// Create implements [resourcelock.Interface].
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.take(ctx, record, l.Interface.Create)
}

// Update implements [resourcelock.Interface]: it takes, renews or releases the Lease.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != l.Identity() {
		return l.release(ctx, record)
	}
	if l.isFresh() {
		return nil
	}
	return l.take(ctx, record, l.Interface.Update)
}

func (l *lock) isFresh() bool {
	return l.guard.Held() && l.guard.now().since(l.renewedAt) < l.guard.duration/renewShare
}

func (l *lock) take(ctx context.Context, record resourcelock.LeaderElectionRecord, send func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if final := l.guard.finalReason(); final != "" {
		return &Error{Reason: final}
	}
	sent := l.guard.now()
	if err := send(ctx, record); err != nil {
		return err
	}
	l.leading, l.renewedAt, l.holder = true, sent, record.HolderIdentity
	l.guard.renewed(sent)
	return nil
}

// release releases the Lease if this replica holds it and no write is pending. Otherwise the Lease expires
// by itself, which is not an error.
func (l *lock) release(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	log := klog.FromContext(ctx).WithValues("lock", l.Describe())
	l.guard.GiveUp()
	if l.holder != l.Identity() {
		log.Info("Not releasing the Lease because another replica holds it", "holder", l.holder)
		return nil
	}
	started := time.Now()
	if err := l.guard.drain(ctx); err != nil {
		log.Info("Not releasing the Lease because writes are pending", "waited", time.Since(started).String())
		return nil //nolint:nilerr // the Lease expires by itself
	}
	if err := l.Interface.Update(ctx, record); err != nil {
		return err
	}
	l.holder = record.HolderIdentity
	log.Info("Released the Lease", "identity", l.Identity())
	return nil
}

func (g *Guard) finalReason() Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.final
}
