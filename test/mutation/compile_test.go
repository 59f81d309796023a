package mutation

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// listPackages lists the packages in the directories and all their dependencies, with export data.
func listPackages(dirs []string) (map[string]listed, error) {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}, dirs...)...)
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	packages := map[string]listed{}
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("decoding the packages: %w", err)
		}
		packages[p.ImportPath] = p
	}
}

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
	packages, err := listPackages(dirs)
	g.Expect(err).NotTo(HaveOccurred())
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(importPath string) (io.ReadCloser, error) { return os.Open(packages[importPath].Export) })
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
