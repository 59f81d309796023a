package fakecloud

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// timeout is long enough for a slow disk and a loaded machine.
const timeout = 30 * time.Second

func TestDelays(t *testing.T) {
	for text, c := range map[string]struct {
		delay       Delay
		low, middle time.Duration
	}{
		"17s":           {Fixed(17 * time.Second), 17 * time.Second, 17 * time.Second},
		"10s..30s":      {Between(10*time.Second, 30*time.Second), 10 * time.Second, 20 * time.Second},
		"exp(10s,1m0s)": {Exponential(10*time.Second, time.Minute), 0, 6931471805},
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			parsed, err := ParseDelay(text)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(parsed).To(Equal(c.delay))
			g.Expect(parsed.String()).To(Equal(text))
			g.Expect(parsed.at(0)).To(Equal(c.low))
			g.Expect(parsed.at(0.5)).To(BeNumerically("~", c.middle, 1))
			g.Expect(parsed.at(0.9999999)).To(BeNumerically("<=", parsed.Max))
		})
	}
	for _, bad := range []string{"", "soon", "30s..10s", "-1s", "exp(1s)", "exp(2s,1s)"} {
		_, err := ParseDelay(bad)
		NewWithT(t).Expect(err).To(HaveOccurred(), bad)
	}
}

func TestPresets(t *testing.T) {
	g := NewWithT(t)
	compressed, err := Preset("realistic/100")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(compressed.PollInterval).To(Equal(Fixed(170 * time.Millisecond)))
	g.Expect(compressed.GrantDelay).To(Equal(Exponential(900*time.Millisecond, 6*time.Second)))
	g.Expect(compressed.Writes).To(Equal(Bucket{Capacity: 200, PerSecond: 1000}))
	g.Expect(compressed.MillisecondHints).To(BeTrue())
	for _, bad := range []string{"", "wild", "realistic/0", "realistic/fast"} {
		_, err := Preset(bad)
		g.Expect(err).To(HaveOccurred(), bad)
	}
}

func TestKnobsRoundTripThroughJSON(t *testing.T) {
	g := NewWithT(t)
	knobs := nervous()
	knobs.Denied = []Denial{{Who: "x", Action: "Microsoft.Storage/*"}}
	text, err := json.Marshal(knobs)
	g.Expect(err).NotTo(HaveOccurred())
	read, err := Knobs{}.merge(text)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read).To(Equal(knobs))
}

func TestEveryDelayIsCompressed(t *testing.T) {
	g := NewWithT(t)
	var slow Knobs
	for _, d := range slow.delays() {
		*d = Fixed(time.Hour)
	}
	text, err := json.Marshal(slow.Compress(3600))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(text)).NotTo(ContainSubstring("h"+"0m"), "a delay that Compress forgets")
	var fields map[string]any
	g.Expect(json.Unmarshal(text, &fields)).To(Succeed())
	seconds := 0
	for _, value := range fields {
		if value == "1s" {
			seconds++
		}
	}
	g.Expect(seconds).To(Equal(len(slow.delays())))
}

func TestLatencyUsesTheServersClock(t *testing.T) {
	f := newFixture(t, Knobs{Latency: Fixed(time.Second)})
	answered := make(chan error, 1)
	go func() { answered <- f.create("data1") }()
	f.Eventually(f.clock.HasWaiters).WithTimeout(timeout).Should(BeTrue())
	f.Expect(f.cloud.Ledger()).To(BeEmpty())
	f.clock.Step(time.Second)
	f.Eventually(answered).WithTimeout(timeout).Should(Receive(BeNil()))
	f.Expect(f.cloud.Ledger()).To(ConsistOf(HaveField("Time", noon.Add(time.Second))))
}
