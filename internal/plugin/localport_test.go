package plugin

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// podServers are the pods of a server; each is a program on this machine.
type podServers struct {
	mu      sync.Mutex
	order   []string
	servers map[string]*httptest.Server
	reports []string
}

func (p *podServers) report(message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports = append(p.reports, message)
}

// ready sets which pods are ready, in the order in which they are listed.
func (p *podServers) ready(names ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order = names
}

func (p *podServers) dialer() *podDialer {
	return &podDialer{
		pods: func(context.Context) (pods []corev1.Pod, _ error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, name := range p.order {
				pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			return pods, nil
		},
		dial: func(ctx context.Context, pod *corev1.Pod) (net.Conn, error) {
			server, ok := p.servers[pod.Name]
			if !ok {
				return nil, errors.New("the API server does not forward the connection to the pod: NotFound")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
		report: p.report,
	}
}

// openTo opens a local port to the pods, until the test ends.
func openTo(t *testing.T, to upstream, pods *podServers) *local {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	if to.url == nil {
		to.url = &url.URL{Scheme: "http", Host: "tools.agents.svc:8080", Path: "/mcp"}
	}
	open, err := listenOn(0, to, pods.dialer())
	g.Expect(err).NotTo(HaveOccurred())
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- open.serve(ctx) }()
	t.Cleanup(func() {
		end()
		g.Eventually(ended).Should(Receive(BeNil()))
	})
	return open
}

// named responds with a name and what it received.
func named(t *testing.T, name string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s origin=%q authorization=%q", name, r.Host, r.URL, r.Header["Origin"], r.Header["Authorization"])
	}))
	t.Cleanup(server.Close)
	return server
}

// net/http closes the body of a request when the response begins, which may be right after its last byte was read.
func TestResponseThatBeginsAtTheLastByteIsForwarded(t *testing.T) {
	g := NewWithT(t)
	pods := &podServers{order: []string{"a"}, servers: map[string]*httptest.Server{"a": named(t, "a")}}
	request := httptest.NewRequest(http.MethodPost, "/mcp", io.MultiReader(strings.NewReader("{}"), iotest.ErrReader(http.ErrBodyReadAfterClose)))
	request.ContentLength = 2
	response := httptest.NewRecorder()
	forwarder(upstream{url: &url.URL{Scheme: "http", Host: "tools.agents.svc:8080"}}, pods.dialer()).ServeHTTP(response, request)
	g.Expect(response.Code).To(Equal(http.StatusOK), response.Body.String())
}

// get sends a request to a local port.
func get(t *testing.T, address string, headers ...string) (int, string) {
	t.Helper()
	g := NewWithT(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	g.Expect(err).NotTo(HaveOccurred())
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
	}
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(body)
}

func TestLocalPortStaysWithAPodUntilItIsGone(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	a, b := named(t, "a"), named(t, "b")
	pods := &podServers{servers: map[string]*httptest.Server{"a": a, "b": b}}
	pods.ready("gone", "a", "b")
	port := openTo(t, upstream{}, pods)
	answer := func() string { _, body := get(t, port.url); return body }
	g.Expect(answer()).To(HavePrefix("a "))

	// Each request opens a connection, and the order of the pods is another one
	pods.ready("b", "a")
	a.CloseClientConnections()
	g.Expect(answer()).To(HavePrefix("a "))

	// When the pod is gone
	pods.ready("b")
	a.CloseClientConnections()
	a.Close()
	g.Eventually(answer).Should(HavePrefix("b "))
	g.Expect(pods.reports).To(Equal([]string{"Connected to pod a.", "Connected to pod b."}))

	// When none is ready
	pods.ready()
	b.CloseClientConnections()
	g.Eventually(answer).Should(ContainSubstring("no pod of the server is ready"))
	status, _ := get(t, port.url)
	g.Expect(status).To(Equal(http.StatusBadGateway))
	pods.ready("gone")
	g.Expect(answer()).To(ContainSubstring("NotFound"))
}

