// Command mutate changes the code in every way that its operators know, one change at a time, and reports
// the changes that no test notices. It exits with code 1 if a package scores less than its bar.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/fixpoint-dev/fixpoint/test/mutation"
)

const module = "github.com/fixpoint-dev/fixpoint/"

// bars are the packages with the least percentage of mutants that their tests must notice. The higher ones
// are where a single condition protects data, or a boundary between tenants.
var bars = []struct {
	path    string
	percent float64
}{
	{"pkg/ssa", 95}, {"pkg/phases", 95}, {"internal/lease", 95}, {"internal/cloud", 95}, {"controllers/securestorage", 95},
	{"controllers", 90}, {"controllers/appservice", 90}, {"controllers/mcpserver", 90},
	{"internal/bridge", 90}, {"internal/prober", 90}, {"internal/references", 90}, {"internal/workload", 90},
}

func main() {
	root := flag.String("root", "..", "root `directory` of the repository")
	since := flag.String("since", "", "test only the lines that changed since this `commit`")
	parallel := flag.Int("parallel", runtime.GOMAXPROCS(0), "number of mutants to test at the same time")
	results := flag.String("results", "", "`directory` in which results are kept, so that a run that was interrupted goes on")
	memory := flag.Int("memory", 6<<20, "`KiB` of address space that a test may use; 0 does not bound it")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: mutate [flags] [package directory...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *since, *results, *parallel, *memory, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, root, since, results string, parallel, memory int, names []string) error {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return fmt.Errorf("resolving %s: %w", root, err)
	}
	scorer := mutation.Scorer{Root: absolute, Parallel: parallel, Memory: memory}
	if since != "" {
		if scorer.Lines, err = changedLines(ctx, absolute, since); err != nil {
			return err
		}
	}
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[strings.Trim(strings.TrimPrefix(name, "./"), "/")] = true
	}
	var failures []error
	for _, bar := range bars {
		if len(names) > 0 && !wanted[bar.path] {
			continue
		}
		delete(wanted, bar.path)
		score, err := scoreOf(ctx, scorer, results, bar.path)
		if err != nil {
			return err
		}
		if score.Percent() < bar.percent {
			failures = append(failures, fmt.Errorf("%s: the tests notice %.1f %% of the mutants, and the bar is %.0f %%: add a test for a survivor, or list it in test/mutation/equivalents.yaml with the reason", bar.path, score.Percent(), bar.percent))
		}
	}
	for name := range wanted {
		failures = append(failures, fmt.Errorf("no bar is set for %s: give it one in test/cmd/mutate", name))
	}
	return errors.Join(failures...)
}

// scoreOf scores a package and prints its survivors.
func scoreOf(ctx context.Context, scorer mutation.Scorer, results, path string) (mutation.Score, error) {
	if results != "" {
		if err := os.MkdirAll(results, 0o755); err != nil {
			return mutation.Score{}, fmt.Errorf("creating the directory of results: %w", err)
		}
		scorer.Results = filepath.Join(results, strings.ReplaceAll(path, "/", "-")+".json")
	}
	score, err := scorer.Run(ctx, module+path)
	if err != nil || score.Total == 0 {
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
