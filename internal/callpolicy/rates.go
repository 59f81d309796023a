package callpolicy

import (
	"container/list"
	"crypto/sha256"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fixpoint-dev/fixpoint/internal/toolname"
)

const (
	// maxCallers is how many callers are remembered. The one that sent its last request first is forgotten.
	maxCallers = 10_000
	// maxKey is the length up to which a caller is remembered by its name, and not by a hash.
	maxKey = 64
)

// rates counts the requests of callers.
type rates struct {
	requestsPerMinute int
	tools             []ToolLimit
	maxCallers        int

	mu      sync.Mutex
	callers map[string]*list.Element
	// recent are the buckets of callers; the first sent the last request.
	recent *list.List
}

// buckets are those of one caller.
type buckets struct {
	key string
	// mu makes a check of limiters, and taking from them, one step.
	mu sync.Mutex
	// requests is nil without a limit.
	requests *rate.Limiter
	// tools has one for each limit.
	tools []*rate.Limiter
}

func newRates(opts *Options) *rates {
	return &rates{requestsPerMinute: opts.RequestsPerMinute, tools: opts.Tools, maxCallers: maxCallers, callers: map[string]*list.Element{}, recent: list.New()}
}

// of returns the buckets of a caller.
func (c *rates) of(caller string) *buckets {
	if len(caller) > maxKey {
		sum := sha256.Sum256([]byte(caller))
		caller = string(sum[:])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.callers[caller]; ok {
		c.recent.MoveToFront(known)
		return known.Value.(*buckets) //nolint:errcheck // the list has nothing else
	}
	for c.recent.Len() >= c.maxCallers {
		delete(c.callers, c.recent.Remove(c.recent.Back()).(*buckets).key) //nolint:errcheck // the list has nothing else
	}
	b := &buckets{key: caller}
	if c.requestsPerMinute > 0 {
		b.requests = perMinute(c.requestsPerMinute)
	}
	for _, limit := range c.tools {
		b.tools = append(b.tools, perMinute(limit.CallsPerMinute))
	}
	c.callers[caller] = c.recent.PushFront(b)
	return b
}

// perMinute allows a number of requests at once, and regains them within a minute.
func perMinute(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(n)/60, n) }

// request counts a request, and returns how long the caller must wait if it sends too many.
func (b *buckets) request(now time.Time) time.Duration {
	if b.requests == nil {
		return 0
	}
	return b.take(now, b.requests)
}

// call counts a call of a tool, and returns how long the caller must wait if it sends too many.
func (c *rates) call(b *buckets, tool string, now time.Time) time.Duration {
	var limiters []*rate.Limiter
	for i, limit := range c.tools {
		if toolname.Matches(limit.Pattern, tool) {
			limiters = append(limiters, b.tools[i])
		}
	}
	return b.take(now, limiters...)
}

// take takes one token of each limiter, or none if the caller must wait for one of them. It looks before it takes, because
// a limiter does not get back a reservation that is canceled after another one was made.
func (b *buckets) take(now time.Time, limiters ...*rate.Limiter) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var wait time.Duration
	for _, limiter := range limiters {
		missing := 1 - limiter.TokensAt(now)
		wait = max(wait, time.Duration(missing/float64(limiter.Limit())*float64(time.Second)))
	}
	if wait == 0 {
		for _, limiter := range limiters {
			limiter.ReserveN(now, 1) // It exists, but for rounding.
		}
	}
	return wait
}

// inSeconds rounds up to whole seconds, at least one, as in Retry-After.
func inSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
