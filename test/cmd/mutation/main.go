// Command mutation applies the mutations of test/mutation one at a time and reports which test detects
// each. It exits with code 1 if a mutation is not detected.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fixpoint-dev/fixpoint/test/mutation"
)

func main() {
	var (
		root     = flag.String("root", "..", "root `directory` of the repository")
		list     = flag.Bool("list", false, "list the mutations and exit")
		parallel = flag.Int("parallel", max(1, runtime.GOMAXPROCS(0)/2), "number of mutations to test at the same time")
		timeout  = flag.Duration("timeout", 5*time.Minute, "time limit of one suite; a suite that times out has detected the mutation")
		race     = flag.Bool("race", false, "run the tests with the race detector")
		baseline = flag.Bool("baseline", true, "first run each suite without a mutation; it must pass")
	)
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: mutation [flags] [name...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *list, *baseline, *parallel, mutation.Runner{Root: *root, Timeout: *timeout, Race: *race}, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, list, baseline bool, parallel int, runner mutation.Runner, names []string) error {
	catalogue, err := mutation.Load()
	if err != nil {
		return err
	}
	runner.Catalogue = catalogue
	mutations, err := catalogue.Named(names...)
	if err != nil {
		return err
	}
	if list {
		for _, m := range mutations {
			fmt.Printf("%-36s %s\n", m.Name, m.Description)
		}
		return nil
	}
	if baseline {
		if err := runBaseline(ctx, runner, mutations); err != nil {
			return err
		}
	}
	return runAll(ctx, runner, mutations, parallel)
}

// runBaseline runs every suite that the mutations name on the unchanged code.
func runBaseline(ctx context.Context, runner mutation.Runner, mutations []mutation.Mutation) error {
	var suites []string
	for _, m := range mutations {
		suites = append(suites, m.DetectedBy...)
	}
	slices.Sort(suites)
	for _, suite := range slices.Compact(suites) {
		if err := runner.RunUnmutated(ctx, suite); err != nil {
			return err
		}
		fmt.Println("passes without a mutation:", suite)
	}
	return nil
}

func runAll(ctx context.Context, runner mutation.Runner, mutations []mutation.Mutation, parallel int) error {
	started := time.Now()
	var mu sync.Mutex
	var detected, undetected int
	var failure error
	var group sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for _, m := range mutations {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			result, err := runner.Run(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failure = err
				fmt.Println(err)
				return
			case result.Detected():
				detected++
			default:
				undetected++
			}
			fmt.Println(result)
		})
	}
	group.Wait()
	fmt.Printf("%d of %d mutations detected in %s\n", detected, len(mutations), time.Since(started).Round(time.Second))
	if failure == nil && undetected > 0 {
		failure = fmt.Errorf("%d mutations were not detected", undetected)
	}
	return failure
}
