package versions_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// manage starts a manager of the namespace, and a cloud for all managers of the test.
func (f *fixture) manage() *harness.Manager {
	f.T.Helper()
	if f.cloud == nil {
		f.cloud = fakecloud.New(fakecloud.Options{Seed: 1})
		f.cloud.SeedDemo()
		f.cloudAt = f.cloud.StartHTTP()
		f.T.Cleanup(f.cloudAt.Close)
	}
	return f.StartManager(suite.Cluster.Config(harness.ManagerUser), controllers.Options{
		Namespaces: []string{f.Namespace}, PodNamespace: f.Namespace,
		Cloud:       cloud.Config{Cloud: fakecloud.CloudAt(f.cloudAt.URL), AllowHTTP: true},
		Credentials: cloud.TokenCredentials{Token: fakecloud.Token("manager")}, AmbientScopes: harness.AmbientScopes(),
	})
}

// ready waits until an object is ready.
func (f *fixture) ready(kind, name string) {
	f.T.Helper()
	f.Eventually(func() string {
		status, _, _ := unstructured.NestedString(conditionOf(f.read(beta, kind, name), v1beta1.ConditionReady), "status")
		return status
	}).Should(Equal("True"))
}

// conditionOf is a condition of an object.
func conditionOf(object *unstructured.Unstructured, kind string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		if condition, ok := item.(map[string]any); ok && condition["type"] == kind {
			return condition
		}
	}
	return nil
}

const (
	appSpec    = "{image: 'registry.test/shop:1', replicas: 2, config: {A: '1'}, suspend: false, resources: {requests: {cpu: 1000m}}}"
	serverSpec = "{image: 'registry.test/tools:1', replicas: 1, protocol: {disabled: true, interval: 60s, tls: false}, networkPolicy: {egress: {allowDNS: false}}}"
)

// storageSpec is that of a SecureStorage of v1alpha1.
var storageSpec = fmt.Sprintf("{provider: {subscriptionID: %s, resourceGroup: fixpoint-demo, location: westeurope}, key: {vault: {name: fixpoint-demo}, keyName: storage}, onAccountLoss: Stall, pollInterval: 1h}",
	fakecloud.DemoSubscription)

// Manifests of v1alpha1 and the manager, which writes v1beta1, do not fight.
func TestTheManagerIsQuietAboutManifestsOfAlpha(t *testing.T) {
	f := newFixture(t)
	first := f.manage()
	manifests := []*unstructured.Unstructured{
		f.object(alpha, "AppService", "shop", appSpec), f.object(alpha, "MCPServer", "tools", serverSpec), f.object(alpha, "SecureStorage", "invoices", storageSpec),
	}
	for _, manifest := range manifests {
		f.mustApply("gitops", manifest)
	}
	for _, manifest := range manifests {
		f.ready(manifest.GetKind(), manifest.GetName())
	}
	f.Settled()
	stored := func() (all []*unstructured.Unstructured) {
		for _, manifest := range manifests {
			all = append(all, f.read(beta, manifest.GetKind(), manifest.GetName()))
		}
		return all
	}

	// When the manifests are applied again
	before, mark := stored(), f.Mark()
	for _, manifest := range manifests {
		f.mustApply("gitops", manifest)
	}
	f.Settled()
	f.Expect(stored()).To(Equal(before), "applying them again changes nothing")
	f.Expect(f.Requests(mark).WithoutWatches()).To(BeEmpty(), "at rest")

	// And when the manager restarts
	f.Stop(first)
	mark = f.Mark()
	f.cloud.ResetCounts()
	second := f.manage()
	f.Eventually(func() int { return second.Checks("AppService", "shop", "Deployment") }).Should(BeNumerically(">", 0))
	f.Eventually(func() int { return second.Checks("MCPServer", "tools", "Deployment") }).Should(BeNumerically(">", 0))
	f.Eventually(func() int { return f.cloud.Total("").Calls() }).Should(BeNumerically(">", 0), "reads of the storage account")
	f.Settled()
	f.Expect(f.Requests(mark).Writes()).To(BeEmpty())
	f.Expect(f.cloud.Total("").Writes).To(BeZero())
	f.Expect(stored()).To(Equal(before))
}

// What managers of v1alpha1 have written continues to mean the same: the fields that they applied are those of this
// manager, which reports no drift, and replaces no pods.
func TestTheManagerTakesOverWhatWasAppliedInAlpha(t *testing.T) {
	f := newFixture(t)
	first := f.manage()
	f.mustApply("gitops", f.object(alpha, "MCPServer", "tools", serverSpec))
	f.ready("MCPServer", "tools")
	f.AtRest("tools") // or its controller writes the status later
	f.Settled()
	f.Stop(first)

	// Given the fields of the manager are those of v1alpha1
	deployment := harness.Read(f, "tools", &appsv1.Deployment{})
	client, _ := f.in(alpha, "MCPServer")
	live := f.read(alpha, "MCPServer", "tools")
	managed := live.GetManagedFields()
	for i := range managed {
		if managed[i].Manager == "fixpoint-mcpserver" {
			managed[i].APIVersion = group + "/" + alpha
		}
	}
	live.SetManagedFields(managed)
	_, err := client.Update(f.Ctx, live, metav1.UpdateOptions{FieldManager: "test"})
	f.Expect(err).NotTo(HaveOccurred())
	for _, entry := range f.read(beta, "MCPServer", "tools").GetManagedFields() {
		f.Expect(entry.APIVersion).To(Equal(group+"/"+alpha), "%s", entry.Manager)
	}

	// When the manager starts
	mark := f.Mark()
	f.manage()
	f.Eventually(func() string {
		for _, entry := range f.read(beta, "MCPServer", "tools").GetManagedFields() {
			if entry.Manager == "fixpoint-mcpserver" && entry.Subresource == "status" {
				return entry.APIVersion
			}
		}
		return ""
	}).Should(Equal(group + "/" + beta))
	f.Settled()

	// Then it writes the status once, and nothing else.
	writes := f.Requests(mark).Writes()
	f.Expect(writes).To(HaveLen(1))
	f.Expect(writes[0].Subresource).To(Equal("status"))
	f.Expect(harness.Read(f, "tools", &appsv1.Deployment{})).To(Equal(deployment))
	f.Expect(harness.Read(f, "tools", &v1beta1.MCPServer{}).Status.Drifts).To(BeEmpty())
	f.Expect(f.read(alpha, "MCPServer", "tools").GetFinalizers()).To(ConsistOf("fixpoint.dev/teardown"))

	// And the object is deleted in v1alpha1 as well.
	f.Expect(client.Delete(f.Ctx, "tools", metav1.DeleteOptions{})).To(Succeed())
	f.Eventually(func() bool {
		_, err := client.Get(f.Ctx, "tools", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).Should(BeTrue())
}
