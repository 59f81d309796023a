package mutation

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
)

// checkTypes type-checks a package in which one file has other content.
func checkTypes(p listed, imports types.Importer, fset *token.FileSet, file string, content []byte) error {
	var files []*ast.File
	for _, name := range p.GoFiles {
		var source any
		if name == file {
			source = content
		}
		parsed, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, parsed)
	}
	_, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, files, nil)
	return err
}

// TestMutationsCompile type-checks every mutated package: a mutation that does not compile tests nothing.
func TestMutationsCompile(t *testing.T) {
	g := NewWithT(t)
	catalogue := load(g)
	var dirs []string
	for _, m := range catalogue.Mutations {
		dirs = append(dirs, "./"+path.Dir(m.File))
	}
	packages, err := listPackages(root, dirs...)
	g.Expect(err).NotTo(HaveOccurred())
	fset := token.NewFileSet()
	imports := importerOf(fset, packages)
	const module = "github.com/fixpoint-dev/fixpoint/"
	for _, m := range catalogue.Mutations {
		mutated, err := m.Apply(root)
		if err != nil {
			continue // TestCatalogueAppliesToSource reports it
		}
		if err := checkTypes(packages[module+path.Dir(m.File)], imports, fset, path.Base(m.File), mutated); err != nil {
			t.Errorf("mutation %s does not compile: %v", m.Name, err)
		}
	}
}

var (
	testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	alternative  = regexp.MustCompile(`\w+`)
)

// TestSuitePatternsMatchTests notices patterns of suites that name tests which were renamed or removed.
func TestSuitePatternsMatchTests(t *testing.T) {
	g := NewWithT(t)
	for name, suite := range load(g).Suites {
		var tests []string
		for _, p := range suite.Packages {
			files, err := filepath.Glob(filepath.Join(root, suite.Dir, p, "*_test.go"))
			g.Expect(err).NotTo(HaveOccurred())
			for _, file := range files {
				content, err := os.ReadFile(file)
				g.Expect(err).NotTo(HaveOccurred())
				for _, match := range testFunction.FindAllStringSubmatch(string(content), -1) {
					tests = append(tests, match[1])
				}
			}
		}
		g.Expect(tests).NotTo(BeEmpty(), "suite %s has no tests", name)
		for _, part := range alternative.FindAllString(suite.Run+" "+suite.Skip, -1) {
			g.Expect(tests).To(ContainElement(ContainSubstring(part)), "no test of suite %s matches the part %q of its pattern", name, part)
		}
	}
}
