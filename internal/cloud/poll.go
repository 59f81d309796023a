package cloud

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Most polls of an object find what the last one found. [Cloud.Unchanged] finds that out with requests that many
// objects share. Its answer is only a reason to do nothing: a reconcile reads the resources themselves before it
// writes, deletes or adopts. See docs/adr/0036.

// Seen is what a reconcile read with the clients of [Client.Observing]. It is not safe for concurrent use.
type Seen struct {
	readings []reading
	// incomplete is true if a read failed, found nothing, or came before a write.
	incomplete bool
}

// reading is a resource that was read.
type reading struct {
	subscription string
	fingerprint  fingerprint
	// list shows the resource among others, and single shows only this one.
	list, single list
}

func (s *Seen) add(r reading) {
	if s != nil {
		s.readings = append(s.readings, r)
	}
}

func (s *Seen) spoil() {
	if s != nil {
		s.incomplete = true
	}
}

// Observing returns a client that adds to seen what it reads.
func (c *Client) Observing(seen *Seen) *Client {
	observing := *c
	observing.seen = seen
	return &observing
}

// record is what the last reconcile of an object saw, if it found nothing to do.
type record struct {
	version, credential string
	readings            []reading
}

// Bounds of the records. An object without a record is read itself, and so is every object once per
// recordTimeout, in case Azure does not show a change in a list.
const (
	maxRecords    = 20000
	recordTimeout = 24 * time.Hour
)

// Remember records what a reconcile saw that found nothing to do, in Azure or in Kubernetes. The version is
// that of the object in Kubernetes. Nothing is recorded if a read failed or something was written.
func (c *Cloud) Remember(object, version string, credential Credential, seen *Seen) {
	if seen.incomplete || len(seen.readings) == 0 {
		c.Forget(object)
		return
	}
	c.records.Add(object, record{version, credential.Name, seen.readings}, recordTimeout)
}

// Forget removes the record of an object, so that the next poll reads its resources themselves.
func (c *Cloud) Forget(object string) { c.records.Remove(object) }

// Poll is the time from one poll of an object to the next one, and when the current one began. The polls of
// objects that share lists have to begin together.
type Poll struct {
	Interval time.Duration
	Began    time.Time
}

// Unchanged says whether Azure shows, at some time since the poll began, what was recorded for the object with
// the same version and credential. The requests are shared with the other objects that the credential polls.
func (c *Cloud) Unchanged(ctx context.Context, object, version string, credential Credential, poll Poll) bool {
	found, _ := c.records.Get(object)
	last, ok := found.(record)
	if !ok || last.version != version || last.credential != credential.Name {
		return false
	}
	for _, r := range last.readings {
		client, err := c.Client(r.subscription, credential)
		if err != nil {
			return false
		}
		switch shown := client.snapshotWith(ctx, r, poll); {
		case shown == nil:
			return false
		case !shown.fingerprints.Has(r.fingerprint):
			c.Forget(object)
			return false
		}
	}
	return true
}

// snapshotWith returns a snapshot since the poll began that shows the resource as it is, or nil.
func (c *Client) snapshotWith(ctx context.Context, r reading, poll Poll) *snapshot {
	for _, l := range []list{r.list, r.single} {
		if s := c.snapshotOf(ctx, l, poll, r.fingerprint); s != nil {
			return s
		}
	}
	return nil
}

// snapshot is what a list showed.
type snapshot struct {
	// began is when the list was requested.
	began        time.Time
	pages        int
	fingerprints sets.Set[fingerprint]
}

// listState is what is known of a list with one credential and one poll interval.
type listState struct {
	// last is what the list showed last, or nil.
	last *snapshot
	// asked are the resources that the current poll has looked for, and askedBefore is their number in the
	// previous poll.
	poll        time.Time
	asked       sets.Set[fingerprint]
	askedBefore int
	// avoidUntil is until when the list is not requested, because it failed.
	avoidUntil time.Time
}

// ask counts a resource that a poll looks for.
func (s *listState) ask(f fingerprint, poll Poll) {
	if poll.Began.After(s.poll) {
		s.askedBefore, s.asked, s.poll = s.asked.Len(), sets.New[fingerprint](), poll.Began
	}
	s.asked.Insert(f)
}

