package mutation

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"
)

//go:embed equivalents.yaml
var equivalents []byte

// Equivalent is a mutant that no test can notice.
type Equivalent struct {
	File     string `json:"file"`
	Function string `json:"function"`
	Operator string `json:"operator"`
	Code     string `json:"code"`
	// Ordinal says which one is meant where a function has several mutants of this name: 1 is the first in the file.
	Ordinal int `json:"ordinal,omitempty"`
	// Reason is one line that says why no test can notice the mutant.
	Reason string `json:"reason"`
}

// LoadEquivalents parses the list of equivalent mutants.
func LoadEquivalents() ([]Equivalent, error) {
	var list []Equivalent
	if err := yaml.UnmarshalStrict(equivalents, &list); err != nil {
		return nil, fmt.Errorf("parsing equivalents.yaml: %w", err)
	}
	for _, e := range list {
		if e.Reason == "" {
			return nil, fmt.Errorf("%s: the reason is required", e)
		}
	}
	return list, nil
}

func (e Equivalent) String() string {
	return fmt.Sprintf("equivalents.yaml: %s, %s, %s: %s", e.File, e.Function, e.Operator, e.Code)
}

// in is the ID of the mutant among those of its package. An entry that does not name exactly one is an error.
func (e Equivalent) in(mutants []Mutant) (int, error) {
	var named []Mutant
	for _, m := range mutants {
		if e.File == m.File && e.Function == m.Function && e.Operator == m.Operator && e.Code == m.Code {
			named = append(named, m)
		}
	}
	slices.SortStableFunc(named, func(a, b Mutant) int { return cmp.Compare(a.Line, b.Line) })
	switch {
	case len(named) == 0:
		return 0, fmt.Errorf("%s: the mutant does not exist", e)
	case len(named) == 1 && e.Ordinal == 0:
		return named[0].ID, nil
	case e.Ordinal < 1 || e.Ordinal > len(named):
		return 0, fmt.Errorf("%s: ordinal %d names none of the %d mutants", e, e.Ordinal, len(named))
	default:
		return named[e.Ordinal-1].ID, nil
	}
}

// equivalentIDs are the IDs of the mutants of a package that are listed as equivalent.
func equivalentIDs(list []Equivalent, instrumented Instrumented, root string) (map[int]bool, error) {
	ids := map[int]bool{}
	for _, e := range list {
		if filepath.Join(root, filepath.Dir(e.File)) != instrumented.Dir {
			continue
		}
		id, err := e.in(instrumented.Mutants)
		if err != nil {
			return nil, err
		}
		ids[id] = true
	}
	return ids, nil
}

// Score is what the tests of a package noticed.
type Score struct {
	ImportPath                  string
	Detected, Equivalent, Total int
	Survivors                   []Mutant
	// Unreached are the survivors that no test runs.
	Unreached int
	// Untested are those for which there was no time. They do not count in Total.
	Untested int
}

// Percent of the mutants that tests noticed, equivalents aside.
func (s Score) Percent() float64 {
	const all = 100
	if s.Total == s.Equivalent {
		return all
	}
	return all * float64(s.Detected) / float64(s.Total-s.Equivalent)
}

// String is the line of the report.
func (s Score) String() string {
	line := fmt.Sprintf("%5.1f %%  %4d of %4d detected, %d equivalent, %d survive (%d that no test runs)  %s",
		s.Percent(), s.Detected, s.Total-s.Equivalent, s.Equivalent, len(s.Survivors), s.Unreached, s.ImportPath)
	if s.Untested > 0 {
		line += fmt.Sprintf(", %d not tested for want of time", s.Untested)
	}
	return line
}

