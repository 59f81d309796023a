package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// benchmark is a Go benchmark of the libraries that has a bar.
type benchmark struct {
	folder, name, what string
	microseconds       float64
}

var benchmarks = []benchmark{
	{"./pkg/ssa", "BenchmarkQuietCheck", "the quiet check of one Deployment, live object at hand", 25},
	{"./pkg/ssa", "BenchmarkExtractAndCompare", "Extract and compare of the same Deployment, for comparison", 0},
	{"./pkg/ssa", "BenchmarkRepair", "deciding and encoding the repair of the same Deployment", 400},
	{"./pkg/phases", "BenchmarkEngine6DonePhases", "the engine's own share for 6 done phases", 5},
}

// microbenchmarks runs the libraries' benchmarks before the cluster makes the machine busy.
func microbenchmarks(ctx context.Context) ([]measure.Row, error) {
	var rows []measure.Row
	for _, b := range benchmarks {
		median, err := b.run(ctx)
		if err != nil {
			return nil, err
		}
		row := measure.Row{What: b.what, Bar: "-", Measured: fmt.Sprintf("%.1f µs", median), OK: true}
		if b.microseconds > 0 {
			row.Bar, row.OK = fmt.Sprintf("at most %.0f µs", b.microseconds), median <= b.microseconds
		}
		rows = append(rows, row)
	}
	return rows, nil
}

var result = regexp.MustCompile(`(?m)^Benchmark\S+\s+\d+\s+([\d.]+) ns/op`)

// run gives the median of five runs, in microseconds.
func (b benchmark) run(ctx context.Context) (float64, error) {
	command := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=^"+b.name+"$", "-count=5", b.folder)
	command.Dir = ".."
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
	return measure.Median(times), nil
}
