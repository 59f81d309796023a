package planted

import (
	_ "embed"
	"errors"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed bugs.yaml
var catalogue []byte

// Bug is one change for the worse.
type Bug struct {
	// Name is what it is called on the command line: words joined by hyphens.
	Name string `json:"name"`
	// What it does, as somebody would describe it who has found it.
	What string `json:"what"`
	// File is the path of the file that it is in, from the root of the repository.
	File string `json:"file"`
	// Old is the right code, which the file holds exactly once, and New the wrong code.
	Old string `json:"old"`
	New string `json:"new"`
	// CaughtBy are the suites that are tried, in this order, until one fails.
	CaughtBy []string `json:"caughtBy"`
}

// Suite is a set of tests.
type Suite struct {
	// Dir is where its module is, from the root of the repository.
	Dir string `json:"dir"`
	// Packages are patterns of packages, relative to Dir.
	Packages []string `json:"packages"`
	// Run is a pattern of test names; empty means all.
	Run string `json:"run,omitempty"`
}

// Catalogue is all bugs, and the suites that they name.
type Catalogue struct {
	Suites map[string]Suite `json:"suites"`
	Bugs   []Bug            `json:"bugs"`
}

// Load reads the catalogue.
func Load() (Catalogue, error) {
	var c Catalogue
	if err := yaml.UnmarshalStrict(catalogue, &c); err != nil {
		return Catalogue{}, fmt.Errorf("reading bugs.yaml: %w", err)
	}
	return c, nil
}

// Check holds the catalogue against the tree at root. A bug whose place is not found any more is an
// error that says so: the code has moved on, and the bug has to follow.
func (c Catalogue) Check(root string) error {
	var problems []error
	names := map[string]bool{}
	for _, bug := range c.Bugs {
		if names[bug.Name] {
			problems = append(problems, fmt.Errorf("bug %s: the name is there twice", bug.Name))
		}
		names[bug.Name] = true
		if err := c.check(root, bug); err != nil {
			problems = append(problems, fmt.Errorf("bug %s: %w", bug.Name, err))
		}
	}
	return errors.Join(problems...)
}

func (c Catalogue) check(root string, bug Bug) error {
	if bug.Name == "" || bug.What == "" || len(bug.CaughtBy) == 0 {
		return errors.New("name, what and caughtBy are needed")
	}
	for _, suite := range bug.CaughtBy {
		if _, ok := c.Suites[suite]; !ok {
			return fmt.Errorf("there is no suite %q", suite)
		}
	}
	planted, err := bug.Plant(root)
	if err != nil {
		return err
	}
	if _, err := format.Source(planted); err != nil {
		return fmt.Errorf("what it makes of %s is no Go: %w", bug.File, err)
	}
	return nil
}

// Plant returns the file with the bug in it.
func (b Bug) Plant(root string) ([]byte, error) {
	source, err := os.ReadFile(filepath.Join(root, b.File))
	if err != nil {
		return nil, fmt.Errorf("reading what the bug is in: %w", err)
	}
	if n := strings.Count(string(source), b.Old); n != 1 {
		return nil, fmt.Errorf("%s holds its place %d times and not once: correct old, new or file in bugs.yaml", b.File, n)
	}
	if b.Old == b.New {
		return nil, errors.New("old and new are the same")
	}
	return []byte(strings.Replace(string(source), b.Old, b.New, 1)), nil
}

// Named picks bugs by name; no names mean all.
func (c Catalogue) Named(names ...string) ([]Bug, error) {
	if len(names) == 0 {
		return c.Bugs, nil
	}
	var picked []Bug
	for _, name := range names {
		i := slices.IndexFunc(c.Bugs, func(b Bug) bool { return b.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no bug %q; -list shows their names", name)
		}
		picked = append(picked, c.Bugs[i])
	}
	return picked, nil
}
