// Package conditionstest checks the conditions and reasons of a kind, which are API: every declared reason is
// used, every used reason is declared, every phase has a declared condition, and the kind's page lists phases,
// conditions, reasons and fields. It parses the sources, because it has to find constants that no code uses and
// constants that a list omits.
package conditionstest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// root is the path from the package of a controller to the root of the project.
const root = "../.."

// shared declares the conditions and reasons of all kinds.
const shared = "apis/v1beta1/conditions.go"

// libraries set conditions and reasons of their own.
var libraries = []string{"pkg/phases", "pkg/ssa"}

// internalReasons are in no status: after them, the reconcile starts again.
var internalReasons = []string{string(ssa.ReasonStale)}

// verdicts are the functions of pkg/phases whose first argument is a reason.
var verdicts = []string{"Wait", "Stalled", "DoneBecause", "Missing"}

// phaseRow matches a row of a page's table of phases: its number, and the name of the phase.
var phaseRow = regexp.MustCompile("(?m)^\\| (\\d+) \\| `?(\\w+)`? \\|")

// Contract is what one kind promises. Paths are relative to the root of the project. The tests of a controller
// in a directory below controllers run it.
type Contract struct {
	// Own are the files that declare the conditions and reasons of this kind, which has to use all of them. Beside
	// them, it may use those of apis/v1beta1/conditions.go.
	Own []string
	// Packages are those that set the kind's conditions.
	Packages []string
	// ReasonVariables are the names of functions, fields and parameters that hold one of the reasons.
	ReasonVariables []string
	// Phases are the names of the phases in order.
	Phases []string
	// Page is the documentation of the kind.
	Page string
	// Fields are the types whose fields the page documents, by their prefix on the page.
	Fields map[string]any
}

// Names returns the names of phases in order.
func Names[S any](list []phases.Phase[S]) []string {
	var names []string
	for _, phase := range list {
		names = append(names, phase.PhaseName())
	}
	return names
}

// Run runs a test for each promise.
func (c Contract) Run(t *testing.T) {
	t.Run("every declared reason is used", c.declaredReasonsAreUsed)
	t.Run("every used reason is declared", c.usedReasonsAreDeclared)
	t.Run("verdicts take their reasons from constants", c.verdictsTakeConstants)
	t.Run("the conditions of the phases are declared", c.conditionsAreDeclared)
	t.Run("the page lists the phases in order", c.pageListsPhases)
	t.Run("the page lists conditions and reasons", c.pageListsConditions)
	t.Run("the page lists every field", c.pageListsFields)
}

func (c Contract) declaredReasonsAreUsed(t *testing.T) {
	users := c.reasonUsers(t)
	for name, value := range c.own(t, "Reason") {
		if len(users[value]) == 0 {
			t.Errorf("%s (%q) is declared in %s, but no package uses it: use it or remove it", name, value, c.Own)
		}
	}
}

func (c Contract) usedReasonsAreDeclared(t *testing.T) {
	declared := c.declared(t, "Reason")
	for value, users := range c.reasonUsers(t) {
		if !slices.Contains(slices.Collect(maps.Values(declared)), value) && !slices.Contains(internalReasons, value) {
			t.Errorf("%v set the reason %q, which apis/v1beta1 does not declare", users, value)
		}
	}
}

// verdictsTakeConstants: the other tests find only reasons that are constants.
func (c Contract) verdictsTakeConstants(t *testing.T) {
	seen := 0
	for _, folder := range c.Packages {
		for _, file := range c.parse(t, folder) {
			ast.Inspect(file, func(node ast.Node) bool {
				call, ok := node.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				function, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !isNamed(function.X, "phases") || !slices.Contains(verdicts, function.Sel.Name) {
					return true
				}
				seen++
				if !c.isReason(call.Args[0]) {
					t.Errorf("%s: phases.%s is called with a reason that is neither a constant of apis/v1beta1 nor the reason of another verdict", folder, function.Sel.Name)
				}
				return true
			})
		}
	}
	if seen <= 5 {
		t.Errorf("%v call %v of pkg/phases only %d times: this test does not find the calls", c.Packages, verdicts, seen)
	}
}

func (c Contract) conditionsAreDeclared(t *testing.T) {
	declared := slices.Collect(maps.Values(c.declared(t, "Condition")))
	var set []string
	for _, phase := range c.Phases {
		set = append(set, phases.ConditionOf(phase))
	}
	for _, library := range libraries {
		set = append(set, slices.Collect(maps.Values(c.constantsIn(t, library, "Condition")))...)
	}
	for _, condition := range set {
		if !slices.Contains(declared, condition) {
			t.Errorf("the condition %s is set, but apis/v1beta1 does not declare it", condition)
		}
	}
	for name, condition := range c.own(t, "Condition") {
		if !slices.Contains(set, condition) {
			t.Errorf("%s (%q) is declared in %s, but no phase has this condition", name, condition, c.Own)
		}
	}
}

