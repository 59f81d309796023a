package mcpserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayconfigurations "sigs.k8s.io/gateway-api/applyconfiguration"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// lifecycle is the engine with the MCPServer tools, over an API server in memory.
type lifecycle struct {
	*ssatest.Server
	*WithT

	engine   *Engine
	probes   *textsOf
	recorder *events.FakeRecorder
	clock    *clocktesting.FakePassiveClock
	// refuses is the error of a request. Optional.
	refuses func(ssatest.Call) error
}

func newLifecycle(t *testing.T, o setup.Options, gateways gatewayReader, changes ...func(*spec)) *lifecycle {
	t.Helper()
	l := &lifecycle{WithT: NewWithT(t), recorder: events.NewFakeRecorder(100), clock: clocktesting.NewFakePassiveClock(earlier.Time),
		probes: &textsOf{fakeProber: fakeProber{set: map[client.ObjectKey]prober.Target{}}, texts: map[string]string{"d1": "one"}}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, gatewayv1.Install, v1beta1.AddToScheme} {
		l.Expect(add(scheme)).To(Succeed())
	}
	l.Server = ssatest.NewServer(scheme, ssatest.Options{
		TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{applyconfiguration.NewTypeConverter, gatewayconfigurations.NewTypeConverter},
		Intercept: func(call ssatest.Call) error {
			if l.refuses == nil || call.Done {
				return nil
			}
			return l.refuses(call)
		}})
	dependencies, err := setup.Planning{API: l.Server, Reader: l.Server.Cache(), Clock: l.clock}.Dependencies(FieldManager,
		applyconfiguration.NewTypeConverter, gatewayconfigurations.NewTypeConverter)
	l.Expect(err).NotTo(HaveOccurred())
	dependencies.Applier, err = ssa.New(ssa.Options{Client: l.Server, Reader: l.Server, FieldManager: FieldManager, TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{
		applyconfiguration.NewTypeConverter, gatewayconfigurations.NewTypeConverter}})
	l.Expect(err).NotTo(HaveOccurred())
	dependencies.Uncached, dependencies.Recorder = l.Server, l.recorder
	l.engine, err = newEngine(dependencies, Options{Options: o, Settings: settings}, readers{
		references: &references.Reader{Metadata: l.Server, Data: l.Server}, keys: &keyReader{metadata: l.Server, data: l.Server}, gateways: gateways, podStatus: &statuses{},
	}, l.probes)
	l.Expect(err).NotTo(HaveOccurred())
	l.Expect(l.engine.Index(l.Server)).To(Succeed())
	l.Expect(l.Create(context.Background(), stored(changes...))).To(Succeed())
	return l
}

// settle reconciles until nothing is written, and returns what was.
func (l *lifecycle) settle() []string {
	var all []string
	for range 40 {
		_, err := l.engine.Reconcile(context.Background(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "acme", Name: "tools"}})
		if apierrors.IsConflict(err) || ssa.IsStale(err) {
			continue
		}
		l.Expect(err).NotTo(HaveOccurred())
		l.clock.SetTime(l.clock.Now().Add(time.Minute))
		writes := l.Writes()
		if len(writes) == 0 {
			return all
		}
		all = append(all, writes...)
	}
	l.Expect(all).To(BeEmpty(), "it does not come to rest")
	return nil
}

func (l *lifecycle) read(object client.Object) {
	l.Expect(l.Get(context.Background(), client.ObjectKey{Namespace: "acme", Name: "tools"}, object)).To(Succeed())
}

func (l *lifecycle) server() *v1beta1.MCPServer {
	server := &v1beta1.MCPServer{}
	l.read(server)
	return server
}

// condition is the status and the reason of a condition; empty if there is none.
func (l *lifecycle) condition(conditionType string) string {
	c := meta.FindStatusCondition(l.server().Status.Conditions, conditionType)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// rollOut completes the rollout, and has a pod behind the Service.
func (l *lifecycle) rollOut() {
	d := &appsv1.Deployment{}
	l.read(d)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}}}
	l.Expect(l.Status().Update(context.Background(), d)).To(Succeed())
	_ = l.Create(context.Background(), slice("tools-1", "tools", 8080, ofPod("10.0.0.1", "tools-a-1", ready())))
	l.Writes()
}

func (l *lifecycle) edit(change func(*v1beta1.MCPServer)) {
	server := l.server()
	change(server)
	l.Expect(l.Update(context.Background(), server)).To(Succeed())
	l.Writes()
}

