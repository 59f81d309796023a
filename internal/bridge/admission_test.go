package bridge

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestAdmission(t *testing.T) {
	const me, other, third = "10.0.0.1", "10.0.0.2", "10.0.0.3"
	unused := func(caller string, idle time.Duration) resident { return resident{caller: caller, idle: idle} }
	used := func(caller string, idle time.Duration) resident {
		return resident{caller: caller, used: true, idle: idle}
	}
	stopping := func(caller string) resident { return resident{caller: caller, stopping: true} }
	pending := resident{caller: me, used: true, pending: true, idle: time.Hour}
	starting := resident{caller: me, pending: true}
	cases := map[string]struct {
		maxPerCaller int
		residents    []resident
		want         int
	}{
		"own session that was never used":                   {4, []resident{used(me, time.Hour), unused(me, time.Second)}, 1},
		"of several unused ones the oldest":                 {4, []resident{unused(me, time.Second), unused(me, time.Minute), unused(me, 0)}, 1},
		"longest idle":                                      {4, []resident{used(me, time.Minute), used(me, time.Hour)}, 1},
		"longest idle, the first":                           {4, []resident{used(me, time.Hour), used(me, time.Minute)}, 0},
		"used a moment ago":                                 {4, []resident{used(me, evictAfter-1), used(other, evictAfter-1)}, -1},
		"idle for long enough":                              {4, []resident{used(me, evictAfter)}, 0},
		"with a pending request":                            {4, []resident{pending}, -1},
		"with a pending initialize":                         {4, []resident{starting}, -1},
		"of an caller with more sessions":                   {4, []resident{unused(other, 0), unused(other, time.Second)}, 1},
		"of an caller with as many sessions":                {4, []resident{used(me, 0), unused(other, time.Hour)}, -1},
		"of an caller with fewer sessions":                  {4, []resident{used(me, 0), used(me, 0), unused(other, time.Hour)}, -1},
		"of an caller with one when the client has 0":       {4, []resident{used(other, evictAfter), used(third, 0)}, 0},
		"at the limit of the caller only own ones":          {2, []resident{used(me, 0), used(me, 0), unused(other, time.Hour), unused(other, time.Hour), unused(other, time.Hour)}, -1},
		"at the limit of the caller an own one":             {2, []resident{used(me, 0), used(me, time.Minute), unused(other, time.Hour)}, 1},
		"one that has ended before one that was never used": {4, []resident{unused(me, time.Hour), stopping(me)}, 1},
		"one that has ended, of an caller with fewer":       {4, []resident{used(me, 0), used(me, 0), stopping(other)}, 2},
		"one that has ended, but the caller has its limit":  {1, []resident{used(me, 0), stopping(other)}, -1},
		"no sessions":                                       {4, nil, -1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a := admission{maxSessions: 4, maxPerCaller: c.maxPerCaller, counts: map[string]int{}}
			for _, r := range c.residents {
				a.add(r.caller)
			}
			NewWithT(t).Expect(a.victim(c.residents, me)).To(Equal(c.want))
		})
	}
}

func TestAdmissionLimits(t *testing.T) {
	g := NewWithT(t)
	retried := And(HaveField("Reason", reasonTooManySessions), HaveField("RetryAfter", 5))
	a := admission{maxSessions: 3, maxPerCaller: 2, counts: map[string]int{}}
	g.Expect(a.full("one")).To(BeNil())
	a.add("one")
	a.add("one")
	g.Expect(a.full("one")).To(And(MatchError(ContainSubstring("the limit of 2 sessions per caller is reached")), retried))
	g.Expect(a.full("two")).To(BeNil())
	a.add("two")
	g.Expect(a.full("three")).To(And(MatchError(ContainSubstring("the limit of 3 sessions is reached")), retried))
	a.remove("one")
	g.Expect(a.counts).To(HaveKeyWithValue("one", 1))
	a.remove("one")
	a.remove("two")
	g.Expect(a.counts).To(BeEmpty())
	g.Expect(a.total).To(BeZero())
}

func TestDefaultLimitPerCaller(t *testing.T) {
	for sessions, want := range map[int]int{1: 1, 9: 9, 10: 9, 100: 90, 10000: 9000} {
		o := Options{Command: []string{"x"}, MaxSessions: sessions}
		NewWithT(t).Expect(o.complete()).To(Succeed())
		NewWithT(t).Expect(o.MaxSessionsPerCaller).To(Equal(want))
	}
}

func TestLargeMessagesFitIntoTheMemory(t *testing.T) {
	cases := map[string]struct {
		memory  int64
		message int
		want    int
	}{
		"default":        {256 << 20, 4 << 20, 16},
		"large messages": {256 << 20, 256 << 20, 2},
		"small messages": {256 << 20, 1 << 10, 64},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := Options{MemoryBytes: c.memory, MaxMessageBytes: c.message}
			NewWithT(t).Expect(o.largeMessages()).To(Equal(c.want))
		})
	}
}