// Scorer turns the mutants of a package on, one at a time, and runs the tests that reach them.
type Scorer struct {
	// Root of the repository, as an absolute path.
	Root string
	// Lines of each file, by its path from Root, whose mutants are tested; nil tests all.
	Lines map[string][]int
	// Parallel is how many mutants are tested at the same time.
	Parallel int
	// Results is a file of the results so far, by which a run that was interrupted goes on. They count for the
	// same code and tests only. Optional.
	Results string
	// OnlySurvivors tests only the mutants that survived the run of Results, as long as the code did not change: after
	// tests were added, they are those whose result can be another one.
	OnlySurvivors bool
	// Memory in KiB that a test of the package may use.
	Memory int
	// End is when the tests of mutants end. The order is fixed, and spreads the mutants over the package.
	// Optional.
	End time.Time
	// Suites are directories below Root, of packages whose tests may notice what the tests of the package do not.
	// They run for the survivors only, since they may need a cluster, and of those that reach a mutant only the
	// quickest, until a minute is full.
	Suites []string
}

// testOf is one test of a package, and what it reaches.
type testOf struct {
	name    string
	took    time.Duration
	reaches map[int]bool
}

// Run scores a package.
func (s Scorer) Run(ctx context.Context, importPath string) (Score, error) {
	score := Score{ImportPath: importPath}
	known, err := LoadEquivalents()
	if err != nil {
		return score, err
	}
	packages, err := listPackages(s.Root, importPath)
	if err != nil {
		return score, err
	}
	instrumented, err := Instrument(s.Root, importPath, packages)
	if err != nil {
		return score, err
	}
	equivalent, err := equivalentIDs(known, instrumented, s.Root)
	if err != nil {
		return score, err
	}
	mutants := slices.DeleteFunc(s.selected(instrumented.Mutants), func(m Mutant) bool {
		if equivalent[m.ID] {
			score.Equivalent++
		}
		return equivalent[m.ID]
	})
	score.Total = score.Equivalent
	if len(mutants) == 0 {
		return score, nil
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return score, fmt.Errorf("creating a temporary directory: %w", err)
	}
	defer os.RemoveAll(dir)
	// Tests start processes of other users, which append to files in it.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // it holds nothing secret
		return score, fmt.Errorf("opening a temporary directory: %w", err)
	}
	overlay, err := writeOverlay(instrumented, dir)
	if err != nil {
		return score, err
	}
	binaries := s.binaries(instrumented)
	score.Survivors = mutants
	for i, b := range binaries {
		if len(score.Survivors) == 0 {
			break
		}
		b.path = filepath.Join(dir, fmt.Sprintf("tests-%d", i))
		var untested int
		if score.Survivors, untested, err = s.survivors(ctx, b, overlay, score.Survivors); err != nil {
			return score, err
		}
		score.Untested += untested
	}
	score.Total += len(mutants) - score.Untested
	score.Detected = score.Total - score.Equivalent - len(score.Survivors)
	for _, m := range score.Survivors {
		if !slices.ContainsFunc(binaries, func(b *testBinary) bool { return len(b.testsOf(m.ID)) > 0 }) {
			score.Unreached++
		}
	}
	return score, nil
}

// binaries are the tests of the package, and then those of its suites.
func (s Scorer) binaries(instrumented Instrumented) []*testBinary {
	code := instrumented.digest()
	binaries := []*testBinary{{dir: instrumented.Dir, code: code, results: s.Results, memory: s.Memory}}
	for _, suite := range s.Suites {
		// Its memory is not bounded: the processes of a cluster reserve more address space than they use.
		b := &testBinary{dir: filepath.Join(s.Root, suite), code: code, longest: time.Minute}
		if s.Results != "" {
			b.results = strings.TrimSuffix(s.Results, ".json") + "-by-" + strings.ReplaceAll(suite, "/", "-") + ".json"
		}
		binaries = append(binaries, b)
	}
	return binaries
}

// survivors are the mutants that the tests of a binary do not notice, and how many were not tested before the end.
func (s Scorer) survivors(ctx context.Context, b *testBinary, overlay string, mutants []Mutant) (survived []Mutant, untested int, err error) {
	limited := ctx
	if !s.End.IsZero() {
		var cancel context.CancelFunc
		limited, cancel = context.WithDeadline(ctx, s.End)
		defer cancel()
	}
	err = b.compile(limited, overlay)
	if err == nil {
		err = b.survey(limited, s.Parallel)
	}
	switch {
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	case limited.Err() != nil:
		return nil, len(mutants), nil
	case err != nil:
		return nil, 0, err
	}
	results, err := openResults(b.results, b.path, b.code, s.OnlySurvivors)
	if err != nil {
		return nil, 0, err
	}
	survived, untested, err = s.test(limited, b, mutants, results)
	return survived, untested, errors.Join(err, ctx.Err())
}

