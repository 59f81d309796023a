package lease

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// renewShare is the part of LeaseDuration after which a Lease is renewed.
const renewShare = 8

// Lock wraps the lock over which the election is held, so that the guard knows what it proves.
//
// The election's retry period says both how often a standby looks whether the Lease is free and how
// often the leader renews it. The first should be short, because a handover takes as long, and the
// second need not: renewals that follow each other faster than in an eighth of LeaseDuration are not
// sent, and prove nothing.
func (g *Guard) Lock(inner resourcelock.Interface) resourcelock.Interface {
	return &lock{Interface: inner, guard: g}
}

// lock is used by one goroutine, the election's.
type lock struct {
	resourcelock.Interface
	guard *Guard
	// holder is whom the last read, or our own last write, shows to have the Lease.
	holder string
	// leading says that it was ours; renewedAt when the last renewal was sent then.
	leading   bool
	renewedAt instant
}

// Get implements [resourcelock.Interface].
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return record, raw, err
	}
	l.holder = record.HolderIdentity
	if l.leading && l.holder != l.Identity() {
		klog.FromContext(ctx).Info("Another replica has the Lease that was ours", "lock", l.Describe(), "holder", l.holder)
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
	return l.leading && l.guard.Held() && l.guard.now().since(l.renewedAt) < l.guard.duration/renewShare
}

func (l *lock) take(ctx context.Context, record resourcelock.LeaderElectionRecord, send func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if over := l.guard.isOver(); over != "" {
		return &Error{Reason: over}
	}
	sent := l.guard.now()
	if err := send(ctx, record); err != nil {
		return err
	}
	l.leading, l.renewedAt, l.holder = true, sent, record.HolderIdentity
	l.guard.renewed(sent)
	return nil
}

// release gives the Lease up, if it is ours and nothing is under way in its name. What is not given up
// runs out by itself. It is no error: there is nothing to be tried again.
func (l *lock) release(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	log := klog.FromContext(ctx).WithValues("lock", l.Describe())
	l.guard.GiveUp()
	if l.holder != l.Identity() {
		log.Info("Not releasing the Lease, which another replica has", "holder", l.holder)
		return nil
	}
	started := time.Now()
	if err := l.guard.drain(ctx); err != nil {
		log.Info("Not releasing the Lease, since writes are still under way", "waited", time.Since(started).String())
		return nil //nolint:nilerr // there is nothing to be tried again
	}
	if err := l.Interface.Update(ctx, record); err != nil {
		return err
	}
	l.holder = record.HolderIdentity
	log.Info("Released the Lease", "identity", l.Identity())
	return nil
}

func (g *Guard) isOver() Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over
}
