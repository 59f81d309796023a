package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// gatewayCluster is a cluster that may serve the Gateway API, and the manager and the controller of a test. It has the
// MCPServer tools with a route, and the Gateway and the HTTPRoute of that.
type gatewayCluster struct {
	ctrl.Manager
	controller.Controller
	*WithT

	mapper  meta.RESTMapper
	objects client.Client
	http    *http.Client
	config  *rest.Config
	// main is the cache of the manager, and built are the others.
	main  *followedCache
	built []*followedCache
	// isDefined is true while the definition of HTTPRoutes exists.
	isDefined bool
	// failing are the steps that fail, and forbids is true if that is for a missing permission.
	failing map[string]bool
	forbids bool
	// lists are the times of the lists of HTTPRoutes from the API server.
	lists []time.Duration
	began time.Time
	// hanging lets lists of HTTPRoutes by the cache never end.
	hanging bool
	sources []source.Source
	queued  []string

	// mu guards failing and logs.
	mu   sync.Mutex
	logs []string
}

// followedCache is a cache with the objects of the cluster.
type followedCache struct {
	cache.Cache // what is not implemented below panics

	cluster   *gatewayCluster
	options   cache.Options
	informers map[string]*controllertest.FakeInformer
	isRunning bool
	indexes   int
}

func newGatewayCluster(t *testing.T) *gatewayCluster {
	t.Helper()
	c := &gatewayCluster{WithT: NewWithT(t), failing: map[string]bool{}, http: &http.Client{}, config: &rest.Config{}, began: time.Now()}
	scheme := runtime.NewScheme()
	c.Expect(v1beta1.AddToScheme(scheme)).To(Succeed())
	c.Expect(gatewayv1.Install(scheme)).To(Succeed())
	with := stored(func(s *spec) {
		s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{ParentRefs: []v1beta1.MCPServerParentRef{{Name: "public"}}}
	})
	without := stored()
	without.Name = "other"
	c.objects = fake.NewClientBuilder().WithScheme(scheme).WithObjects(with, without,
		&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "public"}},
		&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "tools"}}).Build()
	c.mapper = mapperOfKinds("HTTPRoute", "Gateway")
	c.main = c.cache(cache.Options{})
	return c
}

func (c *gatewayCluster) log(_, args string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs = append(c.logs, args)
}

func mapperOfKinds(kinds ...string) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds {
		mapper.Add(schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1", Kind: kind}, meta.RESTScopeNamespace)
	}
	return mapper
}

func (c *gatewayCluster) cache(options cache.Options) *followedCache {
	return &followedCache{cluster: c, options: options, informers: map[string]*controllertest.FakeInformer{}}
}

// step is the error of a step, if it fails.
func (c *gatewayCluster) step(format string, values ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch step := fmt.Sprintf(format, values...); {
	case !c.failing[step]:
		return nil
	case c.forbids:
		return apierrors.NewForbidden(schema.GroupResource{Group: gatewayv1.GroupName, Resource: "gateways"}, "", errors.New(step))
	default:
		return errors.New(step)
	}
}

// fail lets steps fail, and heal lets one succeed.
func (c *gatewayCluster) fail(steps ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, step := range steps {
		c.failing[step] = true
	}
}

func (c *gatewayCluster) heal(step string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing[step] = false
}

func (c *gatewayCluster) newCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	c.Expect(config).To(BeIdenticalTo(c.config))
	c.Expect(options.HTTPClient).To(BeIdenticalTo(c.http))
	c.Expect(options.Scheme).To(BeIdenticalTo(c.GetScheme()))
	c.Expect(options.Mapper).To(BeIdenticalTo(c.mapper))
	built := c.cache(options)
	if err := c.step("build %s", built.what()); err != nil {
		return nil, err
	}
	c.built = append(c.built, built)
	return built, nil
}

