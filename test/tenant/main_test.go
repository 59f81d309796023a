// Package tenant_test is a user of one namespace, with the editor roles of the three kinds, who tries to get
// more than that. The API server, the roles of the default install and the shipped admission policies are real,
// and the manager runs as its own ServiceAccount. Every attempt is a row of docs/security.md.
package tenant_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

const (
	// system is the namespace of the manager, tenant that of the hostile user, and victim that of another team.
	system, tenant, victim = "fixpoint-system", "tenant", "victim"
	account                = "fixpoint-controller-manager"
	managerUser            = "system:serviceaccount:" + system + ":" + account
)

// The users of the namespace tenant.
const (
	// editor has the editor roles of the three kinds, and nothing else.
	editor = "editor"
	// edit has in addition the role edit of Kubernetes.
	edit = "edit"
	// plain has only the role edit of Kubernetes, which includes the editor roles of AppServices and MCPServers.
	plain = "edit only"
	// viewer has the role view of Kubernetes, which includes the viewer roles of the three kinds.
	viewer = "view"
	// endpoints has the roles of edit, and may write EndpointSlices, as in clusters older than Kubernetes 1.22.
	endpoints = "endpoints"
)

func TestMain(m *testing.M) {
	const parallel = 12 // attempts wait far more than they compute
	harness.Prepare(harness.Options{Parallel: parallel})
	m.Run()
}

// fixture is what all attempts share: the cluster, the cloud, the manager, and what the other team has.
type fixture struct {
	cluster *cluster.Cluster
	kubectl *deploy.Kubectl
	// admin is the client of an administrator.
	admin   client.Client
	cloud   *fakecloud.Server
	demo    fakecloud.Demo
	network *network
	// bridge is the program of the bridge.
	bridge string
	// began is the position of the audit log before the first attempt.
	began cluster.Mark
}

// startCluster starts a cluster with the CRDs, the roles and the Deployment of the default install.
func startCluster(t *testing.T) *fixture {
	t.Helper()
	g := NewWithT(t)
	c, err := cluster.Start(t.Context(), cluster.Options{Parts: cluster.All, Audit: true})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(c.Stop()).To(Succeed()) })
	w := &fixture{cluster: c}
	w.admin, err = client.New(c.Admin(), client.Options{Scheme: controllers.NewScheme()})
	g.Expect(err).NotTo(HaveOccurred())
	w.kubectl, err = deploy.NewKubectl(c)
	g.Expect(err).NotTo(HaveOccurred())
	w.apply(g, "default")
	_, err = w.kubectl.Run(t.Context(), "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	g.Expect(err).NotTo(HaveOccurred())
	return w
}

// apply applies a folder of config.
func (w *fixture) apply(g Gomega, folder string) {
	_, err := w.kubectl.Run(context.Background(), "apply", "--server-side", "-k", filepath.Join(harness.Root, "config", folder))
	g.Expect(err).NotTo(HaveOccurred())
}

// createNamespace creates a namespace in which pods can be created.
func (w *fixture) createNamespace(ctx context.Context, g Gomega, name string, annotations map[string]string) {
	g.Expect(w.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}})).To(Succeed())
	g.Eventually(func() error {
		return w.admin.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	}).Should(Succeed())
}

// newFixture also starts the manager, and creates what the other team has.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	g, ctx := NewWithT(t), t.Context()
	w := startCluster(t)
	g.Expect(harness.InstallGatewayAPI(ctx, w.cluster)).To(Succeed())
	w.apply(g, "policies")
	for _, name := range []string{tenant, victim} {
		w.createNamespace(ctx, g, name, map[string]string{
			"policy.fixpoint.dev/hosts": "*." + name + ".example.com", "policy.fixpoint.dev/service-accounts": "*", "policy.fixpoint.dev/annotations": "example.com/*",
		})
	}
	w.bindRoles(ctx, g)
	w.startCloud(t, g)
	w.network = newNetwork(t, w.admin)
	w.startManager(t, g)
	w.bridge = buildBridge(t, g)
	w.createVictim(ctx, g)
	var err error
	w.began, err = w.cluster.Audit().Mark()
	g.Expect(err).NotTo(HaveOccurred())
	return w
}

