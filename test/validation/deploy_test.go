package validation

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// What `make deploy` puts on a cluster has to be good without a warning: among
// others, the manager's pod has to fit the restricted Pod Security Standard.
func TestDeployedManifestsAreAccepted(t *testing.T) {
	g := NewWithT(t)
	kubectl := shared.Kubectl()
	if _, err := os.Stat(kubectl); err != nil {
		// KUBEBUILDER_ASSETS need not have one; then it is the one built from source.
		bin, err := cluster.Build(t.Context(), func(line string) { t.Log(line) })
		g.Expect(err).NotTo(HaveOccurred())
		kubectl = filepath.Join(bin, "kubectl")
	}
	kubeconfig, err := shared.Kubeconfig("deployer", "system:masters")
	g.Expect(err).NotTo(HaveOccurred())

	// Without the CRDs, which the tests have put there already, with another conversion webhook.
	build := exec.CommandContext(t.Context(), kubectl, "kustomize", "../../config/default")
	manifests, err := build.Output()
	g.Expect(err).NotTo(HaveOccurred())
	var documents [][]byte
	for document := range bytes.SplitSeq(manifests, []byte("\n---\n")) {
		if !bytes.Contains(document, []byte("\nkind: CustomResourceDefinition\n")) {
			documents = append(documents, document)
		}
	}
	apply := exec.CommandContext(t.Context(), kubectl, "apply", "--server-side", "-f", "-")
	apply.Stdin = bytes.NewReader(bytes.Join(documents, []byte("\n---\n")))
	apply.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var stderr bytes.Buffer
	apply.Stderr = &stderr
	stdout, err := apply.Output()

	g.Expect(err).NotTo(HaveOccurred(), stderr.String())
	g.Expect(stderr.String()).To(BeEmpty())
	g.Expect(string(stdout)).To(ContainSubstring("deployment.apps/fixpoint-controller-manager serverside-applied"))
}
