package mutation

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// sample is a package whose tests notice some of its mutants.
const sample = `package sample

import (
	"errors"
	"time"
)

const Reason = "Stale"

type Limits struct {
	Wait  time.Duration
	Named string
}

func New(name string) Limits {
	return Limits{Wait: 30 * time.Second, Named: name}
}

func Check(n int, strict bool) (string, error) {
	if strict && n > 10 {
		return Reason, errors.New("too many")
	}
	return "", nil
}

func Untested(n int) int {
	n++
	return n
}
`

const sampleTest = `package sample

import "testing"

func TestCheck(t *testing.T) {
	if reason, err := Check(11, true); err == nil || reason != "Stale" {
		t.Fatal("11 of 10 are too many")
	}
	if _, err := Check(11, false); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(1, true); err != nil {
		t.Fatal(err)
	}
}

func TestNew(t *testing.T) {
	if New("web").Named != "web" {
		t.Fatal("the name is lost")
	}
}
`

func sampleModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.com/sample\n\ngo 1.24\n", "sample.go": sample, "sample_test.go": sampleTest,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestScorerFindsWhatNoTestNotices(t *testing.T) {
	g := NewWithT(t)
	// Given a package whose tests leave gaps
	dir := sampleModule(t)
	results := filepath.Join(t.TempDir(), "results.json")
	scorer := Scorer{Root: dir, Parallel: 2, Results: results}

	// When it is scored
	score, err := scorer.Run(t.Context(), "example.com/sample")

	// Then the gaps are the survivors
	g.Expect(err).NotTo(HaveOccurred())
	var survivors []string
	for _, m := range score.Survivors {
		survivors = append(survivors, m.Operator+": "+m.Code)
	}
	g.Expect(survivors).To(ConsistOf(
		"other constant: 30 * time.Second", "bound shifted: n > 10",
		"statement removed: n++", "returned value zero: n",
	))
	g.Expect(score.Unreached).To(Equal(2))
	g.Expect(score.Detected).To(BeNumerically(">=", 9))
	g.Expect(score.Total).To(Equal(score.Detected + len(score.Survivors)))

	// And the results are those of the next run
	before, err := os.ReadFile(results)
	g.Expect(err).NotTo(HaveOccurred())
	again, err := scorer.Run(t.Context(), "example.com/sample")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(score))
	g.Expect(os.ReadFile(results)).To(Equal(before))

	// And after a change of the tests, only the survivors can be tested: what another test detected stays detected
	g.Expect(os.WriteFile(filepath.Join(dir, "sample_test.go"), []byte(strings.Replace(sampleTest, `New("web").Named != "web"`, `Untested(1) != 2`, 1)), 0o600)).To(Succeed())
	scorer.OnlySurvivors = true
	again, err = scorer.Run(t.Context(), "example.com/sample")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Survivors).To(ConsistOf(HaveField("Code", "30 * time.Second"), HaveField("Code", "n > 10")))
	scorer.OnlySurvivors = false
	again, err = scorer.Run(t.Context(), "example.com/sample")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Survivors).To(ContainElement(HaveField("Code", "name")))
}

func TestSuitesNoticeWhatTheTestsOfThePackageDoNot(t *testing.T) {
	g := NewWithT(t)
	dir := sampleModule(t)
	g.Expect(os.Mkdir(filepath.Join(dir, "suite"), 0o700)).To(Succeed())
	suite := "package suite\n\nimport (\n\t\"testing\"\n\n\t\"example.com/sample\"\n)\n\nfunc TestCheck(t *testing.T) {\n\tif sample.Untested(1) != 2 {\n\t\tt.Fatal()\n\t}\n}\n"
	g.Expect(os.WriteFile(filepath.Join(dir, "suite", "suite_test.go"), []byte(suite), 0o600)).To(Succeed())

	score, err := Scorer{Root: dir, Parallel: 2, Suites: []string{"suite"}, Results: filepath.Join(t.TempDir(), "results.json")}.Run(t.Context(), "example.com/sample")

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(score.Survivors).To(ConsistOf(HaveField("Code", "30 * time.Second"), HaveField("Code", "n > 10")))
	g.Expect(score.Unreached).To(BeZero())
	g.Expect(score.Total).To(Equal(score.Detected + len(score.Survivors)))
}

