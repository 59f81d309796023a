package e2e_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

// The samples that are there by default, unchanged.
func TestSamplesBecomeReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)

	w.Expect(kubectl(w.ctx, "", "apply", "--server-side", "-k", "../../config/samples")).To(Succeed())
	t.Cleanup(func() {
		NewWithT(t).Expect(kubectl(w.ctx, "", "delete", "--wait=true", "-k", "../../config/samples")).To(Succeed())
	})

	w.Eventually(func(g Gomega) {
		found := 0
		for _, list := range kindLists() {
			g.Expect(api.List(w.ctx, list, client.InNamespace("default"))).To(Succeed())
			for _, object := range objectsIn(list) {
				g.Expect(isReady(object)).To(Succeed())
				found++
			}
		}
		g.Expect(found).To(BeNumerically(">=", 4))
	}).Should(Succeed())
}

// The samples of the other transports.
func TestSamplesOfOtherTransportsBecomeReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withClient()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "memory"}, StringData: map[string]string{"token": "t"}}
	w.Expect(api.Create(w.ctx, secret)).To(Succeed())
	files, err := filepath.Glob("../../config/samples/mcpserver/*_*_*_*.yaml")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(files).NotTo(BeEmpty())

	for _, file := range files {
		content, err := os.ReadFile(file)
		w.Expect(err).NotTo(HaveOccurred())
		server := &v1alpha1.MCPServer{}
		w.Expect(yaml.Unmarshal(content, server)).To(Succeed())
		server.Namespace = w.namespace
		w.Expect(api.Create(w.ctx, server)).To(Succeed())
		ready(w, server)
		w.Expect(server.Status.Server.Name).To(Equal("subject"), file)
	}
}

func TestAppServiceServesThroughItsService(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withClient()
	app := w.app("shop")

	w.Expect(api.Create(w.ctx, app)).To(Succeed())
	ready(w, app)

	w.Eventually(func(g Gomega) {
		found, err := w.called("/get", app.Status.URL)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Last.Greeting).To(Equal("hello"))
	}).Should(Succeed())

	edit(w, app, func(a *v1alpha1.AppService) { a.Spec.Config["GREETING"] = "good day" })
	ready(w, app)
	w.Eventually(func(g Gomega) {
		found, err := w.called("/get", app.Status.URL)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Last.Greeting).To(Equal("good day"))
	}).Should(Succeed())
}

func TestMCPServersAreCalledFromAnotherPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withClient()
	for _, server := range []*v1alpha1.MCPServer{w.stdio("stdio", 1), w.streamable("http", 2)} {
		w.Expect(api.Create(w.ctx, server)).To(Succeed())
		ready(w, server)
		w.Expect(server.Status.Server.Name).To(Equal("subject"))

		found := w.reached("/call", server.Status.Endpoint)

		w.Expect(found.Server).To(Equal("subject"), "%s: the server itself answered", server.Name)
		w.Expect(found.Last.Calls).To(Equal(int64(1)))
		var names []string
		for _, pod := range w.pods(podsOf(server)) {
			names = append(names, pod.Name)
		}
		w.Expect(names).To(ContainElement(found.Last.Pod))
	}
}

func TestBadStdioCommandIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := w.stdio("broken", 1)
	server.Spec.Command = []string{"/no/such/server"}

	w.Expect(api.Create(w.ctx, server)).To(Succeed())

	var said string
	w.Eventually(func(g Gomega) {
		g.Expect(api.Get(w.ctx, w.key("broken"), server)).To(Succeed())
		condition := conditionOf(server, v1alpha1.ConditionReady)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonBridgeCommandFailed))
		pods := w.pods(podsOf(server))
		g.Expect(pods).To(HaveLen(1))
		said = lastWords(&pods[0])
		g.Expect(said).NotTo(BeEmpty(), "the container has a termination message")
		g.Expect(condition.Message).To(ContainSubstring(said))
	}).Should(Succeed())
	w.Expect(said).To(ContainSubstring("/no/such/server"))
}

func TestSecureStorageAgainstTheCloudInAPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	storage := w.storage("invoices")

	w.Expect(api.Create(w.ctx, storage)).To(Succeed())
	ready(w, storage)

	w.Expect(storage.Status.Encryption).NotTo(BeZero())
	w.Expect(storage.Status.AccountID).NotTo(BeEmpty())
	entries := w.ledger()
	created := 0
	for _, e := range entries {
		if e.Effect == "created" && containsFold(e.Resource, storage.Status.AccountID) {
			created++
			w.Expect(e.Who).To(HavePrefix(managerName))
		}
	}
	w.Expect(created).To(Equal(1))

	w.Expect(api.Delete(w.ctx, storage)).To(Succeed())
	w.gone(storage)
	// Other tests delete accounts at the same time, whose grants are on their way.
	orphans, err := w.cloudGet("/_admin/orphans")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(containsFold(string(orphans), storage.Status.AccountID)).To(BeFalse(), "the grant went with the account: %s", orphans)
}

func TestSecretRotationRollsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withClient()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "token"}, StringData: map[string]string{"value": "old"}}
	w.Expect(api.Create(w.ctx, secret)).To(Succeed())
	server := w.stdio("rotated", 1)
	server.Spec.Env = fromSecret("token")
	w.Expect(api.Create(w.ctx, server)).To(Succeed())
	ready(w, server)
	before := w.revision(server.Name)

	edit(w, secret, func(s *corev1.Secret) { s.Data = map[string][]byte{"value": []byte("new")} })

	w.Eventually(func(g Gomega) {
		g.Expect(w.revision(server.Name)).To(Equal(before + 1))
		g.Expect(api.Get(w.ctx, w.key(server.Name), server)).To(Succeed())
		g.Expect(isReady(server)).To(Succeed())
		found, err := w.called("/call", server.Status.Endpoint)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Last.Secret).To(Equal("new"))
	}).Should(Succeed())
	w.Consistently(func() int64 { return w.revision(server.Name) }, quiet).Should(Equal(before + 1))
}

func TestDriftIsPutBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	app := w.app("drifting")
	w.Expect(api.Create(w.ctx, app)).To(Succeed())
	ready(w, app)

	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: app.Name}}
	edit(w, deployment, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = otherWebImage })
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: app.Name}}
	w.Expect(api.Delete(w.ctx, service)).To(Succeed())

	w.Eventually(func(g Gomega) {
		g.Expect(api.Get(w.ctx, w.key(app.Name), deployment)).To(Succeed())
		g.Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(Equal(webImage))
		g.Expect(api.Get(w.ctx, w.key(app.Name), service)).To(Succeed())
		g.Expect(w.events("DriftCorrected")).To(HaveLen(2))
	}).Should(Succeed())
	ready(w, app)
}

func TestDeletionLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	objects := []client.Object{w.app("app"), w.streamable("http", 1), w.stdio("stdio", 1), w.storage("account")}
	for _, object := range objects {
		w.Expect(api.Create(w.ctx, object)).To(Succeed())
	}
	for _, object := range objects {
		ready(w, object)
	}

	for _, object := range objects {
		w.Expect(api.Delete(w.ctx, object)).To(Succeed())
	}

	for _, object := range objects {
		w.gone(object)
	}
	w.Eventually(func(g Gomega) {
		var deployments appsv1.DeploymentList
		var services corev1.ServiceList
		g.Expect(api.List(w.ctx, &deployments, client.InNamespace(w.namespace))).To(Succeed())
		g.Expect(api.List(w.ctx, &services, client.InNamespace(w.namespace))).To(Succeed())
		g.Expect(deployments.Items).To(BeEmpty())
		g.Expect(services.Items).To(BeEmpty())
		g.Expect(w.pods(nil)).To(BeEmpty())
	}).Should(Succeed())
}

func TestNodeKilledContainerComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withClient()
	server := w.stdio("killed", 1)
	w.Expect(api.Create(w.ctx, server)).To(Succeed())
	ready(w, server)
	pod := w.pods(podsOf(server))[0]

	w.Expect(local.Signal(pod.Status.ContainerStatuses[0].ContainerID, syscall.SIGKILL)).To(Succeed())

	w.Eventually(func(g Gomega) {
		pods := w.pods(podsOf(server))
		g.Expect(pods).To(HaveLen(1))
		g.Expect(pods[0].Name).To(Equal(pod.Name))
		g.Expect(pods[0].Status.ContainerStatuses[0].RestartCount).To(BeEquivalentTo(1))
		g.Expect(isPodReady(&pods[0])).To(BeTrue())
	}).Should(Succeed())
	w.Eventually(func() error { _, err := w.called("/call", server.Status.Endpoint); return err }).Should(Succeed())
	ready(w, server)
}

func TestContainerOutOfMemoryIsReportedAndComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withClient()
	app := w.app("hungry")
	app.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: quantity("64Mi")}
	w.Expect(api.Create(w.ctx, app)).To(Succeed())
	ready(w, app)

	w.reached("/get", app.Status.URL)
	_, err := w.ask("/get", "url", app.Status.URL+"/eat")
	w.Expect(err).NotTo(HaveOccurred())

	w.Eventually(func(g Gomega) {
		var killed []string
		for _, pod := range w.pods(client.MatchingLabels{"app.kubernetes.io/name": app.Name}) {
			if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last != nil {
				killed = append(killed, last.Reason)
			}
		}
		g.Expect(killed).To(ConsistOf("OOMKilled"))
	}).Should(Succeed())
	ready(w, app)
	w.Eventually(func() error { _, err := w.called("/get", app.Status.URL); return err }).Should(Succeed())
}