// isFresh says whether the last snapshot is recent enough for a poll. One from long after the next poll is older than it
// seems: the clock was set back. Requests of a poll may wait, so that the poll itself may take a list after the next one.
func (s *listState) isFresh(poll Poll) bool {
	latest := poll.Began.Add(max(2*poll.Interval, poll.Interval+time.Minute))
	return s.last != nil && !s.last.began.Before(poll.Began) && s.last.began.Before(latest)
}

// decision is how a resource is looked up.
type decision int

const (
	useLast decision = iota
	requestList
	avoidList
)

// decide says whether the last snapshot is recent enough for a poll, and otherwise whether requesting the list
// takes less of the request limits than reading the resources themselves.
func (s *listState) decide(l list, poll Poll, now time.Time) decision {
	pages := 1
	if s.last != nil {
		pages = s.last.pages
	}
	switch {
	case s.isFresh(poll):
		return useLast
	case l.isSingle():
		return requestList
	case now.Before(s.avoidUntil), max(s.askedBefore, s.asked.Len()) < pages*l.pageCost():
		return avoidList
	default:
		return requestList
	}
}

// failed decides until when a list that failed is avoided. A request that was not sent says nothing about it. One that
// Azure throttled is avoided for longer, because all requests of the subscription wait for its Retry-After.
func (s *listState) failed(err error, poll Poll, now time.Time) {
	failure, ok := AsError(err)
	switch {
	case ok && failure.Kind == Throttled && failure.cause == nil:
	case !ok || failure.Kind == Unreachable:
		s.avoidUntil = poll.Began.Add(poll.Interval)
	default:
		s.avoidUntil = now.Add(avoidTimeout)
	}
}

// avoidTimeout is how long a list is avoided that Azure refuses.
const avoidTimeout = time.Hour

// Bounds of the lists that are kept for a connection.
const (
	maxLists    = 10000
	listTimeout = 2 * recordTimeout
)

// listKey identifies a list. Objects with different poll intervals do not share lists, so that one of them does not
// decide how often the list is requested for the others.
type listKey struct {
	list     list
	interval time.Duration
}

// snapshotOf returns a snapshot of a list since the poll began; nil if the list failed or is not worth its requests.
func (c *Client) snapshotOf(ctx context.Context, l list, poll Poll, looked fingerprint) *snapshot {
	// A list answers only for those who may request it, also if another client has requested it.
	if l.isZero() || c.checkScope(c.requestFor(l)) != nil {
		return nil
	}
	key := listKey{l, poll.Interval}
	state, last, decided := c.decide(key, poll, looked)
	if decided != requestList {
		return last
	}
	_, _, _ = c.flights.Do(fmt.Sprintf("%#v", key), func() (any, error) {
		c.refresh(ctx, l, state, poll)
		return nil, nil //nolint:nilnil // the result is in the state
	})
	c.listsMu.Lock()
	defer c.listsMu.Unlock()
	return state.snapshotFor(poll)
}

// snapshotFor returns the last snapshot if it is recent enough for a poll, or nil.
func (s *listState) snapshotFor(poll Poll) *snapshot {
	if !s.isFresh(poll) {
		return nil
	}
	return s.last
}

// decide looks up the state of a list, and decides. The snapshot is nil unless it can be used.
func (c *connection) decide(key listKey, poll Poll, looked fingerprint) (*listState, *snapshot, decision) {
	c.listsMu.Lock()
	defer c.listsMu.Unlock()
	found, _ := c.lists.Get(key)
	state, ok := found.(*listState)
	if !ok {
		state = &listState{}
	}
	c.lists.Add(key, state, listTimeout)
	state.ask(looked, poll)
	return state, state.snapshotFor(poll), state.decide(key.list, poll, c.budget.clock.Now())
}

// refresh requests a list, unless the flight before has just done so. What it showed, or that it failed, is in the state.
func (c *Client) refresh(ctx context.Context, l list, state *listState, poll Poll) {
	began := c.budget.clock.Now()
	c.listsMu.Lock()
	isFresh := state.isFresh(poll)
	c.listsMu.Unlock()
	if isFresh {
		return
	}
	fetched, err := c.fetch(ctx, l)
	c.listsMu.Lock()
	defer c.listsMu.Unlock()
	if err != nil {
		state.failed(err, poll, c.budget.clock.Now())
		return
	}
	fetched.began = began
	state.last = fetched
}
