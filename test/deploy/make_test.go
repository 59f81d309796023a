package deploy_test

import (
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/test/deploy"
)

// TestMakeTargets runs the targets for a cluster of one's own, against this one.
func TestMakeTargets(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	const image = "registry.test/fixpoint:v9"

	w.make("install")
	w.Expect(w.definitions()).To(HaveLen(3))
	w.make("uninstall", "YES=1")
	w.Expect(w.definitions()).To(BeEmpty())

	// The namespace's Pod Security Standard is enforced, so a pod that is there was let in.
	w.make("deploy", "IMG="+image)
	w.run("-n", system, "rollout", "status", "deployment/"+deploy.DeploymentName, timeout)
	pods := w.run("-n", system, "get", "pods", "-o", `jsonpath={range .items[*]}{.spec.nodeName} {.spec.containers[0].image} {.spec.containers[0].env[?(@.name=="BRIDGE_IMAGE")].value}{"\n"}{end}`)
	lines := strings.Split(strings.TrimSpace(pods), "\n")
	w.Expect(lines).To(HaveLen(3))
	nodes := map[string]bool{}
	for _, line := range lines {
		node, images, _ := strings.Cut(line, " ")
		nodes[node] = true
		w.Expect(images).To(Equal(image + " " + image))
	}
	w.Expect(nodes).To(HaveLen(3), "a replica on each node:\n%s", pods)
	w.disruptions()

	m := w.start(system, "one")
	w.namespace("shop")
	w.apply(inNamespace("shop", simpleApp))
	w.ready(app("shop", "web"))
	w.make("undeploy", "YES=1")
	w.Expect(w.definitions()).To(BeEmpty())
	w.Expect(w.run("get", "clusterroles,clusterrolebindings", "-o", "name")).NotTo(ContainSubstring("fixpoint"))
	w.Expect(w.run("get", "namespace", system, "--ignore-not-found", "-o", "name")).To(BeEmpty())
	w.nothingIsLeft("shop")
	w.Expect(m.Stop()).To(Succeed())
}

func (w *fixture) make(target string, variables ...string) {
	w.t.Helper()
	root, err := filepath.Abs(deploy.Root)
	w.Expect(err).NotTo(HaveOccurred())
	_, err = w.kubectl.Shell(w.ctx, root, "make --no-print-directory "+target+" "+strings.Join(variables, " "), "GOFLAGS=-buildvcs=false")
	w.Expect(err).NotTo(HaveOccurred())
}

func (w *fixture) definitions() []string {
	w.t.Helper()
	var served []string
	for _, name := range strings.Fields(w.run("get", "crd", "-o", "name")) {
		if strings.HasSuffix(name, ".fixpoint.dev") {
			served = append(served, name)
		}
	}
	return served
}

// disruptions waits until the budget lets one replica go at a time.
func (w *fixture) disruptions() {
	w.t.Helper()
	w.Eventually(func() string {
		return w.run("-n", system, "get", "pdb", deploy.DeploymentName, "-o", "jsonpath={.status.disruptionsAllowed}")
	}).Should(Equal("1"))
}
