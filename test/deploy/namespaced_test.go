package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
)

// TestManagerWithRightsInOneNamespace goes through everything with the rights that config/namespaced
// gives, which are Roles of one namespace.
func TestManagerWithRightsInOneNamespace(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	const place, elsewhere = "team-a", "team-b"
	w.installGatewayAPI()
	w.namespace(place)
	w.namespace(elsewhere)
	w.installInto(place)
	first := w.start(place, "one")

	w.apply(inNamespace(elsewhere, simpleApp))
	w.adopt(place)
	w.everything(place) // an Ingress among it, whose class nobody can look for
	w.failures(place)
	w.driftTwice(place)
	w.Expect(first.Stop()).To(Succeed())
	m := w.startPod(w.withoutStreams(deploy.Pod{Program: w.program(), Namespace: place, Name: "two"}))
	w.prune(place)
	w.deleteAll(place)

	w.usesExactlyWhatItIsGranted(m, place, "fixpoint-controller-manager")
	w.Expect(w.audited(0, m.User).Where(func(r cluster.Request) bool { return r.Resource != "" && r.Namespace != place })).To(BeEmpty())
	other := app(elsewhere, "web")
	w.Expect(w.api.Get(w.ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
	w.Expect(other.Finalizers).To(BeEmpty())
	w.Expect(other.Status.Conditions).To(BeEmpty())
	w.Expect(other.Status.ObservedGeneration).To(BeEquivalentTo(-1), "it has not been reconciled")
}

const simpleApp = `
apiVersion: fixpoint.dev/v1alpha1
kind: AppService
metadata: {name: web}
spec: {image: "registry.test/web:1", replicas: 2, config: {A: "1"}}
`

// installInto applies config/namespaced as its user does: by a kustomization that names the namespace.
func (w *fixture) installInto(namespace string) {
	w.t.Helper()
	dir := w.t.TempDir()
	overlay, err := filepath.Abs(filepath.Join(deploy.Root, "config", "namespaced"))
	w.Expect(err).NotTo(HaveOccurred())
	relative, err := filepath.Rel(dir, overlay)
	w.Expect(err).NotTo(HaveOccurred())
	kustomization := fmt.Sprintf("namespace: %s\nresources: [%s]\n", namespace, relative)
	w.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600)).To(Succeed())
	w.run("apply", "--server-side", "-k", dir)
}
