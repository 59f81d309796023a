package deploy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"

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
	w.Expect(w.criticals(program, w.declared())).To(BeEmpty(), "of the children of the samples")
}

// declared are the objects of the samples and their children with the fields that were applied. What the API server
// and other controllers add is not of the samples: the number of pods, for example, if an autoscaler sets it.
func (w *fixture) declared() string {
	w.t.Helper()
	var live unstructured.UnstructuredList
	w.Expect(json.Unmarshal([]byte(w.run("-n", "default", "get", "--show-managed-fields", "-o", "json",
		"deployments,services,configmaps,horizontalpodautoscalers,poddisruptionbudgets,ingresses,networkpolicies")), &live)).To(Succeed())
	discovered, err := discovery.NewDiscoveryClientForConfig(w.cluster.Admin())
	w.Expect(err).NotTo(HaveOccurred())
	extractor, err := metav1ac.NewUnstructuredExtractor(discovered)
	w.Expect(err).NotTo(HaveOccurred())
	var declared strings.Builder
	for i := range live.Items {
		object := &live.Items[i]
		for _, fields := range object.GetManagedFields() {
			if fields.Operation != metav1.ManagedFieldsOperationApply || fields.Subresource != "" {
				continue
			}
			applied, err := extractor.Extract(object, fields.Manager)
			w.Expect(err).NotTo(HaveOccurred())
			text, err := yaml.Marshal(applied)
			w.Expect(err).NotTo(HaveOccurred())
			declared.WriteString("---\n" + string(text))
		}
	}
	return declared.String()
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
