package fakecloud

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// ShiftedClock is the real clock, except that it can be put forward: that is how the
// admin API lets a day pass in a cloud that somebody runs.
type ShiftedClock struct {
	clock.RealClock
	shift atomic.Int64
}

// Now implements clock.Clock.
func (c *ShiftedClock) Now() time.Time {
	return c.RealClock.Now().Add(time.Duration(c.shift.Load()))
}

// Since implements clock.Clock.
func (c *ShiftedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Step puts the clock forward. Timers that run already are not moved.
func (c *ShiftedClock) Step(d time.Duration) { c.shift.Add(int64(d)) }
