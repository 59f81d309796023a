// Package managertest runs the set-up of a controller without a cluster: a manager over an API server in memory, whose
// watches a test sends itself.
package managertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// Manager is a manager whose clients and cache read and write Server. It runs within a bubble of testing/synctest, so
// that a test can wait until all reconciles have ended.
type Manager struct {
	ctrl.Manager
	Server *ssatest.Server

	t     *testing.T
	cache *watches
}

// New returns a manager that has not started. Kinds without a list in the scheme are not served.
func New(t *testing.T, scheme *runtime.Scheme, options ssatest.Options) *Manager {
	t.Helper()
	m := &Manager{t: t, Server: ssatest.NewServer(scheme, options)}
	m.cache = &watches{server: m.Server, informers: map[schema.GroupVersionKind]*informer{}}
	manager, err := ctrl.NewManager(&rest.Config{Host: "cluster.invalid"}, ctrl.Options{
		Scheme:  scheme,
		Logger:  logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		// A process may test several managers.
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapperOf(scheme), nil },
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return m.cache, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return cachedClient{m.Server, m.cache}, nil },
	})
	gomega.NewWithT(t).Expect(err).NotTo(gomega.HaveOccurred())
	m.Manager = manager
	return m
}

// GetAPIReader implements [ctrl.Manager].
func (m *Manager) GetAPIReader() client.Reader { return m.Server }

// GetEventRecorder implements [ctrl.Manager]. Events are dropped.
func (m *Manager) GetEventRecorder(string) recorder.EventRecorder { return &events.FakeRecorder{} }

// Run starts the manager, and stops it when the returned function is called.
func (m *Manager) Run() (stop func()) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	return func() {
		cancel()
		gomega.NewWithT(m.t).Expect(<-ended).To(gomega.Succeed())
	}
}

// IsWatched reports whether a controller watches the kind of an object.
func (m *Manager) IsWatched(object client.Object) bool {
	m.t.Helper()
	m.cache.mu.Lock()
	defer m.cache.mu.Unlock()
	_, ok := m.cache.informers[m.cache.kindOf(object)]
	return ok
}

// Send sends the object to all watches of its kind, as an object that was added.
func (m *Manager) Send(object client.Object) {
	m.t.Helper()
	m.cache.informer(object).send(func(i *controllertest.FakeInformer) { i.Add(object) })
}

// SendUpdate sends an update to all watches of the kind.
func (m *Manager) SendUpdate(before, after client.Object) {
	m.t.Helper()
	m.cache.informer(after).send(func(i *controllertest.FakeInformer) { i.Update(before, after) })
}

// SendDelete sends a deletion to all watches of the kind.
func (m *Manager) SendDelete(object client.Object) {
	m.t.Helper()
	m.cache.informer(object).send(func(i *controllertest.FakeInformer) { i.Delete(object) })
}

// cachedClient reads from the cache, as that of a manager does.
type cachedClient struct {
	*ssatest.Server
	reader client.Reader
}

// Get implements [client.Reader].
func (c cachedClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return c.reader.Get(ctx, key, into, options...)
}

// List implements [client.Reader].
func (c cachedClient) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return c.reader.List(ctx, into, options...)
}

// mapperOf maps all kinds of a scheme that have a list.
func mapperOf(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		if scheme.Recognizes(kind.GroupVersion().WithKind(kind.Kind + "List")) {
			mapper.Add(kind, meta.RESTScopeNamespace)
		}
	}
	return mapper
}

// watches is a cache that reads from the server. The test sends what its informers see.
type watches struct {
	cache.Cache // what is not implemented below panics

	server    *ssatest.Server
	mu        sync.Mutex
	informers map[schema.GroupVersionKind]*informer
}

func (w *watches) kindOf(object client.Object) schema.GroupVersionKind {
	kind, err := apiutil.GVKForObject(object, w.server.Scheme())
	if err != nil {
		panic(fmt.Errorf("the scheme has no %T: %w", object, err))
	}
	return kind
}

func (w *watches) informer(object client.Object) *informer {
	w.mu.Lock()
	defer w.mu.Unlock()
	kind := w.kindOf(object)
	if w.informers[kind] == nil {
		w.informers[kind] = &informer{FakeInformer: controllertest.NewFakeInformer(controllertest.Synced)}
	}
	return w.informers[kind]
}

// informer lets several watches of a kind start at the same time.
type informer struct {
	*controllertest.FakeInformer

	mu sync.Mutex
}

// AddEventHandlerWithOptions implements [cache.Informer].
func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.FakeInformer.AddEventHandlerWithOptions(handler, options)
}

func (i *informer) send(event func(*controllertest.FakeInformer)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	event(i.FakeInformer)
}

// GetInformer implements [cache.Informers].
func (w *watches) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return w.informer(object), nil
}

// Start implements [cache.Informers].
func (w *watches) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// WaitForCacheSync implements [cache.Informers].
func (w *watches) WaitForCacheSync(context.Context) bool { return true }

// IndexField implements [client.FieldIndexer].
func (w *watches) IndexField(ctx context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	return w.server.IndexField(ctx, object, field, extract)
}

// Get implements [client.Reader].
func (w *watches) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return w.server.Cache().Get(ctx, key, into, options...)
}

// List implements [client.Reader].
func (w *watches) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return w.server.Cache().List(ctx, into, options...)
}

// FailingIndexer refuses to index one kind.
type FailingIndexer struct {
	client.FieldIndexer
	// Fails is an object of the kind.
	Fails client.Object
}

// IndexField implements [client.FieldIndexer].
func (i FailingIndexer) IndexField(ctx context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	if reflect.TypeOf(object) == reflect.TypeOf(i.Fails) {
		return errors.New("refused")
	}
	return i.FieldIndexer.IndexField(ctx, object, field, extract)
}
