package deploy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// TestManagerUsesExactlyItsRights goes once through everything that the controllers do, with
// the rights that config/default, config/account-keys, config/session-keys and config/contract-gates give. The API server asks a recorder about each right, so that one
// which nothing uses is found, as is one that is missing.
func TestManagerUsesExactlyItsRights(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.installGatewayAPI()
	w.apply(ingressClass)
	w.installWith("account-keys", "session-keys", "contract-gates")
	w.storedInOlderVersion()
	const place = "shop"
	w.namespace(place)
	leader := w.start(system, "one")
	standby := w.startPod(w.withoutStreams(deploy.Pod{Program: w.program(), Namespace: system, Name: "two"}))

	w.adopt(place)
	w.everything(place)
	w.failures(place)
	w.identityIsRefused(place)
	w.driftTwice(place)
	w.metricsAreForReaders(leader)
	w.Eventually(w.storedVersions).Should(HaveEach("[\"v1beta1\"]"), "the leader migrates")
	w.handOver(leader)
	w.prune(place)
	w.deleteAll(place)

	w.Expect(standby.Running()).To(BeTrue())
	w.usesExactlyWhatItIsGranted(0, standby, system, "fixpoint-controller-manager")
}

var definitions = []string{"appservices.fixpoint.dev", "mcpservers.fixpoint.dev", "securestorages.fixpoint.dev"}

// storedInOlderVersion says of all kinds that objects may be stored in an older version.
func (w *fixture) storedInOlderVersion() {
	w.t.Helper()
	for _, definition := range definitions {
		w.run("patch", "crd", definition, "--subresource=status", "--type=merge", "-p", `{"status":{"storedVersions":["v1alpha1","v1beta1"]}}`)
	}
}

// storedVersions are those of all kinds, as JSON.
func (w *fixture) storedVersions() []string {
	w.t.Helper()
	var all []string
	for _, definition := range definitions {
		all = append(all, w.run("get", "crd", definition, "-o", "jsonpath={.status.storedVersions}"))
	}
	return all
}

// tokens is the right that config/workload-identity adds.
var tokens = deploy.Right{Verb: "create", Resource: "serviceaccounts/token"}

// identityIsRefused waits until a SecureStorage with a workload identity says who can allow it.
func (w *fixture) identityIsRefused(place string) {
	w.t.Helper()
	object := storage(place, "by-identity")
	w.shows(object, "Ready", "False "+v1beta1.ReasonCredentialsMissing)
	w.Expect(object.Status.Conditions).To(ContainElement(And(HaveField("Type", "Ready"), HaveField("Message", And(
		ContainSubstring("the manager is not allowed to request tokens of ServiceAccount given (spec.provider.workloadIdentity)"),
		ContainSubstring("see Permissions in docs/operations.md"))))))
}

// TestEachControllerUsesExactlyItsRole goes through the same with each controller in a manager of its own,
// which has the shipped role of that controller alone. SecureStorages also use the components for workload
// identities and for account keys, and MCPServers those for session keys and gates of contracts, which config/default does not contain.
func TestEachControllerUsesExactlyItsRole(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.installGatewayAPI()
	w.apply(ingressClass)
	w.installWith("workload-identity", "account-keys", "session-keys", "contract-gates")
	const place = "shop"
	w.namespace(place)
	managers := map[string]*deploy.Manager{}
	for _, controller := range controllers.Names() {
		roles := []string{"fixpoint-manager-" + controller + "-role"}
		switch controller {
		case securestorage.Name:
			roles = append(roles, "fixpoint-manager-workload-identity-role", "fixpoint-manager-account-keys-role")
		case mcpserver.Name:
			roles = append(roles, "fixpoint-manager-session-keys-role", "fixpoint-manager-contract-gates-role")
		}
		w.bindRoles(controller, roles...)
		managers[controller] = w.startPod(w.withoutStreams(deploy.Pod{
			Program: w.program(), Namespace: system, Name: controller, Account: controller,
			Args: []string{"--controllers=" + controller, "--leader-elect=false", "--webhook-bind-address=0"},
		}))
	}

	w.adopt(place)
	w.everything(place)
	w.failures(place)
	w.shows(storage(place, "by-identity"), "Ready", "False "+v1beta1.ReasonCredentialsInvalid)
	w.prune(place)
	w.deleteAll(place)

	// Only an Event that is repeated is patched, which driftTwice provokes for the manager of all controllers.
	repeated := deploy.Right{Verb: "patch", Group: "events.k8s.io", Resource: "events"}
	for controller, m := range managers {
		w.usesExactlyWhatItIsGranted(0, m, system, controller, repeated)
	}
}