func (c *gatewayCluster) GetConfig() *rest.Config              { return c.config }
func (c *gatewayCluster) GetHTTPClient() *http.Client          { return c.http }
func (c *gatewayCluster) GetScheme() *runtime.Scheme           { return c.objects.Scheme() }
func (c *gatewayCluster) GetRESTMapper() meta.RESTMapper       { return c.mapper }
func (c *gatewayCluster) GetCache() cache.Cache                { return c.main }
func (c *gatewayCluster) GetFieldIndexer() client.FieldIndexer { return c.main }
func (c *gatewayCluster) GetClient() client.Client             { return c.reader("read") }
func (c *gatewayCluster) GetAPIReader() client.Reader          { return c.reader("list") }
func (c *gatewayCluster) Start(context.Context) error          { panic("not used") }
func (c *gatewayCluster) GetLogger() logr.Logger               { panic("not used") }
func (c *gatewayCluster) elapsed() time.Duration               { return time.Since(c.began) }

// reader fails, or notes, what it lists.
func (c *gatewayCluster) reader(step string) client.Client {
	inner, ok := c.objects.(client.WithWatch)
	c.Expect(ok).To(BeTrue())
	return interceptor.NewClient(inner, interceptor.Funcs{List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if _, isRoute := list.(*gatewayv1.HTTPRouteList); isRoute && step == "list" {
			c.lists = append(c.lists, c.elapsed())
		}
		if err := c.step("%s %T", step, list); err != nil {
			return err
		}
		return inner.List(ctx, list, options...)
	}})
}

// Watch implements [controller.Controller].
func (c *gatewayCluster) Watch(added source.Source) error {
	c.sources = append(c.sources, added)
	return c.step("watch")
}

// queueOf notes what is added to it.
type queueOf struct {
	requestQueue

	cluster *gatewayCluster
}

func (q queueOf) Add(request reconcile.Request) {
	q.cluster.queued = append(q.cluster.queued, request.String())
}

func kindIn(object client.Object) string {
	if kind := object.GetObjectKind().GroupVersionKind(); !kind.Empty() {
		return kind.String()
	}
	return fmt.Sprintf("%T", object)
}

// what is what a cache beside that of the manager holds.
func (f *followedCache) what() string {
	if f.options.ByObject != nil {
		return "definitions"
	}
	return "Gateways"
}

func (f *followedCache) GetInformer(ctx context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	kind := kindIn(object)
	if _, isRoute := object.(*gatewayv1.HTTPRoute); isRoute && f.cluster.hanging {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := f.cluster.step("informer of %s", kind); err != nil {
		return nil, err
	}
	if f.informers[kind] == nil {
		f.informers[kind] = controllertest.NewFakeInformer(controllertest.Synced)
	}
	return failingInformer{f.informers[kind], f.cluster}, nil
}

// failingInformer may refuse handlers.
type failingInformer struct {
	*controllertest.FakeInformer

	cluster *gatewayCluster
}

func (i failingInformer) AddEventHandler(added toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	if err := i.cluster.step("handler"); err != nil {
		return nil, err
	}
	return i.FakeInformer.AddEventHandler(added)
}

func (f *followedCache) RemoveInformer(_ context.Context, object client.Object) error {
	if err := f.cluster.step("remove"); err != nil {
		return err
	}
	delete(f.informers, kindIn(object))
	f.indexes = 0
	return nil
}

func (f *followedCache) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	if f.indexes++; f.indexes > 1 {
		return errors.New("the index exists")
	}
	return f.cluster.step("index")
}

func (f *followedCache) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, isRoute := into.(*gatewayv1.HTTPRoute); isRoute && f.cluster.hanging {
		<-ctx.Done()
		return ctx.Err()
	}
	if kindIn(into) != "apiextensions.k8s.io/v1, Kind=CustomResourceDefinition" {
		return f.cluster.objects.Get(ctx, key, into, options...)
	}
	if !f.cluster.isDefined || key.Name != "httproutes.gateway.networking.k8s.io" {
		return errors.New("no such definition")
	}
	return nil
}

