package main

import (
	"os"
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

// What an author writes by hand for an operator stays small: tests and generated code aside.
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
