package mcpserver

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
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
		"encrypted":     {func(s *spec) { s.Protocol.TLS = true }, "https://tools.acme.svc:8080/mcp"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(endpointOf(tools(c.change))).To(Equal(c.want))
		})
	}
}

const answers = "the server answers in its protocol, from every pod that takes traffic"

func TestJudgeAnswer(t *testing.T) {
	fails := func(err *prober.Error) prober.Result { return prober.Result{State: prober.Failing, Err: err} }
	cases := map[string]struct {
		result prober.Result
		want   judgement
	}{
		"answering": {prober.Result{State: prober.Answering}, judgement{"done", "Ready", answers}},
		"answering, after one failure": {prober.Result{State: prober.Answering, Failures: 1, Err: &prober.Error{Kind: prober.Refused}},
			judgement{"done", "Ready", answers}},
		"closed": {prober.Result{State: prober.Closed, Err: &prober.Error{Kind: prober.Unauthorized, Status: 401}},
			judgement{"done", "CredentialsRequired",
				"the server is there and wants credentials: the server answers 401 Unauthorized; set spec.protocol.credentialsSecretRef to see what it offers"}},
		"no listener": {fails(&prober.Error{Kind: prober.Refused}),
			judgement{"wait", "ProtocolFailing",
				"the server does not answer in its protocol: the connection is refused; see its log, whether it listens on spec.port and not on the loopback address alone, and whether network policies let the manager through"}},
		"no such path": {fails(&prober.Error{Kind: prober.HTTPStatus, Status: 404}),
			judgement{"wait", "ProtocolFailing",
				"the server does not answer in its protocol: the server answers 404 Not Found; see its log, and whether port, path and transport are what it serves"}},
		"a certificate of another authority": {fails(&prober.Error{Kind: prober.TLS, Detail: "the certificate is not signed by a trusted authority"}),
			judgement{"wait", "ProtocolFailing",
				"the server does not answer in its protocol: TLS fails: the certificate is not signed by a trusted authority; see whether spec.protocol.tls is what the server speaks, and whether its certificate is valid, for the host of the endpoint and by spec.protocol.caRef"}},
		"a bundle that is none": {fails(&prober.Error{Kind: prober.Invalid, Detail: "the CA bundle holds no certificate"}),
			judgement{"wait", "ProtocolFailing",
				"the server does not answer in its protocol: the server cannot be probed: the CA bundle holds no certificate; correct what spec.protocol names"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(judgementOf(judgeAnswer(c.result))).To(Equal(c.want))
		})
	}
}

func TestJudgeSilence(t *testing.T) {
	const unasked = "the pods of the new version have not answered yet"
	const some = "pods that take traffic answer, and those of the new version have not all answered yet"
	const old = "pods of the earlier version still serve, and those of the new version have not answered yet"
	refused := &prober.Error{Kind: prober.Refused}
	of := func(versions ...string) traffic { return traffic{versions: versions} }
	cases := map[string]struct {
		last, message string
		asked         []string
		pods          traffic
		result        prober.Result
		want          judgement
	}{
		"never asked": {pods: of("1"), want: judgement{"wait", "ProtocolPending", "the server has not answered yet"}},
		"asked once":  {pods: of("1"), result: prober.Result{Err: refused}, want: judgement{"wait", "ProtocolPending", "the server has not answered yet: the connection is refused"}},

		"ready before a restart":          {"Ready", "as it was", []string{"1"}, of("1"), prober.Result{}, judgement{"done", "Ready", "as it was"}},
		"closed before a restart":         {"CredentialsRequired", "as it was", []string{"1"}, of("1"), prober.Result{}, judgement{"done", "CredentialsRequired", "as it was"}},
		"failing before a restart":        {"ProtocolFailing", "as it was", []string{"1"}, of("1"), prober.Result{}, judgement{"wait", "ProtocolFailing", "as it was"}},
		"a pod more of the same version":  {"Ready", "as it was", []string{"1"}, of("1"), prober.Result{Judged: 2}, judgement{"done", "Ready", "as it was"}},
		"the first pod of a new version":  {"Ready", answers, []string{"1"}, of("1", "2"), prober.Result{Judged: 2}, judgement{"done", "OldReplicasServing", some}},
		"it does not answer":              {"Ready", answers, []string{"1"}, of("1", "2"), prober.Result{Judged: 2, Err: refused}, judgement{"done", "OldReplicasServing", some + ": the connection is refused"}},
		"the same, after a restart":       {"OldReplicasServing", some, []string{"1"}, of("1", "2"), prober.Result{}, judgement{"done", "OldReplicasServing", some}},
		"old pods are on their way out":   {"Ready", answers, []string{"1"}, traffic{versions: []string{"2"}, lingers: true}, prober.Result{}, judgement{"done", "OldReplicasServing", old}},
		"one of the new pods has been":    {"Ready", answers, []string{"1"}, of("2"), prober.Result{Judged: 1}, judgement{"done", "OldReplicasServing", some}},
		"only new pods, and none asked":   {"Ready", answers, []string{"1"}, of("2"), prober.Result{}, judgement{"wait", "ProtocolPending", unasked}},
		"new pods in place of failing":    {"ProtocolFailing", "x", []string{"1"}, of("2"), prober.Result{}, judgement{"wait", "ProtocolPending", unasked}},
		"one new pod beside failing ones": {"ProtocolFailing", "x", []string{"1"}, of("1", "2"), prober.Result{}, judgement{"wait", "ProtocolPending", unasked}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := tools()
			server.Status.Endpoint, server.Status.AskedVersions = endpointOf(server), c.asked
			if c.last != "" {
				server.Status.Conditions = []metav1.Condition{{Type: "ProtocolReady", Reason: c.last, Message: c.message}}
			}
			NewWithT(t).Expect(judgementOf(judgeSilence(server, c.pods, c.result))).To(Equal(c.want))
		})
	}
}