// TestOneControllerIsInstalledWithItsRoleAlone installs a manager of MCPServers with the component for it:
// it reads no other kind, and a token of its ServiceAccount is refused what only other controllers use.
func TestOneControllerIsInstalledWithItsRoleAlone(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.installGatewayAPI()
	w.apply(ingressClass)
	w.installWith("only/mcpserver")
	m := w.start(system, "one")
	w.namespace("shop")
	w.apply(inNamespace("shop", simpleApp+`---
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: tools}
spec: {image: "registry.test/tools:1", transport: streamable-http}
`))
	w.ready(server("shop", "tools"))

	w.Expect(w.denied(0, m.User)).To(BeEmpty())
	for _, refused := range []string{
		"list appservices.fixpoint.dev", "patch appservices.fixpoint.dev", "list securestorages.fixpoint.dev",
		"create serviceaccounts --subresource=token", "create secrets", "create pods", "create clusterroles.rbac.authorization.k8s.io", "impersonate users",
	} {
		args := append([]string{"auth", "can-i", "--as=" + m.User, "-n", "shop"}, strings.Fields(refused)...)
		output, err := w.kubectl.Run(w.ctx, args...)
		w.Expect(err).To(HaveOccurred(), refused) // kubectl exits with 1 for no
		w.Expect(strings.TrimSpace(output)).To(Equal("no"), refused)
	}
	untouched := app("shop", "web")
	w.Expect(w.api.Get(w.ctx, client.ObjectKeyFromObject(untouched), untouched)).To(Succeed())
	w.Expect(untouched.Finalizers).To(BeEmpty())
}

// withoutStreams has caches filled by lists, as they are where an API server has no streaming lists. So
// the right to list is used too.
func (w *fixture) withoutStreams(pod deploy.Pod) deploy.Pod {
	pod.Env = append(pod.Env, "KUBE_FEATURE_WatchListClient=false")
	return pod
}

const ingressClass = `
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata:
  name: local
  annotations:
    ingressclass.kubernetes.io/is-default-class: "true"
spec:
  controller: fixpoint.test/nobody
`

func (w *fixture) installGatewayAPI() {
	w.t.Helper()
	w.Expect(harness.InstallGatewayAPI(w.ctx, w.cluster)).To(Succeed())
}

// adopt takes over objects that others created, and lets their fields migrate.
func (w *fixture) adopt(place string) {
	w.t.Helper()
	w.run("-n", place, "create", "configmap", "found", "--from-literal=GREETING=hello")
	w.run("-n", place, "create", "service", "clusterip", "found", "--tcp=80:8080")
	w.run("-n", place, "create", "service", "clusterip", "found-too", "--tcp=8080:8080")
	w.run("-n", place, "create", "serviceaccount", "found-too")
	w.run("-n", place, "create", "poddisruptionbudget", "found", "--selector=app.kubernetes.io/name=found", "--max-unavailable=1")
	w.run("-n", place, "create", "ingress", "found", "--rule=found.test/*=found:http")
	w.apply(inNamespace(place, `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: found}
spec: {maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: found}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: found-too}
spec: {podSelector: {}}
---
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: found}
spec:
  image: registry.test/web:1
  config: {GREETING: hello}
  autoscaling: {minReplicas: 2, maxReplicas: 4, targetCPUUtilizationPercent: 80}
  disruptionBudget: {maxUnavailable: 1}
  ingress: {host: found.test}
  adoptionPolicy: IfUnowned
---
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: found-too}
spec:
  image: registry.test/tools:1
  transport: streamable-http
  serviceAccount: {create: true}
  networkPolicy: {ingress: {from: [{podSelector: {}}]}}
  adoptionPolicy: IfUnowned
`))
	w.ready(app(place, "found"), server(place, "found-too"))
}

