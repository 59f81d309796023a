package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
)

// benchmark is a Go benchmark of the libraries that has a bar.
type benchmark struct {
	folder, name, what string
	microseconds       float64
}

var benchmarks = []benchmark{
	{"./pkg/ssa", "BenchmarkQuietCheck", "the quiet check of one Deployment, live object at hand", 25},
	{"./pkg/ssa", "BenchmarkExtractAndCompare", "Extract and compare of the same Deployment, for comparison", 0},
	{"./pkg/phases", "BenchmarkEngine6DonePhases", "the engine's own share for 6 done phases", 5},
}

// microbenchmarks runs the libraries' benchmarks before the cluster makes the machine busy.
func microbenchmarks(ctx context.Context) ([]measurement, error) {
	var rows []measurement
	for _, b := range benchmarks {
		median, err := b.run(ctx)
		if err != nil {
			return nil, err
		}
		row := measurement{what: b.what, bar: "-", measured: fmt.Sprintf("%.1f µs", median), ok: true}
		if b.microseconds > 0 {
			row.bar, row.ok = fmt.Sprintf("at most %.0f µs", b.microseconds), median <= b.microseconds
		}
		rows = append(rows, row)
	}
	return rows, nil
}

var result = regexp.MustCompile(`(?m)^Benchmark\S+\s+\d+\s+([\d.]+) ns/op`)

// run gives the median of five runs, in microseconds.
func (b benchmark) run(ctx context.Context) (float64, error) {
	command := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=^"+b.name+"$", "-count=5", b.folder)
	command.Dir = root()
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return 0, fmt.Errorf("running %s: %w\n%s", b.name, err, output)
	}
	var times []float64
	for _, match := range result.FindAllSubmatch(output, -1) {
		nanoseconds, err := strconv.ParseFloat(string(match[1]), 64)
		if err != nil {
			return 0, fmt.Errorf("reading the result of %s: %w", b.name, err)
		}
		times = append(times, nanoseconds/1000)
	}
	if len(times) == 0 {
		return 0, fmt.Errorf("there is no benchmark %s in %s", b.name, b.folder)
	}
	return median(times), nil
}

func median[T int | float64](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}
