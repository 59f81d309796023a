package mutation

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// minMutations is the minimum size of the catalogue.
const minMutations = 105

// root is the root of the repository.
const root = "../.."

func load(g *WithT) Catalogue {
	catalogue, err := Load()
	g.Expect(err).NotTo(HaveOccurred())
	return catalogue
}

func TestCatalogueAppliesToSource(t *testing.T) {
	g := NewWithT(t)
	catalogue := load(g)
	g.Expect(catalogue.Validate(root)).To(Succeed())
	g.Expect(len(catalogue.Mutations)).To(BeNumerically(">=", minMutations))
}

func TestValidateReportsStaleAndDuplicateMutations(t *testing.T) {
	g := NewWithT(t)
	catalogue := load(g)
	m := catalogue.Mutations[0]
	m.Old = "text that no file contains"
	catalogue.Mutations = append(catalogue.Mutations, m)
	g.Expect(catalogue.Validate(root)).To(MatchError(And(
		ContainSubstring("mutation "+m.Name+": the name is used twice"),
		ContainSubstring("mutation "+m.Name+": the old text occurs 0 times in "+m.File+", not once: update old, new or file in mutations.yaml"))))
}

func TestNamedSelectsMutations(t *testing.T) {
	g := NewWithT(t)
	catalogue := load(g)
	g.Expect(catalogue.Named()).To(HaveLen(len(catalogue.Mutations)))
	g.Expect(catalogue.Named(catalogue.Mutations[3].Name)).To(ConsistOf(catalogue.Mutations[3]))
	_, err := catalogue.Named("missing")
	g.Expect(err).To(MatchError(ContainSubstring(`mutation "missing" does not exist`)))
}

// TestRunnerReportsDetectedUndetectedAndBroken runs real suites of a small package.
func TestRunnerReportsDetectedUndetectedAndBroken(t *testing.T) {
	catalogue := Catalogue{Suites: map[string]Suite{
		"empty": {Dir: "test", Packages: []string{"./mutation/example"}, Run: "TestThatDoesNotExist"},
		"full":  {Dir: "test", Packages: []string{"./mutation/example"}},
	}}
	m := Mutation{
		Name: "wrong-bound", Description: "The bound is ignored.", File: "test/mutation/example/example.go",
		Old: "min(n, limit)", New: "min(n, limit+1)",
	}
	runner := Runner{Root: root, Catalogue: catalogue, Timeout: 5 * time.Minute}

	t.Run("detected", func(t *testing.T) {
		g := NewWithT(t)
		m := m
		m.DetectedBy = []string{"empty", "full"}
		result, err := runner.Run(t.Context(), m)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.Suite).To(Equal("full"))
		g.Expect(result.Tests).To(ConsistOf("TestClampKeepsTheLimit"))
		g.Expect(result.String()).To(And(HavePrefix("detected "), HaveSuffix(" by full: TestClampKeepsTheLimit")))
	})
	t.Run("not detected", func(t *testing.T) {
		g := NewWithT(t)
		m := m
		m.DetectedBy = []string{"empty"}
		result, err := runner.Run(t.Context(), m)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.Detected()).To(BeFalse())
		g.Expect(result.String()).To(HavePrefix("NOT DETECTED "))
	})
	t.Run("does not compile", func(t *testing.T) {
		g := NewWithT(t)
		m := m
		m.New, m.DetectedBy = "min(n, undefined)", []string{"full"}
		_, err := runner.Run(t.Context(), m)
		g.Expect(err).To(MatchError(ContainSubstring("the code does not compile")))
	})
}

func TestFailedTestsParsesOutput(t *testing.T) {
	cases := map[string]struct {
		output string
		tests  []string
		err    string
	}{
		"only the subtest":       {output: "--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/one (0.1s)\n--- FAIL: TestB (0.1s)\nFAIL\n", tests: []string{"TestA/one", "TestB"}},
		"a timeout":              {output: "panic: test timed out after 1s\n\trunning tests:\n\t\tTestSlow (1s)\n", tests: []string{"TestSlow (timed out)"}},
		"a failure without test": {output: "exit status 2\n", err: "go test failed without a failed test"},
		"a failed build":         {output: "FAIL\tx [build failed]\n", err: "the code does not compile"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			tests, err := failedTests(c.output)
			if c.err != "" {
				g.Expect(err).To(MatchError(c.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(tests).To(Equal(c.tests))
		})
	}
}
