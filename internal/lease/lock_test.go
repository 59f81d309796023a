package lease

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const me, other = "replica-a", "replica-b"

// record is a Lease on the server.
type record struct {
	holder string
	writes int
	delay  time.Duration
	err    error
}

// fakeLock implements resourcelock.Interface over a record.
type fakeLock struct{ *record }

func (l fakeLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.err != nil {
		return nil, nil, l.err
	}
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, []byte(l.holder), nil
}

func (l fakeLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l fakeLock) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	elapse(l.delay)
	if l.err != nil {
		return l.err
	}
	l.holder = r.HolderIdentity
	l.writes++
	return nil
}

func (fakeLock) RecordEvent(string) {}
func (fakeLock) Identity() string   { return me }
func (fakeLock) Describe() string   { return "test/lease" }

func held(by string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: by}
}

func inBubble(t *testing.T, test func(ctx context.Context, g *WithT, guard *Guard, server *record, lock resourcelock.Interface)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		guard, server := New(duration, nil), &record{}
		test(t.Context(), NewWithT(t), guard, server, guard.Lock(fakeLock{server}))
	})
}

func TestProofStartsWhenTheRenewalIsSent(t *testing.T) {
	inBubble(t, func(ctx context.Context, g *WithT, guard *Guard, server *record, lock resourcelock.Interface) {
		server.delay = 5 * time.Second
		g.Expect(lock.Create(ctx, held(me))).To(Succeed())
		g.Expect(guard.Check()).To(Succeed())
		elapse(4 * time.Second)
		g.Expect(reasonOf(guard.Check())).To(Equal(Unproven))
	})
}

func TestFailedRenewalProvesNothing(t *testing.T) {
	inBubble(t, func(ctx context.Context, g *WithT, guard *Guard, server *record, lock resourcelock.Interface) {
		server.err = errors.New("conflict")
		g.Expect(lock.Update(ctx, held(me))).To(MatchError("conflict"))
		g.Expect(lock.Create(ctx, held(me))).To(MatchError("conflict"))
		g.Expect(reasonOf(guard.Check())).To(Equal(NotElected))
	})
}

func TestFrequentRenewalsAreNotSent(t *testing.T) {
	inBubble(t, func(ctx context.Context, g *WithT, guard *Guard, server *record, lock resourcelock.Interface) {
		for range 40 { // ten seconds
			g.Expect(lock.Update(ctx, held(me))).To(Succeed())
			g.Expect(guard.Check()).To(Succeed())
			elapse(250 * time.Millisecond)
		}
		g.Expect(server.writes).To(Equal(8))
	})
}

func TestLeaderThatReadsItsLeaseKeepsIt(t *testing.T) {
	inBubble(t, func(ctx context.Context, g *WithT, guard *Guard, server *record, lock resourcelock.Interface) {
		g.Expect(lock.Update(ctx, held(me))).To(Succeed())
		read, raw, err := lock.Get(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read.HolderIdentity).To(Equal(me))
		g.Expect(string(raw)).To(Equal(me))
		g.Expect(guard.Check()).To(Succeed())

		server.err = errors.New("unavailable")
		_, _, err = lock.Get(ctx)
		g.Expect(err).To(MatchError("unavailable"))
		g.Expect(guard.Check()).To(Succeed())
	})
}

func TestLeaseIsNotTakenAgainAfterItWasGivenUp(t *testing.T) {
	inBubble(t, func(ctx context.Context, g *WithT, guard *Guard, server *record, lock resourcelock.Interface) {
		g.Expect(lock.Update(ctx, held(me))).To(Succeed())
		guard.GiveUp()
		g.Expect(reasonOf(lock.Update(ctx, held(me)))).To(Equal(GivenUp))
		g.Expect(server.writes).To(Equal(1))
	})
}