// exposed has sessions that all pods serve, an Ingress and an HTTPRoute.
func exposed(s *spec) {
	forwardingHTTP(s)
	s.Ingress = &v1beta1.Ingress{Host: "tools.example.com", Path: "/", IngressClassName: ptr.To("nginx")}
	s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{ParentRefs: []v1beta1.MCPServerParentRef{{Name: "public"}}, Hostnames: []string{"tools.example.com"}, Path: "/"}
}

// The managers of most installations have no permission on Secrets.
func TestMissingPermissionOnSecretsSaysHowToGrantIt(t *testing.T) {
	l := newLifecycle(t, setup.Options{}, fakeGateways{}, forwardingHTTP)
	l.refuses = func(call ssatest.Call) error {
		if call.Kind.Kind != "Secret" || call.Verb != "apply" {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "tools-session-keys", errors.New(`User "fixpoint" cannot patch resource "secrets" in API group "" in the namespace "acme"`))
	}
	_, _ = l.engine.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "acme", Name: "tools"}})
	l.Expect(meta.FindStatusCondition(l.server().Status.Conditions, v1beta1.ConditionSessionKeysReady)).To(And(
		HaveField("Reason", "Forbidden"), HaveField("Message", ContainSubstring("set rbac.sessionKeys of the chart, or apply the component config/session-keys, or remove spec.sessionRouting; see Permissions in docs/operations.md"))))
}

func TestServerBecomesReady(t *testing.T) {
	l := newLifecycle(t, setup.Options{}, fakeGateways{}, exposed)
	l.Expect(l.Create(t.Context(), &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "nginx"}})).To(Succeed())
	l.Writes()
	l.probes.result = &prober.Result{State: prober.Answering, Contract: &prober.Contract{Digest: "d1"}}

	l.Expect(l.settle()).To(ContainElements("create Secret tools-session-keys", "create Service tools", "create Deployment tools"))
	l.Expect(l.condition(v1beta1.ConditionDeploymentReady)).To(Equal("False RolloutProgressing"))
	l.rollOut()
	l.Expect(l.settle()).To(ContainElements("create Ingress tools", "create HTTPRoute tools", "create ConfigMap tools-contract"))

	l.Expect(l.condition(v1beta1.ConditionReady)).To(Equal("True Ready"))
	l.Expect(l.condition(v1beta1.ConditionProtocolReady)).To(Equal("True Ready"))
	l.Expect(l.condition(v1beta1.ConditionSessionKeysReady)).To(Equal("True Ready"))
	l.Expect(l.condition("StoredContractReady")).To(BeEmpty(), "nothing depends on the ConfigMap")
	l.Expect(l.server().Status.Contract.Digest).To(Equal("d1"))
	l.Expect(l.server().Finalizers).To(ConsistOf("fixpoint.dev/teardown"))
	var contract corev1.ConfigMap
	l.Expect(l.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: "tools-contract"}, &contract)).To(Succeed())
	l.Expect(contract.Data).To(Equal(map[string]string{"current.d1": "one"}))
	l.Expect(contract.OwnerReferences[0].BlockOwnerDeletion).To(BeNil(), "no deletion waits for it")
	var keys corev1.Secret
	l.Expect(l.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: "tools-session-keys"}, &keys)).To(Succeed())
	l.Expect(keys.Data).To(HaveLen(1))

	l.probes.result.Contract = &prober.Contract{Digest: "d2"}
	l.settle()
	close(l.recorder.Events)
	var recorded []string
	for event := range l.recorder.Events {
		recorded = append(recorded, event)
	}
	l.Expect(recorded).To(ContainElement(ContainSubstring("ContractChanged")))
}

func TestSuspendedServerIsNotChanged(t *testing.T) {
	l := newLifecycle(t, setup.Options{NoClusterRights: true}, staticGatewayAPI(false))
	l.settle()
	l.edit(func(server *v1beta1.MCPServer) { server.Spec.Suspend, server.Spec.Image = true, "ghcr.io/acme/tools:2" })
	l.Expect(l.settle()).To(HaveEach(ContainSubstring("MCPServer")))
	l.Expect(l.server().Status.Phase).To(Equal(v1beta1.PhaseSuspended))
}

// A reconcile that is running when the MCPServer is suspended sets its target after the event.
func TestSuspendedServerIsNotProbedAfterTheNextReconcile(t *testing.T) {
	l := newLifecycle(t, setup.Options{NoClusterRights: true}, staticGatewayAPI(false))
	l.settle()
	l.edit(func(server *v1beta1.MCPServer) { server.Spec.Suspend = true })
	l.probes.Set(client.ObjectKey{Namespace: "acme", Name: "tools"}, prober.Target{})
	l.settle()
	l.Expect(l.probes.set).To(BeEmpty())
}

