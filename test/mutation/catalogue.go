package mutation

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

//go:embed mutations.yaml
var catalogue []byte

// Mutation is one bug, as a replacement of source text.
type Mutation struct {
	// Name identifies the mutation on the command line: lower-case words joined by hyphens.
	Name string `json:"name"`
	// Description is one sentence on what the bug does.
	Description string `json:"description"`
	// File is the path of the mutated file, relative to the root of the repository.
	File string `json:"file"`
	// Old is the correct code, which occurs exactly once in the file. New replaces it.
	Old string `json:"old"`
	New string `json:"new"`
	// DetectedBy lists the suites to run, in order, until one fails.
	DetectedBy []string `json:"detectedBy"`
}

// Suite is a set of tests.
type Suite struct {
	// Dir is the directory of the Go module, relative to the root of the repository.
	Dir string `json:"dir"`
	// Packages are package patterns, relative to Dir.
	Packages []string `json:"packages"`
	// Run and Skip are the patterns for the flags -run and -skip of go test. Both are optional.
	Run  string `json:"run,omitempty"`
	Skip string `json:"skip,omitempty"`
}

// Catalogue holds all mutations and the suites that they name.
type Catalogue struct {
	Suites    map[string]Suite `json:"suites"`
	Mutations []Mutation       `json:"mutations"`
}

// Load parses the embedded catalogue.
func Load() (Catalogue, error) {
	var c Catalogue
	if err := yaml.UnmarshalStrict(catalogue, &c); err != nil {
		return Catalogue{}, fmt.Errorf("parsing mutations.yaml: %w", err)
	}
	return c, nil
}

// Validate checks every entry against the source tree at root. It returns an error for each mutation
// whose old text does not occur exactly once, or whose result is not valid Go syntax.
func (c Catalogue) Validate(root string) error {
	var errs []error
	names := map[string]bool{}
	for _, m := range c.Mutations {
		if names[m.Name] {
			errs = append(errs, fmt.Errorf("mutation %s: the name is used twice", m.Name))
		}
		names[m.Name] = true
		if err := c.validate(root, m); err != nil {
			errs = append(errs, fmt.Errorf("mutation %s: %w", m.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (c Catalogue) validate(root string, m Mutation) error {
	if m.Name == "" || m.Description == "" || len(m.DetectedBy) == 0 {
		return errors.New("name, description and detectedBy are required")
	}
	for _, suite := range m.DetectedBy {
		if _, ok := c.Suites[suite]; !ok {
			return fmt.Errorf("suite %q does not exist", suite)
		}
	}
	mutated, err := m.Apply(root)
	if err != nil {
		return err
	}
	if _, err := format.Source(mutated); err != nil {
		return fmt.Errorf("the mutated %s is not valid Go: %w", m.File, err)
	}
	return nil
}

// Apply returns the content of the mutated file. The file itself is not changed.
func (m Mutation) Apply(root string) ([]byte, error) {
	source, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, fmt.Errorf("reading the file to mutate: %w", err)
	}
	if n := strings.Count(string(source), m.Old); n != 1 {
		return nil, fmt.Errorf("the old text occurs %d times in %s, not once: update old, new or file in mutations.yaml", n, m.File)
	}
	if m.Old == m.New {
		return nil, errors.New("old and new are equal")
	}
	return []byte(strings.Replace(string(source), m.Old, m.New, 1)), nil
}

// Named returns the mutations with the given names, or all mutations if no name is given.
func (c Catalogue) Named(names ...string) ([]Mutation, error) {
	if len(names) == 0 {
		return c.Mutations, nil
	}
	var selected []Mutation
	for _, name := range names {
		i := slices.IndexFunc(c.Mutations, func(m Mutation) bool { return m.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("mutation %q does not exist; -list prints all names", name)
		}
		selected = append(selected, c.Mutations[i])
	}
	return selected, nil
}
