package fakecloud

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// throttle holds the token buckets of each caller and subscription, and the waits it asked for. A restart
// fills the buckets.
type throttle struct {
	levels map[string]*level
	// told is until when a request has to wait, by caller, method and resource.
	told map[string]time.Time
}

type level struct {
	tokens float64
	at     time.Time
}

func newThrottle() *throttle {
	return &throttle{levels: map[string]*level{}, told: map[string]time.Time{}}
}

// verdict is the result for a request.
type verdict struct {
	throttled bool
	early     bool
	wait      time.Duration
	// left is the number of remaining requests; -1 without a limit.
	left int
}

// take takes a token for a request. A request before the end of its wait is an early retry: it has to wait
// longer, and takes no token.
func (t *throttle) take(caller, call string, bucket Bucket, round time.Duration, now time.Time) verdict {
	if bucket.Capacity <= 0 {
		return verdict{left: -1}
	}
	key := caller + " " + call
	l := t.refill(caller, bucket, now)
	until, waiting := t.told[key]
	early := waiting && now.Before(until)
	if !early && l.tokens >= 1 {
		l.tokens--
		delete(t.told, key)
		return verdict{left: int(l.tokens)}
	}
	wait := max(roundUp(bucket.untilToken(l.tokens), round), round)
	t.told[key] = now.Add(wait)
	return verdict{throttled: true, early: early, wait: wait}
}

func roundUp(d, unit time.Duration) time.Duration {
	if rest := d % unit; rest > 0 {
		return d + unit - rest
	}
	return d
}

func (t *throttle) refill(caller string, bucket Bucket, now time.Time) *level {
	l := t.levels[caller]
	if l == nil {
		l = &level{tokens: bucket.Capacity, at: now}
		t.levels[caller] = l
	}
	l.tokens = math.Min(bucket.Capacity, l.tokens+now.Sub(l.at).Seconds()*bucket.PerSecond)
	l.at = now
	return l
}

func (b Bucket) untilToken(tokens float64) time.Duration {
	if tokens >= 1 || b.PerSecond <= 0 {
		return 0
	}
	return time.Duration((1 - tokens) / b.PerSecond * float64(time.Second))
}

// throttled takes a token of the caller, or rejects the request.
func (s *Server) throttled(c *call) *Error {
	kind, bucket := s.bucket(c.method)
	caller := strings.ToLower(kind + " " + c.path.subscription + " " + c.who.name)
	v := s.throttle.take(caller, c.method+" "+strings.ToLower(c.path.id()), bucket, s.hint(), c.now)
	if v.left >= 0 {
		c.remaining = map[string]string{"x-ms-ratelimit-remaining-subscription-" + kind + "s": strconv.Itoa(v.left)}
	}
	if !v.throttled {
		return s.throttledList(c)
	}
	c.early = v.early
	return &Error{
		Status:     http.StatusTooManyRequests,
		Code:       "SubscriptionRequestsThrottled",
		Message:    "Number of '" + kind + "' requests for subscription '" + c.path.subscription + "' actor '" + c.who.objectID + "' exceeded. Please try again after '" + seconds(v.wait) + "' seconds after additional tokens are available. Refer to https://aka.ms/arm-throttling for additional information.",
		RetryAfter: v.wait,
	}
}

// throttledList rejects a list of storage accounts without a token. The storage resource provider limits lists in
// addition, in a window of 5 minutes.
func (s *Server) throttledList(c *call) *Error {
	if c.path.kind() != strings.ToLower(accountKind) || c.path.item() {
		return nil
	}
	v := s.throttle.take("account lists "+strings.ToLower(c.path.subscription), c.who.name+" "+strings.ToLower(c.path.id()), s.knobs.AccountLists, s.hint(), c.now)
	if !v.throttled {
		return nil
	}
	c.early = v.early
	return &Error{
		Status:     http.StatusTooManyRequests,
		Code:       "TooManyRequests",
		Message:    "The request is being throttled as the limit has been reached for operation type - List_ObservationWindow_00:05:00. For more information, see - https://aka.ms/srpthrottlinglimits",
		RetryAfter: v.wait,
	}
}

func (s *Server) bucket(method string) (string, Bucket) {
	switch method {
	case http.MethodGet, http.MethodHead:
		return "read", s.knobs.Reads
	case http.MethodDelete:
		return "delete", s.knobs.Deletes
	default:
		return "write", s.knobs.Writes
	}
}

// hint is the unit of the waits.
func (s *Server) hint() time.Duration {
	if s.knobs.MillisecondHints {
		return time.Millisecond
	}
	return time.Second
}
