package appservice

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Condition types and reasons are API. These tests read the sources, so that they also find constants
// that no code uses and constants that a list omits.

// conditionsFile declares the condition types and reasons of all kinds and of AppService. The other
// kinds have their own files next to it.
const conditionsFile = "apis/v1alpha1/conditions.go"

// parsed parses a Go file of this module, or all files of a package without its tests.
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

// constants returns the string constants of a file or package with the given name prefix.
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

// uses counts the references to each identifier in a package, qualified or not, apart from its
// declaration.
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

// reasonUsers lists the packages that set each reason: this package, the engine or the applier.
func reasonUsers(t *testing.T) map[string][]string {
	t.Helper()
	users := map[string][]string{}
	for _, folder := range []string{"controllers/appservice", "internal/workload"} {
		used := uses(t, folder)
		for name, value := range constants(t, conditionsFile, "Reason") {
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

func TestEveryReasonOfTheAPIIsUsed(t *testing.T) {
	users := reasonUsers(t)
	for name, value := range constants(t, conditionsFile, "Reason") {
		if len(users[value]) == 0 {
			t.Errorf("apis/v1alpha1 declares %s (%q), but no package uses it: use it or remove it", name, value)
		}
	}
}

// internalReasons are reasons of the applier that make the engine retry before it writes a status.
var internalReasons = map[string]bool{string(ssa.ReasonStale): true}

func TestEveryUsedReasonIsInTheAPI(t *testing.T) {
	declared := map[string]bool{}
	for _, value := range constants(t, conditionsFile, "Reason") {
		declared[value] = true
	}
	for value, users := range reasonUsers(t) {
		if !declared[value] && !internalReasons[value] {
			t.Errorf("%v use the reason %q, which apis/v1alpha1 does not declare", users, value)
		}
	}
}

// Verdicts take their reasons from constants, so that the tests above see all of them.
func TestVerdictsUseReasonsOfTheAPI(t *testing.T) {
	verdicts := map[string]bool{"Wait": true, "Stalled": true, "DoneBecause": true, "Missing": true}
	seen := 0
	for _, file := range append(parsed(t, "controllers/appservice"), parsed(t, "internal/workload")...) {
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
				t.Errorf("phases.%s is called with a reason that is neither a constant of apis/v1alpha1 nor the reason of another verdict", function.Sel.Name)
			}
			return true
		})
	}
	NewWithT(t).Expect(seen).To(BeNumerically(">", 5))
}

// isReason matches v1alpha1.Reason... and verdict.Reason().
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

func TestConditionTypesMatchTheAPI(t *testing.T) {
	// given the conditions that the engine sets: one per phase, and its own
	set := map[string]bool{}
	for _, value := range constants(t, "pkg/phases", "Condition") {
		set[value] = true
	}
	for _, phase := range Phases() {
		set[phases.ConditionOf(phase.PhaseName())] = true
	}
	// then they are exactly the condition types of the API
	declared := map[string]bool{}
	for _, value := range constants(t, conditionsFile, "Condition") {
		declared[value] = true
	}
	NewWithT(t).Expect(set).To(Equal(declared))
}

func TestPoliciesMatchTheLibraries(t *testing.T) {
	g := NewWithT(t)
	g.Expect(string(v1alpha1.AdoptionNever)).To(Equal(string(ssa.AdoptNever)))
	g.Expect(string(v1alpha1.AdoptionIfUnowned)).To(Equal(string(ssa.AdoptIfUnowned)))
	g.Expect(string(v1alpha1.DriftCorrect)).To(Equal(string(ssa.CorrectDrift)))
	g.Expect(string(v1alpha1.DriftReport)).To(Equal(string(ssa.ReportDrift)))
}

func documentation(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "appservice.md"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(text)
}

func TestDocumentationListsThePhasesInOrder(t *testing.T) {
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

func TestDocumentationListsEveryField(t *testing.T) {
	text := documentation(t)
	for prefix, object := range map[string]any{
		"":                  v1alpha1.AppServiceSpec{},
		"probes.":           v1alpha1.AppServiceProbes{},
		"probes.*.":         v1alpha1.AppServiceProbe{},
		"autoscaling.":      v1alpha1.AppServiceAutoscaling{},
		"disruptionBudget.": v1alpha1.AppServiceDisruptionBudget{},
		"ingress.":          v1alpha1.AppServiceIngress{},
		"status.":           v1alpha1.AppServiceStatus{},
		"status.drifts[].":  v1alpha1.AppServiceDrift{},
	} {
		for field := range reflect.TypeOf(object).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !strings.Contains(text, "`"+prefix+name+"`") {
				t.Errorf("docs/appservice.md does not document `%s%s`", prefix, name)
			}
		}
	}
}