// bindRoles gives the users their roles in the namespace tenant.
func (w *fixture) bindRoles(ctx context.Context, g Gomega) {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: endpoints}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"*"}},
	}}
	g.Expect(w.admin.Create(ctx, role)).To(Succeed())
	editors := []string{"fixpoint-appservice-editor-role", "fixpoint-mcpserver-editor-role", "fixpoint-securestorage-editor-role"}
	for user, roles := range map[string][]string{
		editor: editors, edit: append(slices.Clone(editors), "edit"), plain: {"edit"}, viewer: {"view"}, endpoints: append(slices.Clone(editors), "edit"),
	} {
		for _, name := range roles {
			w.bind(ctx, g, user, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name})
		}
	}
	w.bind(ctx, g, endpoints, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: endpoints})
}

func (w *fixture) bind(ctx context.Context, g Gomega, user string, role rbacv1.RoleRef) {
	g.Expect(w.admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: strings.ReplaceAll(user, " ", "-") + "-" + role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		RoleRef:    role,
	})).To(Succeed())
}

// Resource groups and key vaults of the cloud. The namespaces may use the credential of the manager in the group
// of the same name.
const (
	tenantVault, victimVault = "tenant-vault", "victim-vault"
	// victimAccount is an account of the other team that no SecureStorage manages, untagged is one in the group of
	// the tenant that has no owner, and victimLedger is that of the SecureStorage of the other team.
	victimAccount, untagged, victimLedger = "victimaccount", "untagged", "victimledger"
)

