package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/releases"
)

// start runs a manager, and stops it with the returned function, and at the end of the test.
func start(t *testing.T, mgr ctrl.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		cancel()
		if !stopped {
			stopped = true
			NewWithT(t).Eventually(ended, time.Minute).Should(Receive(BeNil()))
		}
	}
	t.Cleanup(stop)
	return stop
}

func serverTools() *v1beta1.MCPServer {
	return &v1beta1.MCPServer{
		ObjectMeta: metav1.ObjectMeta{Name: "tools", Namespace: "acme"},
		Spec: v1beta1.MCPServerSpec{
			Transport: v1beta1.TransportStdio, Image: "ghcr.io/acme/tools:1.4.2", Command: []string{"tools"}, Port: 8080,
			Strategy: v1beta1.StrategyRollingUpdate, TerminationGracePeriodSeconds: 60, DrainSeconds: ptr.To[int64](10), ProgressDeadlineSeconds: 600,
			SessionAffinity: v1beta1.SessionAffinityAuto, SessionAffinityTimeoutSeconds: 10800,
			Protocol:       v1beta1.MCPServerProtocol{Interval: metav1.Duration{Duration: 30 * time.Second}, Timeout: metav1.Duration{Duration: 5 * time.Second}},
			AdoptionPolicy: v1beta1.AdoptionNever, DriftPolicy: v1beta1.DriftCorrect,
		},
	}
}

func shop(namespace string) *v1beta1.AppService {
	return &v1beta1.AppService{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: namespace},
		Spec: v1beta1.AppServiceSpec{
			Image: "ghcr.io/acme/shop:1.4.2", Port: 8080, Strategy: v1beta1.StrategyRollingUpdate, ProgressDeadlineSeconds: 600,
			AdoptionPolicy: v1beta1.AdoptionNever, DriftPolicy: v1beta1.DriftCorrect,
		},
	}
}

func invoices(demo fakecloud.Demo) *v1beta1.SecureStorage {
	return &v1beta1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Name: "invoices", Namespace: "acme"},
		Spec: v1beta1.SecureStorageSpec{
			Provider: v1beta1.SecureStorageProvider{SubscriptionID: demo.Subscription, ResourceGroup: demo.Group, Location: demo.Location},
			SKU:      v1beta1.SKUStandardLRS, Key: v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: demo.Vault}, Name: demo.Key},
			DeletionPolicy: v1beta1.DeletionDelete, PollInterval: metav1.Duration{Duration: 5 * time.Minute}, PropagationDeadline: metav1.Duration{Duration: 15 * time.Minute},
		},
	}
}

