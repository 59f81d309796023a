// Planted puts known bugs into the code, one at a time, and says which test notices each. It fails if
// one is not noticed.
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

	"github.com/fixpoint-dev/fixpoint/test/planted"
)

func main() {
	var (
		root     = flag.String("root", "..", "the `folder` of the repository")
		list     = flag.Bool("list", false, "list the bugs and what they do, and plant none")
		parallel = flag.Int("parallel", max(1, runtime.GOMAXPROCS(0)/2), "how many bugs are hunted at a time")
		timeout  = flag.Duration("timeout", 5*time.Minute, "how long one suite may take; tests that hang have noticed")
		race     = flag.Bool("race", false, "run the tests with the race detector")
		clean    = flag.Bool("clean", true, "run the suites without a bug first: they have to pass")
	)
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: planted [flags] [bug...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *list, *clean, *parallel, planted.Hunt{Root: *root, Timeout: *timeout, Race: *race}, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, list, clean bool, parallel int, hunt planted.Hunt, names []string) error {
	catalogue, err := planted.Load()
	if err != nil {
		return err
	}
	hunt.Catalogue = catalogue
	bugs, err := catalogue.Named(names...)
	if err != nil {
		return err
	}
	if list {
		for _, bug := range bugs {
			fmt.Printf("%-36s %s\n", bug.Name, bug.What)
		}
		return nil
	}
	if clean {
		if err := runClean(ctx, hunt, bugs); err != nil {
			return err
		}
	}
	return findAll(ctx, hunt, bugs, parallel)
}

// runClean runs every suite that is about to be used.
func runClean(ctx context.Context, hunt planted.Hunt, bugs []planted.Bug) error {
	var suites []string
	for _, bug := range bugs {
		suites = append(suites, bug.CaughtBy...)
	}
	slices.Sort(suites)
	for _, suite := range slices.Compact(suites) {
		if err := hunt.Clean(ctx, suite); err != nil {
			return err
		}
		fmt.Println("passes without a bug:", suite)
	}
	return nil
}

func findAll(ctx context.Context, hunt planted.Hunt, bugs []planted.Bug, parallel int) error {
	started := time.Now()
	var mu sync.Mutex
	var missed int
	var failure error
	var group sync.WaitGroup
	turns := make(chan struct{}, parallel)
	for _, bug := range bugs {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			finding, err := hunt.Find(ctx, bug)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failure = err
				fmt.Println(err)
			case !finding.Caught():
				missed++
				fmt.Println(finding)
			default:
				fmt.Println(finding)
			}
		})
	}
	group.Wait()
	fmt.Printf("%d of %d bugs caught in %s\n", len(bugs)-missed, len(bugs), time.Since(started).Round(time.Second))
	if failure == nil && missed > 0 {
		failure = fmt.Errorf("%d bugs were not caught", missed)
	}
	return failure
}
