package measure

import (
	"fmt"
	"strings"
)

// Comparison is a measurement of two programs, in a table with a column for each.
type Comparison struct {
	// What is measured, and the key of its values.
	What string
	// Format prints a value.
	Format func(float64) string
	// MostRatio is how many times the value of the peer the value may be; MostValue is the largest value. Zero is no bar,
	// unless Zero is set, which allows no value but 0.
	MostRatio, MostValue float64
	Zero                 bool
}

// Compare prints the medians of the rounds of a peer and of a subject, their ratio, and whether the bar is met. What was
// not measured is left out.
func Compare(peer, subject string, rows []Comparison, peers, subjects []map[string]float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| what | %s | %s | ratio | bar | |\n| --- | --- | --- | --- | --- | --- |\n", peer, subject)
	for _, row := range rows {
		left, measured := medianOf(peers, row.What)
		right, alsoMeasured := medianOf(subjects, row.What)
		if !measured || !alsoMeasured {
			continue
		}
		bar, verdict := row.verdict(left, right)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", row.What, row.Format(left), row.Format(right), ratio(left, right), bar, verdict)
	}
	return b.String()
}

func (c Comparison) verdict(peer, subject float64) (bar, verdict string) {
	var met bool
	switch {
	case c.MostRatio > 0:
		bar, met = fmt.Sprintf("ratio at most %.2f", c.MostRatio), subject <= c.MostRatio*peer
	case c.MostValue > 0:
		bar, met = "at most "+c.Format(c.MostValue), subject <= c.MostValue
	case c.Zero:
		bar, met = "0", subject == 0
	default:
		return "-", ""
	}
	if met {
		return bar, "reached"
	}
	return bar, "MISSED"
}

func ratio(peer, subject float64) string {
	if peer == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", subject/peer)
}

func medianOf(rounds []map[string]float64, key string) (float64, bool) {
	var all []float64
	for _, round := range rounds {
		if value, ok := round[key]; ok {
			all = append(all, value)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return Median(all), true
}

// Formats of measurements.

// Seconds prints seconds.
func Seconds(v float64) string { return fmt.Sprintf("%.2f s", v) }

// Millis prints milliseconds.
func Millis(v float64) string { return fmt.Sprintf("%.1f ms", v) }

// Number prints a count, or a mean of counts.
func Number(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// Megabytes prints bytes in units of 1,000,000 bytes.
func Megabytes(v float64) string { return fmt.Sprintf("%.1f MB", v/1e6) }

// Kilobytes prints bytes in units of 1,000 bytes.
func Kilobytes(v float64) string { return fmt.Sprintf("%.1f KB", v/1e3) }

// Percent prints a share.
func Percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
