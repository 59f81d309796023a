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

// Conditions and reasons are API. These tests parse the sources, to find reasons that are declared and
// not used, or used and not declared.

// Files with the conditions and reasons of all kinds, and of MCPServer.
const (
	sharedConditions    = "apis/v1alpha1/conditions.go"
	mcpServerConditions = "apis/v1alpha1/mcpserver_conditions.go"
)

// parseFiles parses a Go file of this module, or all non-test files of a directory.
func parseFiles(t *testing.T, path string) []*ast.File {
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

// constants returns the string constants of a file or directory whose names have the prefix.
func constants(t *testing.T, path, prefix string) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, file := range parseFiles(t, path) {
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

// uses counts the uses of each identifier in a directory, qualified or not, without its declaration.
func uses(t *testing.T, path string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, file := range parseFiles(t, path) {
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

// declaredReasons are the reasons that an MCPServer may have.
func declaredReasons(t *testing.T) map[string]string {
	t.Helper()
	all := constants(t, sharedConditions, "Reason")
	maps.Copy(all, constants(t, mcpServerConditions, "Reason"))
	return all
}

// reasonUsers lists, for each reason, the packages that use it.
func reasonUsers(t *testing.T) map[string][]string {
	t.Helper()
	users := map[string][]string{}
	for _, folder := range []string{"controllers/mcpserver", "internal/workload"} {
		used := uses(t, folder)
		for name, value := range declaredReasons(t) {
			if used[name] > 0 {
				users[value] = append(users[value], folder)
			}
		}
	}
	for _, library := range []string{"pkg/phases", "pkg/ssa"} {
		used := uses(t, library)
		for name, value := range constants(t, library, "Reason") {
			if used[name] > 0 {
				users[value] = append(users[value], library)
			}
		}
	}
	return users
}

func TestDeclaredReasonsAreUsed(t *testing.T) {
	users := reasonUsers(t)
	for name, value := range constants(t, mcpServerConditions, "Reason") {
		if len(users[value]) == 0 {
			t.Errorf("%s (%q) is declared in apis/v1alpha1 and never used", name, value)
		}
	}
}

// internalReasons never reach a status: the engine starts the reconcile again.
var internalReasons = map[string]bool{string(ssa.ReasonStale): true}

func TestUsedReasonsAreDeclared(t *testing.T) {
	declared := map[string]bool{}
	for _, value := range declaredReasons(t) {
		declared[value] = true
	}
	for value, users := range reasonUsers(t) {
		if !declared[value] && !internalReasons[value] {
			t.Errorf("%v use the reason %q, which apis/v1alpha1 does not declare", users, value)
		}
	}
}

// The tests above find only reasons that are constants.
func TestVerdictsUseReasonConstants(t *testing.T) {
	verdicts := map[string]bool{"Wait": true, "Stalled": true, "DoneBecause": true, "Missing": true}
	seen := 0
	for _, file := range append(parseFiles(t, "controllers/mcpserver"), parseFiles(t, "internal/workload")...) {
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

// isReason reports whether the argument is v1alpha1.Reason... or a call of Reason().
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

func TestConditionTypesAreDeclared(t *testing.T) {
	// given the condition types that the engine sets: one per phase, and its own
	set := map[string]bool{}
	for _, value := range constants(t, "pkg/phases", "Condition") {
		set[value] = true
	}
	for _, phase := range Phases() {
		set[phases.ConditionOf(phase.PhaseName())] = true
	}
	// then apis/v1alpha1 declares all of them, and declares no others for this kind
	all := constants(t, sharedConditions, "Condition")
	own := constants(t, mcpServerConditions, "Condition")
	maps.Copy(all, own)
	declared := map[string]bool{}
	for _, value := range all {
		declared[value] = true
	}
	for value := range set {
		NewWithT(t).Expect(declared).To(HaveKey(value))
	}
	for _, value := range own {
		NewWithT(t).Expect(set).To(HaveKey(value))
	}
}

func documentation(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "mcpserver.md"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(text)
}

func TestDocumentationListsPhasesInOrder(t *testing.T) {
	var names, documented []string
	for _, phase := range Phases() {
		names = append(names, phase.PhaseName())
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `(\\w+)` \\|").FindAllStringSubmatch(documentation(t), -1) {
		documented = append(documented, row[2])
		NewWithT(t).Expect(row[1]).To(Equal(strconv.Itoa(len(documented))), "the number of %s", row[2])
	}
	NewWithT(t).Expect(documented).To(Equal(names))
}

func TestDocumentationListsConditionsAndReasons(t *testing.T) {
	text := documentation(t)
	terms := constants(t, mcpServerConditions, "Reason")
	maps.Copy(terms, constants(t, mcpServerConditions, "Condition"))
	for name, value := range terms {
		if !strings.Contains(text, "`"+value+"`") {
			t.Errorf("docs/mcpserver.md does not list %s (`%s`)", name, value)
		}
	}
}
