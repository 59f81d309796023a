package main

import (
	"os/exec"
	"path"
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
	heavy := map[string]map[string]string{
		"manager": {
			"text/template":             keepsMethods,
			"html/template":             keepsMethods,
			"github.com/google/cel-go":  comesWithServers,
			"google.golang.org/grpc":    comesWithServers,
			"go.opentelemetry.io":       comesWithServers,
			"k8s.io/component-base/cli": comesWithServers,
			"plugin":                    comesWithFlags,
		},
		"console":          {"plugin": comesWithFlags},
		"kubectl-fixpoint": {"plugin": comesWithFlags},
	}
	g := NewWithT(t)
	output, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, ".", "../console", "../kubectl-fixpoint").Output()
	g.Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(output)) {
		linked := strings.Fields(line)
		g.Expect(linked).To(ContainElement("sigs.k8s.io/controller-runtime/pkg/client"))
		command := path.Base(linked[0])
		g.Expect(heavy).To(HaveKey(command))
		for _, imported := range linked {
			for prefix, why := range heavy[command] {
				g.Expect(imported+"/").NotTo(HavePrefix(prefix+"/"), why)
			}
		}
		delete(heavy, command)
	}
	g.Expect(heavy).To(BeEmpty())
}