// The loggers of internal/lease have an alias of klog as their type.
func TestStatementsThatOnlyLogAreNoMutants(t *testing.T) {
	g := NewWithT(t)
	absolute, err := filepath.Abs(root)
	g.Expect(err).NotTo(HaveOccurred())
	const path = "github.com/fixpoint-dev/fixpoint/internal/lease"
	packages, err := listPackages(absolute, path)
	g.Expect(err).NotTo(HaveOccurred())
	instrumented, err := Instrument(absolute, path, packages)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(instrumented.Mutants).NotTo(BeEmpty())
	g.Expect(instrumented.Mutants).NotTo(ContainElement(HaveField("Code", ContainSubstring(".Info("))))
}

func TestValuesBesideAnErrorAreNoMutants(t *testing.T) {
	g := NewWithT(t)
	dir := sampleModule(t)
	const code = `package sample

import "fmt"

func Parse(s string) (n int, ok bool, err error) {
	length := len(s)
	_, err = fmt.Sscan(s, &n)
	if err != nil {
		return length, true, err
	}
	if n > length {
		return length, true, fmt.Errorf("%d is too much", n)
	}
	return length, true, check(n)
}

func check(int) error { return nil }
`
	g.Expect(os.WriteFile(filepath.Join(dir, "sample.go"), []byte(code), 0o600)).To(Succeed())
	packages, err := listPackages(dir, "example.com/sample")
	g.Expect(err).NotTo(HaveOccurred())

	instrumented, err := Instrument(dir, "example.com/sample", packages)

	g.Expect(err).NotTo(HaveOccurred())
	var returned []string
	for _, m := range instrumented.Mutants {
		if strings.HasPrefix(m.Operator, "returned value") {
			returned = append(returned, m.Code)
		}
	}
	g.Expect(returned).To(ConsistOf("err", `fmt.Errorf("%d is too much", n)`, "length", "true", "check(n)"))
}

func TestScorerTestsChangedLines(t *testing.T) {
	g := NewWithT(t)
	line := 1 + strings.Count(sample[:strings.Index(sample, "n++")], "\n")

	score, err := Scorer{Root: sampleModule(t), Parallel: 1, Lines: map[string][]int{"sample.go": {line}}}.Run(t.Context(), "example.com/sample")

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(score.Total).To(Equal(1))
	g.Expect(score.Survivors).To(HaveLen(1))
	g.Expect(score.Survivors[0].String()).To(Equal("sample.go:27: statement removed: n++"))
	g.Expect(score.Percent()).To(BeZero())
}

func TestScorerTellsWhatItHadNoTimeFor(t *testing.T) {
	g := NewWithT(t)
	scorer := Scorer{Root: sampleModule(t), Parallel: 1, Results: filepath.Join(t.TempDir(), "results.json")}
	all, err := scorer.Run(t.Context(), "example.com/sample")
	g.Expect(err).NotTo(HaveOccurred())

	// When the time is over before the first mutant
	scorer.End = time.Now().Add(-time.Second)
	score, err := scorer.Run(t.Context(), "example.com/sample")

	// Then none counts, and all are said not to be tested
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(score).To(Equal(Score{ImportPath: "example.com/sample", Untested: all.Total}))
	g.Expect(score.String()).To(HaveSuffix("example.com/sample, 13 not tested for want of time"))

	// And with time, the order does not matter
	scorer.End = time.Now().Add(time.Hour)
	g.Expect(scorer.Run(t.Context(), "example.com/sample")).To(Equal(all))
}

