package planted

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// least is how many bugs there have to be at least.
const least = 30

func load(g *WithT) Catalogue {
	catalogue, err := Load()
	g.Expect(err).NotTo(HaveOccurred())
	return catalogue
}

func TestEveryBugHasItsPlaceInTheCode(t *testing.T) {
	g := NewWithT(t)
	catalogue := load(g)
	g.Expect(catalogue.Check("../..")).To(Succeed())
	g.Expect(len(catalogue.Bugs)).To(BeNumerically(">=", least))
}

func TestABugWithoutAPlaceIsAnError(t *testing.T) {
	g := NewWithT(t)
	catalogue := load(g)
	bug := catalogue.Bugs[0]
	bug.Old = "this is nowhere"
	catalogue.Bugs = append(catalogue.Bugs, bug)
	g.Expect(catalogue.Check("../..")).To(MatchError(And(
		ContainSubstring("bug "+bug.Name+": the name is there twice"),
		ContainSubstring("bug "+bug.Name+": "+bug.File+" holds its place 0 times and not once: correct old, new or file in bugs.yaml"))))
}

func TestNamed(t *testing.T) {
	g := NewWithT(t)
	catalogue := load(g)
	g.Expect(catalogue.Named()).To(HaveLen(len(catalogue.Bugs)))
	g.Expect(catalogue.Named(catalogue.Bugs[3].Name)).To(ConsistOf(catalogue.Bugs[3]))
	_, err := catalogue.Named("nobody")
	g.Expect(err).To(MatchError(ContainSubstring(`there is no bug "nobody"`)))
}

// A whole hunt, on the cheapest suite: one bug that it notices, one that it does not, and one that
// is none because it does not compile.
func TestHunt(t *testing.T) {
	catalogue := Catalogue{Suites: map[string]Suite{
		"shallow": {Packages: []string{"./pkg/ssa"}, Run: "TestNothingIsCalledLikeThis"},
		"deep":    {Packages: []string{"./internal/workload"}},
	}}
	bug := Bug{
		Name: "old-generation-judged", What: "w", File: "internal/workload/rollout.go",
		Old: "if d.Status.ObservedGeneration < d.Generation {", New: "if d.Status.ObservedGeneration < 0 {",
	}
	hunt := Hunt{Root: "../..", Catalogue: catalogue, Timeout: 5 * time.Minute}

	t.Run("caught", func(t *testing.T) {
		g := NewWithT(t)
		bug := bug
		bug.CaughtBy = []string{"shallow", "deep"}
		finding, err := hunt.Find(t.Context(), bug)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(finding.Suite).To(Equal("deep"))
		g.Expect(finding.Tests).To(ContainElement(HavePrefix("Test")))
		g.Expect(finding.String()).To(And(HavePrefix("caught "), ContainSubstring(" by deep: Test")))
	})
	t.Run("not caught", func(t *testing.T) {
		g := NewWithT(t)
		bug := bug
		bug.CaughtBy = []string{"shallow"}
		finding, err := hunt.Find(t.Context(), bug)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(finding.Caught()).To(BeFalse())
		g.Expect(finding.String()).To(HavePrefix("NOT CAUGHT "))
	})
	t.Run("does not compile", func(t *testing.T) {
		g := NewWithT(t)
		bug := bug
		bug.New, bug.CaughtBy = "if d.Status.ObservedGeneration < nothing {", []string{"deep"}
		_, err := hunt.Find(t.Context(), bug)
		g.Expect(err).To(MatchError(ContainSubstring("it does not compile")))
	})
}

func TestFailures(t *testing.T) {
	cases := map[string]struct {
		output  string
		tests   []string
		problem string
	}{
		"the deepest test": {"--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/one (0.1s)\n--- FAIL: TestB (0.1s)\nFAIL\n", []string{"TestA/one", "TestB"}, ""},
		"a hanging test":   {"panic: test timed out after 1s\n\trunning tests:\n\t\tTestSlow (1s)\n", []string{"TestSlow (hangs)"}, ""},
		"no test":          {"exit status 2\n", nil, "it fails, and no test does"},
		"no build":         {"FAIL\tx [build failed]\n", nil, "it does not compile"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			tests, problem := failures(c.output)
			g.Expect(tests).To(Equal(c.tests))
			g.Expect(problem).To(Equal(c.problem))
		})
	}
}
