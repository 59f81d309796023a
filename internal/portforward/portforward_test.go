package portforward

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/fixpoint-dev/fixpoint/internal/prober"
)

const address = "10.0.0.7:8080"

func TestDialNamesWhatTheAPIServerRefuses(t *testing.T) {
	pod := func(change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "tools"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		pods       []corev1.Pod
		mayList    bool
		want       prober.Error
		forwarding bool
	}{
		"listing pods":              {want: prober.Error{Kind: prober.NotForwarded, Detail: "Forbidden"}},
		"no such pod":               {mayList: true, want: prober.Error{Kind: prober.NotForwarded}},
		"a pod that has ended":      {[]corev1.Pod{pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, true, prober.Error{Kind: prober.NotForwarded}, false},
		"a pod in the host network": {[]corev1.Pod{pod(func(p *corev1.Pod) { p.Spec.HostNetwork = true })}, true, prober.Error{Kind: prober.NotForwarded}, false},
		"forwarding ports":          {[]corev1.Pod{pod(func(*corev1.Pod) {})}, true, prober.Error{Kind: prober.NotForwarded, Detail: "Forbidden"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var forwarded []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Path == "/api/v1/namespaces/shop/pods" && c.mayList {
					g.Expect(r.URL.Query().Get("fieldSelector")).To(Equal("status.podIP=10.0.0.7"))
					_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: c.pods})
					return
				}
				if strings.HasSuffix(r.URL.Path, "/portforward") {
					forwarded = append(forwarded, r.URL.Path)
				}
				status := apierrors.NewForbidden(corev1.Resource("pods"), "tools", errors.New("not allowed")).Status()
				status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
				w.WriteHeader(http.StatusForbidden)
				_ = json.NewEncoder(w).Encode(status)
			}))
			defer server.Close()
			dialer, err := NewDialer(&rest.Config{Host: server.URL}, []string{"shop"})
			g.Expect(err).NotTo(HaveOccurred())

			_, err = dialer.DialContext(t.Context(), "tcp", address)

			var failure *prober.Error
			g.Expect(errors.As(err, &failure)).To(BeTrue(), "%v", err)
			g.Expect(*failure).To(Equal(c.want))
			if c.forwarding {
				g.Expect(forwarded).To(Equal([]string{"/api/v1/namespaces/shop/pods/tools/portforward"}))
			} else {
				g.Expect(forwarded).To(BeEmpty())
			}
		})
	}
}

// kubelet forwards to a function in place of a pod: it writes its error, then ends both streams.
func kubelet(t *testing.T, forward func(port string, data io.ReadWriter) string) httpstream.Connection {
	t.Helper()
	near, far := net.Pipe()
	streams := make(chan httpstream.Stream, 2)
	server, err := spdy.NewServerConnection(far, func(stream httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			streams <- stream
		}()
		return nil
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	client, err := spdy.NewClientConnection(near)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	go func() {
		byType := map[string]httpstream.Stream{}
		for range 2 {
			stream := <-streams
			byType[stream.Headers().Get(corev1.StreamType)] = stream
		}
		data, failures := byType[corev1.StreamTypeData], byType[corev1.StreamTypeError]
		_, _ = io.WriteString(failures, forward(data.Headers().Get(corev1.PortHeader), data))
		_, _ = failures.Close(), data.Close()
	}()
	return client
}

func TestConnectionCarriesData(t *testing.T) {
	g := NewWithT(t)
	c, err := open(kubelet(t, func(port string, data io.ReadWriter) string {
		question := make([]byte, 4)
		_, _ = io.ReadFull(data, question)
		_, _ = io.WriteString(data, port+" "+string(question))
		return ""
	}), "8080")
	g.Expect(err).NotTo(HaveOccurred())

	_, err = io.WriteString(c, "ping")
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(io.ReadAll(c)).To(BeEquivalentTo("8080 ping"))
	g.Expect(c.Close()).To(Succeed())
}

func TestConnectionReturnsTheErrorOfTheKubelet(t *testing.T) {
	for message, is := range map[string]func(error) bool{
		"failed to connect to localhost:8080 inside namespace \"x\", IPv4: dial tcp4 127.0.0.1:8080: connect: connection refused": func(err error) bool {
			return errors.Is(err, syscall.ECONNREFUSED)
		},
		"sandbox not found": func(err error) bool {
			var failure *prober.Error
			return errors.As(err, &failure) && *failure == prober.Error{Kind: prober.NotForwarded}
		},
	} {
		t.Run(message, func(t *testing.T) {
			g := NewWithT(t)
			c, err := open(kubelet(t, func(string, io.ReadWriter) string { return message }), "8080")
			g.Expect(err).NotTo(HaveOccurred())

			_, err = c.Read(make([]byte, 1))

			g.Expect(is(err)).To(BeTrue(), "%v", err)
		})
	}
}

// A probe that ends closes its connection while it waits for a response.
func TestCloseEndsReads(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	released := make(chan struct{})
	defer close(released)
	c, err := open(kubelet(t, func(string, io.ReadWriter) string {
		<-released
		return ""
	}), "8080")
	g.Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()

	g.Expect(c.Close()).To(Succeed())

	g.Eventually(ended).Should(Receive(HaveOccurred()))
}
