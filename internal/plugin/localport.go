package plugin

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/portforward"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

// localPort is what a user asks for with --local-port.
type localPort struct {
	open        bool
	port        int
	tokenSecret string
	tokenFile   string
	// in is what tokenFile "-" is read from.
	in io.Reader
}

// sendsToken reports whether the port adds a token to requests.
func (at localPort) sendsToken() bool { return at.tokenSecret != "" || at.tokenFile != "" }

func (at localPort) check() error {
	switch {
	case at.port < 0 || at.port > 65535:
		return fmt.Errorf("--local-port is %d: set a port from 0 to 65535", at.port)
	case at.tokenSecret != "" && at.tokenFile != "":
		return errors.New("--token-secret and --token-file exclude each other: set one of them")
	case at.tokenSecret != "" && !at.open:
		return errors.New("--token-secret is for a local port: add --local-port")
	case at.tokenFile != "" && !at.open:
		return errors.New("--token-file is for a local port: add --local-port")
	}
	return nil
}

// local is an open port that leads to a server.
type local struct {
	listener net.Listener
	url      string
	server   *http.Server
}

// listen opens a port that leads to an MCPServer.
func (c *clients) listen(ctx context.Context, server *v1beta1.MCPServer, at localPort, report func(string)) (*local, error) {
	to, err := c.upstreamOf(ctx, server, at)
	if err != nil {
		return nil, err
	}
	selector, err := labels.Parse(server.Status.Selector)
	if err != nil || selector.Empty() {
		return nil, fmt.Errorf("MCPServer %s/%s has no selector of pods in its status: wait until the manager has reconciled it", server.Namespace, server.Name)
	}
	dialer, err := portforward.NewDialer(c.config, []string{server.Namespace})
	if err != nil {
		return nil, err
	}
	pods := &podDialer{
		pods: func(ctx context.Context) ([]corev1.Pod, error) { return c.readyPods(ctx, server.Namespace, selector) },
		dial: func(ctx context.Context, pod *corev1.Pod) (net.Conn, error) {
			return dialer.DialPod(ctx, pod, portForClients(pod, to.url.Port()))
		},
		report: report,
	}
	return listenOn(at.port, to, pods)
}

// portForClients is the port of a pod that the Service leads to. With spec.authorization it is that of the proxy, which
// the server must not be reached past.
func portForClients(pod *corev1.Pod, otherwise string) string {
	const name = "mcp"
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			if port.Name == name {
				return strconv.Itoa(int(port.ContainerPort))
			}
		}
	}
	return otherwise
}

// upstream is where requests are sent.
type upstream struct {
	// url is that of the server within the cluster.
	url *url.URL
	// token, if set, returns what replaces the Authorization header of clients.
	token tokenSource
	tls   *tls.Config
}

// tokenSource returns the bearer token for a request.
type tokenSource func() (string, error)

func constantToken(token string) tokenSource {
	return func() (string, error) { return token, nil }
}

// upstreamOf reads what requests to the server need, with the permissions of the user.
func (c *clients) upstreamOf(ctx context.Context, server *v1beta1.MCPServer, at localPort) (upstream, error) {
	endpoint, err := url.Parse(server.Status.Endpoint)
	if err != nil {
		return upstream{}, fmt.Errorf("reading status.endpoint: %w", err)
	}
	to := upstream{url: endpoint}
	if to.token, err = c.tokenFor(ctx, server.Namespace, at); err != nil {
		return upstream{}, err
	}
	if ref := server.Spec.Protocol.CARef; ref != nil && endpoint.Scheme == "https" {
		if to.tls, err = c.trust(ctx, server.Namespace, ref); err != nil {
			return upstream{}, err
		}
	}
	return to, nil
}

// tokenFor reads the token for a local port; nil if there is none. A file is read with each request, because a token may be
// renewed.
func (c *clients) tokenFor(ctx context.Context, namespace string, at localPort) (tokenSource, error) {
	switch {
	case at.tokenSecret != "":
		token, err := c.token(ctx, namespace, at.tokenSecret)
		return constantToken(token), err
	case at.tokenFile == "-":
		raw, err := io.ReadAll(io.LimitReader(at.in, maxTokenBytes))
		if err != nil {
			return nil, fmt.Errorf("reading the token: %w", err)
		}
		token, err := tokenIn(raw, "standard input")
		return constantToken(token), err
	case at.tokenFile != "":
		read := func() (string, error) {
			raw, err := os.ReadFile(at.tokenFile)
			if err != nil {
				return "", fmt.Errorf("reading the token: %w", err)
			}
			return tokenIn(raw, at.tokenFile)
		}
		_, err := read()
		return read, err
	default:
		return nil, nil
	}
}

// maxTokenBytes limits a token on standard input. Headers of requests are smaller.
const maxTokenBytes = 64 << 10

// tokenIn is the token in what was read.
func tokenIn(raw []byte, from string) (string, error) {
	token := strings.TrimSpace(string(raw))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("reading the token: %s must contain a bearer token and nothing else", from)
	}
	return token, nil
}

