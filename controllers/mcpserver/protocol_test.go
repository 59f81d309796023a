package mcpserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/references"
)

func TestEndpointOf(t *testing.T) {
	cases := map[string]struct {
		change func(*spec)
		want   string
	}{
		"by default":    {func(*spec) {}, "http://tools.acme.svc:8080/mcp"},
		"sse":           {sse, "http://tools.acme.svc:8080/sse"},
		"stdio":         {stdio, "http://tools.acme.svc:8080/mcp"},
		"port and path": {func(s *spec) { s.Port, s.Path = 80, "/a/b" }, "http://tools.acme.svc:80/a/b"},
		"the root":      {func(s *spec) { s.Path = "/" }, "http://tools.acme.svc:8080/"},
		"encrypted":     {func(s *spec) { s.Protocol.Scheme = v1beta1.SchemeHTTPS }, "https://tools.acme.svc:8080/mcp"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(endpointOf(tools(c.change))).To(Equal(c.want))
		})
	}
}

const succeeded = "MCP handshake succeeded on all serving pods"

func TestResultVerdict(t *testing.T) {
	fails := func(err *prober.Error) prober.Result { return prober.Result{State: prober.Failing, Err: err} }
	closed := func(kind prober.ErrorKind, status int) prober.Result {
		return prober.Result{State: prober.Closed, Err: &prober.Error{Kind: kind, Status: status}}
	}
	withoutToken := func(*spec) {}
	withToken := func(s *spec) {
		s.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: "tokens"}
	}
	cases := map[string]struct {
		change func(*spec)
		result prober.Result
		want   outcome
	}{
		"answering": {withoutToken, prober.Result{State: prober.Answering}, outcome{"done", "Ready", succeeded}},
		"answering, after one failure": {withoutToken, prober.Result{State: prober.Answering, Err: &prober.Error{Kind: prober.Refused}},
			outcome{"done", "Ready", succeeded}},
		"closed": {withoutToken, closed(prober.Unauthorized, 401),
			outcome{"done", "CredentialsRequired",
				"the server requires credentials: the server responded with 401 Unauthorized; to probe it with a token, set spec.protocol.credentialsSecretRef"}},
		"closed to the token": {withToken, closed(prober.Unauthorized, 401),
			outcome{"done", "CredentialsRequired",
				"the server requires credentials: the server responded with 401 Unauthorized; it does not accept the token of " +
					"spec.protocol.credentialsSecretRef: renew the token, or correct its permissions"}},
		"closed to the host": {withoutToken, closed(prober.Forbidden, 403),
			outcome{"done", "CredentialsRequired",
				"the server requires credentials: the server responded with 403 Forbidden; to probe it with a token, set " +
					"spec.protocol.credentialsSecretRef, or let the server accept the host of status.endpoint"}},
		"a network policy that drops packets": {withoutToken, fails(&prober.Error{Kind: prober.Timeout}),
			outcome{"wait", "ProtocolFailing",
				"MCP handshake failed: no response within the timeout; check the server log, that spec.port, spec.path and spec.transport " +
					"match the server, that network policies admit the manager, and that spec.protocol.timeout is long enough"}},
		"no listener": {withoutToken, fails(&prober.Error{Kind: prober.Refused}),
			outcome{"wait", "ProtocolFailing",
				"MCP handshake failed: connection refused; check the server log, that the server listens on spec.port on all interfaces, and that network policies admit the manager"}},
		"no route": {withoutToken, fails(&prober.Error{Kind: prober.Unreachable}),
			outcome{"wait", "ProtocolFailing",
				"MCP handshake failed: " + (&prober.Error{Kind: prober.Unreachable}).Error() + "; check the server log, that the server listens on spec.port on all interfaces, and that network policies admit the manager"}},
		"no such path": {withoutToken, fails(&prober.Error{Kind: prober.HTTPStatus, Status: 404}),
			outcome{"wait", "ProtocolFailing",
				"MCP handshake failed: the server responded with 404 Not Found; check the server log, and that spec.port, spec.path, " +
					"spec.transport and spec.protocol.scheme match the server"}},
		"a certificate of another authority": {withoutToken, fails(&prober.Error{Kind: prober.TLS, Detail: "the certificate is not signed by a trusted authority"}),
			outcome{"wait", "ProtocolFailing",
				"MCP handshake failed: TLS handshake failed: the certificate is not signed by a trusted authority; check that spec.protocol.scheme matches the server, and that its certificate is valid for the host of status.endpoint and trusted by spec.protocol.caRef"}},
		"a manager outside of the cluster": {withoutToken, fails(&prober.Error{Kind: prober.NotForwarded, Detail: "Forbidden"}),
			outcome{"wait", "ProtocolFailing",
				"MCP handshake failed: the API server does not forward the connection to the pod: Forbidden; the manager runs outside of the cluster, so its user needs permission to list pods, and to get and create pods/portforward; check with kubectl port-forward"}},
		"a bundle that is none": {withoutToken, fails(&prober.Error{Kind: prober.Invalid, Detail: "the CA bundle contains no certificate"}),
			outcome{"wait", "ProtocolFailing",
				"MCP handshake failed: invalid probe configuration: the CA bundle contains no certificate; correct spec.protocol and the objects that it refers to"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(outcomeOf(resultVerdict(tools(c.change), c.result))).To(Equal(c.want))
		})
	}
}