func (f *followedCache) WaitForCacheSync(ctx context.Context) bool {
	for {
		err := f.cluster.step("sync of %s", f.what())
		if err == nil || ctx.Err() != nil || f.options.DefaultWatchErrorHandler == nil || !apierrors.IsForbidden(err) {
			return err == nil
		}
		f.options.DefaultWatchErrorHandler(ctx, &toolscache.Reflector{}, fmt.Errorf("listing: %w", err))
		select { // a watch is retried
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (f *followedCache) Start(ctx context.Context) error {
	f.isRunning = true
	defer func() { f.isRunning = false }()
	if err := f.cluster.step("start"); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// follow runs a test in a bubble with the Gateway API as the source of a controller, which is defined at the start or not.
func follow(t *testing.T, isDefined bool, test func(c *gatewayCluster, g *gatewayAPI), failing ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newGatewayCluster(t)
		c.isDefined = isDefined
		c.fail(failing...)
		g := newGatewayAPI(c, c.newCache)
		c.Expect(g.watchChild(c, phases.ChildWatch{Object: &gatewayv1.HTTPRoute{}, Handler: &handler.EnqueueRequestForObject{}})).To(BeTrue())
		ctx, stop := context.WithCancel(log.IntoContext(t.Context(), funcr.New(c.log, funcr.Options{})))
		c.Expect(g.Start(ctx, queueOf{cluster: c})).To(Succeed())
		synctest.Wait()
		test(c, g)
		logs := len(c.logs)
		stop()
		synctest.Wait()
		c.Expect(c.logs).To(HaveLen(logs), "a manager that stops is no error")
		for i, built := range c.built {
			c.Expect(built.isRunning).To(BeFalse(), "cache %d", i)
		}
	})
}

// isKnown reports whether reconciles begin.
func (g *gatewayAPI) isKnown() bool {
	select {
	case <-g.known:
		return true
	default:
		return false
	}
}

// definitions is the informer of the definition of HTTPRoutes.
func (c *gatewayCluster) definitions() *controllertest.FakeInformer {
	for _, built := range c.built {
		if built.options.ByObject != nil {
			return built.informers["apiextensions.k8s.io/v1, Kind=CustomResourceDefinition"]
		}
	}
	return nil
}

// expectServed expects that the API is watched, with one running cache of Gateways, or that nothing is.
func (c *gatewayCluster) expectServed(g *gatewayAPI, served bool) {
	c.Expect(g.isServed()).To(Equal(served))
	c.Expect(g.gateway("acme", "public") != nil).To(Equal(served))
	c.Expect(g.route("acme", "tools") != nil).To(Equal(served))
	running := 0
	for _, built := range c.built {
		if built.options.ByObject == nil && built.isRunning {
			running++
		}
	}
	c.Expect(running == 1).To(Equal(served), "%d caches of Gateways run", running)
	c.Expect(c.main.informers).To(HaveLen(running), "the informer of HTTPRoutes")
}

func TestGatewayAPIThatIsServedAtTheStartIsWatched(t *testing.T) {
	follow(t, true, func(c *gatewayCluster, g *gatewayAPI) {
		c.expectServed(g, true)
		c.Expect(g.isWatched()).To(BeTrue())
		c.Expect(g.WaitForSync(context.Background())).To(Succeed())
		c.Expect(c.logs).To(HaveLen(1))

		gateway, route := g.gateway("acme", "public"), g.route("acme", "tools")
		c.Expect(gateway.Name).To(Equal("public"))
		c.Expect(route.Name).To(Equal("tools"))
		c.Expect(g.gateway("acme", "other")).To(BeNil())
		c.Expect(g.route("acme", "other")).To(BeNil())

		c.queued = nil
		c.built[1].informers["*v1.Gateway"].Add(gateway)
		c.Expect(c.queued).To(ConsistOf("acme/tools"), "a Gateway enqueues the MCPServers that refer to it")
		c.main.informers["*v1.HTTPRoute"].Add(&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "another"}})
		c.Expect(c.queued).To(ConsistOf("acme/tools", "acme/another"))
	})
}

// The first reconciles would report the API as missing.
func TestFirstReconcilesWaitUntilItIsKnownWhetherTheGatewayAPIIsServed(t *testing.T) {
	follow(t, true, func(c *gatewayCluster, g *gatewayAPI) {
		c.Expect(g.isKnown()).To(BeFalse())
		waits, end := context.WithTimeout(context.Background(), time.Minute)
		defer end()
		c.Expect(g.WaitForSync(waits)).To(Succeed(), "they begin without it in the end")
		c.Expect(c.elapsed()).To(Equal(time.Minute))
		c.heal("list *v1.GatewayList")
		<-time.After(time.Minute)
		synctest.Wait()
		c.Expect(g.isKnown()).To(BeTrue())
		c.expectServed(g, true)
	}, "list *v1.GatewayList")
}