// token reads a bearer token, named as NAME or NAME/KEY.
func (c *clients) token(ctx context.Context, namespace, from string) (string, error) {
	name, key, _ := strings.Cut(from, "/")
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	key = cmp.Or(key, tokenKey)
	token := strings.TrimSpace(string(secret.Data[key]))
	if token == "" {
		return "", fmt.Errorf("reading the token: Secret %s/%s has no value for the key %q; set --token-secret NAME/KEY", namespace, name, key)
	}
	return token, nil
}

// trust reads the CA certificates of a server.
func (c *clients) trust(ctx context.Context, namespace string, ref *v1beta1.MCPServerCARef) (*tls.Config, error) {
	at, key := client.ObjectKey{Namespace: namespace, Name: ref.Name}, cmp.Or(ref.Key, "ca.crt")
	var certificates []byte
	var err error
	if ref.Kind == v1beta1.CAKindSecret {
		secret := &corev1.Secret{}
		err = c.Get(ctx, at, secret)
		certificates = secret.Data[key]
	} else {
		config := &corev1.ConfigMap{}
		err = c.Get(ctx, at, config)
		certificates = []byte(config.Data[key])
	}
	if err != nil {
		return nil, fmt.Errorf("reading spec.protocol.caRef: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(certificates) {
		return nil, fmt.Errorf("reading spec.protocol.caRef: %s has no certificates for the key %q", at, key)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// readyPods lists the pods that take traffic, without those whose address is that of their node.
func (c *clients) readyPods(ctx context.Context, namespace string, selector labels.Selector) (ready []corev1.Pod, err error) {
	err = c.listEach(ctx, &corev1.PodList{}, func(live client.Object) {
		if pod, ok := live.(*corev1.Pod); ok && takesTraffic(pod) {
			ready = append(ready, *pod)
		}
	}, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector})
	return ready, err
}

func takesTraffic(pod *corev1.Pod) bool {
	isReady := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	return isReady && pod.DeletionTimestamp == nil && !pod.Spec.HostNetwork
}

// podDialer connects to one ready pod, because sessions live in pods, and to another one once it is not ready.
type podDialer struct {
	pods   func(context.Context) ([]corev1.Pod, error)
	dial   func(context.Context, *corev1.Pod) (net.Conn, error)
	report func(string)

	mu      sync.Mutex
	current string
}

// errNoPod is the error of a connection while no pod is ready.
var errNoPod = errors.New("no pod of the server is ready")

// connect opens a connection for an HTTP transport, whatever the address.
func (d *podDialer) connect(ctx context.Context, _, _ string) (net.Conn, error) {
	pods, err := d.pods(ctx)
	if err != nil {
		return nil, err
	}
	d.preferCurrent(pods)
	err = errNoPod
	for i := range pods {
		conn, failed := d.dial(ctx, &pods[i])
		if failed == nil {
			d.use(pods[i].Name)
			return conn, nil
		}
		err = failed
	}
	return nil, err
}

func (d *podDialer) preferCurrent(pods []corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return pod.Name == d.current }); i > 0 {
		pods[0], pods[i] = pods[i], pods[0]
	}
}

func (d *podDialer) use(pod string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != pod {
		d.current = pod
		d.report("Connected to pod " + pod + ".")
	}
}

// listenOn opens the port. It is that of 127.0.0.1 and not of localhost: another user may listen on the same port of ::1.
func listenOn(port int, to upstream, pods *podDialer) (*local, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listening on --local-port: %w; set a free port, or 0", err)
	}
	public := url.URL{Scheme: "http", Host: listener.Addr().String(), Path: to.url.Path}
	server := &http.Server{
		Handler: onlyLocal(forwarder(to, pods)), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	return &local{listener, public.String(), server}, nil
}

// serve serves until the context ends. Streams, which never end by themselves, are closed then.
func (l *local) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = l.server.Close() })
	defer stop()
	if err := l.server.Serve(l.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the local port: %w", err)
	}
	return nil
}

// forwarder sends requests to the server, under a host that servers accept on loopback addresses. The pod sees no
// Origin: onlyLocal has checked it.
func forwarder(to upstream, pods *podDialer) http.Handler {
	base := &url.URL{Scheme: to.url.Scheme, Host: to.url.Host}
	return withToken(to.token, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			r.Out.Host = net.JoinHostPort(portforward.Host, to.url.Port())
			r.Out.Header.Del("Origin")
			requestbody.EndAtLength(r.Out)
		},
		Transport:     &http.Transport{DialContext: pods.connect, TLSClientConfig: to.tls, DisableCompression: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "kubectl fixpoint: the server is not reached: "+err.Error(), http.StatusBadGateway)
		},
	})
}

// withToken adds a token to requests.
func withToken(token tokenSource, next http.Handler) http.Handler {
	if token == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		value, err := token()
		if err != nil {
			http.Error(w, "kubectl fixpoint: "+err.Error(), http.StatusBadGateway)
			return
		}
		r.Header.Set("Authorization", "Bearer "+value)
		next.ServeHTTP(w, r)
	})
}

// onlyLocal refuses requests that web pages of other hosts cause, also those whose host name resolves to this machine.
func onlyLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Values("Origin")
		if !isLoopback("http://"+r.Host) || slices.ContainsFunc(origin, func(from string) bool { return !isLoopback(from) }) {
			http.Error(w, "kubectl fixpoint: only programs and pages of this machine may use the port: use the printed URL", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether the host of a URL is this machine.
func isLoopback(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && address.IsLoopback()
}
