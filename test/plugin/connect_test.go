package plugin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// kubelet forwards ports of the pods of simulated nodes to HTTP servers of the test, one for each pod.
type kubelet struct {
	server *httptest.Server

	mu   sync.Mutex
	pods map[string]*httptest.Server
}

// startKubelet is the kubelet of all nodes that have pods of the namespace.
func (w *fixture) startKubelet() *kubelet {
	w.T.Helper()
	k := &kubelet{pods: map[string]*httptest.Server{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.forward)
	k.server = httptest.NewTLSServer(mux)
	w.T.Cleanup(func() {
		k.server.CloseClientConnections()
		k.server.Close()
	})
	address, err := url.Parse(k.server.URL)
	w.Expect(err).NotTo(HaveOccurred())
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	w.Expect(err).NotTo(HaveOccurred())
	status, err := json.Marshal(map[string]any{"status": corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.Hostname()}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
	}})
	w.Expect(err).NotTo(HaveOccurred())
	var nodes corev1.NodeList
	w.Expect(api.List(w.Ctx, &nodes)).To(Succeed())
	for i := range nodes.Items {
		w.Expect(api.Status().Patch(w.Ctx, &nodes.Items[i], client.RawPatch("application/merge-patch+json", status))).To(Succeed())
	}
	return k
}

// pod is the server in a pod, which responds with what it received.
func (k *kubelet) pod(name string) *httptest.Server {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pods[name] == nil {
		k.pods[name] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "pod %s, host %s, path %s, authorization %q", name, r.Host, r.URL, r.Header.Get("Authorization"))
		}))
	}
	return k.pods[name]
}

func (k *kubelet) kill(name string) {
	server := k.pod(name)
	server.CloseClientConnections()
	server.Close()
}

// forward serves the SPDY side of a port-forward, as the API server asks for it.
func (k *kubelet) forward(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 2)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			streams <- stream
		}()
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	byType := map[string]httpstream.Stream{}
	for range 2 {
		select {
		case stream := <-streams:
			byType[stream.Headers().Get(corev1.StreamType)] = stream
		case <-conn.CloseChan():
			return
		}
	}
	data, failures := byType[corev1.StreamTypeData], byType[corev1.StreamTypeError]
	backend, err := net.Dial("tcp", k.pod(r.PathValue("pod")).Listener.Addr().String())
	if err != nil {
		fmt.Fprint(failures, err)
		_ = failures.Close()
		return
	}
	_ = failures.Close()
	go func() {
		_, _ = io.Copy(backend, data)
		_ = backend.Close()
	}()
	_, _ = io.Copy(data, backend)
	_ = data.Close()
}

// createServer creates an MCPServer that is not probed.
func (w *fixture) createServer(name string, replicas int32, edits ...func(*v1beta1.MCPServerSpec)) {
	w.T.Helper()
	server := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.Namespace}}
	server.Spec = v1beta1.MCPServerSpec{Image: image, Replicas: &replicas, Protocol: v1beta1.MCPServerProtocol{Probe: v1beta1.ProbeDisabled}}
	for _, edit := range edits {
		edit(&server.Spec)
	}
	w.Expect(w.As("kubectl").Create(w.Ctx, server)).To(Succeed())
}

func (w *fixture) serverReady(name string) {
	w.T.Helper()
	harness.Eventually(w, name, &v1beta1.MCPServer{}, func(g Gomega, live *v1beta1.MCPServer) {
		g.Expect(harness.Conditions(live)).To(HaveKeyWithValue(v1beta1.ConditionReady, HavePrefix("True")), harness.Message(live, v1beta1.ConditionReady))
	})
}

