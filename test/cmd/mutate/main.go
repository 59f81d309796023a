// Command mutate changes the code in every way that its operators know, one change at a time, and reports
// the changes that no test notices. It exits with code 1 if a package scores less than its bar.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fixpoint-dev/fixpoint/test/mutation"
)

const module = "github.com/fixpoint-dev/fixpoint/"

// bar is the least percentage of the mutants of a package that its tests must notice. The narrow suites run for those
// that its unit tests do not notice.
type bar struct {
	path    string
	percent float64
	suites  []string
}

// The higher bars are where a single condition protects data, or a boundary between tenants.
var bars = []bar{
	{"pkg/ssa", 95, []string{"pkg/ssa/ssatest", "test/ssa"}},
	{"pkg/phases", 95, []string{"pkg/phases/phasestest"}},
	{"internal/lease", 95, nil},
	{"internal/cloud", 95, nil},
	{"controllers/securestorage", 95, nil},
	{"controllers", 90, nil},
	{"controllers/appservice", 90, nil},
	{"controllers/mcpserver", 90, nil},
	{"internal/bridge", 90, []string{"cmd/mcp-bridge"}},
	{"internal/prober", 90, nil},
	{"internal/references", 90, nil},
	{"internal/workload", 90, []string{"controllers/appservice", "controllers/mcpserver"}},
}

func main() {
	root := flag.String("root", "..", "root `directory` of the repository")
	since := flag.String("since", "", "test only the lines that changed since this `commit`")
	parallel := flag.Int("parallel", runtime.GOMAXPROCS(0), "number of mutants to test at the same time")
	results := flag.String("results", "", "`directory` in which results are kept, so that a run that was interrupted goes on")
	within := flag.Duration("within", 0, "`time` after which no further mutant is tested; the packages get equal shares of it. 0 tests all")
	survivors := flag.Bool("survivors", false, "test only the mutants that survived the last run, after tests were added; needs -results")
	memory := flag.Int("memory", 6<<20, "`KiB` of address space that a test may use; 0 does not bound it")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: mutate [flags] [package directory...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	scorer := mutation.Scorer{Parallel: *parallel, Memory: *memory, OnlySurvivors: *survivors}
	if err := run(ctx, scorer, options{*root, *since, *results, *within}, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		stop()
		os.Exit(1)
	}
}

// options are the flags that are not those of the scorer.
type options struct {
	root, since, results string
	within               time.Duration
}

func run(ctx context.Context, scorer mutation.Scorer, o options, names []string) error {
	var err error
	if scorer.Root, err = filepath.Abs(o.root); err != nil {
		return fmt.Errorf("resolving %s: %w", o.root, err)
	}
	if o.since != "" {
		if scorer.Lines, err = changedLines(ctx, scorer.Root, o.since); err != nil {
			return err
		}
	}
	selected, err := selectedPackages(scorer.Lines, names)
	if err != nil {
		return err
	}
	if len(selected) == 0 {
		fmt.Printf("no line changed since %s in a package that has a bar\n", o.since)
	}
	end := time.Now().Add(o.within)
	var failures []error
	for i, p := range selected {
		if o.within > 0 {
			scorer.End = time.Now().Add(time.Until(end) / time.Duration(len(selected)-i))
		}
		scorer.Suites = p.suites
		score, err := scoreOf(ctx, scorer, o.results, p.path)
		if err != nil {
			return err
		}
		if score.Percent() < p.percent {
			failures = append(failures, fmt.Errorf("%s: the tests notice %.1f %% of the mutants, and the bar is %.0f %%: add a test for a survivor, or list it in test/mutation/equivalents.yaml with the reason", p.path, score.Percent(), p.percent))
		}
	}
	return errors.Join(failures...)
}

// selectedPackages are those with a bar that have changed lines, and are among the names, if there are any.
func selectedPackages(lines map[string][]int, names []string) ([]bar, error) {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[strings.Trim(strings.TrimPrefix(name, "./"), "/")] = true
	}
	var selected []bar
	for _, b := range bars {
		if len(names) > 0 && !wanted[b.path] {
			continue
		}
		delete(wanted, b.path)
		if lines == nil || slices.ContainsFunc(slices.Collect(maps.Keys(lines)), func(file string) bool { return path.Dir(file) == b.path }) {
			selected = append(selected, b)
		}
	}
	var failures []error
	for name := range wanted {
		failures = append(failures, fmt.Errorf("no bar is set for %s: give it one in test/cmd/mutate", name))
	}
	return selected, errors.Join(failures...)
}

// scoreOf scores a package and prints its survivors.
func scoreOf(ctx context.Context, scorer mutation.Scorer, results, packagePath string) (mutation.Score, error) {
	if results != "" {
		if err := os.MkdirAll(results, 0o755); err != nil {
			return mutation.Score{}, fmt.Errorf("creating the directory of results: %w", err)
		}
		scorer.Results = filepath.Join(results, strings.ReplaceAll(packagePath, "/", "-")+".json")
	}
	score, err := scorer.Run(ctx, module+packagePath)
	if err != nil || score.Total+score.Untested == 0 {
		return score, err
	}
	for _, survivor := range score.Survivors {
		fmt.Println(survivor)
	}
	fmt.Println(score)
	return score, nil
}

var (
	changedFile = regexp.MustCompile(`^\+\+\+ b/(.*)$`)
	changedHunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)
)

// changedLines are those that git says have changed since a commit, by file.
func changedLines(ctx context.Context, root, since string) (map[string][]int, error) {
	cmd := exec.CommandContext(ctx, "git", "diff", "--unified=0", "--no-color", "--no-ext-diff", since, "--", "*.go")
	cmd.Dir = root
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("asking git what changed since %s: %w", since, err)
	}
	lines := map[string][]int{}
	file := ""
	for scanner := bufio.NewScanner(strings.NewReader(string(output))); scanner.Scan(); {
		if match := changedFile.FindStringSubmatch(scanner.Text()); match != nil {
			file = match[1]
		}
		match := changedHunk.FindStringSubmatch(scanner.Text())
		if match == nil {
			continue
		}
		first, count := number(match[1]), 1
		if match[2] != "" {
			count = number(match[2])
		}
		for i := range count {
			lines[file] = append(lines[file], first+i)
		}
	}
	return lines, nil
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits) // the pattern matches digits only
	return n
}
