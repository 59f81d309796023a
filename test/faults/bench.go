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
	// managerUser is whom the API server knows the managers as.
	managerUser = "fixpoint-manager"
	// surroundings is whom it knows those as who play the rest of a cluster.
	surroundings = "surroundings"
	// fieldManager is what the real controllers of a cluster write as.
	fieldManager = "kube-controller-manager"
	// connections are shared by all managers, so that none pays for a handshake.
	connections = 6

	// IngressClass is there for all worlds.
	IngressClass = "shared"
)

// Bench is an API server with all that is around managers in a cluster. Any number of worlds run on
// it at the same time.
type Bench struct {
	// API is the client by which worlds are made and users act.
	API client.WithWatch
	// around is the client of the surroundings.
	around client.WithWatch

	config     *rest.Config
	transports []http.RoundTripper
	next       atomic.Int64
	discovery  *discoveryCache
	standIn    *standIn

	mu     sync.Mutex
	worlds map[string]*World
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// NewBench sets a bench up on an etcd and an API server that have the CRDs and nothing else. Whoever
// makes it closes it.
func NewBench(ctx context.Context, c *cluster.Cluster) (*Bench, error) {
	b := &Bench{
		config:    c.Config(managerUser, cluster.Masters),
		discovery: &discoveryCache{answers: map[string]answer{}},
		worlds:    map[string]*World{},
		standIn:   newStandIn(),
	}
	for range connections {
		// The configs of one user share a connection; a copy with another timeout does not.
		transport, err := b.newTransport()
		if err != nil {
			return nil, err
		}
		b.transports = append(b.transports, transport)
	}
	var err error
	if b.API, err = client.NewWithWatch(c.Admin(), client.Options{Scheme: controllers.NewScheme()}); err != nil {
		return nil, fmt.Errorf("making the bench's client: %w", err)
	}
	if b.around, err = client.NewWithWatch(c.Config(surroundings, cluster.Masters), client.Options{Scheme: controllers.NewScheme()}); err != nil {
		return nil, fmt.Errorf("making the client of the surroundings: %w", err)
	}
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: IngressClass}, Spec: networkingv1.IngressClassSpec{Controller: "fixpoint.test/nobody"}}
	if err := b.API.Create(ctx, class); err != nil {
		return nil, fmt.Errorf("making an ingress class: %w", err)
	}
	return b, b.watch(ctx)
}

// newTransport makes a connection of its own.
func (b *Bench) newTransport() (http.RoundTripper, error) {
	tls, err := rest.TLSConfigFor(b.config)
	if err != nil {
		return nil, fmt.Errorf("making a connection: %w", err)
	}
	const idle = 100
	return &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: idle}, nil
}

// Close ends everything that the bench runs.
func (b *Bench) Close() {
	b.stop()
	b.done.Wait()
	b.standIn.close()
}

// transport is the connection for the next manager.
func (b *Bench) transport() http.RoundTripper {
	n := b.next.Add(1)
	return b.transports[int(n)%len(b.transports)]
}

func (b *Bench) world(namespace string) *World {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.worlds[namespace]
}

func (b *Bench) probeEndpoint() *url.URL { return b.standIn.endpoint() }

// discoveryCache answers what every manager asks first, and what never changes on a bench.
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

// get answers from the cache, or asks and keeps the answer.
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
