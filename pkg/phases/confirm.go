package phases

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errOwnerChanged ends a pass whose object is not what the cache showed.
var errOwnerChanged = errors.New("the object has changed since it was read; it is read again")

// newerOwner ends a pass over an object of which only the status or metadata have changed since; in a
// teardown, whatever has. The pass is made again at once, over the object as it is: what its status remembers
// has to be the newest.
type newerOwner struct{ fresh client.Object }

func (*newerOwner) Error() string {
	return "the object has changed since it was read; the pass is made again"
}

// confirm makes sure, past the cache, that the owner is still what the pass goes by: the same object, of
// the same generation, with the same status, and not on its way out. A manager that has just started, or
// whose watch lags, would otherwise make what a deletion has taken away, delete what an edit has just asked
// for, and roll back to a spec of the past. What the API server has just answered to a write of the owner is
// as good as a read: so neither what is made for a new object nor a write that is tried again costs a
// request more.
func (p *pass[S]) confirm(ctx context.Context) error {
	if p.confirmed || p.planning || p.owner.GetDeletionTimestamp() != nil || p.seen.has(p.owner) {
		return nil
	}
	return p.confirmAnew(ctx)
}

func (p *pass[S]) confirmAnew(ctx context.Context) error {
	fresh, err := p.readOwner(ctx)
	if err != nil {
		return err
	}
	if fresh == nil || fresh.GetUID() != p.owner.GetUID() || fresh.GetGeneration() != p.owner.GetGeneration() || fresh.GetDeletionTimestamp() != nil {
		return errOwnerChanged
	}
	return p.goBy(fresh)
}

// confirmTeardown is the same before anything is undone: what is to go, and what is to stay, hangs on the
// newest spec and status. A deletion is not taken back, so any newer version will do.
func (p *pass[S]) confirmTeardown(ctx context.Context) (gone bool, err error) {
	if p.confirmed || p.planning || p.seen.has(p.owner) {
		return false, nil
	}
	fresh, err := p.readOwner(ctx)
	switch {
	case err != nil:
		return false, err
	case fresh == nil:
		return true, nil
	case fresh.GetUID() != p.owner.GetUID():
		return false, errOwnerChanged
	}
	return false, p.goBy(fresh)
}

// goBy lets the pass go on if the owner is of the version that it goes by.
func (p *pass[S]) goBy(fresh client.Object) error {
	p.seen.add(fresh)
	if fresh.GetResourceVersion() != p.owner.GetResourceVersion() {
		return &newerOwner{fresh: fresh}
	}
	p.confirmed = true
	return nil
}

// sightFor is how long, at least, what the API server has said of an object counts as fresh, if the cache
// goes on showing that version. It is at most twice as long.
const sightFor = 15 * time.Second

// sightings are the versions of objects that the API server has just answered with. They save reads, and
// decide nothing: an engine that has none asks.
type sightings struct {
	now func() time.Time

	mu              sync.Mutex
	recent, earlier map[types.UID]string
	turned          time.Time
}

func newSightings(now func() time.Time) *sightings {
	return &sightings{now: now, recent: map[types.UID]string{}, turned: now()}
}

func (s *sightings) add(object client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn()
	s.recent[object.GetUID()] = object.GetResourceVersion()
}

func (s *sightings) has(object client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn()
	version, known := s.recent[object.GetUID()]
	if !known {
		version, known = s.earlier[object.GetUID()]
	}
	return known && version == object.GetResourceVersion()
}

// turn forgets what is no longer fresh.
func (s *sightings) turn() {
	age := s.now().Sub(s.turned)
	if age < sightFor {
		return
	}
	s.earlier, s.recent = s.recent, map[types.UID]string{}
	s.turned = s.turned.Add(sightFor)
	if age >= 2*sightFor {
		s.earlier, s.turned = nil, s.now()
	}
}
