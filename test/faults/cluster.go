package faults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const (
	// managerUser is the user name of the managers.
	managerUser = "fixpoint-manager"
	// controllersUser is the user name of the simulated Kubernetes controllers.
	controllersUser = "simulated-controllers"
	// fieldManager is the field manager of the real Kubernetes controllers.
	fieldManager = "kube-controller-manager"
	// connectionCount is the number of connections that all managers share, which saves TLS handshakes.
	connectionCount = 6

	// IngressClass exists in every environment.
	IngressClass = "shared"
)

// Cluster is an API server with simulated Kubernetes controllers. Any number of environments can use it
// at the same time.
type Cluster struct {
	// API is the client of the tests and of the simulated users.
	API client.WithWatch
	// controllers is the client of the simulated Kubernetes controllers.
	controllers client.WithWatch

	config        *rest.Config
	connections   []http.RoundTripper
	nextTransport atomic.Int64
	discovery     *discoveryCache
	mcpServer     *mcpServer

	mu           sync.Mutex
	environments map[string]*Environment
	stop         context.CancelFunc
	done         sync.WaitGroup
}

// NewCluster prepares an etcd and an API server that has only the CRDs. The caller closes it.
func NewCluster(ctx context.Context, base *cluster.Cluster) (*Cluster, error) {
	c := &Cluster{
		config:       base.Config(managerUser, cluster.Masters),
		discovery:    &discoveryCache{answers: map[string]answer{}},
		environments: map[string]*Environment{},
		mcpServer:    newMCPServer(),
	}
	for range connectionCount {
		// client-go shares connections between equal configurations, so each connection is created here.
		transport, err := c.newConnection()
		if err != nil {
			return nil, err
		}
		c.connections = append(c.connections, transport)
	}
	var err error
	if c.API, err = client.NewWithWatch(base.Admin(), client.Options{Scheme: controllers.NewScheme()}); err != nil {
		return nil, fmt.Errorf("creating the client of the tests: %w", err)
	}
	if c.controllers, err = client.NewWithWatch(base.Config(controllersUser, cluster.Masters), client.Options{Scheme: controllers.NewScheme()}); err != nil {
		return nil, fmt.Errorf("creating the client of the simulated controllers: %w", err)
	}
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: IngressClass}, Spec: networkingv1.IngressClassSpec{Controller: "fixpoint.test/none"}}
	if err := c.API.Create(ctx, class); err != nil {
		return nil, fmt.Errorf("creating an IngressClass: %w", err)
	}
	return c, c.startWatches(ctx)
}

// newConnection returns a transport with a connection of its own.
func (c *Cluster) newConnection() (http.RoundTripper, error) {
	tls, err := rest.TLSConfigFor(c.config)
	if err != nil {
		return nil, fmt.Errorf("creating a connection: %w", err)
	}
	const idle = 100
	return &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: idle}, nil
}

// Close stops everything that the cluster runs.
func (c *Cluster) Close() {
	c.stop()
	c.done.Wait()
	c.mcpServer.close()
}

// connection returns the transport for the next manager.
func (c *Cluster) connection() http.RoundTripper {
	n := c.nextTransport.Add(1)
	return c.connections[int(n)%len(c.connections)]
}

func (c *Cluster) environment(namespace string) *Environment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.environments[namespace]
}

func (c *Cluster) mcpEndpoint() *url.URL { return c.mcpServer.endpoint() }

// discoveryCache answers discovery requests, whose responses never change here.
type discoveryCache struct {
	mu      sync.Mutex
	answers map[string]answer
}

type answer struct {
	header http.Header
	body   []byte
}

func (a answer) response(request *http.Request) *http.Response {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: request.Proto, ProtoMajor: request.ProtoMajor,
		Header: a.header.Clone(), Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: request,
	}
}

// get returns the cached response, or sends the request and caches the response.
func (d *discoveryCache) get(request *http.Request, ask func() (*http.Response, error)) (*http.Response, error) {
	key := request.URL.Path + " " + request.Header.Get("Accept")
	d.mu.Lock()
	known, ok := d.answers[key]
	d.mu.Unlock()
	if ok {
		return known.response(request), nil
	}
	response, err := ask()
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	fresh := answer{header: response.Header, body: body}
	d.mu.Lock()
	d.answers[key] = fresh
	d.mu.Unlock()
	return fresh.response(request), nil
}
