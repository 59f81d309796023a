package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/test/deploy"
)

// TestKubeScoreFindsNothingCritical runs kube-score on the manifests, and on the children of every sample. CPU
// limits are left out on purpose: see "Sizing" in docs/operations.md.
func TestKubeScoreFindsNothingCritical(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	program := w.kubeScore()
	manifests, err := os.ReadFile(filepath.Join(deploy.Root, "dist", "install.yaml"))
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.criticals(program, string(manifests))).To(BeEmpty(), "of dist/install.yaml")

	w.apply(ingressClass)
	w.install("default")
	w.start(system, "one")
	w.ready(w.samples()...)
	children := w.run("-n", "default", "get", "deployments,services,configmaps,horizontalpodautoscalers,poddisruptionbudgets,ingresses,networkpolicies", "-o", "yaml")
	found := w.criticals(program, children, "--ignore-test=container-image-pull-policy",
		"--ignore-test=deployment-targeted-by-hpa-does-not-have-replicas-configured")
	for _, e := range exempt {
		var rest []string
		for _, finding := range found {
			if !e.finding.MatchString(finding) {
				rest = append(rest, finding)
			}
		}
		w.Expect(len(rest)).To(BeNumerically("<", len(found)), "the exemption %s (%s) is not needed: remove it", e.finding, e.because)
		found = rest
	}
	w.Expect(found).To(BeEmpty(), "of the children of the samples")
}

// exempt are findings that no sample can avoid. The pull policy of the samples is the default of Kubernetes,
// so that nodes start pods of images that they have; and the API server sets the replicas of a Deployment that
// an autoscaler owns.
var exempt = []struct {
	finding *regexp.Regexp
	because string
}{
	{regexp.MustCompile(`Deployment: \(app\) The pod has a container with a writable root filesystem`),
		"the web server of the samples writes to /tmp, and an AppService has no volumes"},
}

// kubeScore builds the pinned version.
func (w *fixture) kubeScore() string {
	w.t.Helper()
	program := filepath.Join(w.t.TempDir(), "kube-score")
	build := exec.CommandContext(w.ctx, "go", "build", "-o", program, "tool")
	build.Dir = filepath.Join(deploy.Root, "hack", "tools", "kube-score")
	output, err := build.CombinedOutput()
	w.Expect(err).NotTo(HaveOccurred(), string(output))
	return program
}

// criticals are the critical findings.
func (w *fixture) criticals(program, manifests string, flags ...string) []string {
	w.t.Helper()
	args := append([]string{"score", "--ignore-container-cpu-limit", "--output-format=ci", "-"}, flags...)
	cmd := exec.CommandContext(w.ctx, program, args...)
	cmd.Stdin = strings.NewReader(manifests)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // it exits with 1 after critical findings
	w.Expect(stdout.String()).To(ContainSubstring("[OK] "), stderr.String())
	var found []string
	for line := range strings.Lines(stdout.String()) {
		if strings.HasPrefix(line, "[CRITICAL]") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
