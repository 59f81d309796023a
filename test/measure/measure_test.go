package measure

import (
	"encoding/xml"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[len(hundred)-1-i] = float64(i + 1)
	}
	for name, c := range map[string]struct {
		values []float64
		q      float64
		want   float64
	}{
		"no value":              {nil, 0.5, 0},
		"one value":             {[]float64{7}, 0.99, 7},
		"p50 of a hundred":      {hundred, 0.5, 50},
		"p99 of a hundred":      {hundred, 0.99, 99},
		"p99 of ten is largest": {hundred[:10], 0.99, 100},
		"smallest":              {hundred, 0, 1},
		"largest":               {hundred, 1, 100},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Quantile(c.values, c.q)).To(Equal(c.want))
		})
	}
}

func TestCompareTakesTheMediansOfTheRounds(t *testing.T) {
	g := NewWithT(t)
	rows := []Comparison{
		{What: "time", Format: Seconds, MostRatio: 1.25},
		{What: "processor", Format: Seconds, MostRatio: 1.8},
		{What: "heap", Format: Kilobytes, MostValue: 14e3},
		{What: "binary", Format: Megabytes, MostValue: 60e6},
		{What: "at rest", Format: Number, Zero: true},
		{What: "after a start", Format: Number, Zero: true},
		{What: "peak", Format: Millis},
		{What: "not measured", Format: Number},
	}
	peers := []map[string]float64{
		{"time": 4, "processor": 1, "heap": 9e3, "binary": 30e6, "at rest": 0, "after a start": 0, "peak": 2, "not measured": 1},
		{"time": 1}, {"time": 9},
	}
	subjects := []map[string]float64{
		{"time": 5, "processor": 1.9, "heap": 14e3, "binary": 61e6, "at rest": 0, "after a start": 0.5, "peak": 3},
		{"time": 50}, {"time": 2},
	}
	g.Expect(Compare("textbook", "Fixpoint", rows, peers, subjects)).To(Equal(`| what | textbook | Fixpoint | ratio | bar | |
| --- | --- | --- | --- | --- | --- |
| time | 4.00 s | 5.00 s | 1.25 | ratio at most 1.25 | reached |
| processor | 1.00 s | 1.90 s | 1.90 | ratio at most 1.80 | MISSED |
| heap | 9.0 KB | 14.0 KB | 1.56 | at most 14.0 KB | reached |
| binary | 30.0 MB | 61.0 MB | 2.03 | at most 60.0 MB | MISSED |
| at rest | 0 | 0 | - | 0 | reached |
| after a start | 0 | 0.5 | - | 0 | MISSED |
| peak | 2.0 ms | 3.0 ms | 1.50 | - |  |
`))
}

func TestRequestTableCountsPerObjectWithoutWatches(t *testing.T) {
	g := NewWithT(t)
	status := cluster.Request{Verb: "update", Group: "fixpoint.dev", Resource: "appservices", Subresource: "status"}
	left := cluster.Requests{status, status, {Verb: "watch", Resource: "services"}}
	right := cluster.Requests{status, {Verb: "get", URI: "/apis?timeout=32s"}}
	g.Expect(RequestTable(2, left, right, ByTarget)).To(Equal(`| get /apis | 0.00 | 0.50 |
| update appservices/status | 1.00 | 0.50 |
`))
}

func TestParseStat(t *testing.T) {
	const rest = " S 41 1 1 0 -1 4194560 1 2 3 4 250 50 7 8 20 0 12 0 100"
	g := NewWithT(t)
	found, err := parseStat("42 (kube) api (2))" + rest)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(Equal(stat{name: "kube) api (2)", parent: 41, processor: 3 * time.Second}))
	for _, broken := range []string{"", "42 etcd" + rest, "42 (etcd) S 1", "42 (etcd) S x 1 1 0 -1 4194560 1 2 3 4 250 50 7"} {
		_, err := parseStat(broken)
		g.Expect(err).To(HaveOccurred(), broken)
	}
}

func TestParseMemory(t *testing.T) {
	status := "Name:\tmanager\nVmHWM:\t   90 kB\nVmRSS:\t   80 kB\nRssAnon:\t   30 kB\nThreads:\t9\n"
	NewWithT(t).Expect(parseMemory(status)).To(Equal(Memory{Anonymous: 30 << 10, Resident: 80 << 10, Peak: 90 << 10}))
}

func TestTickLeavesAtMostFiveSteps(t *testing.T) {
	for most, want := range map[float64]float64{0: 1, 1: 0.2, 4.9: 1, 5: 1, 5.1: 2, 93: 20, 200: 50, 10000: 2000, 26000: 10000} {
		NewWithT(t).Expect(tick(most)).To(BeNumerically("~", want, 1e-9), "%g", most)
	}
}

func TestSVGDrawsEachLineOverTheWholeChart(t *testing.T) {
	g := NewWithT(t)
	chart := Chart{Title: "Memory", X: "objects", Y: "MB", Lines: []Line{
		{Name: "a < b", Points: []Point{{0, 0}, {100, 10}}},
		{Name: "none"},
	}}
	svg, err := SVG([]Chart{chart, chart})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(xml.Unmarshal([]byte(svg), new(struct{}))).To(Succeed())
	g.Expect(svg).To(And(
		ContainSubstring(`viewBox="0 0 640 600"`),
		ContainSubstring(`points="60.0,260.0 580.0,40.0"`),
		ContainSubstring(">a &lt; b</text>"),
		ContainSubstring(">100</text>"),
	))
}