func TestLocalPortSendsWhatServersAcceptOnLoopback(t *testing.T) {
	g := NewWithT(t)
	pods := &podServers{servers: map[string]*httptest.Server{"a": named(t, "a")}}
	pods.ready("a")
	plain, withToken := openTo(t, upstream{}, pods), openTo(t, upstream{token: constantToken("secret")}, pods)
	g.Expect(plain.url).To(MatchRegexp(`^http://127\.0\.0\.1:\d+/mcp$`))

	_, body := get(t, plain.url+"?a=b", "Origin", "http://localhost:6274", "Authorization", "Bearer own")
	g.Expect(body).To(Equal(`a localhost:8080 /mcp?a=b origin=[] authorization=["Bearer own"]`))
	_, body = get(t, withToken.url, "Authorization", "Bearer own")
	g.Expect(body).To(HaveSuffix(`authorization=["Bearer secret"]`))
	g.Expect(pods.reports).NotTo(ContainElement(ContainSubstring("secret")))
}

// Otherwise a web page could use the port with the token of the user.
func TestLocalPortRefusesOtherHostsAndOrigins(t *testing.T) {
	pods := &podServers{servers: map[string]*httptest.Server{"a": named(t, "a")}}
	pods.ready("a")
	port := openTo(t, upstream{token: constantToken("secret")}, pods)
	for name, c := range map[string]struct {
		headers []string
		status  int
	}{
		"no origin":            {nil, 200},
		"local page":           {[]string{"Origin", "http://127.0.0.1:3000"}, 200},
		"IPv6":                 {[]string{"Host", "[::1]:8080"}, 200},
		"other origin":         {[]string{"Origin", "https://evil.example"}, 403},
		"null origin":          {[]string{"Origin", "null"}, 403},
		"two origins":          {[]string{"Origin", "http://localhost", "Origin", "https://evil.example"}, 403},
		"like localhost":       {[]string{"Origin", "http://localhost.evil.example"}, 403},
		"user name":            {[]string{"Origin", "http://localhost@evil.example"}, 403},
		"rebound host":         {[]string{"Host", "evil.example:8080"}, 403},
		"host of the cluster":  {[]string{"Host", "tools.agents.svc"}, 403},
		"host with user name":  {[]string{"Host", "localhost@evil.example"}, 403},
		"address of a network": {[]string{"Host", "192.0.2.1"}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := get(t, port.url, c.headers...)
			NewWithT(t).Expect(status).To(Equal(c.status), body)
		})
	}
}

// Ctrl-C ends streams, which do not end by themselves.
func TestLocalPortPassesStreamsUntilItIsClosed(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	left := make(chan struct{})
	stream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: one\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}))
	defer stream.Close()
	pods := &podServers{servers: map[string]*httptest.Server{"a": stream}}
	pods.ready("a")
	open, err := listenOn(0, upstream{url: &url.URL{Scheme: "http", Host: "tools.agents.svc:8080"}}, pods.dialer())
	g.Expect(err).NotTo(HaveOccurred())
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- open.serve(ctx) }()
	response, err := http.Get(open.url)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	g.Expect(bufio.NewReader(response.Body).ReadString('\n')).To(Equal("data: one\n"))

	interrupt()

	g.Eventually(ended).Should(Receive(BeNil()))
	g.Eventually(left).Should(BeClosed())
}

