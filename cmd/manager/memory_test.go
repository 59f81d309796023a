package main

import (
	"testing"

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

func TestReadsTheHeap(t *testing.T) {
	g := NewWithT(t)
	_, allocated := readHeap()
	g.Expect(allocated).NotTo(BeZero())
}

func TestReturnsMemoryOnceWhenIdle(t *testing.T) {
	g := NewWithT(t)
	var h heap
	busy, idle := uint64(2*returnBytes), uint64(idleBytes/2)

	g.Expect(h.observe(1, busy)).To(BeFalse(), "it is busy")
	g.Expect(h.observe(1, busy+idle)).To(BeTrue(), "it has become idle")
	g.Expect(h.observe(1, busy+2*idle)).To(BeFalse(), "little has been allocated since")
	g.Expect(h.observe(1, 2*busy)).To(BeFalse(), "it is busy again")
	g.Expect(h.observe(2, 2*busy+idle)).To(BeTrue())
	g.Expect(h.live).To(Equal(uint64(2)))
}