func TestPendingVerdict(t *testing.T) {
	const waiting = "waiting for an MCP handshake with the new pods"
	const some = "MCP handshake succeeded on some serving pods; waiting for the other new pods"
	const old = "old pods still serve; waiting for an MCP handshake with the new pods"
	refused := &prober.Error{Kind: prober.Refused}
	of := func(versions ...string) servingPods { return servingPods{versions: versions} }
	cases := map[string]struct {
		last, message string
		probed        []string
		pods          servingPods
		result        prober.Result
		want          outcome
	}{
		"old pods served before a restart": {"OldReplicasServing", "previous", []string{"1", "2"}, of("1", "2"), prober.Result{}, outcome{"done", "OldReplicasServing", "previous"}},
		"never probed":                     {pods: of("1"), want: outcome{"wait", "ProtocolPending", "waiting for the first MCP handshake"}},
		"probed once":                      {pods: of("1"), result: prober.Result{Err: refused}, want: outcome{"wait", "ProtocolPending", "waiting for the first MCP handshake: connection refused"}},

		"ready before a restart":           {"Ready", "previous", []string{"1"}, of("1"), prober.Result{}, outcome{"done", "Ready", "previous"}},
		"closed before a restart":          {"CredentialsRequired", "previous", []string{"1"}, of("1"), prober.Result{}, outcome{"done", "CredentialsRequired", "previous"}},
		"failing before a restart":         {"ProtocolFailing", "previous", []string{"1"}, of("1"), prober.Result{}, outcome{"wait", "ProtocolFailing", "previous"}},
		"another pod of the same version":  {"Ready", "previous", []string{"1"}, of("1"), prober.Result{Decided: 2}, outcome{"done", "Ready", "previous"}},
		"the first pod of a new version":   {"Ready", succeeded, []string{"1"}, of("1", "2"), prober.Result{Decided: 2}, outcome{"done", "OldReplicasServing", some}},
		"the new pod fails":                {"Ready", succeeded, []string{"1"}, of("1", "2"), prober.Result{Decided: 2, Err: refused}, outcome{"done", "OldReplicasServing", some + ": connection refused"}},
		"the same, after a restart":        {"OldReplicasServing", some, []string{"1"}, of("1", "2"), prober.Result{}, outcome{"done", "OldReplicasServing", some}},
		"old pods are terminating":         {"Ready", succeeded, []string{"1"}, servingPods{versions: []string{"2"}, oldServing: true}, prober.Result{}, outcome{"done", "OldReplicasServing", old}},
		"one of the new pods has a result": {"Ready", succeeded, []string{"1"}, of("2"), prober.Result{Decided: 1}, outcome{"done", "OldReplicasServing", some}},
		"only new pods, none probed":       {"Ready", succeeded, []string{"1"}, of("2"), prober.Result{}, outcome{"wait", "ProtocolPending", waiting}},
		"new pods replace failing ones":    {"ProtocolFailing", "x", []string{"1"}, of("2"), prober.Result{}, outcome{"wait", "ProtocolPending", waiting}},
		"a new pod beside failing ones":    {"ProtocolFailing", "x", []string{"1"}, of("1", "2"), prober.Result{}, outcome{"wait", "ProtocolPending", waiting}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := tools()
			server.Status.Endpoint, server.Status.ProbedVersions = endpointOf(server), c.probed
			if c.last != "" {
				server.Status.Conditions = []metav1.Condition{{Type: "ProtocolReady", Reason: c.last, Message: c.message}}
			}
			NewWithT(t).Expect(outcomeOf(pendingVerdict(server, c.pods, c.result))).To(Equal(c.want))
		})
	}
}

