package planted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Hunt runs suites on a tree with a bug in it.
type Hunt struct {
	// Root is the root of the repository.
	Root string
	// Catalogue has the suites.
	Catalogue Catalogue
	// Timeout is for one suite; it counts as noticed if tests hang.
	Timeout time.Duration
	// Race runs the race detector.
	Race bool
}

// Finding is what came of one bug.
type Finding struct {
	Bug Bug
	// Suite noticed it; empty if none did.
	Suite string
	// Tests are the names of those that failed, the deepest only.
	Tests []string
	// Took is how long that was.
	Took time.Duration
}

// Caught says whether some test has noticed the bug.
func (f Finding) Caught() bool { return f.Suite != "" }

// String is one line of the report.
func (f Finding) String() string {
	if !f.Caught() {
		return fmt.Sprintf("NOT CAUGHT  %s (%s): %s", f.Bug.Name, f.Took.Round(time.Second), f.Bug.What)
	}
	by := f.Tests[0]
	if more := len(f.Tests) - 1; more > 0 {
		by += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("caught      %s (%s) by %s: %s", f.Bug.Name, f.Took.Round(time.Second), f.Suite, by)
}

// Find runs the bug's suites until one fails. A bug that does not compile is an error: it would be
// noticed by nobody's test.
func (h Hunt) Find(ctx context.Context, bug Bug) (Finding, error) {
	started := time.Now()
	overlay, done, err := h.overlay(bug)
	if err != nil {
		return Finding{}, fmt.Errorf("planting %s: %w", bug.Name, err)
	}
	defer done()
	finding := Finding{Bug: bug}
	for _, name := range bug.CaughtBy {
		output, err := h.run(ctx, h.Catalogue.Suites[name], overlay)
		if err == nil {
			continue
		}
		tests, problem := failures(output)
		if problem != "" {
			return Finding{}, fmt.Errorf("with the bug %s, suite %s: %s:\n%s", bug.Name, name, problem, output)
		}
		finding.Suite, finding.Tests = name, tests
		break
	}
	finding.Took = time.Since(started)
	return finding, ctx.Err()
}

// Clean runs a suite on the tree as it is: what fails there has noticed nothing.
func (h Hunt) Clean(ctx context.Context, suite string) error {
	output, err := h.run(ctx, h.Catalogue.Suites[suite], "")
	if err != nil {
		return fmt.Errorf("suite %s fails without any bug: %w\n%s", suite, err, output)
	}
	return nil
}

// overlay writes the file with the bug beside the tree, and says go where to find it.
func (h Hunt) overlay(bug Bug) (path string, done func(), err error) {
	planted, err := bug.Plant(h.Root)
	if err != nil {
		return "", nil, err
	}
	folder, err := os.MkdirTemp("", "planted-")
	if err != nil {
		return "", nil, fmt.Errorf("making a folder: %w", err)
	}
	done = func() { _ = os.RemoveAll(folder) }
	root, err := filepath.Abs(h.Root)
	if err != nil {
		done()
		return "", nil, fmt.Errorf("finding %s: %w", h.Root, err)
	}
	file := filepath.Join(folder, filepath.Base(bug.File))
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, bug.File): file}})
	if err == nil {
		err = os.WriteFile(file, planted, 0o600)
	}
	path = filepath.Join(folder, "overlay.json")
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		done()
		return "", nil, fmt.Errorf("writing the overlay: %w", err)
	}
	return path, done, nil
}

func (h Hunt) run(ctx context.Context, suite Suite, overlay string) (string, error) {
	args := []string{"test", "-failfast", "-timeout", h.Timeout.String()}
	if overlay != "" {
		args = append(args, "-count=1", "-overlay", overlay, "-vet=off")
	}
	if h.Race {
		args = append(args, "-race")
	}
	if suite.Run != "" {
		args = append(args, "-run", suite.Run)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, suite.Packages...)...)
	cmd.Dir = filepath.Join(h.Root, suite.Dir)
	// Tests that start processes end them when they are interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	output, err := cmd.CombinedOutput()
	if errors.Is(ctx.Err(), context.Canceled) {
		return string(output), ctx.Err()
	}
	return string(output), err
}

var (
	failedTest  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	runningTest = regexp.MustCompile(`running tests:\n\s+(Test\S+)`)
	panicking   = regexp.MustCompile(`(?m)^(?:panic: |fatal error: )(.*)$`)
)

// failures are the names of the tests that failed, or a problem if it was no test that did.
func failures(output string) (tests []string, problem string) {
	for _, match := range failedTest.FindAllStringSubmatch(output, -1) {
		tests = append(tests, match[1])
	}
	tests = slices.DeleteFunc(tests, func(name string) bool {
		return slices.ContainsFunc(tests, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
	if match := runningTest.FindStringSubmatch(output); match != nil {
		tests = append(tests, match[1]+" (hangs)")
	}
	if match := panicking.FindStringSubmatch(output); match != nil && len(tests) == 0 {
		tests = append(tests, "a panic: "+match[1])
	}
	switch {
	case strings.Contains(output, "[build failed]"):
		return nil, "it does not compile"
	case len(tests) == 0:
		return nil, "it fails, and no test does"
	default:
		return tests, ""
	}
}
