package mcpserver

import (
	"errors"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayconfigurations "sigs.k8s.io/gateway-api/applyconfiguration"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/managertest"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

func TestEndpointSlicesEnqueueProbedServers(t *testing.T) {
	unprobed := func(s *spec) { s.Protocol.Probe = v1beta1.ProbeDisabled }
	cases := map[string]struct {
		server *v1beta1.MCPServer
		labels map[string]string
		want   []string
	}{
		"probed server":               {tools(), map[string]string{discoveryv1.LabelServiceName: "tools"}, []string{"acme/tools"}},
		"server with probes disabled": {tools(unprobed), map[string]string{discoveryv1.LabelServiceName: "tools"}, nil},
		"server not in the cache":     {tools(), map[string]string{discoveryv1.LabelServiceName: "other"}, []string{"acme/other"}},
		"no Service":                  {tools(), nil, nil},
		"other label":                 {tools(), map[string]string{"app.kubernetes.io/name": "tools"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := runtime.NewScheme()
			g.Expect(v1beta1.AddToScheme(scheme)).To(Succeed())
			reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.server).Build()
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "tools-x7f2q", Labels: c.labels}}

			var enqueued []string
			for _, request := range probedServer(reader)(t.Context(), slice) {
				enqueued = append(enqueued, request.String())
			}

			g.Expect(enqueued).To(Equal(c.want))
		})
	}
}

// watched is the controller as a manager with permissions in some namespaces runs it, with one MCPServer that was
// reconciled.
type watched struct {
	*managertest.Manager
	*WithT
	prober *prober.Prober
	// reconciles counts them, by the reads of the MCPServer from the cache with its finalizer.
	reconciles int
}

// watch runs a test in a bubble, so that all reconciles of an event have ended after [synctest.Wait].
func watch(t *testing.T, server *v1beta1.MCPServer, test func(*watched), objects ...client.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{WithT: NewWithT(t)}
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, gatewayv1.Install, v1beta1.AddToScheme} {
			w.Expect(add(scheme)).To(Succeed())
		}
		w.Manager = managertest.New(t, scheme, ssatest.Options{
			TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{applyconfiguration.NewTypeConverter, gatewayconfigurations.NewTypeConverter},
			Intercept: func(call ssatest.Call) error {
				if call.Verb == "get" && call.Kind.Kind == "MCPServer" && call.Cached && !call.Done {
					w.reconciles++
				}
				return nil
			},
		})
		var err error
		w.prober, err = prober.New(prober.Options{})
		w.Expect(err).NotTo(HaveOccurred())
		options := Options{Options: setup.Options{NoClusterRights: true}, Settings: settings, Prober: w.prober}
		w.Expect(Setup(t.Context(), w.Manager, options)).To(Succeed())
		stop := w.Run()
		defer stop()
		synctest.Wait()
		for _, object := range append(objects, server) {
			w.Expect(w.Server.Create(t.Context(), object)).To(Succeed())
		}
		w.Send(server)
		synctest.Wait()
		test(w)
	})
}

// after is the number of reconciles that an event causes, at the latest when changes of several objects count as one.
func (w *watched) after(event func()) int {
	before := w.reconciles
	event()
	<-time.After(referenceDelay)
	synctest.Wait()
	return w.reconciles - before
}

// stored is an MCPServer that has not been stored yet.
func stored(changes ...func(*spec)) *v1beta1.MCPServer {
	server := tools(changes...)
	server.ObjectMeta = metav1.ObjectMeta{Namespace: "acme", Name: "tools"}
	return server
}

func TestReconcilesWhenWhatItDependsOnChanges(t *testing.T) {
	metadata := func(kind, name string) client.Object {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name}}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
		return object
	}
	reads := func(s *spec) {
		s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Name: "robot"}
		s.Mounts = []v1beta1.MCPServerMount{{Name: "data", MountPath: "/data", PersistentVolumeClaim: &v1beta1.MCPServerMountedClaim{ClaimName: "data"}}}
		s.EnvFrom = []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "modes"}}},
		}
	}
	endpoints := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "tools-1", Labels: map[string]string{discoveryv1.LabelServiceName: "tools"}}}
	for name, c := range map[string]struct {
		object client.Object
		want   bool
	}{
		"a Secret":               {metadata("Secret", "db"), true},
		"another Secret":         {metadata("Secret", "other"), false},
		"a ConfigMap":            {metadata("ConfigMap", "modes"), true},
		"its ServiceAccount":     {metadata("ServiceAccount", "robot"), true},
		"a claim that it mounts": {metadata("PersistentVolumeClaim", "data"), true},
		"another claim":          {metadata("PersistentVolumeClaim", "other"), false},
		"its endpoints":          {endpoints, true},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t, stored(reads), func(w *watched) {
				w.Expect(w.after(func() {}) > 0).To(BeFalse(), "without an event")
				w.Expect(w.after(func() { w.Send(c.object) }) > 0).To(Equal(c.want))
			})
		})
	}
}