// The API server serves the API then, and to install it does not help.
func TestMissingPermissionToWatchGatewaysIsReported(t *testing.T) {
	const step = "list *v1.GatewayList"
	follow(t, false, func(c *gatewayCluster, g *gatewayAPI) {
		c.forbids, c.isDefined = true, true
		c.definitions().Add(&metav1.PartialObjectMetadata{})
		synctest.Wait()
		c.expectServed(g, false)
		c.Expect(g.denied()).To(MatchError(ContainSubstring("gateways.gateway.networking.k8s.io is forbidden")))
		c.Expect(c.queued).To(ConsistOf("acme/tools"))

		<-time.After(time.Minute)
		synctest.Wait()
		c.Expect(c.queued).To(HaveLen(1), "it is reported once")

		c.heal(step)
		<-time.After(time.Minute)
		synctest.Wait()
		c.expectServed(g, true)
		c.Expect(g.denied()).NotTo(HaveOccurred())
	}, step)
	follow(t, false, func(c *gatewayCluster, g *gatewayAPI) {
		c.forbids, c.isDefined = true, true
		c.definitions().Add(&metav1.PartialObjectMetadata{})
		synctest.Wait()
		c.Expect(g.denied()).To(HaveOccurred())
		c.isDefined = false
		c.definitions().Delete(&metav1.PartialObjectMetadata{})
		synctest.Wait()
		c.Expect(g.denied()).NotTo(HaveOccurred(), "the API was removed")
	}, step)
	follow(t, true, func(c *gatewayCluster, g *gatewayAPI) {
		c.Expect(g.isKnown()).To(BeFalse())
		c.mu.Lock()
		c.forbids = true
		c.mu.Unlock()
		<-time.After(time.Second)
		synctest.Wait()
		c.Expect(g.isKnown()).To(BeTrue(), "reconciles do not wait for a permission")
	}, step)
}

// Without it, nobody can know whether the Gateway API is installed.
func TestMissingPermissionToWatchDefinitionsIsReported(t *testing.T) {
	const step = "sync of definitions"
	synctest.Test(t, func(t *testing.T) {
		c := newGatewayCluster(t)
		c.isDefined, c.forbids = true, true
		c.fail(step)
		g := newGatewayAPI(c, c.newCache)
		c.Expect(g.watchChild(c, phases.ChildWatch{Object: &gatewayv1.HTTPRoute{}, Handler: &handler.EnqueueRequestForObject{}})).To(BeTrue())
		ctx, stop := context.WithCancel(t.Context())
		c.Expect(g.Start(ctx, queueOf{cluster: c})).To(Succeed())
		c.Expect(g.WaitForSync(ctx)).To(Succeed())
		c.Expect(c.elapsed()).To(BeZero(), "reconciles do not wait for a permission")
		c.Expect(g.denied()).To(MatchError(ContainSubstring("is forbidden")))
		<-time.After(time.Minute)
		synctest.Wait()
		c.Expect(c.queued).To(ConsistOf("acme/tools"), "it is reported once")

		c.heal(step)
		<-time.After(time.Minute)
		synctest.Wait()
		c.expectServed(g, true)
		c.Expect(g.denied()).NotTo(HaveOccurred())

		handle := c.built[0].options.DefaultWatchErrorHandler
		handle(ctx, &toolscache.Reflector{}, apierrors.NewForbidden(schema.GroupResource{}, "", nil))
		c.Expect(g.denied()).NotTo(HaveOccurred(), "a watch that began before says nothing about the API")
		stop()
		synctest.Wait()
	})
}

// The watch is retried, and reconciles wait for it.
func TestOtherFailuresOfTheWatchSayNothingAboutTheGatewayAPI(t *testing.T) {
	g, api := NewWithT(t), newGatewayAPI(nil, nil)
	api.noteWatchError(t.Context(), &toolscache.Reflector{}, io.ErrUnexpectedEOF)
	g.Expect(api.isKnown()).To(BeFalse())
	g.Expect(api.denied()).NotTo(HaveOccurred())
}