func TestLastResultIsKeptOnlyForTheSameEndpoint(t *testing.T) {
	cases := map[string]struct {
		reason, endpoint string
		stays            bool
	}{
		"ready":                       {"Ready", "http://tools.acme.svc:8080/mcp", true},
		"closed":                      {"CredentialsRequired", "http://tools.acme.svc:8080/mcp", true},
		"old pods serve":              {"OldReplicasServing", "http://tools.acme.svc:8080/mcp", true},
		"failing":                     {"ProtocolFailing", "http://tools.acme.svc:8080/mcp", true},
		"another port":                {"Ready", "http://tools.acme.svc:80/mcp", false},
		"probes disabled":             {"ProbeDisabled", "http://tools.acme.svc:8080/mcp", false},
		"pending":                     {"ProtocolPending", "http://tools.acme.svc:8080/mcp", false},
		"blocked by an earlier phase": {"Blocked", "http://tools.acme.svc:8080/mcp", false},
		"no condition":                {"", "http://tools.acme.svc:8080/mcp", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := tools()
			server.Status.Endpoint = c.endpoint
			if c.reason != "" {
				server.Status.Conditions = []metav1.Condition{{Type: "ProtocolReady", Status: metav1.ConditionTrue, Reason: c.reason}}
			}
			NewWithT(t).Expect(lastResult(server) != nil).To(Equal(c.stays))
		})
	}
}

// slice is an EndpointSlice of a Service.
func slice(name, service string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Ports:      []discoveryv1.EndpointPort{{Name: ptr.To("metrics"), Port: ptr.To[int32](1)}, {Name: ptr.To(portName), Port: &port}},
		Endpoints:  endpoints,
	}
}

func endpoint(address string, ready *bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
}

func newClient(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()
}

func TestServingPodsHaveTheirOwnPorts(t *testing.T) {
	g := NewWithT(t)
	ofAnotherNamespace := slice("a", "tools", 8080, endpoint("10.0.0.6", ptr.To(true)), endpoint("10.0.0.7", ptr.To(false)))
	ofAnotherNamespace.Namespace = "globex"
	s := &scope{server: tools(), reader: newClient(
		ofAnotherNamespace,
		slice("a", "tools", 8080, endpoint("10.0.0.1", ptr.To(true)), endpoint("10.0.0.2", ptr.To(false)), endpoint("10.0.0.3", nil), discoveryv1.Endpoint{}),
		// old pods, before a change of the port
		slice("b", "tools", 3001, endpoint("10.0.0.4", ptr.To(true)), endpoint("fd00::1", ptr.To(true))),
		slice("c", "other", 8080, endpoint("10.0.0.5", ptr.To(true))),
	)}

	pods, err := s.servingPods(context.Background())

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.addresses).To(ConsistOf("10.0.0.1:8080", "10.0.0.3:8080", "10.0.0.4:3001", "[fd00::1]:3001"))
	g.Expect(pods.unready).To(ConsistOf("10.0.0.2:8080"))
}

// ofPod is an endpoint with a pod as its target.
func ofPod(address, name string, conditions discoveryv1.EndpointConditions) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: conditions,
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name, UID: types.UID("uid of " + name)}}
}

func anyAddress(string) podAddress { return ownPod }