// Changes of several objects, such as those of one kubectl apply, cause one rollout.
func TestChangesOfSeveralReferencesReconcileOnce(t *testing.T) {
	reads := func(s *spec) {
		s.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}}
	}
	secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "db"}}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	watch(t, stored(reads), func(w *watched) {
		w.Expect(w.after(func() {})).To(BeZero(), "without an event")
		w.Expect(w.after(func() {
			w.Send(secret)
			<-time.After(referenceDelay / 2) // in a bubble, which takes no time
			synctest.Wait()
			w.Send(secret)
		})).To(Equal(1))
	})
}

// Without permissions in the whole cluster, the caches of what is not namespaced would never sync.
func TestWithoutClusterRightsNothingOfTheClusterIsWatched(t *testing.T) {
	watch(t, stored(), func(w *watched) {
		w.Expect(w.IsWatched(&networkingv1.IngressClass{})).To(BeFalse())
		w.Expect(w.IsWatched(&gatewayv1.Gateway{})).To(BeFalse())
		w.Expect(w.IsWatched(&gatewayv1.HTTPRoute{})).To(BeTrue(), "HTTPRoutes are namespaced")
	})
}

func TestSuspendedAndDeletedServersAreNotProbed(t *testing.T) {
	now := metav1.Now()
	// It is not stored, so that a reconcile does not decide whether it is probed.
	key := client.ObjectKey{Namespace: "acme", Name: "other"}
	for name, c := range map[string]struct {
		event    func(w *watched, server *v1beta1.MCPServer)
		isProbed bool
	}{
		"updated": {func(w *watched, server *v1beta1.MCPServer) { w.SendUpdate(server, server) }, true},
		"suspended": {func(w *watched, server *v1beta1.MCPServer) {
			after := server.DeepCopy()
			after.Spec.Suspend = true
			w.SendUpdate(server, after)
		}, false},
		"being deleted": {func(w *watched, server *v1beta1.MCPServer) {
			after := server.DeepCopy()
			after.DeletionTimestamp = &now
			w.SendUpdate(server, after)
		}, false},
		"deleted": {func(w *watched, server *v1beta1.MCPServer) { w.SendDelete(server) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t, stored(), func(w *watched) {
				w.prober.Set(key, prober.Target{URL: "http://tools.invalid/mcp", Addresses: []string{"127.0.0.1:1"}, Interval: time.Hour})
				server := stored()
				server.Name = key.Name
				c.event(w, server)
				synctest.Wait()
				_, isProbed := w.prober.Result(key)
				w.Expect(isProbed).To(Equal(c.isProbed))
				w.prober.Forget(key)
			})
		})
	}
}

func TestIngressClassesEnqueueServersWithAnIngress(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(v1beta1.AddToScheme(scheme)).To(Succeed())
	with, without := stored(func(s *spec) { s.Ingress = &v1beta1.Ingress{Host: "a.test"} }), stored()
	without.Name = "other"
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(with, without).Build()
	g.Expect(setup.Enqueue(reader, &v1beta1.MCPServerList{}, hasIngress)(t.Context(), &networkingv1.IngressClass{})).
		To(HaveExactElements(HaveField("NamespacedName", client.ObjectKey{Namespace: "acme", Name: "tools"})))
}

// failingManager is a manager whose steps fail, and that notes the runnables.
type failingManager struct {
	*managertest.Manager

	mapper meta.RESTMapper
	// added is how many runnables may be added, and index the kind that cannot be indexed.
	added int
	index client.Object
	// configs is how many clients can be built, and noClient leaves out that of the manager.
	configs  int
	noClient bool
	// http sends the requests of the clients that are built; nil is that of the manager.
	http *http.Client
	// runnables are what was added.
	runnables []manager.Runnable
}

