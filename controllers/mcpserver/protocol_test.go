package mcpserver

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestJudgeAnswer(t *testing.T) {
	const answers = "the server answers in its protocol, from every pod that takes traffic"
	last := func(reason, message string) *metav1.Condition {
		return &metav1.Condition{Reason: reason, Message: message}
	}
	cases := map[string]struct {
		result prober.Result
		last   *metav1.Condition
		want   judgement
	}{
		"answering": {prober.Result{State: prober.Answering}, nil, judgement{"done", "Ready", answers}},
		"answering, after one failure": {prober.Result{State: prober.Answering, Failures: 1, Err: &prober.Error{Kind: prober.Refused}}, nil,
			judgement{"done", "Ready", answers}},
		"closed": {prober.Result{State: prober.Closed, Err: &prober.Error{Kind: prober.Unauthorized, Status: 401}}, last("Ready", answers),
			judgement{"done", "CredentialsRequired",
				"the server is there and wants credentials: the server answers 401 Unauthorized; set spec.protocol.credentialsSecretRef to see what it offers"}},
		"failing": {prober.Result{State: prober.Failing, Err: &prober.Error{Kind: prober.Refused}}, last("Ready", answers),
			judgement{"wait", "ProtocolFailing",
				"the server does not answer in its protocol: the connection is refused; see its log, and whether port, path and transport are what it serves"}},
		"never asked":             {prober.Result{State: prober.Unknown}, nil, judgement{"wait", "ProtocolPending", "the server has not answered yet"}},
		"ready before a restart":  {prober.Result{State: prober.Unknown}, last("Ready", "as it was"), judgement{"done", "Ready", "as it was"}},
		"closed before a restart": {prober.Result{State: prober.Unknown}, last("CredentialsRequired", "as it was"), judgement{"done", "CredentialsRequired", "as it was"}},
		"failing before a restart": {prober.Result{State: prober.Unknown}, last("ProtocolFailing", "as it was"),
			judgement{"wait", "ProtocolFailing", "as it was"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(judgementOf(judgeAnswer(c.result, c.last))).To(Equal(c.want))
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

	addresses, err := s.addresses(context.Background())

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(addresses).To(ConsistOf("10.0.0.1:8080", "10.0.0.3:8080", "10.0.0.4:3001", "[fd00::1]:3001"))
}

func TestTarget(t *testing.T) {
	g := NewWithT(t)
	server := tools(sse, func(s *spec) {
		s.Protocol.TLS = true
		s.Protocol.CredentialsSecretRef = &v1alpha1.MCPServerCredentialsSecretRef{Name: "key"}
		s.Protocol.CARef = &v1alpha1.MCPServerCARef{Name: "ca"}
	})
	s := &scope{
		server: server,
		reader: reading(slice("a", "tools", 8080, endpoint("10.0.0.1", nil))),
		uncached: reading(
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "key"}, Data: map[string][]byte{"token": []byte("hush"), "other": []byte("x")}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "ca"}, Data: map[string]string{"ca.crt": "PEM"}},
		),
		deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{"deployment.kubernetes.io/revision": "7"}}},
	}

	target, err := s.target(context.Background())

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(target).To(Equal(prober.Target{
		URL: "https://tools.acme.svc:8080/sse", Transport: prober.SSE, Addresses: []string{"10.0.0.1:8080"},
		Bearer: prober.Credential("hush"), CA: []byte("PEM"), Interval: 30 * time.Second, Timeout: 5 * time.Second, Token: "u/7",
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
			s := &scope{server: server, reader: reading(c.traffic...), prober: asking}

			verdict, err := observeProtocol(context.Background(), s)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verdict.Reason()).To(Equal(c.want))
			g.Expect(asking.set).To(HaveLen(map[bool]int{true: 1}[c.asks]))
			g.Expect(s.answer).To(Equal(c.result))
		})
	}
}