func TestVersionsOfPods(t *testing.T) {
	g := NewWithT(t)
	ready := discoveryv1.EndpointConditions{Ready: ptr.To(true)}
	terminating := discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	pods := servingPodsOf([]discoveryv1.EndpointSlice{*slice("a", "tools", 8080,
		ofPod("10.0.0.1", "tools-b-11111", ready), ofPod("10.0.0.2", "tools-a-22222", ready), ofPod("10.0.0.3", "tools-b-33333", ready))}, anyAddress)
	g.Expect(pods.versions).To(Equal([]string{"tools-a", "tools-b"}))
	g.Expect(pods.identities).To(HaveKeyWithValue("10.0.0.2:8080", "uid of tools-a-22222"))
	g.Expect(pods.oldServing).To(BeFalse())

	pods = servingPodsOf([]discoveryv1.EndpointSlice{*slice("a", "tools", 8080, ofPod("10.0.0.1", "tools-b-11111", ready), ofPod("10.0.0.2", "tools-a-22222", terminating))}, anyAddress)
	g.Expect(pods.versions).To(Equal([]string{"tools-b"}))
	g.Expect(pods.oldServing).To(BeTrue())

	// Kubernetes truncates the names of pods of ReplicaSets with long names.
	long := strings.Repeat("a", 58)
	one, other := versionsOf([]string{long + "11111"}), versionsOf([]string{long + "22222"})
	g.Expect(one).To(And(HaveLen(1), Not(Equal(other))))
}

func TestTarget(t *testing.T) {
	g := NewWithT(t)
	server := tools(sse, func(s *spec) {
		s.Protocol.Scheme = v1beta1.SchemeHTTPS
		s.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: "key"}
		s.Protocol.CARef = &v1beta1.MCPServerCARef{Name: "ca"}
	})
	api := newClient(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "key"}, Data: map[string][]byte{"token": []byte("hush"), "other": []byte("x")}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "ca"}, Data: map[string]string{"ca.crt": "PEM"}},
	)
	s := &scope{server: server, readers: readers{keys: &keyReader{metadata: api, data: api}}}

	target, err := s.target(context.Background(), servingPods{
		addresses: []string{"10.0.0.1:8080"}, identities: map[string]string{"10.0.0.1:8080": "uid"}, versions: []string{"tools-a", "tools-b"}})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(target).To(Equal(prober.Target{
		URL: "https://tools.acme.svc:8080/sse", Transport: prober.SSE, Addresses: []string{"10.0.0.1:8080"},
		Identities: map[string]string{"10.0.0.1:8080": "uid"}, Version: "tools-a,tools-b",
		Bearer: prober.Credential("hush"), CA: []byte("PEM"), Interval: 30 * time.Second, Timeout: 5 * time.Second, Contract: true, Token: "uid-1",
	}))
	g.Expect(s.keys.known[client.ObjectKeyFromObject(server)]).To(HaveLen(2), "what is used is not read again")
}

// fakeProber records its targets and returns a given result for them.
type fakeProber struct {
	set    map[client.ObjectKey]prober.Target
	result *prober.Result
}

func (b *fakeProber) Set(key client.ObjectKey, target prober.Target) { b.set[key] = target }
func (b *fakeProber) Forget(key client.ObjectKey)                    { delete(b.set, key) }
func (b *fakeProber) Result(key client.ObjectKey) (prober.Result, bool) {
	if _, isSet := b.set[key]; !isSet || b.result == nil {
		return prober.Result{}, false
	}
	return *b.result, true
}

func (b *fakeProber) ContractText(string) string { return "" }

