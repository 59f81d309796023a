package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/deploy"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// timeout is how long kubectl waits for a deletion to be complete.
const timeout = "--timeout=3m"

// TestRemovalWhileTheManagerRuns removes the parts in every order in which people do. With
// TestRemovalAfterTheManager it shows that nothing stays behind for which docs/operations.md has no remedy.
func TestRemovalWhileTheManagerRuns(t *testing.T) {
	t.Parallel()
	w := newFixture(t)

	t.Run("a namespace with objects", func(t *testing.T) {
		w := w.sub(t)
		m := w.lived("one")
		w.run("delete", "namespace", "one", timeout)
		w.Expect(w.outside.Cloud.State().Accounts).To(BeEmpty())
		w.Expect(m.Stop()).To(Succeed())
	})
	t.Run("the CRDs first", func(t *testing.T) {
		w := w.sub(t)
		m := w.lived("two")
		w.run("delete", "-k", w.config("crd"), timeout)
		w.nothingIsLeft("two")
		w.Expect(m.Running()).To(BeTrue(), "it waits for the kinds to come back")
		// and it works again when they do
		w.install("crd")
		w.apply(inNamespace("two", simpleApp))
		w.ready(app("two", "web"))
		w.run("delete", "-k", w.config("crd"), timeout)
		w.run("delete", "-k", w.config("default"), "--ignore-not-found", timeout)
		w.Expect(m.Stop()).To(Succeed())
	})
}

// TestRemovalAfterTheManager removes the manager before anything else.
func TestRemovalAfterTheManager(t *testing.T) {
	t.Parallel()
	w := newFixture(t)

	t.Run("the manager first, then a namespace, which stays until the documented way out", func(t *testing.T) {
		w := w.sub(t)
		m := w.lived("three")
		w.Expect(m.Stop()).To(Succeed())
		w.run("delete", "namespace", system, timeout)
		w.run("delete", "namespace", "three", "--wait=false")
		w.isStuck("three")
		w.wayOut("release-finalizers")
		w.gone(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "three"}})
	})
	t.Run("the manager first, then the CRDs, which stay until the documented way out", func(t *testing.T) {
		w := w.sub(t)
		m := w.lived("four")
		w.Expect(m.Stop()).To(Succeed())
		w.run("delete", "namespace", system, timeout)
		w.run("delete", "-k", w.config("crd"), "--wait=false")
		w.stays(app("four", "web"))
		w.stays(server("four", "tools"))
		w.stays(storage("four", "invoices"))
		w.wayOut("release-finalizers")
		w.Eventually(func() string { return w.run("get", "crd", "-o", "name") }).ShouldNot(ContainSubstring("fixpoint.dev"))
		// The garbage collector then removes the children.
		w.nothingIsLeft("four")
	})
	t.Run("the manager first, which comes back", func(t *testing.T) {
		w := w.sub(t)
		m := w.lived("five")
		w.Expect(m.Stop()).To(Succeed())
		w.run("delete", "namespace", system, timeout)
		w.run("delete", "namespace", "five", "--wait=false")
		w.isStuck("five")
		w.install("default")
		again := w.start(system, "again")
		w.gone(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "five"}})
		w.Expect(again.Stop()).To(Succeed())
	})
}

// sub is the fixture of a subtest.
func (w *fixture) sub(t *testing.T) *fixture {
	inner := *w
	inner.t = t
	inner.Gomega = NewWithT(harness.Reporter{T: t, Report: inner.report})
	inner.managers = nil
	return &inner
}

func (w *fixture) config(folder string) string { return filepath.Join(deploy.Root, "config", folder) }

// lived installs everything, and makes a namespace in which each kind has come to be Ready.
func (w *fixture) lived(namespace string) *deploy.Manager {
	w.t.Helper()
	w.install("default")
	m := w.start(system, namespace)
	w.namespace(namespace)
	w.apply(inNamespace(namespace, simpleApp+w.inCloud(`---
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: tools}
spec: {image: "registry.test/tools:1", transport: streamable-http}
---
apiVersion: v1
kind: Secret
metadata: {name: azure}
stringData: {tenantID: tenant, clientID: client, clientSecret: "CLIENTSECRET"}
---
apiVersion: fixpoint.dev/v1beta1
kind: SecureStorage
metadata: {name: invoices}
spec:
  provider: {subscriptionID: SUBSCRIPTION, resourceGroup: fixpoint-demo, location: westeurope, credentialsSecretRef: {name: azure}}
  key: {vault: {name: fixpoint-demo}, name: storage}
  deletionPolicy: Delete
  pollInterval: 10s
`)))
	w.ready(app(namespace, "web"), server(namespace, "tools"), storage(namespace, "invoices"))
	return m
}

// isStuck waits until the namespace says that finalizers of the manager keep it.
func (w *fixture) isStuck(name string) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		namespace := &corev1.Namespace{}
		g.Expect(w.api.Get(w.ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
		g.Expect(namespace.Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.NamespaceFinalizersRemaining),
			HaveField("Message", ContainSubstring("fixpoint.dev/teardown in 3 resource instances")),
		)))
	}).Should(Succeed())
}

// stays waits until the object is being deleted, and is kept by our finalizer.
func (w *fixture) stays(object client.Object) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		g.Expect(w.api.Get(w.ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		g.Expect(object.GetDeletionTimestamp()).NotTo(BeNil())
		g.Expect(object.GetFinalizers()).To(ConsistOf("fixpoint.dev/teardown"))
	}).Should(Succeed())
}

func (w *fixture) nothingIsLeft(namespace string) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		var deployments appsv1.DeploymentList
		g.Expect(w.api.List(w.ctx, &deployments, client.InNamespace(namespace))).To(Succeed())
		g.Expect(deployments.Items).To(BeEmpty())
		var services corev1.ServiceList
		g.Expect(w.api.List(w.ctx, &services, client.InNamespace(namespace))).To(Succeed())
		g.Expect(services.Items).To(BeEmpty())
	}).Should(Succeed())
}

// wayOut runs what docs/operations.md says at the mark.
func (w *fixture) wayOut(mark string) {
	w.t.Helper()
	_, err := w.kubectl.Shell(w.ctx, w.t.TempDir(), w.documented(mark))
	w.Expect(err).NotTo(HaveOccurred())
}

var codeBlock = regexp.MustCompile("(?s)^\\s*```(?:bash|console)\n(.*?)```")

// documented is the code block of docs/operations.md that follows a mark.
func (w *fixture) documented(mark string) string {
	w.t.Helper()
	page, err := os.ReadFile(filepath.Join(deploy.Root, "docs", "operations.md"))
	w.Expect(err).NotTo(HaveOccurred())
	_, after, found := strings.Cut(string(page), "<!-- tested: "+mark+" -->")
	w.Expect(found).To(BeTrue(), "docs/operations.md has no mark %s", mark)
	block := codeBlock.FindStringSubmatch(after)
	w.Expect(block).To(HaveLen(2), "no code block follows the mark %s", mark)
	return block[1]
}
