// Package measure holds what the benchmarks have in common: rows of a table with a bar for each, and the
// time from a drift to its repair as a multiple of one raw apply, since machines differ and are noisy.
package measure

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Row is one measurement in a table.
type Row struct {
	What, Bar, Measured string
	// OK says whether the bar is reached.
	OK bool
}

// Table is the rows in Markdown.
func Table(rows []Row) string {
	var b strings.Builder
	b.WriteString("| what | bar | measured | |\n| --- | --- | --- | --- |\n")
	for _, row := range rows {
		verdict := "reached"
		if !row.OK {
			verdict = "MISSED"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", row.What, row.Bar, row.Measured, verdict)
	}
	return b.String()
}

// Median is the middle one of values, of which there is at least one.
func Median[T int | float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Milliseconds is a duration as a number.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Reconciles is how many reconciles this process has finished, from controller-runtime's metric.
func Reconciles() (float64, error) {
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		return 0, fmt.Errorf("reading the metrics: %w", err)
	}
	total := 0.0
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			total += metric.GetCounter().GetValue()
		}
	}
	return total, nil
}

// Quantile is the smallest of the values that at least the share q of them does not exceed. Without values it is 0.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, min(len(sorted)-1, int(math.Ceil(q*float64(len(sorted))))-1))]
}
