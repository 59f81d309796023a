// Package conditionstest checks what a kind promises about its conditions and reasons, which are API: every
// reason that is declared is used, every reason that is used is declared, every phase has a condition, and
// the kind's page lists phases and fields. It parses the sources, because a constant that no code uses, or
// that a list omits, is what it has to find.
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
)

// Contract is what one kind promises. Paths are relative to the root of the project.
type Contract struct {
	// Root is the path from the test's package to the root of the project.
	Root string
	// Own is the file that declares the conditions and reasons of this kind alone, and Shared those of all
	// kinds. A kind without a file of its own has them in Shared.
	Own, Shared string
	// Packages are those that set the kind's conditions, and Libraries those that set reasons of their own.
	Packages, Libraries []string
	// Internal are reasons after which a reconcile starts again, so that no status has them.
	Internal []string
	// Phases are the names of the phases in their order, and ConditionOf the type of a phase's condition.
	Phases      []string
	ConditionOf func(phase string) string
	// Page is the kind's documentation, and PhaseRow matches a row of its table of phases: its number, and
	// the name of the phase.
	Page     string
	PhaseRow *regexp.Regexp
	// Fields are the types whose fields the page documents, by the prefix with which it does.
	Fields map[string]any
}

// Run runs a test for each promise.
func (c Contract) Run(t *testing.T) {
	t.Run("every declared reason is used", c.declaredReasonsAreUsed)
	t.Run("every used reason is declared", c.usedReasonsAreDeclared)
	t.Run("verdicts take their reasons from constants", c.verdictsTakeConstants)
	t.Run("the conditions of the phases are declared", c.conditionsAreDeclared)
	t.Run("the page lists the phases in order", c.pageListsPhases)
	t.Run("the page lists every field", c.pageListsFields)
}

func (c Contract) declaredReasonsAreUsed(t *testing.T) {
	users := c.reasonUsers(t)
	for name, value := range c.constants(t, c.ownFile(), "Reason") {
		if len(users[value]) == 0 {
			t.Errorf("%s (%q) is declared in %s, but no package uses it: use it or remove it", name, value, c.ownFile())
		}
	}
}

func (c Contract) usedReasonsAreDeclared(t *testing.T) {
	declared := c.declared(t, "Reason")
	for value, users := range c.reasonUsers(t) {
		if !slices.Contains(slices.Collect(maps.Values(declared)), value) && !slices.Contains(c.Internal, value) {
			t.Errorf("%v set the reason %q, which apis/v1alpha1 does not declare", users, value)
		}
	}
}

// verdictsTakeConstants: the other tests find only reasons that are constants.
func (c Contract) verdictsTakeConstants(t *testing.T) {
	verdicts := []string{"Wait", "Stalled", "DoneBecause", "Missing"}
	for _, folder := range c.Packages {
		for _, file := range c.parse(t, folder) {
			ast.Inspect(file, func(node ast.Node) bool {
				call, ok := node.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				function, ok := call.Fun.(*ast.SelectorExpr)
				if ok && isNamed(function.X, "phases") && slices.Contains(verdicts, function.Sel.Name) && !isReason(call.Args[0]) {
					t.Errorf("%s: phases.%s is called with a reason that is neither a constant of apis/v1alpha1 nor the reason of another verdict", folder, function.Sel.Name)
				}
				return true
			})
		}
	}
}

func (c Contract) conditionsAreDeclared(t *testing.T) {
	declared := slices.Collect(maps.Values(c.declared(t, "Condition")))
	var set []string
	for _, phase := range c.Phases {
		set = append(set, c.ConditionOf(phase))
	}
	for _, library := range c.Libraries {
		set = append(set, slices.Collect(maps.Values(c.constantsIn(t, library, "Condition")))...)
	}
	for _, condition := range set {
		if !slices.Contains(declared, condition) {
			t.Errorf("the condition %s is set, but apis/v1alpha1 does not declare it", condition)
		}
	}
	for name, condition := range c.constants(t, c.ownFile(), "Condition") {
		if !slices.Contains(set, condition) {
			t.Errorf("%s (%q) is declared in %s, but no phase has this condition", name, condition, c.ownFile())
		}
	}
}

func (c Contract) pageListsPhases(t *testing.T) {
	var documented []string
	for _, row := range c.PhaseRow.FindAllStringSubmatch(c.page(t), -1) {
		documented = append(documented, row[2])
		if row[1] != strconv.Itoa(len(documented)) {
			t.Errorf("%s gives phase %s the number %s; it is row %d", c.Page, row[2], row[1], len(documented))
		}
	}
	if !slices.Equal(documented, c.Phases) {
		t.Errorf("%s lists the phases %v; they are %v", c.Page, documented, c.Phases)
	}
}

func (c Contract) pageListsFields(t *testing.T) {
	page := c.page(t)
	for prefix, object := range c.Fields {
		for field := range reflect.TypeOf(object).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !strings.Contains(page, "`"+prefix+name) {
				t.Errorf("%s does not document `%s%s`", c.Page, prefix, name)
			}
		}
	}
}

func (c Contract) page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Root, c.Page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (c Contract) ownFile() string {
	if c.Own != "" {
		return c.Own
	}
	return c.Shared
}

// declared are the constants with a prefix that the kind may use, by name.
func (c Contract) declared(t *testing.T, prefix string) map[string]string {
	t.Helper()
	all := c.constants(t, c.Shared, prefix)
	maps.Copy(all, c.constants(t, c.ownFile(), prefix))
	return all
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
	for _, library := range c.Libraries {
		note(library, c.constantsIn(t, library, "Reason"))
	}
	return users
}

// parse parses a Go file, or all files of a package without its tests.
func (c Contract) parse(t *testing.T, path string) []*ast.File {
	t.Helper()
	pattern := filepath.Join(c.Root, path)
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

// constants are the string constants with a prefix, by name. There is at least one.
func (c Contract) constants(t *testing.T, path, prefix string) map[string]string {
	t.Helper()
	values := c.constantsIn(t, path, prefix)
	if len(values) == 0 {
		t.Fatalf("%s has no constants %s...", path, prefix)
	}
	return values
}

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