// allOptions are objects with every option that adds a child or a reference.
const allOptions = `
apiVersion: v1
kind: Secret
metadata: {name: token}
stringData: {TOKEN: t0p}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {MODE: fast}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: given}
---
apiVersion: v1
kind: PersistentVolume
metadata:
  name: data
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: none, hostPath: {path: /data}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gateway}
spec: {gatewayClassName: none, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: shop}
spec: APPSERVICE
---
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: tools}
spec:
  image: registry.test/tools:1
  transport: streamable-http
  serviceAccount: {create: true}
  files: [{path: /etc/a, content: "1"}]
  envFrom: [{secretRef: {name: token}}, {configMapRef: {name: settings}}]
  autoscaling: {minReplicas: 1, maxReplicas: 4, targetCPUUtilizationPercent: 80}
  disruptionBudget: {maxUnavailable: 1}
  networkPolicy: {ingress: {from: [{namespaceSelector: {}}]}}
  ingress: {host: tools.test}
---
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: routed}
spec:
  image: registry.test/tools:1
  transport: streamable-http
  replicas: 1
  strategy: Recreate
  serviceAccount: {name: given}
  httpRoute: {parentRefs: [{name: gateway}]}
---
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: claiming}
spec:
  image: registry.test/tools:1
  transport: streamable-http
  mounts: [{name: data, mountPath: /data, persistentVolumeClaim: {claimName: data}}]
---
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: forwarding}
spec:
  image: registry.test/tools:1
  transport: stdio
  command: [serve]
  sessionRouting: Forward
---
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: pinned}
spec:
  image: registry.test/tools:1
  transport: streamable-http
  contract: {policy: Pin}
---
apiVersion: fixpoint.dev/v1beta1
kind: SecureStorage
metadata: {name: invoices}
spec:
  provider: {subscriptionID: SUBSCRIPTION, resourceGroup: fixpoint-demo, location: westeurope}
  key: {vault: {name: fixpoint-demo}, name: storage}
  export: {accountKeys: true}
  deletionPolicy: Delete
  pollInterval: 10s
---
apiVersion: v1
kind: Secret
metadata: {name: azure-orders}
stringData: {tenantID: tenant, clientID: client, clientSecret: "CLIENTSECRET"}
---
apiVersion: fixpoint.dev/v1beta1
kind: SecureStorage
metadata: {name: orders}
spec:
  provider: {subscriptionID: SUBSCRIPTION, resourceGroup: fixpoint-demo, location: westeurope, credentialsSecretRef: {name: azure-orders}}
  key: {vault: {name: fixpoint-demo}, name: storage}
  deletionPolicy: Delete
  pollInterval: 10s
`

// withIdentities are SecureStorages whose credentials are of the namespace. The cloud knows neither.
const withIdentities = `
apiVersion: v1
kind: Secret
metadata: {name: azure}
stringData: {tenantID: a, clientID: b, clientSecret: c}
---
apiVersion: fixpoint.dev/v1beta1
kind: SecureStorage
metadata: {name: by-secret}
spec:
  provider: {subscriptionID: SUBSCRIPTION, resourceGroup: fixpoint-demo, location: westeurope, credentialsSecretRef: {name: azure}}
  key: {vault: {name: fixpoint-demo}, name: storage}
---
apiVersion: fixpoint.dev/v1beta1
kind: SecureStorage
metadata: {name: by-identity}
spec:
  provider:
    subscriptionID: SUBSCRIPTION
    resourceGroup: fixpoint-demo
    location: westeurope
    workloadIdentity:
      tenantID: 00000000-0000-4000-8000-000000000001
      clientID: 00000000-0000-4000-8000-000000000002
      serviceAccountName: given
  key: {vault: {name: fixpoint-demo}, name: storage}
`

// inNamespace puts the objects of a text into a namespace.
func inNamespace(place, text string) string {
	return strings.ReplaceAll(text, "metadata: {", "metadata: {namespace: "+place+", ")
}

func (w *fixture) inCloud(text string) string {
	return strings.NewReplacer("SUBSCRIPTION", w.outside.Demo.Subscription, "CLIENTSECRET", fakecloud.Token("orders")).Replace(text)
}

func (w *fixture) applyEverything(place string) {
	w.t.Helper()
	w.apply(inNamespace(place, w.inCloud(strings.ReplaceAll(allOptions, "APPSERVICE", w.appServiceOptions()))))
}