func (m *failingManager) Add(added manager.Runnable) error {
	if m.added--; m.added < 0 {
		return errors.New("refused")
	}
	m.runnables = append(m.runnables, added)
	return m.Manager.Add(added)
}

func (m *failingManager) GetRESTMapper() meta.RESTMapper {
	if m.mapper != nil {
		return m.mapper
	}
	return m.Manager.GetRESTMapper()
}

func (m *failingManager) GetConfig() *rest.Config {
	if m.configs--; m.configs < 0 {
		return nil
	}
	return m.Manager.GetConfig()
}

func (m *failingManager) GetClient() client.Client {
	if m.noClient {
		return nil
	}
	return m.Manager.GetClient()
}

func (m *failingManager) GetHTTPClient() *http.Client {
	if m.http != nil {
		return m.http
	}
	return m.Manager.GetHTTPClient()
}

func (m *failingManager) GetFieldIndexer() client.FieldIndexer {
	return managertest.FailingIndexer{FieldIndexer: m.Manager.GetFieldIndexer(), Fails: m.index}
}

func newFailingManager(t *testing.T) (*failingManager, Options) {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, gatewayv1.Install, v1beta1.AddToScheme} {
		g.Expect(add(scheme)).To(Succeed())
	}
	probes, err := prober.New(prober.Options{Metrics: prometheus.NewRegistry()})
	g.Expect(err).NotTo(HaveOccurred())
	return &failingManager{Manager: managertest.New(t, scheme, ssatest.Options{}), added: 9, configs: 9}, Options{Settings: settings, Prober: probes}
}

func TestSetupFailsWithItsSteps(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*failingManager)
		want   string
	}{
		"what is served is not known": {func(m *failingManager) { m.mapper = failingMapper{} }, "checking whether the API server serves HTTPRoute: no answer"},
		"the prober":                  {func(m *failingManager) { m.added = 0 }, "adding the prober: refused"},
		"the index of references":     {func(m *failingManager) { m.index = &v1beta1.MCPServer{} }, "refused"},
		"the index of a child":        {func(m *failingManager) { m.index = &corev1.Service{} }, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			m, o := newFailingManager(t)
			c.change(m)
			NewWithT(t).Expect(Setup(t.Context(), m, o)).To(MatchError(ContainSubstring(c.want)))
		})
	}
}

func TestSetupFollowsTheGatewayAPIOnlyWithClusterRights(t *testing.T) {
	for _, rights := range []bool{true, false} {
		g := NewWithT(t)
		m, o := newFailingManager(t)
		o.NoClusterRights = !rights
		g.Expect(Setup(t.Context(), m, o)).To(Succeed())
		g.Expect(m.runnables).To(HaveLen(2), "the prober and the controller")
		r, err := newReaders(m, o)
		g.Expect(err).NotTo(HaveOccurred())
		sources := o.sources(m, r)
		o.NoClusterRights = true
		g.Expect(len(sources)-len(o.sources(m, r))).To(Equal(map[bool]int{true: 1, false: 0}[rights]), "IngressClasses")
		engine, err := NewEngine(m, o)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(engine).NotTo(BeNil())

		// Only what follows the API indexes HTTPRoutes later.
		m, o = newFailingManager(t)
		m.index, o.NoClusterRights = &gatewayv1.HTTPRoute{}, !rights
		g.Expect(Setup(t.Context(), m, o) == nil).To(Equal(rights))
	}
}