func (s Scorer) selected(mutants []Mutant) []Mutant {
	mutants = slices.Clone(mutants)
	if s.Lines == nil {
		return mutants
	}
	return slices.DeleteFunc(mutants, func(m Mutant) bool { return !slices.Contains(s.Lines[m.File], m.Line) })
}

// writeOverlay writes the instrumented package into a directory.
func writeOverlay(instrumented Instrumented, dir string) (string, error) {
	replace := map[string]string{}
	for path, content := range instrumented.Files {
		file := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return "", fmt.Errorf("writing the instrumented package: %w", err)
		}
		replace[path] = file
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("encoding the overlay: %w", err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, raw, 0o600); err != nil {
		return "", fmt.Errorf("writing the overlay: %w", err)
	}
	return overlay, nil
}

// test tests the mutants as long as there is time, and returns those that survive, in their order.
func (s Scorer) test(ctx context.Context, b *testBinary, mutants []Mutant, results *results) (survivors []Mutant, untested int, err error) {
	mutants = slices.Clone(mutants)
	if !s.End.IsZero() {
		// Where the time ends, what was tested should be of all files. The seed is fixed, so that a run can be repeated.
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] }) //nolint:gosec // no secret
	}
	var mu sync.Mutex
	var failures []error
	var group sync.WaitGroup
	slots := make(chan struct{}, s.Parallel)
	for _, m := range mutants {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			detected, isKnown := results.get(m.ID)
			err := ctx.Err() // a mutant that is not tested any more counts as untested, even if no test reaches it
			switch {
			case isKnown:
				err = nil
			case err == nil:
				if detected, err = b.detects(ctx, m.ID); err == nil {
					err = results.add(m.ID, detected)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ctx.Err() != nil && err != nil:
				untested++
			case err != nil:
				failures = append(failures, err)
			case !detected:
				survivors = append(survivors, m)
			}
		})
	}
	group.Wait()
	slices.SortFunc(survivors, func(a, b Mutant) int { return cmp.Compare(a.ID, b.ID) })
	return survivors, untested, errors.Join(failures...)
}

// testBinary is the compiled tests of the package in a directory, with all mutants.
type testBinary struct {
	path, dir string
	// code is the digest of the package with its mutants.
	code string
	// results is the file of the results so far. Optional.
	results string
	memory  int
	// longest is how long the tests for one mutant may take; the quickest comes first, and runs in any case. Zero runs
	// all that reach it.
	longest time.Duration
	flags   []string
	tests   []testOf
}

func (b *testBinary) compile(ctx context.Context, overlay string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", b.path, ".")
	cmd.Dir = b.dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the tests in %s with the mutants: %w\n%s", b.dir, err, output)
	}
	return nil
}

// survey finds out how long each test takes, and which mutants it reaches. All must pass.
func (b *testBinary) survey(ctx context.Context, parallel int) error {
	const noFailFile = "-rapid.nofailfile"
	if _, err := b.run(ctx, time.Minute, nil, "-test.list", "^$", noFailFile); err == nil {
		b.flags = []string{noFailFile}
	}
	output, err := b.run(ctx, time.Minute, nil, "-test.list", ".*")
	if err != nil {
		return fmt.Errorf("listing the tests: %w\n%s", err, output)
	}
	var names []string
	for _, line := range strings.Fields(output) {
		if strings.HasPrefix(line, "Test") || strings.HasPrefix(line, "Example") || strings.HasPrefix(line, "Fuzz") {
			names = append(names, line)
		}
	}
	b.tests = make([]testOf, len(names))
	failures := make([]error, len(names))
	var group sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, name := range names {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			b.tests[i], failures[i] = b.surveyTest(ctx, name)
		})
	}
	group.Wait()
	slices.SortFunc(b.tests, func(a, b testOf) int { return cmp.Compare(a.took, b.took) })
	return errors.Join(failures...)
}