func TestObserveProtocol(t *testing.T) {
	traffic := []client.Object{slice("a", "tools", 8080, ofPod("10.0.0.1", "tools-a-1", discoveryv1.EndpointConditions{}))}
	cases := map[string]struct {
		change  func(*spec)
		traffic []client.Object
		result  *prober.Result
		probed  bool
		want    string
	}{
		"disabled":       {func(s *spec) { s.Protocol.Probe = v1beta1.ProbeDisabled }, traffic, nil, false, "ProbeDisabled"},
		"no ready pods":  {func(*spec) {}, nil, nil, false, "ProtocolPending"},
		"not probed yet": {func(*spec) {}, traffic, nil, true, "ProtocolPending"},
		"succeeds":       {func(*spec) {}, traffic, &prober.Result{State: prober.Answering}, true, "Ready"},
		"some pods":      {func(*spec) {}, traffic, &prober.Result{State: prober.Unknown}, true, "ProtocolPending"},
		// Those of pods that wait for their approval are still probed.
		"no ready pods, and pinned":     {pin, []client.Object{slice("a", "tools", 8080, endpoint("10.0.0.1", ptr.To(false)))}, nil, true, "ProtocolPending"},
		"no pods, and pinned":           {pin, nil, nil, false, "ProtocolPending"},
		"no ready pods, and not pinned": {func(*spec) {}, []client.Object{slice("a", "tools", 8080, endpoint("10.0.0.1", ptr.To(false)))}, nil, false, "ProtocolPending"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := tools(c.change)
			key := client.ObjectKeyFromObject(server)
			probes := &fakeProber{set: map[client.ObjectKey]prober.Target{key: {}}, result: c.result}
			unused := map[client.ObjectKey]map[keyRef]version{key: {keyRef{"Secret", "before", "token"}: {}}}
			s := &scope{server: server, reader: newClient(c.traffic...), prober: probes, readers: readers{keys: &keyReader{known: unused}}}

			verdict, err := observeProtocol(context.Background(), s)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verdict.Reason()).To(Equal(c.want))
			g.Expect(probes.set).To(HaveLen(map[bool]int{true: 1}[c.probed]))
			g.Expect(s.probed).To(Equal(c.result))
			if len(c.traffic) == 0 || c.traffic[0] == traffic[0] {
				g.Expect(unused).To(BeEmpty(), "credentials that are not used are dropped")
			}
			if c.want == "ProtocolPending" || c.want == "ProbeDisabled" {
				g.Expect(s.probedVersions).To(BeNil())
			} else {
				g.Expect(s.probedVersions).To(ConsistOf("tools-a"))
				g.Expect(probes.set[key].Addresses).To(ConsistOf("10.0.0.1:8080"))
				g.Expect(probes.set[key].Transport).To(Equal(prober.StreamableHTTP))
			}
		})
	}
}

// Endpoints that are not probed have no version.
func TestOnlyProbedPodsHaveAVersion(t *testing.T) {
	ready := discoveryv1.EndpointConditions{Ready: ptr.To(true)}
	state := func(serving, terminating bool) discoveryv1.EndpointConditions {
		return discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: &serving, Terminating: &terminating}
	}
	podAt := func(address string) podAddress {
		switch address {
		case "10.0.0.8":
			return nodeAddress
		case "10.0.0.9":
			return 0
		default:
			return ownPod
		}
	}
	for name, c := range map[string]struct {
		endpoints []discoveryv1.Endpoint
		want      servingPods
	}{
		"starting": {[]discoveryv1.Endpoint{ofPod("10.0.0.2", "tools-b-1", state(false, false))},
			servingPods{unready: []string{"10.0.0.2:8080"}, identities: map[string]string{"10.0.0.2:8080": "uid of tools-b-1"}}},
		"starting, without a target": {[]discoveryv1.Endpoint{endpoint("10.0.0.2", ptr.To(false))}, servingPods{unready: []string{"10.0.0.2:8080"}}},
		"starting, and not a pod":    {[]discoveryv1.Endpoint{endpoint("10.0.0.9", ptr.To(false))}, servingPods{}},
		"terminating":                {[]discoveryv1.Endpoint{endpoint("10.0.0.2", ptr.To(false)), ofPod("10.0.0.3", "tools-b-1", state(false, true))}, servingPods{unready: []string{"10.0.0.2:8080"}}},
		"terminating while it serves": {[]discoveryv1.Endpoint{ofPod("10.0.0.2", "tools-b-1", state(true, true)), ofPod("10.0.0.3", "tools-b-2", state(false, true))},
			servingPods{oldServing: true}},
		"a probe that fails while it serves": {[]discoveryv1.Endpoint{endpoint("10.0.0.9", ptr.To(false)), {Addresses: []string{"10.0.0.9"}, Conditions: state(true, false)}}, servingPods{}},
		"of a node":                          {[]discoveryv1.Endpoint{ofPod("10.0.0.8", "tools-b-1", ready)}, servingPods{hostNetwork: true}},
		"not of a pod":                       {[]discoveryv1.Endpoint{ofPod("10.0.0.9", "tools-b-1", ready)}, servingPods{unknown: true}},
		"without a target":                   {[]discoveryv1.Endpoint{endpoint("10.0.0.2", ptr.To(true))}, servingPods{addresses: []string{"10.0.0.2:8080"}}},
		"without addresses":                  {[]discoveryv1.Endpoint{{Conditions: ready}}, servingPods{}},
	} {
		t.Run(name, func(t *testing.T) {
			first := ofPod("10.0.0.1", "tools-a-1", ready)
			got := servingPodsOf([]discoveryv1.EndpointSlice{*slice("a", "tools", 8080, append([]discoveryv1.Endpoint{first}, c.endpoints...)...)}, podAt)
			c.want.versions, c.want.addresses = []string{"tools-a"}, append([]string{"10.0.0.1:8080"}, c.want.addresses...)
			if c.want.identities == nil {
				c.want.identities = map[string]string{}
			}
			c.want.identities["10.0.0.1:8080"] = "uid of tools-a-1"
			NewWithT(t).Expect(got).To(Equal(c.want))
		})
	}
}