func TestLocalPortTrustsTheCertificatesOfTheServer(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "encrypted") }))
	defer server.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c := clientOf(
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "ca"}, Data: map[string]string{"ca.crt": string(certificate), "empty": ""}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "ca"}, Data: map[string][]byte{"tls.crt": certificate}},
	)
	pods := &podServers{servers: map[string]*httptest.Server{"a": server}}
	pods.ready("a")
	serverWith := func(host string, ref *v1beta1.MCPServerCARef) *v1beta1.MCPServer {
		return reachable(func(s *v1beta1.MCPServer) {
			s.Status.Endpoint, s.Spec.Protocol.CARef = "https://"+host+":8443/mcp", ref
		})
	}
	for name, in := range map[string]struct {
		server *v1beta1.MCPServer
		want   string
	}{
		"a ConfigMap":     {serverWith("example.com", &v1beta1.MCPServerCARef{Name: "ca"}), "encrypted"},
		"a Secret":        {serverWith("example.com", &v1beta1.MCPServerCARef{Kind: v1beta1.CAKindSecret, Name: "ca", Key: "tls.crt"}), "encrypted"},
		"another host":    {serverWith("other.example", &v1beta1.MCPServerCARef{Name: "ca"}), "not other.example"},
		"the system's CA": {serverWith("example.com", nil), "certificate"},
	} {
		to, err := c.upstreamOf(t.Context(), in.server, localPort{})
		g.Expect(err).NotTo(HaveOccurred(), name)
		_, body := get(t, openTo(t, to, pods).url)
		g.Expect(body).To(ContainSubstring(in.want), name)
	}
	for problem, ref := range map[string]*v1beta1.MCPServerCARef{
		"not found": {Name: "missing"},
		`has no certificates for the key "empty"`: {Name: "ca", Key: "empty"},
	} {
		_, err := c.upstreamOf(t.Context(), serverWith("example.com", ref), localPort{})
		g.Expect(err).To(MatchError(And(HavePrefix("reading spec.protocol.caRef: "), ContainSubstring(problem))))
	}
}

func TestTokenIsReadFromTheSecret(t *testing.T) {
	g := NewWithT(t)
	c := clientOf(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "tools-token"}, Data: map[string][]byte{"token": []byte(" abc\n"), "other": []byte("def")}})
	read := func(from string) (string, error) {
		to, err := c.upstreamOf(t.Context(), reachable(), localPort{tokenSecret: from})
		if err != nil {
			return "", err
		}
		return to.token()
	}
	g.Expect(read("tools-token")).To(Equal("abc"))
	g.Expect(read("tools-token/other")).To(Equal("def"))
	_, err := read("tools-token/missing")
	g.Expect(err).To(MatchError(ContainSubstring(`Secret agents/tools-token has no value for the key "missing"; set --token-secret NAME/KEY`)))
	_, err = read("missing")
	g.Expect(err).To(MatchError(ContainSubstring(`reading the token: secrets "missing" not found`)))
}

// On the command line, all users of the machine could read the token.
func TestTokenIsReadFromAFileOrStandardInput(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "token")
	source := func(from, in string) (tokenSource, error) {
		to, err := clientOf().upstreamOf(t.Context(), reachable(), localPort{tokenFile: from, in: strings.NewReader(in)})
		return to.token, err
	}
	_, err := source(file, "")
	g.Expect(err).To(MatchError(ContainSubstring("reading the token: open ")))
	g.Expect(os.WriteFile(file, []byte("abc\n"), 0o600)).To(Succeed())
	renewed, err := source(file, "")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(renewed()).To(Equal("abc"))
	g.Expect(os.WriteFile(file, []byte("def\n"), 0o600)).To(Succeed())
	g.Expect(renewed()).To(Equal("def"))

	given, err := source("-", "abc\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(given()).To(Equal("abc"))
	for _, wrong := range []string{"", "\n", "abc\ndef\n", "Bearer abc"} {
		_, err = source("-", wrong)
		g.Expect(err).To(MatchError("reading the token: standard input must contain a bearer token and nothing else"), wrong)
	}
}

func TestLocalPortReportsATokenThatIsGone(t *testing.T) {
	g := NewWithT(t)
	token := func() (string, error) { return "", errors.New("reading the token: no such file") }
	recorder := httptest.NewRecorder()
	withToken(token, http.NotFoundHandler()).ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody))
	g.Expect(recorder.Code).To(Equal(http.StatusBadGateway))
	g.Expect(recorder.Body.String()).To(ContainSubstring("reading the token: no such file"))
}

