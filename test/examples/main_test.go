// Package examples runs the example operators, built as their modules have them,
// against a local cluster.
package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const (
	website              = "../../examples/website"
	applicationNamespace = "../../examples/applicationnamespace"

	within = 10 * time.Minute
	every  = 50 * time.Millisecond
)

var shared *cluster.Cluster

func TestMain(m *testing.M) {
	cluster.RunTests(m, cluster.Options{Parts: cluster.All, CRDPaths: []string{website + "/config/crd", applicationNamespace + "/config/crd"}},
		func(c *cluster.Cluster) { shared = c })
}

// startOperator builds the operator in its own module and runs it until the test ends.
func startOperator(t *testing.T, module string, flags ...string) {
	t.Helper()
	g := NewWithT(t)
	program := filepath.Join(t.TempDir(), filepath.Base(module))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = module
	out, err := build.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	kubeconfig, err := shared.Kubeconfig(cluster.Admin, cluster.Masters)
	g.Expect(err).NotTo(HaveOccurred())
	operator := exec.Command(program, flags...)
	operator.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	operator.Stderr = t.Output()
	g.Expect(operator.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = operator.Process.Signal(os.Interrupt)
		_ = operator.Wait()
	})
}

func sample(g *WithT, module string) *unstructured.Unstructured {
	content, err := os.ReadFile(module + "/config/sample.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal(content, &object.Object)).To(Succeed())
	return object
}

// status is that of a condition of the current generation.
func status(object *unstructured.Unstructured, conditionType string) string {
	if value, ok := condition(object, conditionType)["status"].(string); ok {
		return value
	}
	return string(metav1.ConditionUnknown)
}

// condition is one of the current generation, or nil.
func condition(object *unstructured.Unstructured, conditionType string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, each := range conditions {
		c, _ := each.(map[string]any)
		if c["type"] == conditionType && c["observedGeneration"] == object.GetGeneration() {
			return c
		}
	}
	return nil
}
