package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestGCPercent(t *testing.T) {
	const mega = 1 << 20
	for name, c := range map[string]struct {
		live uint64
		want int
	}{
		"before the first collection": {0, 700},
		"a small heap":                {4 * mega, 700},
		"half of the floor":           {16 * mega, 100},
		"a large heap":                {200 * mega, 100},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(gcPercent(c.live)).To(Equal(c.want))
		})
	}
}

// A heap that has grown is collected by the usual percentage, and one that has shrunk by a higher one.
func TestCollectorFollowsTheHeap(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	percent := func() int {
		runtime.GC()
		current := debug.SetGCPercent(-1)
		debug.SetGCPercent(current)
		return current
	}
	tuneCollector(100)
	large := make([]byte, 2*heapFloor)
	g.Eventually(percent).Should(Equal(100))
	runtime.KeepAlive(large)
	large = nil
	g.Eventually(percent).Should(BeNumerically(">", 100))
	g.Expect(large).To(BeNil())
}

func TestReturnsMemoryOnceWhenIdle(t *testing.T) {
	g := NewWithT(t)
	var h heap
	busy, idle := uint64(2*returnBytes), uint64(idleBytes/2)

	g.Expect(h.observe(busy)).To(BeFalse(), "it is busy")
	g.Expect(h.observe(busy+idle)).To(BeTrue(), "it has become idle")
	g.Expect(h.observe(busy+2*idle)).To(BeFalse(), "little has been allocated since")
	g.Expect(h.observe(2*busy)).To(BeFalse(), "it is busy again")
	g.Expect(h.observe(2*busy + idle)).To(BeTrue())
}