// A manager with leader election reconciles the objects of its release as its options say, and of no other one.
func TestALeaderReconcilesWhatItsOptionsSelect(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	g.SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	server, cfg := startAPIServer(t, gatewayv1.GroupName)
	cfg.Dial = (&net.Dialer{}).DialContext // otherwise client-go uses the default transport, without options
	cfg.BearerToken = tokenOf(`{"sub":"system:serviceaccount:acme:manager"}`)
	azure := fakecloud.New(fakecloud.Options{Clock: clock.RealClock{}, Seed: 1})
	demo := azure.SeedDemo()
	scope, err := cloud.ParseScope(demo.GroupID())
	g.Expect(err).NotTo(HaveOccurred())
	forbidden, root := shop("acme"), serverTools()
	forbidden.Name, forbidden.Spec.ServiceAccountName = "forbidden", "manager"
	root.Name, root.Spec.ServiceAccount = "root", &v1beta1.MCPServerServiceAccount{Name: "manager"}
	privileged := serverTools()
	privileged.Name = "privileged"
	privileged.Spec.PodOverrides = &v1beta1.MCPServerPodOverrides{Spec: &runtime.RawExtension{Raw: []byte(`{"hostNetwork":true}`)}}
	privileged.Spec.NetworkPolicy = &v1beta1.MCPServerNetworkPolicy{Ingress: &v1beta1.MCPServerNetworkIngress{
		From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}}},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "manager", Namespace: "acme"}}
	for _, object := range []client.Object{account, serverTools(), privileged, root, shop("acme"), shop("other"), forbidden, invoices(demo)} {
		g.Expect(server.Create(t.Context(), object)).To(Succeed())
	}
	now := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	mgr, err := NewManager(t.Context(), cfg, Options{
		Namespaces: []string{"acme"}, LeaderElection: true, LeaderElectionNamespace: "fixpoint", LeaseDuration: 30 * time.Second,
		ClaimsNamespace: "claims", ClaimDuration: time.Hour, BridgeImage: "bridge:1", PodNamespace: "fixpoint", PodLabels: map[string]string{"app": "manager"},
		PodOverrides: mcpserver.OverridesAll, Clock: clocktesting.NewFakePassiveClock(now), Concurrency: 7,
		Cloud:         cloud.Config{Cloud: fakecloud.CloudAt("https://fake.test"), Transport: azure},
		Credentials:   cloud.TokenCredentials{Token: fakecloud.Token("fixpoint")},
		AmbientScopes: securestorage.AmbientScopes{"acme": {scope}}, Logger: logr.Discard(),
	})
	g.Expect(err).NotTo(HaveOccurred())
	stop := start(t, mgr)

	read := func(namespace, name string, into client.Object) func() error {
		return func() error { return server.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into) }
	}
	ready := func(object client.Object, conditions *[]metav1.Condition) func() *metav1.Condition {
		return func() *metav1.Condition {
			g.Expect(server.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
			return meta.FindStatusCondition(*conditions, v1beta1.ConditionReady)
		}
	}
	var election, claims coordinationv1.Lease
	g.Eventually(read("fixpoint", LeaderElectionID, &election)).Should(Succeed())
	g.Expect(*election.Spec.LeaseDurationSeconds).To(BeEquivalentTo(30))
	g.Eventually(read("claims", releases.LeaseName, &claims)).Should(Succeed())
	var claim releases.Record
	g.Expect(json.Unmarshal([]byte(claims.Annotations["release.fixpoint.dev/fixpoint"]), &claim)).To(Succeed())
	g.Expect(claim).To(Equal(releases.Record{Leader: *election.Spec.HolderIdentity, Renewed: now, DurationSeconds: 3600, Namespaces: "acme"}))

	var deployment appsv1.Deployment
	g.Eventually(read("acme", "shop", &deployment)).Should(Succeed())
	g.Eventually(read("acme", "tools", &deployment)).Should(Succeed())
	g.Expect(deployment.Spec.Template.Spec.InitContainers).To(ContainElement(HaveField("Image", "bridge:1")))
	g.Eventually(read("acme", "privileged", &deployment)).Should(Succeed())
	g.Expect(deployment.Spec.Template.Spec.HostNetwork).To(BeTrue())
	var network networkingv1.NetworkPolicy
	g.Eventually(read("acme", "privileged", &network)).Should(Succeed())
	g.Expect(network.Spec.Ingress).To(HaveExactElements(HaveField("From", ContainElement(networkingv1.NetworkPolicyPeer{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "fixpoint"}},
		PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "manager"}},
	}))), "the manager probes the pods")

	// The ServiceAccount of the manager is for no pod.
	refused := HaveField("Message", ContainSubstring("the manager"))
	g.Eventually(ready(forbidden, &forbidden.Status.Conditions)).Should(refused)
	g.Eventually(ready(root, &root.Status.Conditions)).Should(refused)
	g.Expect(ready(forbidden, &forbidden.Status.Conditions)().LastTransitionTime.Time).To(BeTemporally("==", now))

	g.Eventually(func() int { return azure.Created("/storageAccounts/") }).ShouldNot(BeZero(), "the SecureStorage has an account in the cloud, with the credential of the manager")

	g.Expect(read("other", "shop", &deployment)()).NotTo(Succeed())
	g.Eventually(func() []*http.Request { return server.sent(http.MethodPost, "/api/v1/namespaces/fixpoint/events") }).ShouldNot(BeEmpty(), "who is the leader")

	watched := func(path string) (queries []url.Values) {
		for _, request := range server.sent(http.MethodGet, path) {
			g.Expect(request.Header.Get("Accept-Encoding")).To(BeEmpty(), "compression takes memory and processor time: %s", request.URL)
			if request.URL.Query().Get("watch") != "" && !isMetadata(request) {
				queries = append(queries, request.URL.Query())
			}
		}
		return queries
	}
	g.Expect(watched("/api/v1/namespaces/acme/secrets")).To(ConsistOf(
		HaveKeyWithValue("fieldSelector", []string{"type=" + v1beta1.SecretTypeAccountKeys}),
		HaveKeyWithValue("fieldSelector", []string{"type=" + v1beta1.SecretTypeSessionKeys})), "the data of other Secrets does not reach the manager")
	g.Expect(watched("/apis/discovery.k8s.io/v1/namespaces/acme/endpointslices")).To(ConsistOf(
		HaveKeyWithValue("labelSelector", []string{labels.SelectorFromSet(mcpserver.EndpointLabels()).String()})))
	g.Expect(watched("/apis/networking.k8s.io/v1/ingressclasses")).To(HaveLen(1))
	g.Expect(watched("/apis/coordination.k8s.io/v1/namespaces/claims/leases")).To(HaveLen(1))
	g.Expect(watched("/apis/coordination.k8s.io/v1/namespaces/acme/leases")).To(BeEmpty())

	stop()
	g.Expect(read("fixpoint", LeaderElectionID, &election)()).To(Succeed())
	g.Expect(*election.Spec.HolderIdentity).To(BeEmpty(), "another replica becomes the leader at once")
}

// Lists of HTTPRoutes that the manager waited for would never end.
func TestAManagerStartsWhileTheGatewayAPIIsRemoved(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	server, cfg := startAPIServer(t)
	g.Expect(server.Create(t.Context(), serverTools())).To(Succeed())
	mgr, err := NewManager(t.Context(), cfg, Options{Controllers: []string{mcpserver.Name}, Logger: logr.Discard()})
	g.Expect(err).NotTo(HaveOccurred())

	server.forget(gatewayv1.GroupName)
	start(t, mgr)

	g.Eventually(func() error {
		return server.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: "tools"}, &appsv1.Deployment{})
	}).Should(Succeed())
}