func TestLeaseIsReleasedOnce(t *testing.T) {
	inBubble(t, func(ctx context.Context, g *WithT, _ *Guard, server *record, lock resourcelock.Interface) {
		g.Expect(lock.Update(ctx, held(me))).To(Succeed())
		server.err = errors.New("unavailable")
		g.Expect(lock.Update(ctx, held(""))).To(MatchError("unavailable"))
		server.err = nil
		g.Expect(lock.Update(ctx, held(""))).To(Succeed())
		g.Expect(server.writes).To(Equal(2))
		g.Expect(lock.Update(ctx, held(""))).To(Succeed())
		g.Expect(server.writes).To(Equal(2), "another replica may hold it by now")
	})
}

func TestStandbyOnlyReads(t *testing.T) {
	inBubble(t, func(ctx context.Context, g *WithT, guard *Guard, server *record, lock resourcelock.Interface) {
		server.holder = other
		_, _, err := lock.Get(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(guard.Lost()).NotTo(BeClosed(), "it was not the leader")
		g.Expect(reasonOf(guard.Check())).To(Equal(NotElected))
	})
}

func TestLeaderThatLostTheLeaseIsRefused(t *testing.T) {
	inBubble(t, func(ctx context.Context, g *WithT, guard *Guard, server *record, lock resourcelock.Interface) {
		g.Expect(lock.Update(ctx, held(me))).To(Succeed())
		server.holder = other
		_, _, err := lock.Get(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(guard.Lost()).To(BeClosed())
		g.Expect(reasonOf(guard.Check())).To(Equal(Lost))
		g.Expect(reasonOf(lock.Update(ctx, held(me)))).To(Equal(Lost), "and does not become the leader again")
		g.Expect(server.holder).To(Equal(other))
	})
}

func TestOnlyTheHolderReleasesTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		holder, want string
	}{
		"this replica":    {me, ""},
		"another replica": {other, other},
		"no holder":       {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(ctx context.Context, g *WithT, guard *Guard, server *record, lock resourcelock.Interface) {
				g.Expect(lock.Update(ctx, held(me))).To(Succeed())
				server.holder = c.holder
				_, _, err := lock.Get(ctx)
				g.Expect(err).NotTo(HaveOccurred())

				g.Expect(lock.Update(ctx, held(""))).To(Succeed())

				g.Expect(server.holder).To(Equal(c.want))
				g.Expect(guard.Held()).To(BeFalse())
			})
		})
	}
}

func TestReleaseWaitsForPendingWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, lease, wire := New(duration, nil), &record{}, newServer()
		lock, through := guard.Lock(fakeLock{lease}), guard.RoundTripper(wire, wire, IsWrite)
		g.Expect(lock.Update(t.Context(), held(me))).To(Succeed())
		outcome := send(t.Context(), t, through, http.MethodPatch)
		<-wire.received

		released := make(chan error, 1)
		go func() { released <- lock.Update(context.Background(), held("")) }()
		synctest.Wait()

		g.Expect(lease.holder).To(Equal(me), "a write is pending")
		g.Expect(reasonOf(<-send(t.Context(), t, through, http.MethodPatch))).To(Equal(GivenUp), "no other write starts")
		wire.answer <- nil
		g.Expect(<-outcome).To(Succeed())
		g.Expect(<-released).To(Succeed())
		g.Expect(lease.holder).To(BeEmpty())
	})
}

func TestLeaseIsNotReleasedIfAWriteDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, lease, wire := New(duration, nil), &record{}, newServer()
		lock := guard.Lock(fakeLock{lease})
		g.Expect(lock.Update(t.Context(), held(me))).To(Succeed())
		outcome := send(t.Context(), t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)
		<-wire.received
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		g.Expect(lock.Update(ctx, held(""))).To(Succeed())

		g.Expect(lease.holder).To(Equal(me))
		g.Expect(reasonOf(<-outcome)).To(Equal(Unproven), "the write is aborted when the proof expires")
	})
}