func (c Contract) pageListsPhases(t *testing.T) {
	var documented []string
	for _, row := range phaseRow.FindAllStringSubmatch(c.page(t), -1) {
		documented = append(documented, row[2])
		if row[1] != strconv.Itoa(len(documented)) {
			t.Errorf("%s gives phase %s the number %s; it is row %d", c.Page, row[2], row[1], len(documented))
		}
	}
	if !slices.Equal(documented, c.Phases) {
		t.Errorf("%s lists the phases %v; they are %v", c.Page, documented, c.Phases)
	}
}

// pageListsConditions requires a row of a table for every condition and reason of the kind.
func (c Contract) pageListsConditions(t *testing.T) {
	page := c.page(t)
	terms := c.own(t, "Reason")
	maps.Copy(terms, c.own(t, "Condition"))
	for name, value := range terms {
		if !strings.Contains(page, "\n| `"+value+"` | ") {
			t.Errorf("%s has no row for %s (`%s`)", c.Page, name, value)
		}
	}
}

func (c Contract) pageListsFields(t *testing.T) {
	page := c.page(t)
	for prefix, object := range c.Fields {
		for field := range reflect.TypeOf(object).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !strings.Contains(page, "`"+prefix+name+"`") {
				t.Errorf("%s does not document `%s%s`", c.Page, prefix, name)
			}
		}
	}
}

func (c Contract) page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, c.Page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// own are the constants with a prefix that the kind has to use, by name. There is at least one.
func (c Contract) own(t *testing.T, prefix string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range c.Own {
		maps.Copy(all, c.constantsIn(t, file, prefix))
	}
	if len(all) == 0 {
		t.Fatalf("%s have no constants %s...", c.Own, prefix)
	}
	return all
}

// declared are the constants with a prefix that the kind may use, by name.
func (c Contract) declared(t *testing.T, prefix string) map[string]string {
	t.Helper()
	all := c.constantsIn(t, shared, prefix)
	maps.Copy(all, c.own(t, prefix))
	return all
}

// OwnReasons returns the reasons that the kind declares, by the name of the constant.
func (c Contract) OwnReasons(t *testing.T) map[string]string {
	t.Helper()
	return c.own(t, "Reason")
}

// reasonUsers are the packages that use each reason.
func (c Contract) reasonUsers(t *testing.T) map[string][]string {
	t.Helper()
	users := map[string][]string{}
	note := func(folder string, constants map[string]string) {
		used := c.uses(t, folder)
		for name, value := range constants {
			if used[name] > 0 {
				users[value] = append(users[value], folder)
			}
		}
	}
	for _, folder := range c.Packages {
		note(folder, c.declared(t, "Reason"))
	}
	for _, library := range libraries {
		note(library, c.constantsIn(t, library, "Reason"))
	}
	return users
}

// parse parses a Go file, or all files of a package without its tests.
func (c Contract) parse(t *testing.T, path string) []*ast.File {
	t.Helper()
	pattern := filepath.Join(root, path)
	if !strings.HasSuffix(path, ".go") {
		pattern = filepath.Join(pattern, "*.go")
	}
	sources, err := filepath.Glob(pattern)
	if err != nil || len(sources) == 0 {
		t.Fatalf("%s has no Go files: %v", path, err)
	}
	var files []*ast.File
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// constantsIn are the string constants of a file or package with a prefix, by name.
func (c Contract) constantsIn(t *testing.T, path, prefix string) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, file := range c.parse(t, path) {
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
				if err != nil {
					t.Fatal(fmt.Errorf("reading %s: %w", name.Name, err))
				}
				values[name.Name] = value
			}
			return true
		})
	}
	return values
}

// uses counts the references to each identifier in a package, qualified or not, apart from its
// declaration.
func (c Contract) uses(t *testing.T, path string) map[string]int {
	t.Helper()
	count := map[string]int{}
	note := func(node ast.Node) bool {
		if ident, ok := node.(*ast.Ident); ok {
			count[ident.Name]++
		}
		return true
	}
	for _, file := range c.parse(t, path) {
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok {
				return note(node)
			}
			for _, value := range spec.Values {
				ast.Inspect(value, note)
			}
			return false
		})
	}
	return count
}

// isReason matches v1beta1.Reason..., verdict.Reason(), and the names in ReasonVariables.
func (c Contract) isReason(argument ast.Expr) bool {
	if call, ok := argument.(*ast.CallExpr); ok {
		method, ok := call.Fun.(*ast.SelectorExpr)
		return ok && (method.Sel.Name == "Reason" || slices.Contains(c.ReasonVariables, method.Sel.Name))
	}
	if parameter, ok := argument.(*ast.Ident); ok {
		return slices.Contains(c.ReasonVariables, parameter.Name)
	}
	selector, ok := argument.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	isConstant := isNamed(selector.X, "v1beta1") && strings.HasPrefix(selector.Sel.Name, "Reason")
	return isConstant || slices.Contains(c.ReasonVariables, selector.Sel.Name)
}

func isNamed(expression ast.Expr, name string) bool {
	ident, ok := expression.(*ast.Ident)
	return ok && ident.Name == name
}
