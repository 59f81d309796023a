package cluster

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// timeout is for clusters that start concurrently. The namespace controller alone waits 16 s for terminating pods.
const timeout = 10 * time.Minute

func start(t *testing.T, o Options) *Cluster {
	t.Helper()
	g := NewWithT(t)
	o.Progress = func(line string) { t.Log(line) }
	c, err := Start(t.Context(), o)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(c.Stop()).To(Succeed()) })
	return c
}

func clientFor(g *WithT, config *rest.Config) kubernetes.Interface {
	clientset, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	return clientset
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
}

func TestEtcdAndAPIServerStoreObjectsAndLeaveNothing(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := start(t, Options{})
	admin := clientFor(g, c.Admin())

	_, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	version, err := admin.Discovery().ServerVersion()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version.GitVersion).To(Equal(KubernetesVersion))

	pids := c.pids()
	g.Expect(pids).To(HaveLen(2))
	g.Expect(c.Stop()).To(Succeed())
	g.Expect(c.Dir()).NotTo(BeADirectory())
	for _, pid := range pids {
		g.Expect(alive(pid)).To(BeFalse())
	}
}

func TestWholeClusterRunsDeploymentsAndRemovesNamespaces(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := start(t, Options{Parts: All, Nodes: 2})
	admin := clientFor(g, c.Admin())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "work"}}
	_, err := admin.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	_, err = admin.AppsV1().Deployments("work").Create(t.Context(), deployment("web", "registry.test/web:1", 3), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(available(t.Context(), admin, "web")).WithTimeout(timeout).Should(BeEquivalentTo(3))

	g.Expect(admin.CoreV1().Namespaces().Delete(t.Context(), "work", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(func() bool {
		_, err := admin.CoreV1().Namespaces().Get(t.Context(), "work", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithTimeout(timeout).Should(BeTrue(), "the namespace is gone")
}

func TestPodsFailOnRequest(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := start(t, Options{Parts: All, Nodes: 1})
	admin := clientFor(g, c.Admin())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "work"}}
	_, err := admin.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	for image, reason := range map[string]string{
		ImageNeverReady: "", ImagePullFails: "ImagePullBackOff", ImageCrashes: "CrashLoopBackOff",
	} {
		d := deployment("web", image, 1)
		_, err = admin.AppsV1().Deployments("work").Create(t.Context(), d, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Eventually(func(g Gomega) {
			pods, err := admin.CoreV1().Pods("work").List(t.Context(), metav1.ListOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods.Items).To(HaveLen(1))
			g.Expect(pods.Items[0].Status.ContainerStatuses).To(HaveLen(1))
			status := pods.Items[0].Status.ContainerStatuses[0]
			g.Expect(status.Image).To(Equal(image))
			g.Expect(status.Ready).To(BeFalse())
			if reason != "" {
				g.Expect(status.State.Waiting.Reason).To(Equal(reason))
			}
		}).WithTimeout(timeout).Should(Succeed())
		foreground := metav1.DeletePropagationForeground
		g.Expect(admin.AppsV1().Deployments("work").Delete(t.Context(), "web",
			metav1.DeleteOptions{PropagationPolicy: &foreground})).To(Succeed())
		g.Eventually(func(g Gomega) {
			_, err := admin.AppsV1().Deployments("work").Get(t.Context(), "web", metav1.GetOptions{})
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
		}).WithTimeout(timeout).Should(Succeed())
	}
}

func TestClustersRunSideBySide(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	one, other := start(t, Options{}), start(t, Options{})

	_, err := clientFor(g, one.Admin()).CoreV1().ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(one.URL()).NotTo(Equal(other.URL()))
	_, err = clientFor(g, other.Admin()).CoreV1().ConfigMaps("default").Get(t.Context(), "a", metav1.GetOptions{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "a cluster has objects of its own: %v", err)
}

func TestFailedStartNamesThePartAndShowsItsLog(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	_, err := Start(t.Context(), Options{APIServerArgs: []string{"--no-such-flag=1"}})
	g.Expect(err).To(MatchError(And(
		ContainSubstring("starting kube-apiserver: it exited: exit status 1"),
		ContainSubstring("unknown flag: --no-such-flag"),
	)))
}

func TestFailedStartNamesTheDefinitionThatIsRefused(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	file := t.TempDir() + "/bad.yaml"
	g.Expect(os.WriteFile(file, []byte("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: bad}\n"), 0o600)).To(Succeed())
	_, err := Start(t.Context(), Options{CRDPaths: []string{file}})
	g.Expect(err).To(MatchError(And(ContainSubstring("CustomResourceDefinition bad from "+file), ContainSubstring("spec.group"))))
}

func TestDefinitionsAreEstablished(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := start(t, Options{CRDPaths: []string{"testdata"}})
	resources, err := clientFor(g, c.Admin()).Discovery().ServerResourcesForGroupVersion("cluster.fixpoint.test/v1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resources.APIResources[0].Kind).To(Equal("Sample"))
}

func TestUsersAreKnownByNameAndGroup(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := start(t, Options{})

	_, err := clientFor(g, c.Config("nobody")).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "a user without roles may nothing: %v", err)
	g.Expect(err).To(MatchError(ContainSubstring(`User "nobody"`)))

	path, err := c.Kubeconfig("team/user", Masters)
	g.Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.BuildConfigFromFlags("", path)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = clientFor(g, config).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}

func TestPartRestartsWithItsAddressAndData(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := start(t, Options{Audit: true})
	admin := clientFor(g, c.Admin())
	_, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	mark, err := c.Audit().Mark()
	g.Expect(err).NotTo(HaveOccurred())

	ended := c.Ended(APIServer)
	g.Expect(c.KillPart(APIServer)).To(Succeed())
	g.Expect(ended).To(BeClosed())
	g.Expect(c.StartPart(t.Context(), APIServer)).To(Succeed())
	g.Expect(c.RestartPart(t.Context(), Etcd)).To(Succeed())

	g.Eventually(func() error {
		_, err := admin.CoreV1().ConfigMaps("default").Get(t.Context(), "a", metav1.GetOptions{})
		return err
	}).WithTimeout(timeout).Should(Succeed())
	requests, err := c.Audit().Since(mark)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(requests.By(Admin).Verbs("get").Of("configmaps")).NotTo(BeEmpty())
	g.Expect(c.StartPart(t.Context(), APIServer)).To(MatchError(ContainSubstring("already running")))
	g.Expect(c.StopPart(Nodes)).To(MatchError("stopping kwok: it was not started"))
}

func TestUnknownOptionsAreRefused(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	_, err := Start(t.Context(), Options{Parts: 1 << 7})
	g.Expect(err).To(MatchError(ContainSubstring("Options.Parts")))
	_, err = Start(t.Context(), Options{Nodes: -1})
	g.Expect(err).To(MatchError(ContainSubstring("Options.Nodes is -1")))
}

func deployment(name, image string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
			},
		},
	}
}

func available(ctx context.Context, clientset kubernetes.Interface, name string) func() (int32, error) {
	return func() (int32, error) {
		d, err := clientset.AppsV1().Deployments("work").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return 0, err
		}
		return d.Status.AvailableReplicas, nil
	}
}