func TestScorerNeedsPassingTests(t *testing.T) {
	g := NewWithT(t)
	dir := sampleModule(t)
	g.Expect(os.WriteFile(filepath.Join(dir, "wrong_test.go"), []byte("package sample\n\nimport \"testing\"\n\nfunc TestWrong(t *testing.T) { t.Fatal() }\n"), 0o600)).To(Succeed())

	_, err := Scorer{Root: dir, Parallel: 1}.Run(t.Context(), "example.com/sample")

	g.Expect(err).To(MatchError(ContainSubstring("TestWrong fails without a mutant")))
}

func TestEquivalentNamesOneMutant(t *testing.T) {
	g := NewWithT(t)
	// Given a function with two mutants of the same name, the second of the file being the first of the walk
	other := Mutant{ID: 1, File: "a.go", Line: 3, Function: "F", Operator: "never true", Code: "ok"}
	second := Mutant{ID: 2, File: "a.go", Line: 9, Function: "F", Operator: "never true", Code: "err != nil"}
	first := Mutant{ID: 3, File: "a.go", Line: 5, Function: "F", Operator: "never true", Code: "err != nil"}
	mutants := []Mutant{other, second, first}
	entry := func(code string, ordinal int) Equivalent {
		return Equivalent{File: "a.go", Function: "F", Operator: "never true", Code: code, Ordinal: ordinal}
	}

	// Then an entry names one of them by its ordinal
	g.Expect(entry("ok", 0).in(mutants)).To(Equal(1))
	g.Expect(entry("err != nil", 1).in(mutants)).To(Equal(3))
	g.Expect(entry("err != nil", 2).in(mutants)).To(Equal(2))

	// And an entry that names none or several is an error
	for _, wrong := range []Equivalent{entry("err != nil", 0), entry("err != nil", 3), entry("ok", 2), entry("gone", 0)} {
		_, err := wrong.in(mutants)
		g.Expect(err).To(MatchError(ContainSubstring("equivalents.yaml: a.go, F, never true: "+wrong.Code)), "%+v", wrong)
	}
}

func TestMutantsAreUntestedAfterTheEnd(t *testing.T) {
	g := NewWithT(t)
	// Given a mutant whose result is known, and one that no test reaches
	binary := filepath.Join(t.TempDir(), "tests")
	g.Expect(os.WriteFile(binary, nil, 0o600)).To(Succeed())
	known, err := openResults(filepath.Join(t.TempDir(), "results.json"), binary, "", false)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(known.add(1, false)).To(Succeed())
	ended, cancel := context.WithCancel(t.Context())
	cancel()

	// When the run was ended
	survivors, untested, err := Scorer{Parallel: 1}.test(ended, &testBinary{}, []Mutant{{ID: 1}, {ID: 2}}, known)

	// Then only the first survives, and nothing is recorded of the other
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(survivors).To(ConsistOf(Mutant{ID: 1}))
	g.Expect(untested).To(Equal(1))
	g.Expect(known.Detected).To(Equal(map[int]bool{1: false}))
}

func TestEquivalentsNameMutantsThatExist(t *testing.T) {
	g := NewWithT(t)
	known, err := LoadEquivalents()
	g.Expect(err).NotTo(HaveOccurred())
	byPackage := map[string][]Equivalent{}
	for _, e := range known {
		byPackage[filepath.Dir(e.File)] = append(byPackage[filepath.Dir(e.File)], e)
	}
	absolute, err := filepath.Abs(root)
	g.Expect(err).NotTo(HaveOccurred())
	for dir, list := range byPackage {
		packages, err := listPackages(absolute, "./"+dir)
		g.Expect(err).NotTo(HaveOccurred())
		instrumented, err := Instrument(absolute, "github.com/fixpoint-dev/fixpoint/"+dir, packages)
		g.Expect(err).NotTo(HaveOccurred())
		ids, err := equivalentIDs(list, instrumented, absolute)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(ids).To(HaveLen(len(list)), "equivalents.yaml names a mutant of %s twice", dir)
	}
}
