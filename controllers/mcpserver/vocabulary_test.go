package mcpserver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Conditions and reasons are API. These tests read the sources, because a word that nothing says,
// or that a list forgets, is just what they have to find.

// Words of all kinds, and those of MCPServer alone.
const (
	shared   = "apis/v1alpha1/conditions.go"
	promises = "apis/v1alpha1/mcpserver_conditions.go"
)

// parsed parses a Go file of this module, or all of a folder without its tests.
func parsed(t *testing.T, path string) []*ast.File {
	t.Helper()
	g := NewWithT(t)
	if !strings.HasSuffix(path, ".go") {
		path = filepath.Join(path, "*.go")
	}
	sources, err := filepath.Glob(filepath.Join("..", "..", path))
	g.Expect(err).NotTo(HaveOccurred())
	var files []*ast.File
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		g.Expect(err).NotTo(HaveOccurred())
		files = append(files, file)
	}
	g.Expect(files).NotTo(BeEmpty(), path)
	return files
}

// constants finds the string constants of a file or folder whose names begin with the prefix.
func constants(t *testing.T, path, prefix string) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, file := range parsed(t, path) {
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || len(spec.Values) != len(spec.Names) {
				return true
			}
			for i, name := range spec.Names {
				literal, ok := spec.Values[i].(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING || !strings.HasPrefix(name.Name, prefix) {
					continue
				}
				value, err := strconv.Unquote(literal.Value)
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				values[name.Name] = value
			}
			return true
		})
	}
	NewWithT(t).Expect(values).NotTo(BeEmpty(), "%s has no constants %s...", path, prefix)
	return values
}

// uses counts in how many places of a folder each identifier stands, as itself or behind a
// package's name, beside its declaration.
func uses(t *testing.T, path string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, file := range parsed(t, path) {
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.ValueSpec:
				for _, value := range n.Values {
					ast.Inspect(value, func(inner ast.Node) bool {
						if ident, ok := inner.(*ast.Ident); ok {
							count[ident.Name]++
						}
						return true
					})
				}
				return false
			case *ast.Ident:
				count[n.Name]++
			}
			return true
		})
	}
	return count
}

// promised are the reasons that an MCPServer may show.
func promised(t *testing.T) map[string]string {
	t.Helper()
	all := constants(t, shared, "Reason")
	maps.Copy(all, constants(t, promises, "Reason"))
	return all
}

// saidBy lists who says a reason: this package, the engine or the applier.
func saidBy(t *testing.T) map[string][]string {
	t.Helper()
	speakers := map[string][]string{}
	for _, folder := range []string{"controllers/mcpserver", "internal/workload"} {
		used := uses(t, folder)
		for name, value := range promised(t) {
			if used[name] > 0 {
				speakers[value] = append(speakers[value], folder)
			}
		}
	}
	for _, library := range []string{"pkg/phases", "pkg/ssa"} {
		used := uses(t, library)
		for name, value := range constants(t, library, "Reason") {
			if used[name] > 0 {
				speakers[value] = append(speakers[value], library)
			}
		}
	}
	return speakers
}

func TestEveryReasonIsSaidBySomebody(t *testing.T) {
	speakers := saidBy(t)
	for name, value := range constants(t, promises, "Reason") {
		if len(speakers[value]) == 0 {
			t.Errorf("%s (%q) is promised by apis/v1alpha1, and nothing says it: say it, or take it out", name, value)
		}
	}
}

// neverShown are reasons of the applier after which a pass begins anew, before a status is written.
var neverShown = map[string]bool{string(ssa.ReasonStale): true}

func TestEveryReasonThatIsSaidIsPromised(t *testing.T) {
	known := map[string]bool{}
	for _, value := range promised(t) {
		known[value] = true
	}
	for value, speakers := range saidBy(t) {
		if !known[value] && !neverShown[value] {
			t.Errorf("%v says the reason %q, which apis/v1alpha1 does not know", speakers, value)
		}
	}
}

// The words of this package are constants, so that the tests above see all of them.
func TestVerdictsTakeTheirReasonsFromTheAPI(t *testing.T) {
	verdicts := map[string]bool{"Wait": true, "Stalled": true, "DoneBecause": true, "Missing": true}
	seen := 0
	for _, file := range append(parsed(t, "controllers/mcpserver"), parsed(t, "internal/workload")...) {
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !isNamed(function.X, "phases") || !verdicts[function.Sel.Name] {
				return true
			}
			seen++
			if !isReason(call.Args[0]) {
				t.Errorf("phases.%s is called with a reason that is neither a constant of apis/v1alpha1 nor another verdict's", function.Sel.Name)
			}
			return true
		})
	}
	NewWithT(t).Expect(seen).To(BeNumerically(">", 5))
}

// isReason: v1alpha1.Reason..., or verdict.Reason().
func isReason(argument ast.Expr) bool {
	if call, ok := argument.(*ast.CallExpr); ok {
		method, ok := call.Fun.(*ast.SelectorExpr)
		return ok && method.Sel.Name == "Reason"
	}
	selector, ok := argument.(*ast.SelectorExpr)
	return ok && isNamed(selector.X, "v1alpha1") && strings.HasPrefix(selector.Sel.Name, "Reason")
}

func isNamed(expression ast.Expr, name string) bool {
	ident, ok := expression.(*ast.Ident)
	return ok && ident.Name == name
}

func TestConditionsAreThoseOfTheAPI(t *testing.T) {
	// given what the engine sets: one condition for each phase, and its own
	set := map[string]bool{}
	for _, value := range constants(t, "pkg/phases", "Condition") {
		set[value] = true
	}
	for _, phase := range Phases() {
		set[phases.ConditionOf(phase.PhaseName())] = true
	}
	// then the API promises all of that, and what it promises for this kind alone is among it
	all := constants(t, shared, "Condition")
	own := constants(t, promises, "Condition")
	maps.Copy(all, own)
	known := map[string]bool{}
	for _, value := range all {
		known[value] = true
	}
	for value := range set {
		NewWithT(t).Expect(known).To(HaveKey(value))
	}
	for _, value := range own {
		NewWithT(t).Expect(set).To(HaveKey(value))
	}
}

func manual(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "mcpserver.md"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(text)
}

func TestTheManualHasThePhasesInTheirOrder(t *testing.T) {
	var names, documented []string
	for _, phase := range Phases() {
		names = append(names, phase.PhaseName())
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `(\\w+)` \\|").FindAllStringSubmatch(manual(t), -1) {
		documented = append(documented, row[2])
		NewWithT(t).Expect(row[1]).To(Equal(strconv.Itoa(len(documented))), "the number of %s", row[2])
	}
	NewWithT(t).Expect(documented).To(Equal(names))
}

func TestTheManualHasEveryWord(t *testing.T) {
	text := manual(t)
	words := constants(t, promises, "Reason")
	maps.Copy(words, constants(t, promises, "Condition"))
	for name, value := range words {
		if !strings.Contains(text, "`"+value+"`") {
			t.Errorf("docs/mcpserver.md does not have %s (`%s`)", name, value)
		}
	}
}