// The prober sends the token to its target until a reconcile changes that, and the address of a pod that is gone may be that of
// another pod by now.
func TestPodThatIsGoneIsNotProbedWhileAnEarlierPhaseWaits(t *testing.T) {
	const left, gone = "10.0.0.1:8080", "10.0.0.2:8080"
	endpoints := func(l *lifecycle, endpoints ...discoveryv1.Endpoint) {
		behind := slice("tools-1", "tools", 8080)
		l.Expect(l.Get(t.Context(), client.ObjectKeyFromObject(behind), behind)).To(Succeed())
		behind.Endpoints = endpoints
		l.Expect(l.Update(t.Context(), behind)).To(Succeed())
	}
	drained := func(l *lifecycle) { endpoints(l) }
	for name, c := range map[string]struct {
		pinned bool
		change func(*lifecycle)
		want   []string
	}{
		"no pod changes":          {false, func(*lifecycle) {}, []string{left, gone}},
		"the node is drained":     {false, drained, nil},
		"one of two pods is gone": {false, func(l *lifecycle) { endpoints(l, ofPod("10.0.0.1", "tools-a-1", ready())) }, []string{left}},
		"pinned, and drained":     {true, drained, nil},
		"the pods are not known": {false, func(l *lifecycle) {
			l.refuses = func(call ssatest.Call) error {
				if strings.HasPrefix(call.Kind.Kind, "EndpointSlice") {
					return errors.New("no answer")
				}
				return nil
			}
		}, nil},
		"the token is withdrawn": {false, func(l *lifecycle) {
			l.Expect(l.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "tokens"}})).To(Succeed())
		}, nil},
		"probes are disabled": {false, func(l *lifecycle) {
			l.edit(func(server *v1beta1.MCPServer) { server.Spec.Protocol.Probe = v1beta1.ProbeDisabled })
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLifecycle(t, setup.Options{NoClusterRights: true}, staticGatewayAPI(false), func(s *spec) {
				s.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: "tokens"}
				if c.pinned {
					pin(s)
				}
			})
			l.Expect(l.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "tokens"}, Data: map[string][]byte{"token": []byte("hush")}})).To(Succeed())
			l.Expect(l.Create(t.Context(), slice("tools-1", "tools", 8080, ofPod("10.0.0.1", "tools-a-1", ready()), ofPod("10.0.0.2", "tools-a-2", ready())))).To(Succeed())
			l.probes.result = &prober.Result{State: prober.Answering}
			l.settle()
			l.rollOut()
			l.settle()
			l.Expect(l.condition(v1beta1.ConditionProtocolReady)).To(Equal("True Ready"))
			key := client.ObjectKeyFromObject(l.server())
			l.Expect(l.probes.set[key]).To(And(HaveField("Addresses", ConsistOf(left, gone)), HaveField("Bearer", prober.Credential("hush"))))

			d := &appsv1.Deployment{}
			l.read(d)
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, UnavailableReplicas: 1}
			l.Expect(l.Status().Update(t.Context(), d)).To(Succeed())
			c.change(l)
			l.Writes()
			l.settle()
			l.settle() // a status that says only that a child is not ready may be put off

			l.Expect(l.condition(v1beta1.ConditionProtocolReady)).NotTo(Equal("True Ready"), "an earlier phase waits")
			l.Expect(l.probes.set[key].Addresses).To(ConsistOf(c.want))
		})
	}
}

// Whether a server answers is asked once its pods are available.
func TestServerIsNotProbedBeforeItsPhases(t *testing.T) {
	l := newLifecycle(t, setup.Options{NoClusterRights: true}, staticGatewayAPI(false))
	l.Expect(l.Create(t.Context(), slice("tools-1", "tools", 8080, ofPod("10.0.0.1", "tools-a-1", ready())))).To(Succeed())
	l.Writes()
	l.settle()
	l.Expect(l.condition(v1beta1.ConditionDeploymentReady)).To(Equal("False RolloutProgressing"))
	l.Expect(l.probes.set).To(BeEmpty())
}

func TestReportedDriftIsNotCorrected(t *testing.T) {
	for policy, want := range map[v1beta1.DriftPolicy]string{v1beta1.DriftReport: "by hand", v1beta1.DriftCorrect: "mcp"} {
		l := newLifecycle(t, setup.Options{NoClusterRights: true}, staticGatewayAPI(false), func(s *spec) { s.DriftPolicy = policy })
		l.settle()
		var service corev1.Service
		l.read(&service)
		service.Spec.Ports[0].TargetPort.StrVal = "by hand"
		l.Expect(l.Update(t.Context(), &service, client.FieldOwner("kubectl-edit"))).To(Succeed())
		l.settle()
		l.read(&service)
		l.Expect(service.Spec.Ports[0].TargetPort.StrVal).To(Equal(want), string(policy))
	}
}

