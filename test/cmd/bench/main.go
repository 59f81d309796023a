// Command bench measures what docs/benchmarks.md reports: requests counted by the API server's
// audit log, times from the Go benchmark harness, and latencies as multiples of one raw apply of
// the same run, since machines differ.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/test/measure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	count := flag.Int("n", 300, "how many AppServices the requests at rest are counted over")
	libraries := flag.Bool("libraries", true, "run the benchmarks of the libraries too")
	document := flag.String("write", "", "write the table into this Markdown file too")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())

	if err := run(ctx, *count, *libraries, *document); err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, count int, libraries bool, document string) (err error) {
	var rows []measure.Row
	if libraries {
		if rows, err = microbenchmarks(ctx); err != nil {
			return err
		}
	}

	arena, err := newArena(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, arena.close()) }()
	for _, measure := range []func(context.Context) ([]measure.Row, error){
		arena.writesToReady,
		arena.driftRepair,
		func(ctx context.Context) ([]measure.Row, error) { return arena.atRest(ctx, count) },
	} {
		measured, err := measure(ctx)
		if err != nil {
			return err
		}
		rows = append(rows, measured...)
	}
	table := measure.Table(rows)
	fmt.Print(table)
	if document == "" {
		return nil
	}
	return os.WriteFile(document, []byte(page(table)+others(document)), 0o644)
}

// others is the part of a document that bench-mcpserver writes, which is its end.
func others(document string) string {
	const heading = "\n## MCPServers\n"
	content, err := os.ReadFile(document)
	if err != nil {
		return "" // there is none yet
	}
	_, part, found := strings.Cut(string(content), heading)
	if !found {
		return ""
	}
	return heading + part
}

func page(table string) string {
	return fmt.Sprintf(`# Benchmarks

`+"`make bench`"+` prints this table; `+"`make bench WRITE=docs/benchmarks.md`"+` writes this page. Requests are
counted by the API server's audit log. Latencies are given as multiples of one raw apply that was
measured in the same run, because machines differ and are noisy. Kubernetes runs beside it on the
same cores.

Last run: %s/%s, %d cores (%s), %s.

%s`, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), cpuModel(), runtime.Version(), table)
}

func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.SplitSeq(string(info), "\n") {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return "unknown"
}
