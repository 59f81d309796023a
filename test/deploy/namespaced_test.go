package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
)

// TestManagerWithRightsInSelectedNamespaces goes through everything with the rights that config/namespaced/access
// gives, which are Roles of one namespace, to a manager in a namespace of its own.
func TestManagerWithRightsInSelectedNamespaces(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	const place, elsewhere = "team-a", "team-b"
	w.installGatewayAPI()
	w.namespace(place)
	w.namespace(elsewhere)
	w.installFor(place)
	first := w.start(system, "one")

	w.apply(inNamespace(elsewhere, simpleApp))
	w.adopt(place)
	w.keysAndGatesAreForbidden(place)
	w.wayOut("permit-account-keys")
	w.wayOut("permit-session-keys")
	w.wayOut("permit-contract-gates")
	w.everything(place) // an Ingress among it, whose class nobody can look for
	permitted := w.mark()
	w.Expect(w.denied(0, first.User)).To(HaveEach(Or(
		And(HaveField("Resource", "secrets"), HaveField("Name", BeElementOf("invoices", "forwarding-session-keys"))),
		And(HaveField("Resource", "pods"), HaveField("Subresource", "status"), HaveField("Name", HavePrefix("pinned-"))))))
	w.failures(place)
	w.identityIsRefused(place)
	w.driftTwice(place)
	w.Expect(first.Stop()).To(Succeed())
	m := w.startPod(w.withoutStreams(deploy.Pod{Program: w.program(), Namespace: system, Name: "two"}))
	w.prune(place)
	w.deleteAll(place)

	w.usesExactlyWhatItIsGranted(permitted, m, system, "fixpoint-controller-manager")
	w.Expect(w.audited(0, m.User).Where(func(r cluster.Request) bool {
		isKeyOfHashes := r.Resource == "secrets" && r.Name == "hash-key.fixpoint.dev"
		isClaim := r.Resource == "leases" && r.Namespace == "kube-system" && r.Name == "releases.fixpoint.dev"
		return r.Resource != "" && !isClaim && r.Namespace != place && (r.Namespace != system || r.Resource != "leases" && r.Resource != "events" && !isKeyOfHashes)
	})).To(BeEmpty())
	other := app(elsewhere, "web")
	w.Expect(w.api.Get(w.ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
	w.Expect(other.Finalizers).To(BeEmpty())
	w.Expect(other.Status.Conditions).To(BeEmpty())
	w.Expect(other.Status.ObservedGeneration).To(BeEquivalentTo(-1), "it has not been reconciled")
}

// keysAndGatesAreForbidden creates everything, and waits until the SecureStorage that exports keys, and the MCPServers with
// session keys and with a pinned contract, say which permission the manager lacks.
func (w *fixture) keysAndGatesAreForbidden(place string) {
	w.t.Helper()
	w.applyEverything(place)
	object := storage(place, "invoices")
	w.shows(object, "AccountKeysReady", "False "+v1beta1.ReasonForbidden)
	w.Expect(object.Status.Conditions).To(ContainElement(And(HaveField("Type", "AccountKeysReady"), HaveField("Message", And(
		ContainSubstring(`cannot create resource "secrets"`), ContainSubstring("set rbac.accountKeys of the chart, or apply the component config/account-keys"))))))
	forwarding := server(place, "forwarding")
	w.shows(forwarding, "SessionKeysReady", "False "+v1beta1.ReasonForbidden)
	w.Expect(forwarding.Status.Conditions).To(ContainElement(And(HaveField("Type", "SessionKeysReady"), HaveField("Message", And(
		ContainSubstring(`resource "secrets"`), ContainSubstring("set rbac.sessionKeys of the chart, or apply the component config/session-keys"))))))
	pinned := server(place, "pinned")
	w.shows(pinned, "ContractReady", "False "+v1beta1.ReasonForbidden)
	w.Expect(pinned.Status.Conditions).To(ContainElement(And(HaveField("Type", "ContractReady"), HaveField("Message", And(
		ContainSubstring(`resource "pods/status"`), ContainSubstring("set rbac.contractGates of the chart, or apply the component config/contract-gates"))))))
}

const simpleApp = `
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: web}
spec: {image: "registry.test/web:1", replicas: 2, config: {A: "1"}}
`

// TestTenantCannotRunPodsAsTheManager is a user who may do everything in a watched namespace: neither that
// namespace nor any other lets the user run a pod with the ServiceAccount of the manager, and a manager that is
// told to watch its own namespace, in which a tenant could, does not start.
func TestTenantCannotRunPodsAsTheManager(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	const place, tenant = "team-a", "tenant"
	w.namespace(place)
	w.installFor(place)
	w.run("-n", place, "create", "rolebinding", tenant, "--clusterrole=admin", "--user="+tenant)

	pod := func(namespace string) string {
		return inNamespace(namespace, `
apiVersion: v1
kind: Pod
metadata: {name: thief}
spec:
  serviceAccountName: fixpoint-controller-manager
  containers: [{name: a, image: "registry.test/thief:1"}]
`)
	}
	w.Eventually(func() error { // once the binding is known to the API server
		_, err := w.kubectl.Pipe(w.ctx, pod(place), "apply", "--as="+tenant, "-f", "-")
		return err
	}).Should(MatchError(ContainSubstring("serviceaccount \"fixpoint-controller-manager\" not found")))
	_, err := w.kubectl.Pipe(w.ctx, pod(system), "create", "--as="+tenant, "-f", "-")
	w.Expect(err).To(MatchError(ContainSubstring("pods is forbidden: User \"tenant\" cannot create resource \"pods\"")))
	_, err = w.kubectl.Run(w.ctx, "-n", system, "create", "token", "fixpoint-controller-manager", "--as="+tenant)
	w.Expect(err).To(MatchError(ContainSubstring("is forbidden")))

	own := deploy.Pod{Program: w.program(), Namespace: system, Name: "own", Args: []string{"--namespaces=" + place + "," + system}}
	m, err := own.Start(w.ctx, w.cluster)
	w.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = m.Stop() })
	w.Eventually(m.Running).Should(BeFalse())
	w.Expect(m.Failure(nil)).To(MatchError(ContainSubstring("--namespaces contains fixpoint-system, the namespace of the manager")))
}