func (w *fixture) startCloud(t *testing.T, g Gomega) {
	t.Helper()
	w.cloud = fakecloud.New(fakecloud.Options{Knobs: fakecloud.Realistic().Compress(100), Seed: 1})
	w.demo = w.cloud.SeedDemo()
	for group, vault := range map[string]string{tenant: tenantVault, victim: victimVault} {
		w.cloud.SeedGroup(w.demo.Subscription, group, w.demo.Location)
		w.cloud.SeedVault(w.demo.Subscription, group, vault, fakecloud.VaultSpec{PurgeProtection: true})
		_, err := w.cloud.SeedKey(vault, "storage", fakecloud.KeySpec{})
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(w.cloud.SeedAccount(w.demo.Subscription, victim, victimAccount, nil)).To(Succeed())
	g.Expect(w.cloud.SeedAccount(w.demo.Subscription, tenant, untagged, nil)).To(Succeed())
	t.Cleanup(func() { g.Expect(w.cloud.Close()).To(Succeed()) })
}

func (w *fixture) groupScope(group string) cloud.Scope {
	return cloud.Scope("/subscriptions/" + w.demo.Subscription + "/resourceGroups/" + group)
}

// startManager runs the manager with the arguments of its Deployment and a token of its ServiceAccount. It runs in
// this process, so that the connections of its probes can be led to loopback.
func (w *fixture) startManager(t *testing.T, g Gomega) {
	t.Helper()
	endpoint := w.cloud.StartHTTP()
	t.Cleanup(endpoint.Close)
	cfg := &rest.Config{Host: w.cluster.URL(), BearerToken: w.token(t.Context(), g, w.clients(g, w.cluster.Admin()), system, account)}
	cfg.CAData = w.cluster.Admin().CAData
	mgr, err := controllers.NewManager(t.Context(), cfg, controllers.Options{
		PodNamespace: system, PodLabels: map[string]string{"control-plane": "controller-manager"},
		LeaderElection: true, LeaderElectionNamespace: system,
		// Nobody restarts it when the API server of a busy machine does not answer for a while.
		LeaseDuration: 2 * time.Minute, RenewDeadline: 110 * time.Second,
		ProbeDial:   w.network.dial,
		Cloud:       cloud.Config{Cloud: fakecloud.CloudAt(endpoint.URL), AllowHTTP: true},
		Credentials: cloud.TokenCredentials{Token: fakecloud.Token("manager")},
		AmbientScopes: securestorage.AmbientScopes{
			tenant: {w.groupScope(tenant)}, victim: {w.groupScope(victim)},
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Eventually(ended).Should(Receive(BeNil()))
	})
}

func (w *fixture) clients(g Gomega, cfg *rest.Config) kubernetes.Interface {
	clients, err := kubernetes.NewForConfig(cfg)
	g.Expect(err).NotTo(HaveOccurred())
	return clients
}

// token is one of a ServiceAccount.
func (w *fixture) token(ctx context.Context, g Gomega, clients kubernetes.Interface, namespace, name string) string {
	answer, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	return answer.Status.Token
}

// createVictim creates what the other team has, and waits until it is Ready and Kubernetes changes nothing of it any
// more.
func (w *fixture) createVictim(ctx context.Context, g Gomega) {
	for _, text := range []string{`
apiVersion: v1
kind: Secret
metadata: {name: azure}
stringData: {tenantID: 00000000-0000-4000-8000-000000000001, clientID: 00000000-0000-4000-8000-000000000002, clientSecret: victims-secret}
`, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: deployer}
`, `
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: shop}
spec: {image: "registry.test/shop:1", replicas: 2, config: {A: "1"}, ingress: {host: shop.victim.example.com, ingressClassName: public}}
`, `
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: tools}
spec: {image: "registry.test/tools:1", protocol: {interval: 30s, timeout: 30s}}
`, `
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: bridged}
spec: {image: "registry.test/echo:1", transport: stdio, command: [sed, -u, -n, '` + strings.ReplaceAll(echo, "'", "''") + `']}
`, fmt.Sprintf(`
apiVersion: fixpoint.dev/v1beta1
kind: SecureStorage
metadata: {name: ledger}
spec:
  accountName: %s
  deletionPolicy: Retain
  provider: {subscriptionID: %s, resourceGroup: victim, location: %s}
  key: {vault: {name: victim-vault}, name: storage}
`, victimLedger, w.demo.Subscription, w.demo.Location), `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: internal}
spec:
  gatewayClassName: public
  listeners: [{name: web, protocol: HTTP, port: 18443}]
`, `
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: public}
spec: {controller: example.com/ingress}
`} {
		object := parse(g, text)
		if object.GetKind() != "IngressClass" {
			object.SetNamespace(victim)
		}
		g.Eventually(func() error { return w.admin.Create(ctx, object.DeepCopy()) }).Should(Succeed(), text)
	}
	for name, object := range map[string]client.Object{
		"shop": &v1beta1.AppService{}, "tools": &v1beta1.MCPServer{}, "bridged": &v1beta1.MCPServer{}, "ledger": &v1beta1.SecureStorage{},
	} {
		g.Eventually(func(g Gomega) {
			g.Expect(w.admin.Get(ctx, client.ObjectKey{Namespace: victim, Name: name}, object)).To(Succeed())
			g.Expect(harness.IsReady(object)).To(BeTrue(), "%s: %v", name, harness.StatusOf(object).Conditions)
		}).Should(Succeed())
	}
	g.Eventually(func(g Gomega) { w.isSettled(ctx, g) }).Should(Succeed())
	g.Eventually(func(g Gomega) {
		before := w.outside(ctx, g)
		g.Consistently(func() map[string]string { return w.outside(ctx, g) }).WithTimeout(deadline).Should(Equal(before))
	}).Should(Succeed())
}

// isSettled expects that the controllers of Kubernetes have done all that is to do. They may do nothing for a while before,
// because the machine is busy.
func (w *fixture) isSettled(ctx context.Context, g Gomega) {
	var deployments appsv1.DeploymentList
	g.Expect(w.admin.List(ctx, &deployments)).To(Succeed())
	for _, deployment := range deployments.Items {
		status := deployment.Status
		g.Expect(status.ObservedGeneration).To(Equal(deployment.Generation), deployment.Name)
		g.Expect([]int32{status.Replicas, status.UpdatedReplicas, status.ReadyReplicas, status.AvailableReplicas}).To(HaveEach(*deployment.Spec.Replicas), deployment.Name)
		g.Expect(status.Conditions).To(ContainElement(And(HaveField("Type", appsv1.DeploymentProgressing), HaveField("Reason", "NewReplicaSetAvailable"))), deployment.Name)
	}
	var budgets policyv1.PodDisruptionBudgetList
	g.Expect(w.admin.List(ctx, &budgets)).To(Succeed())
	for _, budget := range budgets.Items {
		g.Expect(budget.Status.ObservedGeneration).To(Equal(budget.Generation), budget.Name)
		g.Expect(budget.Status.ExpectedPods).To(And(BeNumerically(">", 0), Equal(budget.Status.CurrentHealthy)), budget.Name)
	}
	var services corev1.ServiceList
	g.Expect(w.admin.List(ctx, &services)).To(Succeed())
	for _, service := range services.Items {
		if len(service.Spec.Selector) > 0 {
			w.hasEndpoints(ctx, g, &service)
		}
	}
	var roles rbacv1.ClusterRoleList
	g.Expect(w.admin.List(ctx, &roles)).To(Succeed())
	for _, role := range roles.Items {
		if role.AggregationRule != nil {
			isAggregated(g, role, roles.Items)
		}
	}
	var namespaces corev1.NamespaceList
	g.Expect(w.admin.List(ctx, &namespaces)).To(Succeed())
	for _, namespace := range namespaces.Items {
		g.Expect(w.admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "default"}, &corev1.ServiceAccount{})).To(Succeed())
		g.Expect(w.admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "kube-root-ca.crt"}, &corev1.ConfigMap{})).To(Succeed())
	}
}

// hasEndpoints expects that the pods that a Service selects are its ready endpoints.
func (w *fixture) hasEndpoints(ctx context.Context, g Gomega, service *corev1.Service) {
	var pods corev1.PodList
	g.Expect(w.admin.List(ctx, &pods, client.InNamespace(service.Namespace), client.MatchingLabels(service.Spec.Selector))).To(Succeed())
	var slices discoveryv1.EndpointSliceList
	g.Expect(w.admin.List(ctx, &slices, client.InNamespace(service.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service.Name})).To(Succeed())
	g.Expect(slices.Items).NotTo(BeEmpty(), service.Name)
	var ready []string
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, false) {
				ready = append(ready, endpoint.TargetRef.Name)
			}
		}
	}
	var expected []string
	for _, pod := range pods.Items {
		expected = append(expected, pod.Name)
	}
	g.Expect(ready).To(ConsistOf(expected), service.Name)
}

// isAggregated expects that a role has the rules of those that it aggregates.
func isAggregated(g Gomega, role rbacv1.ClusterRole, roles []rbacv1.ClusterRole) {
	for _, selector := range role.AggregationRule.ClusterRoleSelectors {
		selected, err := metav1.LabelSelectorAsSelector(&selector)
		g.Expect(err).NotTo(HaveOccurred())
		for _, part := range roles {
			if part.Name != role.Name && selected.Matches(labels.Set(part.Labels)) {
				g.Expect(role.Rules).To(ContainElements(part.Rules), "%s of %s", part.Name, role.Name)
			}
		}
	}
}

// parse reads one object.
func parse(g Gomega, text string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal([]byte(text), &object.Object)).To(Succeed(), text)
	return object
}

// network leads the connections of the prober to servers on loopback, and records them. The pods of the other
// team have an honest server; those of an MCPServer of the tenant have the server that the attempt registers.
type network struct {
	admin client.Client
	mu    sync.Mutex
	// servers of the tenant by the name of the MCPServer.
	servers map[string]*httptest.Server
	honest  *httptest.Server
	// dialed are the addresses that the manager has dialed, and asked the requests that the honest server got.
	dialed []string
	asked  []*http.Request
}

func newNetwork(t *testing.T, admin client.Client) *network {
	t.Helper()
	n := &network{admin: admin, servers: map[string]*httptest.Server{}}
	honest := honestServer()
	n.honest = n.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.asked = append(n.asked, r.Clone(context.Background()))
		n.mu.Unlock()
		honest.ServeHTTP(w, r)
	}))
	return n
}

// honestServer is a server of the Model Context Protocol with one tool.
func honestServer() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "honest", Version: "1.0.0"}, nil)
	type nothing struct{}
	mcp.AddTool(server, &mcp.Tool{Name: "hello"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, nothing, error) {
		return &mcp.CallToolResult{}, nothing{}, nil
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{DisableLocalhostProtection: true})
}

func (n *network) serve(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// lead leads the connections to the pods of an MCPServer of the tenant to a server.
func (n *network) lead(name string, to *httptest.Server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[name] = to
}

var errNoPod = errors.New("no pod has this address")

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.dialed = append(n.dialed, address)
	n.mu.Unlock()
	var pods corev1.PodList
	if err := n.admin.List(ctx, &pods); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Status.PodIP == host {
			return (&net.Dialer{}).DialContext(ctx, network, n.serverOf(pod).Listener.Addr().String())
		}
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: errNoPod}
}

func (n *network) serverOf(pod *corev1.Pod) *httptest.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	if server := n.servers[pod.Labels["app.kubernetes.io/name"]]; server != nil && pod.Namespace == tenant {
		return server
	}
	return n.honest
}

// hasDialed says whether the manager has dialed an address of a host.
func (n *network) hasDialed(host string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.dialed, func(address string) bool { return strings.HasPrefix(address, net.JoinHostPort(host, "")) })
}

// requests are those that the honest server got and that match.
func (n *network) requests(match func(*http.Request) bool) []*http.Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []*http.Request
	for _, request := range n.asked {
		if match(request) {
			found = append(found, request)
		}
	}
	return found
}

// deadline bounds what an attempt waits for to show that it does not happen.
const deadline = 2 * time.Second
