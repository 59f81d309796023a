package callpolicy

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func TestCallersRegainRequestsWithinAMinute(t *testing.T) {
	g := NewWithT(t)
	rates := newRates(&Options{RequestsPerMinute: 60})
	for range 60 {
		g.Expect(rates.of("ann").request(start)).To(BeZero())
	}
	g.Expect(rates.of("ann").request(start)).To(Equal(time.Second))
	g.Expect(rates.of("bob").request(start)).To(BeZero(), "another caller")
	g.Expect(rates.of("ann").request(start.Add(time.Second))).To(BeZero(), "what was refused is not counted")
	g.Expect(rates.of("ann").request(start.Add(1500 * time.Millisecond))).To(Equal(500 * time.Millisecond))
	for range 60 {
		g.Expect(rates.of("ann").request(start.Add(time.Hour))).To(BeZero())
	}
	g.Expect(rates.of("ann").request(start.Add(time.Hour))).NotTo(BeZero())
}

func TestLimitsOfCalls(t *testing.T) {
	g := NewWithT(t)
	rates := newRates(&Options{Tools: []ToolLimit{{"delete_*", 2}, {"*", 5}, {"get", 1}}})
	call := func(caller, tool string) time.Duration { return rates.call(rates.of(caller), tool, start) }
	g.Expect(rates.of("ann").request(start)).To(BeZero(), "requests have no limit")
	g.Expect(call("ann", "delete_a")).To(BeZero())
	g.Expect(call("ann", "delete_b")).To(BeZero())
	g.Expect(call("ann", "delete_c")).To(Equal(30*time.Second), "tools of a pattern are counted together")
	g.Expect(call("ann", "get")).To(BeZero())
	g.Expect(call("ann", "get")).To(Equal(time.Minute))
	g.Expect(call("ann", "set")).To(BeZero())
	g.Expect(call("ann", "set")).To(BeZero(), "refused calls are not counted")
	g.Expect(call("ann", "set")).To(Equal(12 * time.Second))
	g.Expect(call("bob", "set")).To(BeZero())
}

func TestCallersAreForgotten(t *testing.T) {
	g := NewWithT(t)
	rates := newRates(&Options{RequestsPerMinute: 1})
	rates.maxCallers = 2
	g.Expect(rates.of("a").request(start)).To(BeZero())
	g.Expect(rates.of("b").request(start)).To(BeZero())
	g.Expect(rates.of("a").request(start)).NotTo(BeZero())
	g.Expect(rates.of("c").request(start)).To(BeZero())
	g.Expect(rates.of("a").request(start)).NotTo(BeZero(), "it sent a request after b")
	g.Expect(rates.of("b").request(start)).To(BeZero(), "it was forgotten")
	g.Expect(rates.callers).To(HaveLen(2))
	g.Expect(rates.recent.Len()).To(Equal(2))
}

func TestLongNamesOfCallersAreHashed(t *testing.T) {
	g := NewWithT(t)
	rates := newRates(&Options{RequestsPerMinute: 1})
	long := strings.Repeat("a", 10_000)
	g.Expect(rates.of(long).request(start)).To(BeZero())
	g.Expect(rates.of(long).request(start)).NotTo(BeZero())
	g.Expect(rates.of(long + "b").request(start)).To(BeZero())
	for key := range rates.callers {
		g.Expect(len(key)).To(BeNumerically("<=", maxKey))
	}
}

func TestConcurrentCallersGetNoMoreThanTheirLimit(t *testing.T) {
	g := NewWithT(t)
	rates := newRates(&Options{RequestsPerMinute: 100})
	var mu sync.Mutex
	admitted := map[string]int{}
	var wait sync.WaitGroup
	for i := range 800 {
		wait.Go(func() {
			caller := strconv.Itoa(i % 4)
			if rates.of(caller).request(start) == 0 {
				mu.Lock()
				defer mu.Unlock()
				admitted[caller]++
			}
		})
	}
	wait.Wait()
	g.Expect(admitted).To(Equal(map[string]int{"0": 100, "1": 100, "2": 100, "3": 100}))
}

// Otherwise a caller that retries from many connections at once would wait for longer and longer, and everybody with the
// address of the same proxy with it.
func TestConcurrentRefusedRequestsAreNotCounted(t *testing.T) {
	for name, c := range map[string]struct {
		opts Options
		send func(rates *rates, now time.Time) time.Duration
	}{
		"requests": {Options{RequestsPerMinute: 60}, func(rates *rates, now time.Time) time.Duration { return rates.of("ann").request(now) }},
		"calls": {Options{Tools: []ToolLimit{{"*", 60}, {"get", 60}}}, func(rates *rates, now time.Time) time.Duration {
			return rates.call(rates.of("ann"), "get", now)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			rates := newRates(&c.opts)
			for range 60 {
				g.Expect(c.send(rates, start)).To(BeZero())
			}
			var wait sync.WaitGroup
			for range 16 {
				wait.Go(func() {
					for range 2000 {
						_ = c.send(rates, start)
					}
				})
			}
			wait.Wait()
			g.Expect(c.send(rates, start)).To(Equal(time.Second))
			g.Expect(c.send(rates, start.Add(time.Second))).To(BeZero())
		})
	}
}

func TestSecondsAreWholeAndAtLeastOne(t *testing.T) {
	for d, want := range map[time.Duration]int{0: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60} {
		NewWithT(t).Expect(inSeconds(d)).To(Equal(want), d.String())
	}
}