func TestPortsWithoutANameOrANumberAreIgnored(t *testing.T) {
	endpoints := slice("a", "tools", 8080, endpoint("10.0.0.1", nil))
	endpoints.Ports = append(endpoints.Ports, discoveryv1.EndpointPort{Port: ptr.To[int32](1)}, discoveryv1.EndpointPort{Name: ptr.To(portName)})
	NewWithT(t).Expect(servingPodsOf([]discoveryv1.EndpointSlice{*endpoints}, anyAddress).addresses).To(ConsistOf("10.0.0.1:8080"))
}

func TestVersionsOfPodsWithUnusualNames(t *testing.T) {
	many := func(n int) []string { return numbered(n, "tools-%d-x") }
	for name, c := range map[string]struct {
		pods []string
		want OmegaMatcher
	}{
		"none":                      {nil, BeEmpty()},
		"the shortest name":         {[]string{"a-x"}, HaveExactElements("a")},
		"no suffix":                 {[]string{"tools"}, HaveExactElements(HavePrefix("pods-"))},
		"the longest name":          {[]string{strings.Repeat("a", 56) + "-11111"}, HaveExactElements(strings.Repeat("a", 56))},
		"a truncated name":          {[]string{strings.Repeat("a", 57) + "-11111"}, HaveExactElements(HavePrefix("pods-"))},
		"as many as the status has": {many(16), HaveLen(16)},
		"more":                      {many(17), HaveExactElements(And(HavePrefix("pods-"), HaveLen(len("pods-")+16)))},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(versionsOf(c.pods)).To(c.want)
		})
	}
}

// ready are the conditions of an endpoint that takes traffic.
func ready() discoveryv1.EndpointConditions {
	return discoveryv1.EndpointConditions{Ready: ptr.To(true)}
}

func TestProbeNeedsWhatTheSpecRefersTo(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "key", errors.New("no role"))
	for name, c := range map[string]struct {
		change func(*spec)
		err    error
		plans  bool
		want   string
	}{
		"no token": {func(s *spec) { s.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: "key"} }, errors.New("no answer"), false, "getting Secret key: no answer"},
		"no CA":    {func(s *spec) { s.Protocol.CARef = &v1beta1.MCPServerCARef{Name: "key"} }, errors.New("no answer"), false, "getting ConfigMap key: no answer"},
		"a plan":   {func(s *spec) { s.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: "key"} }, forbidden, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := without("key", c.err, slice("a", "tools", 8080, endpoint("10.0.0.1", nil)))
			s := &scope{server: tools(c.change), reader: api, prober: noProber{},
				readers: readers{keys: &keyReader{metadata: api}, references: &references.Reader{}}}
			if c.plans {
				s.references.Unreadable = func(error) {}
			}
			_, err := observeProtocol(t.Context(), s)
			if c.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(c.want))
			}
		})
	}
}
