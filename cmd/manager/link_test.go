package main

import (
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// Packages that would add megabytes to the binaries, and to the memory of each replica of the manager.
func TestLinksNoHeavyPackages(t *testing.T) {
	const (
		keepsMethods     = "calls methods by name, so that the linker keeps every exported method"
		comesWithServers = "comes with k8s.io/apiserver: see internal/metricsauth"
		comesWithFlags   = "comes with k8s.io/cli-runtime/pkg/genericclioptions, and makes the linker keep every exported method: see internal/plugin/kubeconfig.go"
	)
	for command, packages := range map[string]map[string]string{
		".": {
			"text/template":             keepsMethods,
			"html/template":             keepsMethods,
			"github.com/google/cel-go":  comesWithServers,
			"google.golang.org/grpc":    comesWithServers,
			"go.opentelemetry.io":       comesWithServers,
			"k8s.io/component-base/cli": comesWithServers,
			"plugin":                    comesWithFlags,
		},
		"../console":          {"plugin": comesWithFlags},
		"../kubectl-fixpoint": {"plugin": comesWithFlags},
	} {
		t.Run(command, func(t *testing.T) {
			g := NewWithT(t)
			output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", command).Output()
			g.Expect(err).NotTo(HaveOccurred())
			linked := strings.Fields(string(output))
			g.Expect(linked).To(ContainElement("sigs.k8s.io/controller-runtime/pkg/client"))
			for _, path := range linked {
				for heavy, why := range packages {
					g.Expect(path+"/").NotTo(HavePrefix(heavy+"/"), why)
				}
			}
		})
	}
}