func (w *fixture) everything(place string) {
	w.t.Helper()
	w.applyEverything(place)
	w.ready(app(place, "shop"), server(place, "tools"), server(place, "routed"), server(place, "claiming"), server(place, "forwarding"), server(place, "pinned"), storage(place, "invoices"), storage(place, "orders"))
	for _, controller := range controllers.Names() {
		owned := w.kindsOfChildren(place, func(owner *metav1.OwnerReference) bool { return strings.EqualFold(owner.Kind, controller) })
		for kind := range harness.ChildKinds(controller) {
			w.Expect(owned).To(ContainElement(kind), "allOptions, or the seed of the AppService, turns on the phase of %s with this child", controller)
		}
	}
}

// appServiceOptions is the spec of an AppService with every option, of the default IngressClass, and with references.
func (w *fixture) appServiceOptions() string {
	w.t.Helper()
	spec := v1beta1.AppServiceSpec{Image: "registry.test/web:1"}
	specs.AllOptions(&spec)
	spec.Ingress.IngressClassName = nil
	spec.ServiceAccountName = "given"
	spec.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "token"}, Key: "TOKEN",
	}}}}
	text, err := json.Marshal(spec)
	w.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// failures make the controllers look up why something fails.
func (w *fixture) failures(place string) {
	w.t.Helper()
	w.apply(inNamespace(place, w.inCloud(withIdentities)))
	w.shows(storage(place, "by-secret"), "Ready", "False "+v1beta1.ReasonCredentialsInvalid)
	w.apply(inNamespace(place, `
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: broken}
spec: {image: "`+cluster.ImagePullFails+`"}
`))
	w.shows(app(place, "broken"), "Ready", "False "+v1beta1.ReasonPodsFailing)
}

// statusRefused refuses what would say how the MCPServer tools is.
const statusRefused = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: status-refused}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [fixpoint.dev], apiVersions: ["*"], operations: [UPDATE], resources: [mcpservers/status]}]
  validations: [{expression: "object.metadata.name != 'tools'", message: not now}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: status-refused}
