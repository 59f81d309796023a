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