func TestConnectShowsTheURL(t *testing.T) {
	w := newFixture(t)
	w.startManager(nil)
	w.createServer("tools", 1)
	w.serverReady("tools")
	w.Expect(w.succeed("mcp", "connect", "tools")).To(SatisfyAll(
		HavePrefix("http://tools."+w.Namespace+".svc:8080/mcp\n"), ContainSubstring(`"mcpServers": {`), ContainSubstring("To connect from this machine, add --local-port 0."),
	))
	w.createServer("public", 1, func(s *v1beta1.MCPServerSpec) { s.Ingress = &v1beta1.Ingress{Host: "tools.example.com"} })
	w.shows(ContainSubstring(`"url": "http://tools.example.com/mcp"`), "mcp", "connect", "mcpserver/public", "-o", "json")

	w.createApp("web")
	w.Expect(w.kubectlFixpoint("mcp", "connect", "appservice/web").err).To(ContainSubstring("is no MCPServer"))
	w.Expect(w.kubectlFixpoint("mcp", "connect", "missing").err).To(ContainSubstring(`"missing" not found`))
	w.shows(ContainSubstring("tools\n"), "__complete", "mcp", "connect", "") // which waits only briefly
}

// openPort runs mcp connect with a local port as a user, until the test ends it.
func (w *fixture) openPort(kubeconfig string, args ...string) (address string, errs *screen, end func() int) {
	w.T.Helper()
	out, errs := &screen{}, &screen{}
	ctx, interrupt := context.WithCancel(w.Ctx)
	w.T.Cleanup(interrupt)
	ended := make(chan int, 1)
	args = append([]string{"mcp", "connect", "tools", "--local-port=0", "-o=json", "--kubeconfig", kubeconfig, "-n", w.Namespace}, args...)
	go func() {
		ended <- plugin.Run(ctx, args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errs})
	}()
	var printed struct{ URL string }
	w.Eventually(func() error { return json.Unmarshal([]byte(out.all()), &printed) }).Should(Succeed(), "%v", errs)
	return printed.URL, errs, func() int {
		interrupt()
		var code int
		w.Eventually(ended).Should(Receive(&code))
		return code
	}
}

func (w *fixture) answer(address string) string {
	response, err := http.Get(address)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// The requests go through the API server, with the rights of the user alone, to one pod after the other.
func TestConnectOpensALocalPort(t *testing.T) {
	w := newFixture(t)
	w.startManager(nil)
	w.createServer("tools", 2)
	w.serverReady("tools")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "tools-token"}, StringData: map[string]string{"token": "open sesame"}}
	w.Expect(api.Create(w.Ctx, secret)).To(Succeed())
	k := w.startKubelet()
	readServers := rbacv1.PolicyRule{APIGroups: []string{"fixpoint.dev"}, Resources: []string{"mcpservers"}, Verbs: []string{"get"}}
	readPods := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}
	w.grant("reader", readServers, readPods)
	w.grant("developer", readServers, readPods,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"get", "create"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: []string{secret.Name}})

	// A user without the rights is told what is not allowed
	address, _, end := w.openPort(w.kubeconfigOf("reader"))
	w.Expect(w.answer(address)).To(ContainSubstring("the API server does not forward the connection to the pod: Forbidden"))
	w.Expect(end()).To(BeZero())
	token := w.run(w.Ctx, w.kubeconfigOf("reader"), nil, "mcp", "connect", "tools", "--local-port=0", "--token-secret=tools-token")
	w.Expect(token.code).To(Equal(1))
	w.Expect(token.err).To(ContainSubstring(`User "reader" cannot get resource "secrets"`))

	// A user with the rights reaches a pod
	address, errs, end := w.openPort(w.kubeconfigOf("developer"), "--token-secret=tools-token")
	var pod string
	w.Eventually(func(g Gomega) {
		body := w.answer(address)
		g.Expect(body).To(HaveSuffix(`, host localhost:8080, path /mcp, authorization "Bearer open sesame"`))
		pod = strings.Split(strings.TrimPrefix(body, "pod "), ",")[0]
	}).Should(Succeed())

	// When the pod is gone, it takes another one
	w.Expect(api.Delete(w.Ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: pod}})).To(Succeed())
	k.kill(pod)
	w.Eventually(func() string { return w.answer(address) }).Should(And(HavePrefix("pod "), Not(ContainSubstring(pod))))
	w.Expect(end()).To(BeZero())
	w.Expect(errs.all()).To(MatchRegexp(`^Connected to pod %s\.\nConnected to pod tools-\S+\.\n$`, pod))
}