func TestPlansDetectTheGatewayAPI(t *testing.T) {
	for name, c := range map[string]struct {
		mapper   meta.RESTMapper
		isServed bool
		err      string
	}{
		"served":     {mapper: mapperOfKinds("HTTPRoute"), isServed: true},
		"not served": {mapper: mapperOfKinds("Gateway")},
		"no answer":  {mapper: failingMapper{}, err: "checking whether the API server serves HTTPRoute: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m, o := newFailingManager(t)
			m.mapper = c.mapper
			r, err := newReaders(m, o)
			if c.err != "" {
				g.Expect(err).To(MatchError(c.err))
				_, err = NewEngine(m, o)
				g.Expect(err).To(MatchError(c.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.gateways.isServed()).To(Equal(c.isServed))
			g.Expect(r.gateways.isWatched()).To(BeFalse())
		})
	}
}

func TestReadersReadWhatTheCacheHasAndTheRestFromTheAPIServer(t *testing.T) {
	g := NewWithT(t)
	m, o := newFailingManager(t)
	r, err := newReaders(m, o)
	g.Expect(err).NotTo(HaveOccurred())
	for _, reader := range []client.Reader{r.references.Metadata, r.keys.metadata} {
		g.Expect(reader).To(Equal(m.GetClient()))
	}
	for _, reader := range []client.Reader{r.references.Data, r.keys.data, r.pods.uncached} {
		g.Expect(reader).To(BeIdenticalTo(m.GetAPIReader()))
	}
	g.Expect(r.podStatus).NotTo(BeNil())
	g.Expect(r.plans).To(BeFalse())
	g.Expect(r.hashKey).To(BeNil(), "the namespace of the manager is not known")

	o.ManagerNamespace = "system"
	o.Prober, err = prober.New(prober.Options{Rewrite: func(*url.URL) {}, Metrics: prometheus.NewRegistry()})
	g.Expect(err).NotTo(HaveOccurred())
	r, err = newReaders(m, o)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.pods).To(BeNil(), "probes do not connect to pods")
	g.Expect(r.hashKey.Namespace).To(Equal("system"))
	g.Expect(r.hashKey.Reader).NotTo(Or(BeNil(), Equal(m.GetClient())), "the cache may not have the namespace of the manager")
	g.Expect(r.hashKey.Applier).NotTo(BeNil())
}

// cachedReaders have values in their caches for the probes of an MCPServer.
func cachedReaders(server client.ObjectKey) readers {
	pods := &podReader{}
	pods.known.Store(server, podAddresses{})
	return readers{keys: &keyReader{known: map[client.ObjectKey]map[keyRef]version{server: {}}}, pods: pods}
}

func TestNothingIsKeptOfServersThatAreNotProbed(t *testing.T) {
	server := stored()
	suspended := stored(func(s *spec) { s.Suspend = true })
	key := client.ObjectKeyFromObject(server)
	for name, c := range map[string]struct {
		event func(t *testing.T, o Options, r readers)
		kept  bool
	}{
		"updated": {func(t *testing.T, o Options, r readers) {
			stopProbing(o.Prober, r).Update(t.Context(), updateEvent{ObjectOld: server, ObjectNew: server}, nil)
		}, true},
		"another kind": {func(t *testing.T, o Options, r readers) {
			stopProbing(o.Prober, r).Update(t.Context(), updateEvent{ObjectOld: server, ObjectNew: &corev1.Secret{ObjectMeta: server.ObjectMeta}}, nil)
		}, true},
		"suspended": {func(t *testing.T, o Options, r readers) {
			stopProbing(o.Prober, r).Update(t.Context(), updateEvent{ObjectOld: server, ObjectNew: suspended}, nil)
		}, false},
		"deleted": {func(t *testing.T, o Options, r readers) {
			stopProbing(o.Prober, r).Delete(t.Context(), deleteEvent{Object: server}, nil)
		}, false},
		"in a namespace that was given up": {func(t *testing.T, o Options, r readers) {
			m, _ := newFailingManager(t)
			NewWithT(t).Expect(m.Server.Create(t.Context(), server.DeepCopy())).To(Succeed())
			stopProbingLost(t.Context(), m, o.Prober, r)(lease.Change{Before: lease.Namespaces{Names: sets.New("acme")}})
		}, false},
		"in another namespace": {func(t *testing.T, o Options, r readers) {
			m, _ := newFailingManager(t)
			NewWithT(t).Expect(m.Server.Create(t.Context(), server.DeepCopy())).To(Succeed())
			stopProbingLost(t.Context(), m, o.Prober, r)(lease.Change{Before: lease.Namespaces{Names: sets.New("other")}})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, o := newFailingManager(t)
			o.Prober.Set(key, prober.Target{URL: "http://tools.invalid/mcp"})
			r := cachedReaders(key)
			c.event(t, o, r)
			_, isProbed := o.Prober.Result(key)
			g.Expect(isProbed).To(Equal(c.kept))
			g.Expect(r.keys.known).To(HaveLen(map[bool]int{true: 1}[c.kept]))
			_, isKept := r.pods.known.Load(key)
			g.Expect(isKept).To(Equal(c.kept))
		})
	}
}