func TestOnlyPodsThatTakeTrafficAreConnectedTo(t *testing.T) {
	g := NewWithT(t)
	pod := func(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: name, Labels: map[string]string{"app": "tools"}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		for _, edit := range edits {
			edit(p)
		}
		return p
	}
	c := clientOf(
		pod("ready"),
		pod("not-ready", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }),
		pod("on-the-node", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
		pod("terminating", func(p *corev1.Pod) {
			now := metav1.Now()
			p.DeletionTimestamp, p.Finalizers = &now, []string{"a.test/b"}
		}),
		pod("of-another-server", func(p *corev1.Pod) { p.Labels["app"] = "other" }),
		pod("elsewhere", func(p *corev1.Pod) { p.Namespace = "shop" }),
	)
	pods, err := c.readyPods(t.Context(), "agents", labels.SelectorFromSet(labels.Set{"app": "tools"}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods).To(HaveExactElements(HaveField("Name", "ready")))
}

func TestLocalPortFlagsAreChecked(t *testing.T) {
	for flags, problem := range map[string]string{
		"--local-port=-1":            "--local-port is -1: set a port from 0 to 65535",
		"--local-port=70000":         "--local-port is 70000",
		"--token-secret=tools-token": "--token-secret is for a local port: add --local-port",
		"--token-file=token":         "--token-file is for a local port: add --local-port",
		"--local-port=0 --token-file=- --token-secret=tools-token": "exclude each other",
		"--local-port=0 --output=xml":                              "--output is",
		"appservice/web --local-port=0 more":                       "accepts 1 arg(s)",
	} {
		g := NewWithT(t)
		args := append([]string{"mcp", "connect"}, strings.Fields(flags)...)
		if !strings.Contains(flags, "more") {
			args = append(args, "tools")
		}
		streams := testStreams()
		var errs strings.Builder
		streams.ErrOut = &errs
		g.Expect(Run(t.Context(), args, streams)).To(Equal(exitFailure), flags)
		g.Expect(errs.String()).To(ContainSubstring(problem))
	}
}

func TestLocalPortThatIsTakenIsReported(t *testing.T) {
	g := NewWithT(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer taken.Close()
	address, ok := taken.Addr().(*net.TCPAddr)
	g.Expect(ok).To(BeTrue())
	_, err = listenOn(address.Port, upstream{url: &url.URL{}}, (&podServers{}).dialer())
	g.Expect(err).To(MatchError(And(ContainSubstring("listening on --local-port"), ContainSubstring("set a free port, or 0"))))
}

// The SDK's servers refuse requests on loopback addresses with the host of a Service.
func TestClientsOfTheSDKUseTheLocalPort(t *testing.T) {
	for _, version := range []string{"2025-06-18", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			server := mcp.NewServer(&mcp.Implementation{Name: "played", Version: "1"}, nil)
			handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: version > "2026"})
			inPod := httptest.NewServer(handler)
			defer inPod.Close()
			pods := &podServers{servers: map[string]*httptest.Server{"a": inPod}}
			pods.ready("a")
			port := openTo(t, upstream{}, pods)

			session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
				&mcp.StreamableClientTransport{Endpoint: port.url, MaxRetries: -1}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			g.Expect(err).NotTo(HaveOccurred())
			defer session.Close()

			g.Expect(session.InitializeResult().ServerInfo.Name).To(Equal("played"))
		})
	}
}

func TestLocalPortLeadsToTheProxyOfAServer(t *testing.T) {
	pod := func(ports ...corev1.ContainerPort) *corev1.Pod {
		p := &corev1.Pod{}
		for _, port := range ports {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{port}})
		}
		return p
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"a server":                {pod(corev1.ContainerPort{Name: "mcp", ContainerPort: 8080}), "8080"},
		"a server with a proxy":   {pod(corev1.ContainerPort{Name: "mcp-server", ContainerPort: 8080}, corev1.ContainerPort{Name: "mcp", ContainerPort: 9190}), "9190"},
		"a pod of another origin": {pod(), "80"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(portForClients(c.pod, "80")).To(Equal(c.want))
		})
	}
}
