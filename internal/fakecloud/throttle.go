package fakecloud

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// throttle keeps the buckets of every caller in every subscription, and what it has
// told whom. It is not part of the state: a restart fills the buckets.
type throttle struct {
	levels map[string]*level
	// told says until when a call was told to wait, by caller, method and resource.
	told map[string]time.Time
}

type level struct {
	tokens float64
	at     time.Time
}

func newThrottle() *throttle {
	return &throttle{levels: map[string]*level{}, told: map[string]time.Time{}}
}

// verdict is what the throttle makes of a call.
type verdict struct {
	throttled bool
	early     bool
	wait      time.Duration
	// left is how many calls the bucket has left; -1 if it throttles nothing.
	left int
}

// take lets a call pass for a token. A call that comes before the time that it was
// told is told to wait anew and takes no token, whatever there is in the bucket.
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

// throttled spends a token of the caller, or says how long to wait for one.
func (s *Server) throttled(c *call) *Error {
	kind, bucket := s.bucket(c.method)
	caller := strings.ToLower(kind + " " + c.path.subscription + " " + c.who.name)
	v := s.throttle.take(caller, c.method+" "+strings.ToLower(c.path.id()), bucket, s.hint(), c.now)
	if v.left >= 0 {
		c.remaining = map[string]string{"x-ms-ratelimit-remaining-subscription-" + kind + "s": strconv.Itoa(v.left)}
	}
	if !v.throttled {
		return nil
	}
	c.early = v.early
	return &Error{
		Status:     http.StatusTooManyRequests,
		Code:       "SubscriptionRequestsThrottled",
		Message:    "Number of '" + kind + "' requests for subscription '" + c.path.subscription + "' actor '" + c.who.objectID + "' exceeded. Please try again after '" + seconds(v.wait) + "' seconds after additional tokens are available. Refer to https://aka.ms/arm-throttling for additional information.",
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

// hint is the grain of what callers are told to wait.
func (s *Server) hint() time.Duration {
	if s.knobs.MillisecondHints {
		return time.Millisecond
	}
	return time.Second
}
