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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// TestSamplesBecomeReady applies the default samples.
func TestSamplesBecomeReady(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)

	env.Expect(applyOverlay(env.ctx, "e2e-samples", samplesOverlay)).To(Succeed())
	t.Cleanup(func() {
		NewWithT(t).Expect(kubectl(env.ctx, "", "delete", "--wait=true", "-k", "../../config/samples")).To(Succeed())
	})

	env.Eventually(func(g Gomega) {
		found := 0
		for _, list := range kindLists() {
			g.Expect(api.List(env.ctx, list, client.InNamespace("default"))).To(Succeed())
			for _, object := range objectsIn(list) {
				g.Expect(isReady(object)).To(Succeed())
				found++
			}
		}
		g.Expect(found).To(BeNumerically(">=", 4))
	}).Should(Succeed())
}

// TestSamplesOfOtherTransportsBecomeReady applies the other samples.
func TestSamplesOfOtherTransportsBecomeReady(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t).withClient()
	files, err := filepath.Glob("../../config/samples/mcpserver/*_*_*_*.yaml")
	env.Expect(err).NotTo(HaveOccurred())
	env.Expect(files).NotTo(BeEmpty())

	for _, file := range files {
		content, err := os.ReadFile(file)
		env.Expect(err).NotTo(HaveOccurred())
		server := &v1beta1.MCPServer{}
		env.Expect(yaml.Unmarshal(content, server)).To(Succeed())
		server.Namespace = env.namespace
		server.Spec.ImagePullPolicy = corev1.PullIfNotPresent
		delete(server.Spec.Resources.Requests, corev1.ResourceEphemeralStorage)
		delete(server.Spec.Resources.Limits, corev1.ResourceEphemeralStorage)
		env.Expect(api.Create(env.ctx, server)).To(Succeed())
		ready(env, server)
		env.Expect(server.Status.Server.Name).To(Equal("subject"), file)
	}
}

func TestAppServiceServesThroughItsService(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t).withClient()
	app := env.app("shop")

	env.Expect(api.Create(env.ctx, app)).To(Succeed())
	ready(env, app)

	env.Eventually(func(g Gomega) {
		found, err := env.call("/get", app.Status.URL)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Last.Greeting).To(Equal("hello"))
	}).Should(Succeed())

	edit(env, app, func(a *v1beta1.AppService) { a.Spec.Config["GREETING"] = "good day" })
	ready(env, app)
	env.Eventually(func(g Gomega) {
		found, err := env.call("/get", app.Status.URL)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Last.Greeting).To(Equal("good day"))
	}).Should(Succeed())
}

func TestMCPServersAreCalledFromAnotherPod(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t).withClient()
	for _, server := range []*v1beta1.MCPServer{env.stdio("stdio", 1), env.streamable("http", 2)} {
		env.Expect(api.Create(env.ctx, server)).To(Succeed())
		ready(env, server)
		env.Expect(server.Status.Server.Name).To(Equal("subject"))

		found := env.callWhenReachable("/call", server.Status.Endpoint)

		env.Expect(found.Server).To(Equal("subject"), "%s: the server responded", server.Name)
		env.Expect(found.Last.Calls).To(Equal(int64(1)))
		var names []string
		for _, pod := range env.livePods(podsOf(server)) {
			names = append(names, pod.Name)
		}
		env.Expect(names).To(ContainElement(found.Last.Pod))
	}
}

func TestBadStdioCommandIsReported(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	server := env.stdio("broken", 1)
	server.Spec.Command = []string{"/no/such/server"}

	env.Expect(api.Create(env.ctx, server)).To(Succeed())

	var said string
	env.Eventually(func(g Gomega) {
		g.Expect(api.Get(env.ctx, env.key("broken"), server)).To(Succeed())
		condition := conditionOf(server, v1beta1.ConditionReady)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Reason).To(Equal(v1beta1.ReasonBridgeCommandFailed))
		pods := env.livePods(podsOf(server))
		g.Expect(pods).To(HaveLen(1))
		said = terminationMessage(&pods[0])
		g.Expect(said).NotTo(BeEmpty(), "the container has a termination message")
		g.Expect(condition.Message).To(ContainSubstring(said))
	}).Should(Succeed())
	env.Expect(said).To(ContainSubstring("/no/such/server"))
}

func TestSecureStorageAgainstTheCloudInAPod(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	storage := env.storage("invoices")

	env.Expect(api.Create(env.ctx, storage)).To(Succeed())
	ready(env, storage)

	env.Expect(storage.Status.Encryption).NotTo(BeZero())
	env.Expect(storage.Status.AccountID).NotTo(BeEmpty())
	entries := env.ledger()
	created := 0
	for _, e := range entries {
		if e.Effect == "created" && containsFold(e.Resource, storage.Status.AccountID) {
			created++
			env.Expect(e.Who).To(HavePrefix(managerName))
		}
	}
	env.Expect(created).To(Equal(1))

	env.Expect(api.Delete(env.ctx, storage)).To(Succeed())
	env.waitDeleted(storage)
	// Other tests delete accounts concurrently, and their grants are being revoked.
	orphans, err := env.cloudGet("/_admin/orphans")
	env.Expect(err).NotTo(HaveOccurred())
	env.Expect(containsFold(string(orphans), storage.Status.AccountID)).To(BeFalse(), "the grant was deleted with the account: %s", orphans)
}