// A list of HTTPRoutes that begins before the API is removed does not end.
func TestGatewayAPIThatIsRemovedWhileTheManagerStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newGatewayCluster(t)
		c.isDefined, c.hanging = true, true
		g := newGatewayAPI(c, c.newCache)
		c.Expect(g.watchChild(c, phases.ChildWatch{Object: &gatewayv1.HTTPRoute{}, Handler: &handler.EnqueueRequestForObject{}})).To(BeTrue())
		ctx, stop := context.WithCancel(t.Context())
		c.Expect(g.Start(ctx, queueOf{cluster: c})).To(Succeed())
		synctest.Wait()
		c.isDefined = false
		c.definitions().Delete(&metav1.PartialObjectMetadata{})

		c.Expect(g.WaitForSync(ctx)).To(Succeed())

		c.Expect(c.elapsed()).To(Equal(routeSyncTimeout))
		c.expectServed(g, false)
		c.isDefined, c.hanging = true, false
		c.definitions().Add(&metav1.PartialObjectMetadata{})
		synctest.Wait()
		c.expectServed(g, true)
		stop()
		synctest.Wait()
	})
}

// A reconcile that reads a route at this moment must not hold its worker until the API is installed again.
func TestGatewayAPIThatIsRemovedWhileARouteIsRead(t *testing.T) {
	follow(t, true, func(c *gatewayCluster, g *gatewayAPI) {
		c.hanging = true
		c.Expect(g.route("acme", "tools")).To(BeNil())
		c.hanging = false
	})
}

func TestGatewayAPIIsFollowedWhileItIsInstalledAndRemoved(t *testing.T) {
	follow(t, false, func(c *gatewayCluster, g *gatewayAPI) {
		c.expectServed(g, false)
		definition := &metav1.PartialObjectMetadata{}
		for name, event := range map[string]func(){
			"added":   func() { c.definitions().Add(definition) },
			"updated": func() { c.definitions().Update(definition, definition) },
			"deleted": func() { c.definitions().Delete(definition) },
		} {
			for _, installed := range []bool{true, false} {
				c.isDefined, c.queued = installed, nil
				event()
				synctest.Wait()
				c.expectServed(g, installed)
				c.Expect(c.queued).To(ConsistOf("acme/tools"), "%s: MCPServers with a route are reconciled", name)
				event()
				synctest.Wait()
				c.Expect(c.queued).To(HaveLen(1), "nothing changes")
			}
		}
		c.Expect(c.logs).To(HaveLen(6), "each change is logged")
		c.Expect(c.logs).NotTo(ContainElement(ContainSubstring("error")))
	})
}

func TestOnlyTheDefinitionOfHTTPRoutesIsWatched(t *testing.T) {
	follow(t, false, func(c *gatewayCluster, _ *gatewayAPI) {
		c.Expect(c.built).To(HaveLen(1))
		for object, by := range c.built[0].options.ByObject {
			c.Expect(kindIn(object)).To(Equal("apiextensions.k8s.io/v1, Kind=CustomResourceDefinition"))
			c.Expect(by.Field.String()).To(Equal("metadata.name=httproutes.gateway.networking.k8s.io"))
		}
	})
}

func TestGatewayAPIThatIsDefinedAndNotServedYetIsRetried(t *testing.T) {
	for _, step := range []string{
		"list *v1.HTTPRouteList", "list *v1.GatewayList", "remove", "index", "informer of *v1.HTTPRoute", "build Gateways",
		"informer of *v1.Gateway", "sync of Gateways",
	} {
		t.Run(step, func(t *testing.T) {
			follow(t, true, func(c *gatewayCluster, g *gatewayAPI) {
				c.Expect(g.isServed()).To(BeFalse())
				c.Expect(g.isKnown()).To(BeFalse())
				c.Expect(g.denied()).NotTo(HaveOccurred(), "no permission is missing")
				for _, built := range c.built[1:] {
					c.Expect(built.isRunning).To(BeFalse(), "what was started is stopped")
				}
				c.heal(step)
				<-time.After(250 * time.Millisecond)
				synctest.Wait()
				c.expectServed(g, true)
			}, step)
		})
	}
}

