package chart_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// timeout bounds every wait of a test.
const timeout = 10 * time.Minute

// TestReleaseInstallsUpgradesAndUninstalls installs, upgrades and uninstalls the chart as the helm command does, on a cluster.
func TestReleaseInstallsUpgradesAndUninstalls(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(timeout)
	ctx := context.Background()
	c, err := cluster.Start(ctx, cluster.Options{Parts: cluster.All})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(c.Stop()).To(Succeed()) })
	scheme := controllers.NewScheme()
	g.Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	api, err := client.New(c.Admin(), client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	helm := newHelm(g, c)

	// When it is installed, its pods are let in and become ready.
	install := action.NewInstall(helm)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.WaitStrategy = releaseName, system, true, kube.HookOnlyStrategy
	_, err = install.RunWithContext(ctx, load(g), values{})
	g.Expect(err).NotTo(HaveOccurred())
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "fixpoint-controller-manager"}}
	isAvailable := func(image string) func(Gomega) {
		return func(g Gomega) {
			g.Expect(api.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
			g.Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(Equal(image))
			g.Expect(deployment.Status.ObservedGeneration).To(Equal(deployment.Generation))
			g.Expect(deployment.Status.UpdatedReplicas).To(BeEquivalentTo(3))
			g.Expect(deployment.Status.AvailableReplicas).To(BeEquivalentTo(3))
		}
	}
	g.Eventually(isAvailable("ghcr.io/fixpoint-dev/fixpoint:" + load(g).AppVersion())).Should(Succeed())
	app := &v1beta1.AppService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       v1beta1.AppServiceSpec{Image: "registry.test/web:1"},
	}
	g.Eventually(func() error { return api.Create(ctx, app) }).Should(Succeed())

	// When it is upgraded
	upgrade := action.NewUpgrade(helm)
	upgrade.Namespace, upgrade.WaitStrategy = system, kube.HookOnlyStrategy
	_, err = upgrade.RunWithContext(ctx, releaseName, load(g), values{"image": values{"tag": "v2"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(isAvailable("ghcr.io/fixpoint-dev/fixpoint:v2")).Should(Succeed())

	// When it is uninstalled, what users have made stays.
	uninstalled, err := uninstall(helm)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(uninstalled.Info).To(ContainSubstring("appservices.fixpoint.dev"), "it says what it keeps")
	g.Eventually(func() bool {
		return apierrors.IsNotFound(api.Get(ctx, client.ObjectKeyFromObject(deployment), deployment))
	}).Should(BeTrue())
	uid := app.UID
	g.Expect(api.Get(ctx, client.ObjectKeyFromObject(app), app)).To(Succeed())
	g.Expect(app.UID).To(Equal(uid))
	g.Expect(app.DeletionTimestamp).To(BeNil())

	// When it comes back, it takes the definitions up again,
	again := action.NewInstall(helm)
	again.ReleaseName, again.Namespace, again.WaitStrategy = releaseName, system, kube.HookOnlyStrategy
	_, err = again.RunWithContext(ctx, load(g), values{"crds": values{"keep": false}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(api.Get(ctx, client.ObjectKeyFromObject(app), app)).To(Succeed())
	// and, having been told to, takes them with it the next time.
	_, err = uninstall(helm)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() []apiextensionsv1.CustomResourceDefinitionStatus {
		var definitions apiextensionsv1.CustomResourceDefinitionList
		g.Expect(api.List(ctx, &definitions)).To(Succeed())
		var left []apiextensionsv1.CustomResourceDefinitionStatus
		for _, definition := range definitions.Items {
			left = append(left, definition.Status)
		}
		return left
	}).Should(BeEmpty()) // Kubernetes may check for a minute, twice, whether their objects are gone
}

func uninstall(helm *action.Configuration) (*release.UninstallReleaseResponse, error) {
	command := action.NewUninstall(helm)
	command.WaitStrategy = kube.HookOnlyStrategy
	return command.Run(releaseName)
}

func newHelm(g Gomega, c *cluster.Cluster) *action.Configuration {
	kubeconfig, err := c.Kubeconfig(cluster.Admin, cluster.Masters)
	g.Expect(err).NotTo(HaveOccurred())
	flags := genericclioptions.NewConfigFlags(false)
	namespace := system
	flags.KubeConfig, flags.Namespace = &kubeconfig, &namespace
	helm := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	g.Expect(helm.Init(flags, system, "secret")).To(Succeed())
	return helm
}