func (b *testBinary) surveyTest(ctx context.Context, name string) (testOf, error) {
	t := testOf{name: name, reaches: map[int]bool{}}
	reached := b.path + "-reached-" + name
	if err := createShared(reached); err != nil {
		return t, err
	}
	started := time.Now()
	const longest = 10 * time.Minute
	output, err := b.run(ctx, longest, []string{"MUTANTS_REACHED=" + reached}, "-test.run", "^"+regexp.QuoteMeta(name)+"$")
	if err != nil {
		return t, fmt.Errorf("%s fails without a mutant: %w\n%s", name, err, output)
	}
	t.took = time.Since(started)
	raw, err := os.ReadFile(reached)
	if err != nil {
		return t, fmt.Errorf("reading what %s reaches: %w", name, err)
	}
	for _, line := range strings.Fields(string(raw)) {
		id, err := strconv.Atoi(line)
		if err != nil {
			return t, fmt.Errorf("reading what %s reaches: %w", name, err)
		}
		t.reaches[id] = true
	}
	return t, nil
}

// createShared creates a file to which processes of all users append.
func createShared(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return fmt.Errorf("creating a file: %w", err)
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // it holds numbers of mutants
		return fmt.Errorf("sharing a file: %w", err)
	}
	return nil
}

func (b *testBinary) testsOf(id int) []testOf {
	var tests []testOf
	for _, t := range b.tests {
		if t.reaches[id] {
			tests = append(tests, t)
		}
	}
	return tests
}

// batchEnds divide the tests that reach a mutant by the time that they take together, from the quickest on.
// The first batch notices most mutants.
var batchEnds = [...]time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, math.MaxInt64}

// detects runs the tests that reach a mutant, the quickest first.
func (b *testBinary) detects(ctx context.Context, id int) (bool, error) {
	var batches [len(batchEnds)][]string
	var took [len(batchEnds)]time.Duration
	var all time.Duration
	batch := 0
	for i, t := range b.testsOf(id) {
		all += t.took
		if i > 0 && b.longest > 0 && all > b.longest {
			break
		}
		for all > batchEnds[batch] {
			batch++
		}
		took[batch] += t.took
		batches[batch] = append(batches[batch], regexp.QuoteMeta(t.name))
	}
	for i, batch := range batches {
		if len(batch) == 0 {
			continue
		}
		// A mutant that makes the tests much slower is one that they notice.
		const atLeast, times = 5 * time.Second, 10
		_, err := b.run(ctx, atLeast+times*took[i], []string{"MUTANT=" + strconv.Itoa(id)}, "-test.failfast", "-test.run", "^("+strings.Join(batch, "|")+")$")
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil {
			return true, nil //nolint:nilerr // a test that fails is what detects
		}
	}
	return false, nil
}

// run runs the tests with bounded memory, since a mutant may allocate without end, and as root with processes of their
// own: a mutant may send its signals to the processes of the machine, and leave some behind.
func (b *testBinary) run(ctx context.Context, timeout time.Duration, environment []string, arguments ...string) (string, error) {
	script := `exec "$0" "$@"`
	isRoot := os.Geteuid() == 0
	if isRoot { // the shell stays, as the first process
		script = `mount -t proc proc /proc || exit; "$0" "$@"; exit $?`
	}
	if b.memory > 0 {
		script = "ulimit -v " + strconv.Itoa(b.memory) + " && " + script
	}
	const grace = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout+grace)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, b.path, "-test.timeout", timeout.String()}, append(slices.Clone(arguments), b.flags...)...)...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), environment...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	// A signal that ends the whole group of processes of this one must not look like a test that fails.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if isRoot {
		cmd.SysProcAttr.Cloneflags, cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWPID, syscall.CLONE_NEWNS
	}
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	return output.String(), err
}
