package fakecloud

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// write sends a PATCH of an account that is not there: it costs a token all the same.
func (w *world) write(name string) *http.Response {
	response, _ := w.raw("PATCH", w.accountPath(name)+"?api-version=2024-01-01", `{"tags":{}}`)
	return response
}

func TestThrottlingArithmetic(t *testing.T) {
	w := newWorld(t, Knobs{Writes: Bucket{Capacity: 200, PerSecond: 10}, Reads: Bucket{Capacity: 250, PerSecond: 25}})

	// Given a burst of 200 writes, which the bucket holds
	for i := range 200 {
		response := w.write(fmt.Sprint("burst", i))
		w.Expect(response.StatusCode).To(Equal(http.StatusNotFound))
		w.Expect(response.Header.Get("x-ms-ratelimit-remaining-subscription-writes")).To(Equal(fmt.Sprint(199 - i)))
	}

	// The next one is throttled, and told to wait a whole second although a token takes a tenth
	response := w.write("late")
	w.Expect(response.StatusCode).To(Equal(http.StatusTooManyRequests))
	w.Expect(response.Header.Get("Retry-After")).To(Equal("1"))
	w.Expect(response.Header.Get("x-ms-retry-after-ms")).To(BeEmpty())

	// Coming back too early it is told to wait anew, although there are tokens by now
	w.clock.Step(900 * time.Millisecond)
	w.Expect(w.write("late").StatusCode).To(Equal(http.StatusTooManyRequests))
	w.Expect(w.cloud.Total("late")).To(Equal(Count{Writes: 2, Throttled: 2, EarlyRetries: 1}))
	w.Expect(w.cloud.Ledger()).To(ContainElement(HaveField("EarlyRetry", true)))
	w.clock.Step(999 * time.Millisecond)
	w.Expect(w.write("late").StatusCode).To(Equal(http.StatusTooManyRequests))
	w.clock.Step(time.Second)
	w.Expect(w.write("late").StatusCode).To(Equal(http.StatusNotFound))
	w.Expect(w.cloud.Total("late").EarlyRetries).To(Equal(2))

	// 2.899 seconds have passed: 28 tokens came, one was taken
	passed := 0
	for w.write(fmt.Sprint("then", passed)).StatusCode != http.StatusTooManyRequests {
		passed++
	}
	w.Expect(passed).To(Equal(27))

	// Reads have a bucket of their own, and so has everybody else
	w.Expect(w.err404("nobody")).To(HaveField("StatusCode", http.StatusNotFound))
	w.as("somebody else")
	w.Expect(status(w.tag("nobody", "x"))).To(Equal(http.StatusNotFound))
}

func TestABucketIsNeverFullerThanItsCapacity(t *testing.T) {
	g := NewWithT(t)
	bucket := Bucket{Capacity: 3, PerSecond: 2}
	throttle := newThrottle()
	count := func(now time.Time) int {
		for i := 0; ; i++ {
			if throttle.take("caller", fmt.Sprint(now, i), bucket, time.Millisecond, now).throttled {
				return i
			}
		}
	}
	g.Expect(count(noon)).To(Equal(3))
	g.Expect(count(noon.Add(499 * time.Millisecond))).To(Equal(0))
	g.Expect(count(noon.Add(500 * time.Millisecond))).To(Equal(1))
	g.Expect(count(noon.Add(time.Hour))).To(Equal(3))
}

func TestCompressedTimeIsToldInMilliseconds(t *testing.T) {
	w := newWorld(t, Knobs{Writes: Bucket{Capacity: 1, PerSecond: 10}}.Compress(2))
	w.Expect(w.write("first").StatusCode).To(Equal(http.StatusNotFound))
	response := w.write("second")
	w.Expect(response.Header.Get("Retry-After")).To(Equal("1"))
	w.Expect(response.Header.Get("x-ms-retry-after-ms")).To(Equal("50"))
	w.clock.Step(50 * time.Millisecond)
	w.Expect(w.write("second").StatusCode).To(Equal(http.StatusNotFound))
	w.Expect(w.cloud.Total("").EarlyRetries).To(BeZero())
}

// A thousand writes by callers that wait as they are told take as long as the bucket
// says, and none of them is an early retry.
func TestWhoWaitsAsToldGetsThrough(t *testing.T) {
	g := NewWithT(t)
	throttle, bucket := newThrottle(), Bucket{Capacity: 200, PerSecond: 10}
	due := map[int]time.Time{}
	for i := range 1000 {
		due[i] = noon
	}
	now, early := noon, 0
	for ; len(due) > 0; now = now.Add(100 * time.Millisecond) {
		for i := range 1000 {
			at, waiting := due[i]
			if !waiting || now.Before(at) {
				continue
			}
			v := throttle.take("caller", fmt.Sprint(i), bucket, time.Second, now)
			if v.early {
				early++
			}
			if delete(due, i); v.throttled {
				due[i] = now.Add(v.wait)
			}
		}
	}
	g.Expect(early).To(BeZero())
	g.Expect(now.Sub(noon)).To(BeNumerically("~", 80*time.Second, 2*time.Second))
}
