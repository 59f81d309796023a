package mutation

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

// Runner runs test suites against mutated code.
type Runner struct {
	// Root is the root of the repository.
	Root string
	// Catalogue defines the suites.
	Catalogue Catalogue
	// Timeout limits one suite. A suite that times out has detected the mutation.
	Timeout time.Duration
	// Race enables the race detector.
	Race bool
}

// Result is the outcome of one mutation.
type Result struct {
	Mutation Mutation
	// Suite is the suite that failed, or empty if all passed.
	Suite string
	// Tests are the names of the failed tests. Of a subtest and its parents, only the subtest is listed.
	Tests []string
	// Duration is the time that the suites took.
	Duration time.Duration
}

// Detected reports whether a test failed.
func (r Result) Detected() bool { return r.Suite != "" }

// String is the line of the report.
func (r Result) String() string {
	if !r.Detected() {
		return fmt.Sprintf("NOT DETECTED  %s (%s): %s", r.Mutation.Name, r.Duration.Round(time.Second), r.Mutation.Description)
	}
	by := r.Tests[0]
	if more := len(r.Tests) - 1; more > 0 {
		by += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("detected      %s (%s) by %s: %s", r.Mutation.Name, r.Duration.Round(time.Second), r.Suite, by)
}

// Run runs the suites of the mutation until one fails. It returns an error if the mutated code does not
// compile, because then no test has detected anything.
func (r Runner) Run(ctx context.Context, m Mutation) (Result, error) {
	started := time.Now()
	overlay, cleanup, err := r.overlay(m)
	if err != nil {
		return Result{}, fmt.Errorf("applying mutation %s: %w", m.Name, err)
	}
	defer cleanup()
	result := Result{Mutation: m}
	for _, name := range m.DetectedBy {
		output, err := r.test(ctx, r.Catalogue.Suites[name], overlay)
		if err == nil {
			continue
		}
		tests, err := failedTests(output)
		if err != nil {
			return Result{}, fmt.Errorf("mutation %s, suite %s: %w:\n%s", m.Name, name, err, output)
		}
		result.Suite, result.Tests = name, tests
		break
	}
	result.Duration = time.Since(started)
	return result, ctx.Err()
}

// RunUnmutated runs a suite on the unchanged code, where it must pass.
func (r Runner) RunUnmutated(ctx context.Context, suite string) error {
	output, err := r.test(ctx, r.Catalogue.Suites[suite], "")
	if err != nil {
		return fmt.Errorf("suite %s fails without a mutation: %w\n%s", suite, err, output)
	}
	return nil
}

// overlay writes the mutated file and an overlay.json for go test to a temporary directory.
func (r Runner) overlay(m Mutation) (path string, cleanup func(), err error) {
	mutated, err := m.Apply(r.Root)
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return "", nil, fmt.Errorf("creating a temporary directory: %w", err)
	}
	cleanup = func() { _ = os.RemoveAll(dir) }
	root, err := filepath.Abs(r.Root)
	if err != nil {
		cleanup()
		return "", nil, fmt.Errorf("resolving %s: %w", r.Root, err)
	}
	file := filepath.Join(dir, filepath.Base(m.File))
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.File): file}})
	if err == nil {
		err = os.WriteFile(file, mutated, 0o600)
	}
	path = filepath.Join(dir, "overlay.json")
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		cleanup()
		return "", nil, fmt.Errorf("writing the overlay: %w", err)
	}
	return path, cleanup, nil
}

func (r Runner) test(ctx context.Context, suite Suite, overlay string) (string, error) {
	args := []string{"test", "-failfast", "-timeout", r.Timeout.String()}
	if overlay != "" {
		args = append(args, "-count=1", "-overlay", overlay, "-vet=off")
	}
	if r.Race {
		args = append(args, "-race")
	}
	if suite.Run != "" {
		args = append(args, "-run", suite.Run)
	}
	if suite.Skip != "" {
		args = append(args, "-skip", suite.Skip)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, suite.Packages...)...)
	cmd.Dir = filepath.Join(r.Root, suite.Dir)
	// Tests that start processes stop them when they are interrupted.
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
	panicked    = regexp.MustCompile(`(?m)^(?:panic: |fatal error: )(.*)$`)
)

// failedTests extracts the names of the failed tests from the output of go test. It returns an error if
// the command failed for another reason than a test.
func failedTests(output string) ([]string, error) {
	var tests []string
	for _, match := range failedTest.FindAllStringSubmatch(output, -1) {
		tests = append(tests, match[1])
	}
	tests = slices.DeleteFunc(tests, func(name string) bool {
		return slices.ContainsFunc(tests, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
	if match := runningTest.FindStringSubmatch(output); match != nil {
		tests = append(tests, match[1]+" (timed out)")
	}
	if match := panicked.FindStringSubmatch(output); match != nil && len(tests) == 0 {
		tests = append(tests, "a panic: "+match[1])
	}
	switch {
	case strings.Contains(output, "[build failed]"):
		return nil, errors.New("the code does not compile")
	case len(tests) == 0:
		return nil, errors.New("go test failed without a failed test")
	default:
		return tests, nil
	}
}