// installFor applies config/namespaced as its user does: by a kustomization that names the watched namespace,
// one that permits to claim it, and one that applies its Roles to it.
func (w *fixture) installFor(namespace string) {
	w.t.Helper()
	w.kustomize(fmt.Sprintf(`resources: [%s]
patches:
- patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: fixpoint-controller-manager, namespace: fixpoint-system}
    spec:
      template:
        spec:
          containers:
          - name: manager
            env: [{name: WATCH_NAMESPACES, value: "%s"}]
`, "CONFIG/namespaced", namespace))
	w.kustomize("resources: [CONFIG/namespaced/releases]\n")
	w.kustomize(fmt.Sprintf("namespace: %s\nresources: [CONFIG/namespaced/access]\n", namespace))
}

// installWith applies config/default with components.
func (w *fixture) installWith(components ...string) {
	w.t.Helper()
	w.kustomize(fmt.Sprintf("resources: [CONFIG/default]\ncomponents: [CONFIG/%s]\n", strings.Join(components, ", CONFIG/")))
}

// The pods of the Deployment are not endpoints of the webhook, because nothing runs in them.
const withoutPods = `resources: [installed]
patches:
- target: {kind: Service, name: fixpoint-webhook}
  patch: '[{"op": "replace", "path": "/spec/selector", "value": {"fixpoint.dev/webhook": "process"}}]'
`

// kustomize applies a kustomization, in which CONFIG is the folder config of this source.
func (w *fixture) kustomize(kustomization string) {
	w.t.Helper()
	w.kustomizeFrom(deploy.Root, kustomization)
}

// kustomizeFrom does that with the folder config of another source.
func (w *fixture) kustomizeFrom(root, kustomization string, flags ...string) {
	w.t.Helper()
	dir := w.t.TempDir()
	installed := filepath.Join(dir, "installed")
	config, err := filepath.Abs(filepath.Join(root, "config"))
	w.Expect(err).NotTo(HaveOccurred())
	relative, err := filepath.Rel(installed, config)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(os.Mkdir(installed, 0o700)).To(Succeed())
	for dir, text := range map[string]string{installed: strings.ReplaceAll(kustomization, "CONFIG", relative), dir: withoutPods} {
		w.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)).To(Succeed())
	}
	w.run(append([]string{"apply", "--server-side", "-k", dir}, flags...)...)
	// Until then, the API server finds no resource of a kind that was deleted before.
	w.run("wait", "--for=condition=Established", "--timeout="+waitTimeout.String(), "crd", "--all")
}