spec: {policyName: status-refused, validationActions: [Deny]}
`

// driftTwice has the same drift reverted twice, of one version of the MCPServer: client-go's recorder
// then counts on in the Event that it has sent, which takes a right of its own.
func (w *fixture) driftTwice(place string) {
	w.t.Helper()
	w.apply(statusRefused)
	tools := server(place, "tools")
	w.Eventually(func() error {
		edit := client.RawPatch(types.MergePatchType, []byte(`{"status":{"endpoint":"edited"}}`))
		return w.api.Status().Patch(w.ctx, tools, edit, client.DryRunAll)
	}).Should(MatchError(ContainSubstring("not now")))

	account := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: place, Name: "tools"}
	const label = "app.kubernetes.io/managed-by"
	w.Expect(w.api.Get(w.ctx, key, account)).To(Succeed())
	declared := account.Labels[label]
	w.Expect(declared).NotTo(BeEmpty())
	for range 2 {
		w.run("-n", place, "label", "serviceaccount", "tools", "--overwrite", label+"=edited")
		w.Eventually(func(g Gomega) {
			g.Expect(w.api.Get(w.ctx, key, account)).To(Succeed())
			g.Expect(account.Labels).To(HaveKeyWithValue(label, declared))
		}).Should(Succeed())
	}
	w.Eventually(func(g Gomega) {
		var told eventsv1.EventList
		g.Expect(w.api.List(w.ctx, &told, client.InNamespace(place))).To(Succeed())
		g.Expect(told.Items).To(ContainElement(And(HaveField("Reason", "DriftCorrected"), HaveField("Series", Not(BeNil())))))
	}).Should(Succeed())
	w.run("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "status-refused")
}

// metricsAreForReaders shows the metrics to those only who may read them.
func (w *fixture) metricsAreForReaders(m *deploy.Manager) {
	w.t.Helper()
	w.run("create", "namespace", "monitoring")
	w.run("-n", "monitoring", "create", "serviceaccount", "prometheus")
	w.run("-n", "monitoring", "create", "serviceaccount", "unbound")
	w.run("create", "clusterrolebinding", "prometheus", "--clusterrole=fixpoint-metrics-reader", "--serviceaccount=monitoring:prometheus")

	w.Expect(w.scrapeError(m, "")).To(MatchError(deploy.StatusError(401)))
	w.Expect(w.scrapeError(m, w.token("monitoring", "unbound"))).To(MatchError(deploy.StatusError(403)))
	// The binding is known to the API server a moment later, and what it said before is kept for a while.
	token := w.token("monitoring", "prometheus")
	w.Eventually(func() (string, error) { return m.Scrape(w.ctx, token) }).Should(ContainSubstring("fixpoint_ssa_applies_total"))
}

// scrapeError is the error for who may not read the metrics. The answer is 500 while the API server does not answer, which the
// manager asks.
func (w *fixture) scrapeError(m *deploy.Manager, token string) error {
	w.t.Helper()
	var refused error
	w.Eventually(func() bool {
		_, refused = m.Scrape(w.ctx, token)
		return errors.Is(refused, deploy.StatusError(500))
	}).Should(BeFalse())
	return refused
}

// leaseHolder is the manager that leads, or empty.
func (w *fixture) leaseHolder() string {
	lease := &coordinationv1.Lease{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Namespace: system, Name: controllers.LeaderElectionID}, lease); err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// handOver stops the leader in good order, and waits for the other one.
func (w *fixture) handOver(leader *deploy.Manager) {
	w.t.Helper()
	before := w.leaseHolder()
	w.Expect(before).NotTo(BeEmpty())
	w.Expect(leader.Stop()).To(Succeed())
	w.Eventually(w.leaseHolder).ShouldNot(Or(BeEmpty(), Equal(before)))
}

// prune takes all options away.
func (w *fixture) prune(place string) {
	w.t.Helper()
	w.apply(inNamespace(place, `
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: shop}
spec: {image: "registry.test/web:1", replicas: 2}
---
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: tools}
spec: {image: "registry.test/tools:1", transport: streamable-http, contract: {policy: Disabled}}
---
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: routed}
spec: {image: "registry.test/tools:1", transport: streamable-http, contract: {policy: Disabled}}
`))
	// A write for a spec that has just been edited reads the object itself.
	w.run("-n", place, "patch", "securestorage", "invoices", "--type=merge", "-p", `{"spec":{"tags":{"team":"billing"}}}`)
	w.ready(app(place, "shop"), server(place, "tools"), server(place, "routed"), storage(place, "invoices"))
	pruned := func(owner *metav1.OwnerReference) bool {
		return slices.Contains([]string{"shop", "tools", "routed"}, owner.Name)
	}
	w.Eventually(func() []string { return w.kindsOfChildren(place, pruned) }).Should(ConsistOf("Deployment", "Service"), "the children without options")
}

// kindsOfChildren are the kinds of the children in a namespace whose owners match.
func (w *fixture) kindsOfChildren(place string, matches func(owner *metav1.OwnerReference) bool) []string {
	w.t.Helper()
	kinds := map[string]bool{}
	for _, list := range harness.ChildLists() {
		w.Expect(w.api.List(w.ctx, list, client.InNamespace(place))).To(Succeed())
		w.Expect(meta.EachListItem(list, func(item runtime.Object) error {
			object, ok := item.(client.Object)
			if !ok {
				return nil
			}
			owner := metav1.GetControllerOf(object)
			if owner != nil && owner.APIVersion == v1beta1.SchemeGroupVersion.String() && matches(owner) {
				kinds[reflect.TypeOf(object).Elem().Name()] = true
			}
			return nil
		})).To(Succeed())
	}
	return slices.Sorted(maps.Keys(kinds))
}

// deleteAll deletes what there is, with all options once more.
func (w *fixture) deleteAll(place string) {
	w.t.Helper()
	w.everything(place)
	w.run("-n", place, "delete", "appservices,mcpservers,securestorages", "--all", fmt.Sprintf("--timeout=%s", waitTimeout))
	var left corev1.ServiceList
	w.Expect(w.api.List(w.ctx, &left, client.InNamespace(place))).To(Succeed())
	w.Expect(left.Items).To(BeEmpty())
	for _, effects := range w.outside.Cloud.Orphans() {
		w.t.Errorf("left on the cloud: %v", effects)
	}
}
