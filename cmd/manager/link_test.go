package main

import (
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// Packages that would add megabytes to the binary and to the memory of each replica.
func TestLinksNoHeavyPackages(t *testing.T) {
	g := NewWithT(t)
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	g.Expect(err).NotTo(HaveOccurred())
	linked := strings.Fields(string(output))
	g.Expect(linked).To(ContainElement("sigs.k8s.io/controller-runtime"))

	for heavy, why := range map[string]string{
		"text/template":             "calls methods by name, so that the linker keeps every exported method",
		"html/template":             "calls methods by name, so that the linker keeps every exported method",
		"github.com/google/cel-go":  "comes with k8s.io/apiserver: see internal/metricsauth",
		"google.golang.org/grpc":    "comes with k8s.io/apiserver: see internal/metricsauth",
		"go.opentelemetry.io":       "comes with k8s.io/apiserver: see internal/metricsauth",
		"k8s.io/component-base/cli": "comes with k8s.io/apiserver: see internal/metricsauth",
	} {
		for _, path := range linked {
			g.Expect(path+"/").NotTo(HavePrefix(heavy+"/"), why)
		}
	}
}
