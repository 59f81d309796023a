package prober

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
)

func TestOptionsHaveDefaults(t *testing.T) {
	g := NewWithT(t)
	p := newProber(t, Options{})
	g.Expect(p.options.Concurrency).To(Equal(DefaultConcurrency))
	g.Expect(p.options.ListEvery).To(Equal(DefaultListEvery))
	g.Expect(p.options.Version).To(Equal("unknown"))
	g.Expect(p.options.Dial).NotTo(BeNil())
	g.Expect(p.options.Clock.Since(time.Now())).To(BeNumerically("~", 0, time.Minute))
	g.Expect(p.DialsReplicas()).To(BeTrue())

	p = newProber(t, Options{Concurrency: 3, ListEvery: 2, Version: "1.2"})
	g.Expect(p.options.Concurrency).To(Equal(3))
	g.Expect(p.options.ListEvery).To(Equal(2))
	g.Expect(p.options.Version).To(Equal("1.2"))
}

func TestRejectsNegativeOptions(t *testing.T) {
	g := NewWithT(t)
	for _, options := range []Options{{Concurrency: -1}, {ListEvery: -1}} {
		_, err := New(options)
		g.Expect(err).To(MatchError("Concurrency and ListEvery must not be negative"))
	}
}

func TestMetricsOfOthersAreAnError(t *testing.T) {
	for _, name := range []string{"fixpoint_mcp_probes_total", "fixpoint_mcp_probe_duration_seconds", "fixpoint_mcp_probe_queue_delay_seconds"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			registry := prometheus.NewRegistry()
			registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "Another metric."}))
			_, err := New(Options{Metrics: registry})
			g.Expect(err).To(MatchError(ContainSubstring("registering the metrics of the prober: ")))
		})
	}
}

// Several managers of a process count in the same metrics.
func TestProbesAreCountedByTheirResult(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	one, other := newProber(t, Options{Metrics: registry}), newProber(t, Options{Metrics: registry})
	one.metrics.observe(nil, time.Second)
	one.metrics.observe(&Error{Kind: Refused}, 2*time.Second)
	other.metrics.observe(&Error{Kind: Refused}, MaxTimeout)
	other.metrics.delay.Observe(60)

	counts, sums, last := map[string]float64{}, map[string]float64{}, map[string]float64{}
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetCounter() != nil {
				counts[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
				continue
			}
			sums[family.GetName()] = m.GetHistogram().GetSampleSum()
			buckets := m.GetHistogram().GetBucket()
			last[family.GetName()] = buckets[len(buckets)-1].GetUpperBound()
		}
	}
	g.Expect(counts).To(Equal(map[string]float64{"Answering": 1, "Refused": 2}))
	g.Expect(sums).To(Equal(map[string]float64{"fixpoint_mcp_probe_duration_seconds": 33, "fixpoint_mcp_probe_queue_delay_seconds": 60}))
	g.Expect(last).To(HaveKeyWithValue("fixpoint_mcp_probe_duration_seconds", MaxTimeout.Seconds()), "the longest probe")
	g.Expect(last).To(HaveKeyWithValue("fixpoint_mcp_probe_queue_delay_seconds", 60.0))
}

func TestMetricOfAnotherTypeIsAnError(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	g.Expect(New(Options{Metrics: registry})).NotTo(BeNil())
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		registry = prometheus.NewRegistry()
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: family.GetName(), Help: family.GetHelp()}))
		_, err := New(Options{Metrics: registry})
		g.Expect(err).To(MatchError(ContainSubstring("registering the metrics of the prober: ")), family.GetName())
	}
}