// abdicating is a cloud to which the leader sends a write when it loses the Lease.
type abdicating struct {
	policy.Transporter
	abdicate func()
	// ended receives why the request has ended then.
	ended chan error
}

func (a *abdicating) Do(request *http.Request) (*http.Response, error) {
	if lease.IsWrite(request) {
		a.abdicate()
		a.ended <- context.Cause(request.Context())
		return nil, errors.New("the connection is closed")
	}
	return a.Transporter.Do(request)
}

func TestAWriteToTheCloudEndsWithTheLease(t *testing.T) {
	g := NewWithT(t)
	server, cfg := startAPIServer(t, gatewayv1.GroupName)
	azure := fakecloud.New(fakecloud.Options{Clock: clock.RealClock{}, Seed: 1})
	demo := azure.SeedDemo()
	scope, err := cloud.ParseScope(demo.GroupID())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.Create(t.Context(), invoices(demo))).To(Succeed())
	transport := &abdicating{Transporter: azure, ended: make(chan error, 100)}
	mgr, err := NewManager(t.Context(), cfg, Options{
		Controllers: []string{securestorage.Name}, LeaderElection: true, LeaderElectionNamespace: "fixpoint",
		Cloud:         cloud.Config{Cloud: fakecloud.CloudAt("https://fake.test"), Transport: transport},
		Credentials:   cloud.TokenCredentials{Token: fakecloud.Token("fixpoint")},
		AmbientScopes: securestorage.AmbientScopes{"acme": {scope}}, Logger: logr.Discard(),
	})
	g.Expect(err).NotTo(HaveOccurred())
	built, ok := mgr.(stoppable)
	g.Expect(ok).To(BeTrue())
	transport.abdicate = built.guard.Close
	start(t, mgr)
	var ended error
	g.Eventually(transport.ended, time.Minute).Should(Receive(&ended))
	_, refused := lease.Refused(ended)
	g.Expect(refused).To(BeTrue(), "%v", ended)
}

// A manager without permissions on cluster-scoped resources uses none.
func TestAManagerWithoutClusterRightsReadsNoClusterScopedResource(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	g.SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	server, cfg := startAPIServer(t, gatewayv1.GroupName)
	dir := t.TempDir()
	conversions := certificateIn(t, dir)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys", Namespace: "acme"}, Type: v1beta1.SecretTypeSessionKeys}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "acme"}, Type: corev1.SecretTypeOpaque}
	for _, object := range []client.Object{shop("acme"), secret, other} {
		g.Expect(server.Create(t.Context(), object)).To(Succeed())
	}
	mgr, err := NewManager(t.Context(), cfg, Options{
		Namespaces: []string{"acme"}, NoClusterRights: true, WebhookAddress: "127.0.0.1:0", WebhookCertDir: dir, Logger: logr.Discard(),
	})
	g.Expect(err).NotTo(HaveOccurred())
	built, ok := mgr.(stoppable)
	g.Expect(ok).To(BeTrue())
	built.webhook.after = func(time.Duration) <-chan time.Time { return time.After(0) }
	patient(built.webhook)
	stop := start(t, mgr)

	var deployment appsv1.Deployment
	g.Eventually(func() error {
		return server.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: "shop"}, &deployment)
	}).Should(Succeed())
	g.Expect(mgr.GetCache().WaitForCacheSync(t.Context())).To(BeTrue())
	convert(g, conversions, built.webhook.address)
	for _, path := range []string{"/apis/networking.k8s.io/v1/ingressclasses", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/coordination.k8s.io/v1"} {
		g.Expect(server.sent(http.MethodGet, path)).To(BeEmpty(), path)
	}

	// Each controller that writes Secrets sees those of its type.
	sessions := built.cache.secretsOf(v1beta1.SecretTypeSessionKeys)
	var found corev1.Secret
	var list corev1.SecretList
	g.Expect(sessions.Get(t.Context(), client.ObjectKeyFromObject(secret), &found)).To(Succeed())
	g.Expect(sessions.List(t.Context(), &list)).To(Succeed())
	g.Expect(list.Items).To(ConsistOf(HaveField("Name", "keys")))
	g.Expect(mgr.GetClient().Get(t.Context(), client.ObjectKeyFromObject(secret), &found)).NotTo(Succeed())
	var apps v1beta1.AppServiceList
	g.Expect(sessions.List(t.Context(), &apps)).To(Succeed())
	g.Expect(apps.Items).To(HaveLen(1))

	stop()
	g.Expect(mgr.GetCache().WaitForCacheSync(t.Context())).To(BeTrue(), "the shutdown waits for no cache")
	_, err = conversions.Get("https://" + built.webhook.address)
	g.Expect(err).To(MatchError(ContainSubstring("connection refused")))
}