// Without permissions in the whole cluster, the class is assumed to exist.
func TestIngressWaitsForItsClassOnlyWithClusterRights(t *testing.T) {
	for rights, want := range map[bool]string{true: "False IngressClassMissing", false: "True Ready"} {
		l := newLifecycle(t, setup.Options{NoClusterRights: !rights}, staticGatewayAPI(false), exposed, func(s *spec) { s.HTTPRoute = nil })
		l.settle()
		l.rollOut()
		l.settle()
		l.Expect(l.condition(v1beta1.ConditionIngressReady)).To(Equal(want))
	}
}

func TestRouteOfAClusterWithoutTheGatewayAPIIsNotRead(t *testing.T) {
	for condition, test := range map[string]struct {
		edits []func(*spec)
		want  string
	}{
		v1beta1.ConditionRouteReady:      {[]func(*spec){exposed}, "False KindMissing"},
		v1beta1.ConditionDeploymentReady: {nil, "True Ready"}, // and there is no HTTPRoute to delete
	} {
		l := newLifecycle(t, setup.Options{NoClusterRights: true}, staticGatewayAPI(false), test.edits...)
		l.refuses = func(call ssatest.Call) error {
			if strings.HasPrefix(call.Kind.Kind, "HTTPRoute") {
				return errors.New("not served")
			}
			return nil
		}
		l.settle()
		l.rollOut()
		l.settle()
		l.Expect(l.condition(condition)).To(Equal(test.want))
	}
}

func TestMissingPermissionOnSecretsIsInTheCondition(t *testing.T) {
	l := newLifecycle(t, setup.Options{NoClusterRights: true}, staticGatewayAPI(false), forwardingHTTP)
	l.refuses = func(call ssatest.Call) error {
		if call.Kind.Kind == "Secret" && call.Verb == "apply" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, call.Key.Name, errors.New(`User "manager" cannot patch resource "secrets" in API group "" in the namespace "acme"`))
		}
		return nil
	}
	for range 5 {
		_, _ = l.engine.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "acme", Name: "tools"}})
	}
	c := meta.FindStatusCondition(l.server().Status.Conditions, v1beta1.ConditionSessionKeysReady)
	l.Expect(c).NotTo(BeNil())
	l.Expect(c.Message).To(ContainSubstring("set rbac.sessionKeys of the chart, or apply the component config/session-keys, or remove spec.sessionRouting; see Permissions in docs/operations.md"))
}

// The cache holds no pods.
func TestPodsOfAPinnedServerAreReadFromTheAPIServer(t *testing.T) {
	l := newLifecycle(t, setup.Options{}, staticGatewayAPI(false), pin)
	l.settle()
	l.rollOut()
	l.settle()
	l.Expect(l.condition(v1beta1.ConditionContractReady)).NotTo(BeEmpty())
}

// What others have in the ConfigMap stays, and does not cause a write of each reconcile.
func TestUnmanagedStoredContractIsAdoptedIfThePolicyAllows(t *testing.T) {
	for policy, want := range map[v1beta1.AdoptionPolicy]struct {
		condition string
		data      map[string]string
	}{
		v1beta1.AdoptionNever:     {"False NotOwned", map[string]string{"note": "kept"}},
		v1beta1.AdoptionIfUnowned: {"", map[string]string{"note": "kept", "current.d1": "one"}},
	} {
		t.Run(string(policy), func(t *testing.T) {
			adopts := func(s *spec) { s.AdoptionPolicy = policy }
			l := newLifecycle(t, setup.Options{NoClusterRights: true}, staticGatewayAPI(false), adopts)
			existing := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tools-contract", Namespace: "acme"}}
			existing.Data = map[string]string{"note": "kept"}
			l.Expect(l.Create(t.Context(), &existing)).To(Succeed())
			l.probes.result = &prober.Result{State: prober.Answering, Contract: &prober.Contract{Digest: "d1"}}
			l.settle()
			l.rollOut()
			l.settle()
			l.Expect(l.condition(v1beta1.ConditionStoredContractReady)).To(Equal(want.condition))
			var contract corev1.ConfigMap
			l.Expect(l.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: "tools-contract"}, &contract)).To(Succeed())
			l.Expect(contract.Data).To(Equal(want.data))
		})
	}
}