func TestServedKinds(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(gatewayv1.Install(scheme)).To(Succeed())
	g.Expect(isServed(mapperOfKinds("HTTPRoute"), scheme, &gatewayv1.HTTPRoute{})).To(BeTrue())
	g.Expect(isServed(mapperOfKinds(), scheme, &gatewayv1.HTTPRoute{})).To(BeFalse())
	_, err := isServed(mapperOfKinds(), scheme, &corev1.Secret{})
	g.Expect(err).To(MatchError(HavePrefix("finding the kind of *v1.Secret: ")))
	_, err = isServed(failingMapper{}, scheme, &gatewayv1.HTTPRoute{})
	g.Expect(err).To(MatchError("checking whether the API server serves HTTPRoute: no answer"))
}

func TestIngressClassesEnqueueNothingWhileServersCannotBeListed(t *testing.T) {
	requests := setup.Enqueue(withoutLists(&v1beta1.MCPServerList{}), &v1beta1.MCPServerList{}, hasIngress)(t.Context(), &networkingv1.IngressClass{})
	NewWithT(t).Expect(requests).To(BeNil())
}

func TestClientsThatCannotBeBuiltAreAnError(t *testing.T) {
	const missing = "must provide non-nil rest.Config to client.New"
	for name, c := range map[string]struct {
		configs int
		change  func(*failingManager, *Options)
		want    string
	}{
		"the client for pods":              {0, func(*failingManager, *Options) {}, "building a client without a cache: " + missing},
		"the client for the key of hashes": {1, func(_ *failingManager, o *Options) { o.ManagerNamespace = "system" }, "building a client without a cache: " + missing},
		"the served kinds":                 {9, func(m *failingManager, _ *Options) { m.mapper = failingMapper{} }, "checking whether the API server serves HTTPRoute: no answer"},
		"the client of the children":       {1, func(m *failingManager, _ *Options) { m.noClient = true }, "setting up the controller mcpserver: building a client that reads its own writes: " + missing},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m, o := newFailingManager(t)
			o.NoClusterRights = true
			m.configs = c.configs
			c.change(m, &o)
			g.Expect(Setup(t.Context(), m, o)).To(MatchError(c.want))
			m.configs = c.configs
			_, err := NewEngine(m, o)
			g.Expect(err).To(MatchError(c.want))
		})
	}
}

// roundTripper answers requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// Another field manager would leave the fields of the one before in the objects.
func TestWhatIsWrittenWithoutTheCacheHasTheFieldManagerOfTheController(t *testing.T) {
	g := NewWithT(t)
	m, o := newFailingManager(t)
	o.ManagerNamespace = "system"
	var managers []string
	m.http = &http.Client{Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
		managers = append(managers, request.URL.Query().Get("fieldManager"))
		return nil, errors.New("no answer")
	})}
	r, err := newReaders(m, o)
	g.Expect(err).NotTo(HaveOccurred())

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "tools-1", UID: "pod-1", ResourceVersion: "1"}}
	_, err = r.podStatus.ApplyStatus(t.Context(), gateChange{pod, corev1.ConditionTrue}.configuration(metav1.Now()), pod)
	g.Expect(err).To(HaveOccurred())
	g.Expect(managers).To(Equal([]string{"fixpoint-mcpserver"}))
	managers = nil
	g.Expect(r.hashKey.Create(t.Context())).NotTo(Succeed())
	g.Expect(managers).To(Equal([]string{"fixpoint-mcpserver"}))
}

// The controller must find the fields that it applied before.
func TestControllerAppliesWithItsFieldManager(t *testing.T) {
	watch(t, stored(stdio), func(w *watched) {
		var service corev1.Service
		w.Expect(w.Server.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: "tools"}, &service)).To(Succeed())
		w.Expect(service.ManagedFields).To(ConsistOf(HaveField("Manager", "fixpoint-mcpserver")))
		var deployment appsv1.Deployment
		w.Expect(w.Server.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: "tools"}, &deployment)).To(Succeed())
		w.Expect(deployment.Spec.Template.Spec.InitContainers).To(ConsistOf(HaveField("Image", settings.BridgeImage)))
	})
}

func TestEngineThatCannotBeBuiltNamesTheController(t *testing.T) {
	_, err := newEngine(phases.Dependencies{}, Options{}, readers{}, nil)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring(`building the engine of controller "mcpserver": `)))
}