func TestWhatWasSaidLastStandsOnlyForTheSameEndpoint(t *testing.T) {
	cases := map[string]struct {
		reason, endpoint string
		stands           bool
	}{
		"ready":                        {"Ready", "http://tools.acme.svc:8080/mcp", true},
		"closed":                       {"CredentialsRequired", "http://tools.acme.svc:8080/mcp", true},
		"old ones served":              {"OldReplicasServing", "http://tools.acme.svc:8080/mcp", true},
		"failing":                      {"ProtocolFailing", "http://tools.acme.svc:8080/mcp", true},
		"it was another port":          {"Ready", "http://tools.acme.svc:80/mcp", false},
		"nobody asked":                 {"ProbeDisabled", "http://tools.acme.svc:8080/mcp", false},
		"nobody had asked yet":         {"ProtocolPending", "http://tools.acme.svc:8080/mcp", false},
		"an earlier phase was at work": {"Blocked", "http://tools.acme.svc:8080/mcp", false},
		"there is no condition":        {"", "http://tools.acme.svc:8080/mcp", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := tools()
			server.Status.Endpoint = c.endpoint
			if c.reason != "" {
				server.Status.Conditions = []metav1.Condition{{Type: "ProtocolReady", Status: metav1.ConditionTrue, Reason: c.reason}}
			}
			NewWithT(t).Expect(lastJudged(server) != nil).To(Equal(c.stands))
		})
	}
}

// slice is part of the endpoints of a Service, all with the same ports.
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

func reading(objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()
}

func TestOnlyPodsThatTakeTrafficAreAskedAndWhereTheyListen(t *testing.T) {
	g := NewWithT(t)
	s := &scope{server: tools(), reader: reading(
		slice("a", "tools", 8080, endpoint("10.0.0.1", ptr.To(true)), endpoint("10.0.0.2", ptr.To(false)), endpoint("10.0.0.3", nil), discoveryv1.Endpoint{}),
		// pods of the earlier version, from before the port was changed
		slice("b", "tools", 3001, endpoint("10.0.0.4", ptr.To(true)), endpoint("fd00::1", ptr.To(true))),
		slice("c", "other", 8080, endpoint("10.0.0.5", ptr.To(true))),
	)}

	pods, err := s.traffic(context.Background())

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.addresses).To(ConsistOf("10.0.0.1:8080", "10.0.0.3:8080", "10.0.0.4:3001", "[fd00::1]:3001"))
}

// ofPod is the endpoint of a pod.
func ofPod(address, name string, conditions discoveryv1.EndpointConditions) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: conditions,
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name, UID: types.UID("uid of " + name)}}
}

