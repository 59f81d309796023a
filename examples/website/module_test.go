package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// An operator that imports pkg/phases must not download what Fixpoint's own
// controllers need.
func TestModuleNeedsNoCloudSDKAndNoMCP(t *testing.T) {
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(file)
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		for _, module := range []string{"azure", "microsoft-authentication-library", "modelcontextprotocol", "gateway-api"} {
			g.Expect(strings.ToLower(string(content))).NotTo(ContainSubstring(module), file)
		}
	}
}

// What an author writes by hand for an operator stays small: tests, generated code and
// the stand-in for the registry aside.
func TestOperatorIsAtMost250Lines(t *testing.T) {
	g := NewWithT(t)
	lines := 0
	for _, file := range []string{"api/v1/types.go", "phases.go", "main.go"} {
		content, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		lines += strings.Count(string(content), "\n")
	}
	g.Expect(lines).To(BeNumerically("<=", 250))
}

// What the package documentation shows compiles and prints the same when it is copied out of the repository:
// it needs nothing of the libraries' own tests.
func TestExamplesOfTheLibrariesWorkWhenCopied(t *testing.T) {
	for _, library := range []string{"phases", "ssa"} {
		t.Run(library, func(t *testing.T) {
			g := NewWithT(t)
			// Given a module of its own with the example and nothing else
			root, err := filepath.Abs("../..")
			g.Expect(err).NotTo(HaveOccurred())
			copied := t.TempDir()
			for from, to := range map[string]string{
				"go.mod": "go.mod", "go.sum": "go.sum", "../../pkg/" + library + "/example_test.go": "example_test.go",
			} {
				content, err := os.ReadFile(from)
				g.Expect(err).NotTo(HaveOccurred())
				content = []byte(strings.ReplaceAll(string(content), "=> ../..", "=> "+root))
				g.Expect(os.WriteFile(filepath.Join(copied, to), content, 0o600)).To(Succeed())
			}

			// When it is tested, it passes
			command := exec.CommandContext(t.Context(), "go", "test", "-mod=mod", "-run", "^Example", ".")
			command.Dir = copied
			output, err := command.CombinedOutput()
			g.Expect(err).NotTo(HaveOccurred(), string(output))
			g.Expect(string(output)).To(HavePrefix("ok"))
		})
	}
}