func TestRetriesOfTheGatewayAPIBackOffUntilItChanges(t *testing.T) {
	follow(t, false, func(c *gatewayCluster, g *gatewayAPI) {
		c.isDefined, c.began = true, time.Now()
		c.definitions().Add(&metav1.PartialObjectMetadata{})
		<-time.After(time.Hour)
		synctest.Wait()
		c.Expect(c.lists[:4]).To(Equal([]time.Duration{0, 250 * time.Millisecond, 750 * time.Millisecond, 1750 * time.Millisecond}))
		last := len(c.lists) - 1
		c.Expect(c.lists[last] - c.lists[last-1]).To(Equal(5 * time.Minute))

		c.lists, c.began = nil, time.Now()
		c.definitions().Update(&metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadata{})
		<-time.After(time.Second)
		synctest.Wait()
		c.Expect(c.lists[:3]).To(Equal([]time.Duration{0, 250 * time.Millisecond, 750 * time.Millisecond}))
		c.expectServed(g, false)
	}, "list *v1.HTTPRouteList")
}

func TestErrorsOfTheWatchesOfTheGatewayAPIAreLogged(t *testing.T) {
	const remove, list = "Failed to stop the watch of HTTPRoutes", "Failed to list the objects that a change may affect"
	follow(t, true, func(c *gatewayCluster, g *gatewayAPI) {
		c.fail("remove", "read *v1beta1.MCPServerList")
		c.isDefined = false
		c.definitions().Delete(&metav1.PartialObjectMetadata{})
		synctest.Wait()
		c.Expect(g.isServed()).To(BeFalse())
		c.Expect(c.logs).To(ContainElements(ContainSubstring(remove), ContainSubstring(list)))
	})
	follow(t, true, func(c *gatewayCluster, _ *gatewayAPI) {
		c.Expect(c.logs).To(ContainElements(
			ContainSubstring("Failed to watch Gateways"), ContainSubstring("Failed to watch the CustomResourceDefinition of HTTPRoutes")))
	}, "start")
}

func TestCacheThatDoesNotSyncEndsTheWatchOfTheGatewayAPI(t *testing.T) {
	follow(t, false, func(c *gatewayCluster, g *gatewayAPI) {
		c.isDefined = true
		c.definitions().Add(&metav1.PartialObjectMetadata{})
		synctest.Wait()
		c.expectServed(g, false)
		c.Expect(g.isKnown()).To(BeFalse())
	}, "sync of definitions")
}

func TestWatchOfTheGatewayAPIThatCannotStartIsAnError(t *testing.T) {
	const watching = "watching CustomResourceDefinitions: "
	for step, want := range map[string]string{
		"build definitions": "building the cache of CustomResourceDefinitions: build definitions",
		"informer of apiextensions.k8s.io/v1, Kind=CustomResourceDefinition": watching + "informer of apiextensions.k8s.io/v1, Kind=CustomResourceDefinition",
		"handler": watching + "handler",
	} {
		c := newGatewayCluster(t)
		c.fail(step)
		c.Expect(newGatewayAPI(c, c.newCache).Start(t.Context(), queueOf{cluster: c})).To(MatchError(want))
	}
}

// failingMapper cannot tell which kinds are served.
type failingMapper struct{ meta.RESTMapper }

func (failingMapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("no answer")
}

func TestOnlyTheWatchOfHTTPRoutesIsTakenOver(t *testing.T) {
	for name, test := range map[string]struct {
		object  client.Object
		isTaken bool
		failing string
	}{
		"another kind":          {object: &gatewayv1.Gateway{}},
		"HTTPRoutes":            {object: &gatewayv1.HTTPRoute{}, isTaken: true},
		"the source is refused": {object: &gatewayv1.HTTPRoute{}, isTaken: true, failing: "watch"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newGatewayCluster(t)
			c.fail(test.failing)
			g := newGatewayAPI(c, c.newCache)
			isTaken, err := g.watchChild(c, phases.ChildWatch{Object: test.object, Handler: &handler.EnqueueRequestForObject{}})
			c.Expect(isTaken).To(Equal(test.isTaken))
			c.Expect(err != nil).To(Equal(test.failing != ""))
			if test.isTaken {
				c.Expect(c.sources).To(ConsistOf(BeIdenticalTo(g)))
			}
			c.Expect(c.main.informers).To(BeEmpty(), "the cache of the manager would not sync if the API were removed before it starts")
			c.Expect(c.main.indexes).To(BeZero())
		})
	}
}

