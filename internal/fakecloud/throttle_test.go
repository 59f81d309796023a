package fakecloud

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// write sends a PATCH of a missing account, which takes a token too.
func (f *fixture) write(name string) *http.Response {
	response, _ := f.raw("PATCH", f.accountPath(name)+"?api-version=2024-01-01", `{"tags":{}}`)
	return response
}

func TestThrottlingByTokenBucket(t *testing.T) {
	f := newFixture(t, Knobs{Writes: Bucket{Capacity: 200, PerSecond: 10}, Reads: Bucket{Capacity: 250, PerSecond: 25}})

	// given a burst of 200 writes, the capacity of the bucket
	for i := range 200 {
		response := f.write(fmt.Sprint("burst", i))
		f.Expect(response.StatusCode).To(Equal(http.StatusNotFound))
		f.Expect(response.Header.Get("x-ms-ratelimit-remaining-subscription-writes")).To(Equal(fmt.Sprint(199 - i)))
	}

	// The next one is throttled for a whole second, although a token takes a tenth
	response := f.write("late")
	f.Expect(response.StatusCode).To(Equal(http.StatusTooManyRequests))
	f.Expect(response.Header.Get("Retry-After")).To(Equal("1"))
	f.Expect(response.Header.Get("x-ms-retry-after-ms")).To(BeEmpty())

	// An early retry is throttled again, although the bucket has tokens
	f.clock.Step(900 * time.Millisecond)
	f.Expect(f.write("late").StatusCode).To(Equal(http.StatusTooManyRequests))
	f.Expect(f.cloud.Total("late")).To(Equal(Count{Writes: 2, Throttled: 2, EarlyRetries: 1}))
	f.Expect(f.cloud.Ledger()).To(ContainElement(HaveField("EarlyRetry", true)))
	f.clock.Step(999 * time.Millisecond)
	f.Expect(f.write("late").StatusCode).To(Equal(http.StatusTooManyRequests))
	f.clock.Step(time.Second)
	f.Expect(f.write("late").StatusCode).To(Equal(http.StatusNotFound))
	f.Expect(f.cloud.Total("late").EarlyRetries).To(Equal(2))

	// After 2.899 seconds, 28 tokens were added and one was taken
	passed := 0
	for f.write(fmt.Sprint("then", passed)).StatusCode != http.StatusTooManyRequests {
		passed++
	}
	f.Expect(passed).To(Equal(27))

	// Reads and other callers have other buckets
	f.Expect(f.err404("missing")).To(HaveField("StatusCode", http.StatusNotFound))
	f.as("another caller")
	f.Expect(status(f.tag("missing", "x"))).To(Equal(http.StatusNotFound))
}

func TestBucketIsLimitedByItsCapacity(t *testing.T) {
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

func TestCompressedRetryAfterIsInMilliseconds(t *testing.T) {
	f := newFixture(t, Knobs{Writes: Bucket{Capacity: 1, PerSecond: 10}}.Compress(2))
	f.Expect(f.write("first").StatusCode).To(Equal(http.StatusNotFound))
	response := f.write("second")
	f.Expect(response.Header.Get("Retry-After")).To(Equal("1"))
	f.Expect(response.Header.Get("x-ms-retry-after-ms")).To(Equal("50"))
	f.clock.Step(50 * time.Millisecond)
	f.Expect(f.write("second").StatusCode).To(Equal(http.StatusNotFound))
	f.Expect(f.cloud.Total("").EarlyRetries).To(BeZero())
}

// A thousand writes that honor Retry-After take as long as the bucket requires, without early retries.
func TestRequestsThatHonorRetryAfterSucceed(t *testing.T) {
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