func TestVersionsOfPods(t *testing.T) {
	g := NewWithT(t)
	ready := discoveryv1.EndpointConditions{Ready: ptr.To(true)}
	leaving := discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	pods := trafficOf([]discoveryv1.EndpointSlice{*slice("a", "tools", 8080,
		ofPod("10.0.0.1", "tools-b-11111", ready), ofPod("10.0.0.2", "tools-a-22222", ready), ofPod("10.0.0.3", "tools-b-33333", ready))})
	g.Expect(pods.versions).To(Equal([]string{"tools-a", "tools-b"}))
	g.Expect(pods.identities).To(HaveKeyWithValue("10.0.0.2:8080", "uid of tools-a-22222"))
	g.Expect(pods.lingers).To(BeFalse())

	pods = trafficOf([]discoveryv1.EndpointSlice{*slice("a", "tools", 8080, ofPod("10.0.0.1", "tools-b-11111", ready), ofPod("10.0.0.2", "tools-a-22222", leaving))})
	g.Expect(pods.versions).To(Equal([]string{"tools-b"}))
	g.Expect(pods.lingers).To(BeTrue())

	// The name of the ReplicaSet is cut where the pod's would be too long: it tells nothing.
	long := strings.Repeat("a", 58)
	one, other := versionsOf([]string{long + "11111"}), versionsOf([]string{long + "22222"})
	g.Expect(one).To(And(HaveLen(1), Not(Equal(other))))
}

func TestTarget(t *testing.T) {
	g := NewWithT(t)
	server := tools(sse, func(s *spec) {
		s.Protocol.TLS = true
		s.Protocol.CredentialsSecretRef = &v1alpha1.MCPServerCredentialsSecretRef{Name: "key"}
		s.Protocol.CARef = &v1alpha1.MCPServerCARef{Name: "ca"}
	})
	world := reading(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "key"}, Data: map[string][]byte{"token": []byte("hush"), "other": []byte("x")}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "ca"}, Data: map[string]string{"ca.crt": "PEM"}},
	)
	s := &scope{server: server, keys: &keyReader{metadata: world, data: world}}

	target, err := s.target(context.Background(), traffic{
		addresses: []string{"10.0.0.1:8080"}, identities: map[string]string{"10.0.0.1:8080": "uid"}, versions: []string{"tools-a", "tools-b"}})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(target).To(Equal(prober.Target{
		URL: "https://tools.acme.svc:8080/sse", Transport: prober.SSE, Addresses: []string{"10.0.0.1:8080"},
		Identities: map[string]string{"10.0.0.1:8080": "uid"}, Version: "tools-a,tools-b",
		Bearer: prober.Credential("hush"), CA: []byte("PEM"), Interval: 30 * time.Second, Timeout: 5 * time.Second, Token: "uid-1",
	}))
}

// board is a prober that holds what it is told, and answers what it is given.
type board struct {
	set    map[client.ObjectKey]prober.Target
	result *prober.Result
}

func (b *board) Set(key client.ObjectKey, target prober.Target) { b.set[key] = target }
func (b *board) Forget(key client.ObjectKey)                    { delete(b.set, key) }
func (b *board) Result(client.ObjectKey) (prober.Result, bool) {
	if b.result == nil {
		return prober.Result{}, false
	}
	return *b.result, true
}

func TestObserveProtocol(t *testing.T) {
	traffic := []client.Object{slice("a", "tools", 8080, endpoint("10.0.0.1", nil))}
	cases := map[string]struct {
		change  func(*spec)
		traffic []client.Object
		result  *prober.Result
		asks    bool
		want    string
	}{
		"disabled":      {func(s *spec) { s.Protocol.Disabled = true }, traffic, nil, false, "ProbeDisabled"},
		"no traffic":    {func(*spec) {}, nil, nil, false, "ProtocolPending"},
		"not asked yet": {func(*spec) {}, traffic, nil, true, "ProtocolPending"},
		"answers":       {func(*spec) {}, traffic, &prober.Result{State: prober.Answering}, true, "Ready"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := tools(c.change)
			key := client.ObjectKeyFromObject(server)
			asking := &board{set: map[client.ObjectKey]prober.Target{key: {}}, result: c.result}
			s := &scope{server: server, reader: reading(c.traffic...), prober: asking, keys: &keyReader{}}

			verdict, err := observeProtocol(context.Background(), s)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verdict.Reason()).To(Equal(c.want))
			g.Expect(asking.set).To(HaveLen(map[bool]int{true: 1}[c.asks]))
			g.Expect(s.answer).To(Equal(c.result))
		})
	}
}