func TestGatewaysEnqueueServersThatReferToThem(t *testing.T) {
	gateway := func(namespace, name string) client.Object {
		return &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	for name, test := range map[string]struct {
		parents []v1beta1.MCPServerParentRef
		gateway client.Object
		want    bool
	}{
		"its Gateway":                    {[]v1beta1.MCPServerParentRef{{Name: "public"}}, gateway("acme", "public"), true},
		"the second of its Gateways":     {[]v1beta1.MCPServerParentRef{{Name: "public"}, {Name: "b", Namespace: "infra"}}, gateway("infra", "b"), true},
		"another Gateway":                {[]v1beta1.MCPServerParentRef{{Name: "public"}}, gateway("acme", "private"), false},
		"a Gateway of another namespace": {[]v1beta1.MCPServerParentRef{{Name: "public"}}, gateway("infra", "public"), false},
		"a route without Gateways":       {nil, gateway("acme", "public"), false},
		"any Gateway":                    {nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newGatewayCluster(t)
			var server v1beta1.MCPServer
			c.Expect(c.objects.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: "tools"}, &server)).To(Succeed())
			server.Spec.HTTPRoute.ParentRefs = test.parents
			c.Expect(c.objects.Update(t.Context(), &server)).To(Succeed())
			requests := (&gatewayAPI{mgr: c}).serversWithRoute(t.Context(), test.gateway)
			if test.want {
				c.Expect(requests).To(HaveExactElements(HaveField("NamespacedName", client.ObjectKeyFromObject(&server))))
			} else {
				c.Expect(requests).To(BeEmpty())
			}
		})
	}
}

// optionsReader notes whether reads wait for writes.
type optionsReader struct{ waits bool }

func (r *optionsReader) Get(_ context.Context, _ client.ObjectKey, _ client.Object, options ...client.GetOption) error {
	r.waits = !(&client.GetOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency
	return errors.New("read")
}

func (r *optionsReader) List(_ context.Context, _ client.ObjectList, options ...client.ListOption) error {
	r.waits = !(&client.ListOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency
	return errors.New("read")
}

func TestHTTPRoutesAreReadOnlyWhileTheyAreServed(t *testing.T) {
	const missing = `no matches for kind "HTTPRoute" in version "gateway.networking.k8s.io/v1"`
	for name, test := range map[string]struct {
		object  client.Object
		list    client.ObjectList
		served  bool
		want    string
		isWaits bool
	}{
		"HTTPRoutes":                  {&gatewayv1.HTTPRoute{}, &gatewayv1.HTTPRouteList{}, true, "read", false},
		"HTTPRoutes, not served":      {&gatewayv1.HTTPRoute{}, &gatewayv1.HTTPRouteList{}, false, missing, false},
		"other objects":               {&v1beta1.MCPServer{}, &v1beta1.MCPServerList{}, true, "read", true},
		"other objects, without them": {&v1beta1.MCPServer{}, &v1beta1.MCPServerList{}, false, "read", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			inner := &optionsReader{}
			reader := routeReader{inner, staticGatewayAPI(test.served)}
			g.Expect(reader.Get(t.Context(), client.ObjectKey{}, test.object)).To(MatchError(test.want))
			g.Expect(inner.waits).To(Equal(test.isWaits))
			inner.waits = false
			err := reader.List(t.Context(), test.list)
			g.Expect(err).To(MatchError(test.want))
			g.Expect(inner.waits).To(Equal(test.isWaits))
			g.Expect(meta.IsNoMatchError(err)).To(Equal(test.want == missing))
		})
	}
}

func TestStaticGatewayAPIIsNotWatched(t *testing.T) {
	g := NewWithT(t)
	g.Expect(staticGatewayAPI(true).isServed()).To(BeTrue())
	g.Expect(staticGatewayAPI(false).isServed()).To(BeFalse())
	g.Expect(staticGatewayAPI(true).isWatched()).To(BeFalse())
}
