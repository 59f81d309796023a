// Package portforward connects to pods through the API server, for programs outside of the cluster, which have no route
// to the addresses of pods.
//
// The kubelet connects to the port on the loopback interface of the pod. So NetworkPolicies do not apply, and a server
// that listens on that interface only is reached as well.
package portforward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/fixpoint-dev/fixpoint/internal/prober"
)

// Host is the name under which a pod receives connections.
const Host = "localhost"

// messageLimit limits what is read of an error from a kubelet.
const messageLimit = 4 << 10

// Dialer opens connections to pods. It needs permission to list pods, and to get and create pods/portforward.
type Dialer struct {
	config     *rest.Config
	pods       *corev1client.CoreV1Client
	namespaces []string
}

// NewDialer returns a Dialer for the pods of some namespaces; none means all.
func NewDialer(config *rest.Config, namespaces []string) (*Dialer, error) {
	pods, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client for port-forwarding: %w", err)
	}
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	return &Dialer{config: config, pods: pods, namespaces: namespaces}, nil
}

// DialContext connects to the pod that has the address, as net.Dialer does. Errors of the API server are a
// [prober.Error]; those of the kubelet are returned by the first Read or Write of the connection.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ip, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dialing %s: %w", address, err)
	}
	pod, err := d.find(ctx, ip)
	if err != nil {
		return nil, notForwarded(err)
	}
	return d.forward(ctx, pod, port, remoteAddress{network, address})
}

// DialPod connects to a port of a pod that runs. Errors are those of DialContext.
func (d *Dialer) DialPod(ctx context.Context, pod *corev1.Pod, port string) (net.Conn, error) {
	return d.forward(ctx, pod, port, remoteAddress{"tcp", net.JoinHostPort(pod.Status.PodIP, port)})
}

func (d *Dialer) forward(ctx context.Context, pod *corev1.Pod, port string, remote net.Addr) (net.Conn, error) {
	connection, err := d.connect(ctx, pod)
	if err != nil {
		return nil, notForwarded(err)
	}
	conn, err := open(connection, port)
	if err != nil {
		_ = connection.Close()
		return nil, notForwarded(err)
	}
	conn.remote = remote
	return conn, nil
}

// find returns the running pod with an address of its own, by its status, which only a kubelet may write.
func (d *Dialer) find(ctx context.Context, ip string) (*corev1.Pod, error) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("status.podIP", ip).String()}
	for _, namespace := range d.namespaces {
		list, err := d.pods.Pods(namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("listing the pods with address %s: %w", ip, err)
		}
		for i := range list.Items {
			if pod := &list.Items[i]; pod.Status.Phase == corev1.PodRunning && !pod.Spec.HostNetwork {
				return pod, nil
			}
		}
	}
	return nil, fmt.Errorf("no running pod has address %s", ip)
}

func (d *Dialer) connect(ctx context.Context, pod *corev1.Pod) (httpstream.Connection, error) {
	config := rest.CopyConfig(d.config)
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return withContext{ctx, inner} })
	url := d.pods.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
	if err != nil {
		return nil, fmt.Errorf("preparing a port-forward to pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	connection, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, fmt.Errorf("forwarding a port of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return connection, nil
}

// withContext sends requests with a context, which the dialer of client-go does not take.
type withContext struct {
	ctx   context.Context
	inner http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w withContext) RoundTrip(request *http.Request) (*http.Response, error) {
	return w.inner.RoundTrip(request.WithContext(w.ctx))
}

// notForwarded is the error of a probe. It has only the reason, since the text of the API server names the pod.
func notForwarded(err error) error {
	reason := apierrors.ReasonForError(cause(err))
	if reason == metav1.StatusReasonUnknown {
		return fmt.Errorf("%w (%w)", &prober.Error{Kind: prober.NotForwarded}, err)
	}
	return fmt.Errorf("%w (%w)", &prober.Error{Kind: prober.NotForwarded, Detail: string(reason)}, err)
}

// cause is the error in an upgrade that failed, which does not unwrap it.
func cause(err error) error {
	var upgrade *httpstream.UpgradeFailureError
	if errors.As(err, &upgrade) {
		return upgrade.Cause
	}
	return err
}

// conn is the data stream of a port-forward as a net.Conn, without deadlines. The stream for errors ends before it.
type conn struct {
	httpstream.Stream
	connection httpstream.Connection
	remote     net.Addr
	// ended is closed when failure is set.
	ended   chan struct{}
	failure error
}

// open forwards a port. The kubelet connects to it afterwards.
func open(connection httpstream.Connection, port string) (*conn, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failures, err := connection.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("opening the stream for errors: %w", err)
	}
	if err := failures.Close(); err != nil { // nothing is written to it
		return nil, fmt.Errorf("closing the stream for errors: %w", err)
	}
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("opening the stream for data: %w", err)
	}
	c := &conn{Stream: data, connection: connection, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		message, _ := io.ReadAll(io.LimitReader(failures, messageLimit)) // it ends with the connection
		c.failure = failureOf(string(message))
	}()
	return c, nil
}

// failureOf is the error that a kubelet sends, or nil. It sends no other errors than those of connecting.
func failureOf(message string) error {
	switch {
	case message == "":
		return nil
	case strings.Contains(message, "connection refused"):
		return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	default:
		return fmt.Errorf("%w (%s)", &prober.Error{Kind: prober.NotForwarded}, message)
	}
}

func (c *conn) Read(buffer []byte) (int, error) {
	n, err := c.Stream.Read(buffer)
	return n, c.explain(err)
}

func (c *conn) Write(data []byte) (int, error) {
	n, err := c.Stream.Write(data)
	return n, c.explain(err)
}

// explain returns the error of the kubelet in place of the end of the stream that it causes.
func (c *conn) explain(err error) error {
	if err == nil {
		return nil
	}
	<-c.ended
	if c.failure != nil {
		return c.failure
	}
	return err
}

// Close implements net.Conn.
func (c *conn) Close() error { return c.connection.Close() }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return remoteAddress{} }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// remoteAddress is the address that was dialed.
type remoteAddress struct{ network, address string }

// Network implements net.Addr.
func (a remoteAddress) Network() string { return a.network }

func (a remoteAddress) String() string { return a.address }
