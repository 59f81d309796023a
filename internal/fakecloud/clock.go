package fakecloud

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// ShiftedClock is the real clock plus an offset. With it, the admin API can advance the time of a
// running server.
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

// Step advances the clock. Timers that are already running are not affected.
func (c *ShiftedClock) Step(d time.Duration) { c.shift.Add(int64(d)) }