func TestSecretRotationRollsOnce(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t).withClient()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: env.namespace, Name: "token"}, StringData: map[string]string{"value": "old"}}
	env.Expect(api.Create(env.ctx, secret)).To(Succeed())
	server := env.stdio("rotated", 1)
	server.Spec.Env = fromSecret("token")
	env.Expect(api.Create(env.ctx, server)).To(Succeed())
	ready(env, server)
	before := env.revision(server.Name)

	edit(env, secret, func(s *corev1.Secret) { s.Data = map[string][]byte{"value": []byte("new")} })

	env.Eventually(func(g Gomega) {
		g.Expect(env.revision(server.Name)).To(Equal(before + 1))
		g.Expect(api.Get(env.ctx, env.key(server.Name), server)).To(Succeed())
		g.Expect(isReady(server)).To(Succeed())
		found, err := env.call("/call", server.Status.Endpoint)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Last.Secret).To(Equal("new"))
	}).Should(Succeed())
	env.Consistently(func() int64 { return env.revision(server.Name) }, quietPeriod).Should(Equal(before + 1))
}

func TestDriftIsReverted(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	app := env.app("drifting")
	env.Expect(api.Create(env.ctx, app)).To(Succeed())
	ready(env, app)

	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: env.namespace, Name: app.Name}}
	edit(env, deployment, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = otherWebImage })
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: env.namespace, Name: app.Name}}
	env.Expect(api.Delete(env.ctx, service)).To(Succeed())

	env.Eventually(func(g Gomega) {
		g.Expect(api.Get(env.ctx, env.key(app.Name), deployment)).To(Succeed())
		g.Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(Equal(webImage))
		g.Expect(api.Get(env.ctx, env.key(app.Name), service)).To(Succeed())
		g.Expect(env.events("DriftCorrected")).To(HaveLen(2))
	}).Should(Succeed())
	ready(env, app)
}

func TestDeletionLeavesNothing(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	objects := []client.Object{env.app("app"), env.streamable("http", 1), env.stdio("stdio", 1), env.storage("account")}
	for _, object := range objects {
		env.Expect(api.Create(env.ctx, object)).To(Succeed())
	}
	for _, object := range objects {
		ready(env, object)
	}

	for _, object := range objects {
		env.Expect(api.Delete(env.ctx, object)).To(Succeed())
	}

	for _, object := range objects {
		env.waitDeleted(object)
	}
	env.Eventually(func(g Gomega) {
		var deployments appsv1.DeploymentList
		var services corev1.ServiceList
		g.Expect(api.List(env.ctx, &deployments, client.InNamespace(env.namespace))).To(Succeed())
		g.Expect(api.List(env.ctx, &services, client.InNamespace(env.namespace))).To(Succeed())
		g.Expect(deployments.Items).To(BeEmpty())
		g.Expect(services.Items).To(BeEmpty())
		g.Expect(env.livePods(nil)).To(BeEmpty())
	}).Should(Succeed())
}

func TestNodeKilledContainerIsRestarted(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t).withClient()
	server := env.stdio("killed", 1)
	env.Expect(api.Create(env.ctx, server)).To(Succeed())
	ready(env, server)
	pod := env.livePods(podsOf(server))[0]

	env.Expect(local.Signal(pod.Status.ContainerStatuses[0].ContainerID, syscall.SIGKILL)).To(Succeed())

	env.Eventually(func(g Gomega) {
		pods := env.livePods(podsOf(server))
		g.Expect(pods).To(HaveLen(1))
		g.Expect(pods[0].Name).To(Equal(pod.Name))
		g.Expect(pods[0].Status.ContainerStatuses[0].RestartCount).To(BeEquivalentTo(1))
		g.Expect(isPodReady(&pods[0])).To(BeTrue())
	}).Should(Succeed())
	env.Eventually(func() error { _, err := env.call("/call", server.Status.Endpoint); return err }).Should(Succeed())
	ready(env, server)
}

func TestOutOfMemoryContainerIsReportedAndRestarted(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t).withClient()
	app := env.app("hungry")
	app.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: quantity("64Mi")}
	env.Expect(api.Create(env.ctx, app)).To(Succeed())
	ready(env, app)

	env.callWhenReachable("/get", app.Status.URL)
	_, err := env.request("/get", "url", app.Status.URL+"/eat")
	env.Expect(err).NotTo(HaveOccurred())

	env.Eventually(func(g Gomega) {
		var killed []string
		for _, pod := range env.livePods(client.MatchingLabels{"app.kubernetes.io/name": app.Name}) {
			if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last != nil {
				killed = append(killed, last.Reason)
			}
		}
		g.Expect(killed).To(ConsistOf("OOMKilled"))
	}).Should(Succeed())
	ready(env, app)
	env.Eventually(func() error { _, err := env.call("/get", app.Status.URL); return err }).Should(Succeed())
}
