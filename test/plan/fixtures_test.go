package plan

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

const (
	namespace = "shop"
	// fixtureName is the name of all that specs refer to.
	fixtureName = "campaign"
	manager     = "manager"
)

// environment is an API server in memory with one object, the fake cloud, and a clock for both.
type environment struct {
	t       *testing.T
	ctx     context.Context
	clock   *clocktesting.FakeClock
	scheme  *runtime.Scheme
	server  *ssatest.Server
	cloud   *fakecloud.Server
	planner *plugin.Planner
	// reconcile is that of the controller.
	reconcile func(context.Context, client.Object) (reconcile.Result, error)
	// done are the actions that the engine has logged since the last reconcile began.
	done   []action
	random *rand.Rand
}

// action is what the log of the engine says about one change.
type action struct{ verb, object string }

func newEnvironment(t *testing.T, kind string, random *rand.Rand) *environment {
	t.Helper()
	scheme := controllers.NewScheme()
	clock := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
	w := &environment{t: t, ctx: t.Context(), clock: clock, scheme: scheme, random: random}
	w.server = ssatest.NewServer(scheme, ssatest.Options{
		Clock: clock, TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{applyconfiguration.NewTypeConverter},
	})
	w.cloud = fakecloud.New(fakecloud.Options{Clock: clock, Seed: random.Int64(), Knobs: fakecloud.Knobs{
		AccountCreation: fakecloud.Fixed(20 * time.Second), AccountUpdate: fakecloud.Fixed(5 * time.Second), AccountDeletion: fakecloud.Fixed(5 * time.Second),
		PrincipalDelay: fakecloud.Fixed(5 * time.Second), GrantDelay: fakecloud.Fixed(30 * time.Second), MillisecondHints: true,
	}})
	demo := w.cloud.SeedDemo()
	_, err := w.cloud.SeedKey(demo.Vault, "other", fakecloud.KeySpec{})
	w.must(err)
	for _, object := range fixtures() {
		w.must(w.server.Create(w.ctx, object))
	}
	w.startEngine(kind)
	w.startPlanner()
	return w
}

func (w *environment) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// fixtures are all that specs refer to, and the Deployment of the manager, by which the plugin knows its settings.
func fixtures() []client.Object {
	at := metav1.ObjectMeta{Namespace: namespace, Name: fixtureName}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fixpoint-system", Name: manager, Labels: map[string]string{"control-plane": "controller-manager", "app.kubernetes.io/name": "fixpoint"},
	}}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: manager, Args: []string{"--pod-namespace=", "--pod-overrides=all"}}}
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: fixtureName, Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}}}
	return []client.Object{
		&corev1.Secret{ObjectMeta: at, Data: map[string][]byte{"token": []byte("t"), "password": []byte("p")}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "azure.credentials-1"}, Data: map[string][]byte{
			"tenantID": []byte("t"), "clientID": []byte("c"), "clientSecret": []byte(fakecloud.Token(manager)),
		}},
		&corev1.ConfigMap{ObjectMeta: at, Data: map[string]string{"mode": "fast", "a.json": "{}"}},
		&corev1.ServiceAccount{ObjectMeta: at},
		&corev1.PersistentVolumeClaim{ObjectMeta: at},
		class, &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		deployment,
	}
}

// startEngine builds the engine of the controller with its own constructor.
func (w *environment) startEngine(kind string) {
	w.t.Helper()
	mgr := &fakeManager{client: apiClient{Server: w.server, cache: w.server.Cache(), scheme: w.scheme}}
	options := setup.Options{Clock: w.clock}
	logger := funcr.New(func(_, args string) { w.record(args) }, funcr.Options{})
	switch kind {
	case "AppService":
		engine, err := appservice.NewEngine(mgr, options)
		w.must(err)
		useEngine(w, engine, logger)
	case "MCPServer":
		probes, err := prober.New(prober.Options{})
		w.must(err)
		engine, err := mcpserver.NewEngine(mgr, mcpserver.Options{Options: options, Prober: probes, Settings: mcpserver.Settings{
			BridgeImage: controllers.DefaultBridgeImage, PodOverrides: mcpserver.OverridesAll,
		}})
		w.must(err)
		useEngine(w, engine, logger)
	case "SecureStorage":
		config, err := cloud.Endpoint("http://cloud.test")
		w.must(err)
		config.Transport, config.Clock = httpClient(w.cloud), w.clock
		engine, err := securestorage.NewEngine(mgr, securestorage.Options{
			Options: options, Cloud: cloud.New(config), Credentials: cloud.TokenCredentials{Token: fakecloud.Token(manager)},
			AmbientScopes: securestorage.AmbientScopes{securestorage.AllNamespaces: {cloud.Anywhere}},
		})
		w.must(err)
		useEngine(w, engine, logger)
	}
}

func useEngine[O client.Object, S any](w *environment, engine *phases.Engine[O, S], logger logr.Logger) {
	w.t.Helper()
	w.must(engine.Index(w.server))
	w.reconcile = func(ctx context.Context, object client.Object) (reconcile.Result, error) {
		typed, ok := object.(O)
		if !ok {
			return reconcile.Result{}, fmt.Errorf("%T is reconciled by another controller", object)
		}
		return engine.ReconcileObject(ctrl.LoggerInto(ctx, logger), typed)
	}
}

func (w *environment) startPlanner() {
	w.t.Helper()
	token := filepath.Join(w.t.TempDir(), "token")
	w.must(os.WriteFile(token, []byte(fakecloud.Token(manager)), 0o600))
	var err error
	w.planner, err = plugin.NewPlanner(w.ctx, watchless{Client: apiClient{Server: w.server, cache: w.server.Cache(), scheme: w.scheme}}, plugin.PlannerOptions{
		Namespace: namespace, CloudEndpoint: "http://cloud.test", CloudTokenFile: token, HTTP: httpClient(w.cloud), Clock: w.clock,
	})
	w.must(err)
}

// The parts of a line of the log of an engine: the child that was changed, by name, and how.
var (
	loggedChild  = regexp.MustCompile(`"child"=\{[^}]*"name"="([^"]*)"`)
	loggedAction = regexp.MustCompile(`"action"="([^"]*)"`)
	loggedStep   = regexp.MustCompile(`"step"="([^"]*)"`)
)

// record reads a line of the log of an engine.
func (w *environment) record(line string) {
	part := func(of *regexp.Regexp) string {
		found := of.FindStringSubmatch(line)
		if found == nil {
			w.t.Errorf("the log has no %s: %s", of, line)
			return ""
		}
		return found[1]
	}
	switch {
	case strings.Contains(line, `"msg"="Applied child"`):
		w.done = append(w.done, action{part(loggedAction), part(loggedChild)})
	case strings.Contains(line, `"msg"="Deleted child"`):
		w.done = append(w.done, action{string(ssa.ActionDelete), part(loggedChild)})
	case strings.Contains(line, `"msg"="Ensuring step"`):
		w.done = append(w.done, action{string(phases.ActionEnsure), part(loggedStep)})
	}
}

// fakeManager is as much of a manager as engines need.
type fakeManager struct {
	ctrl.Manager // engines call only the methods below
	client       apiClient
}

func (m *fakeManager) GetClient() client.Client                       { return m.client }
func (m *fakeManager) GetAPIReader() client.Reader                    { return m.client.Server }
func (m *fakeManager) GetScheme() *runtime.Scheme                     { return m.client.scheme }
func (m *fakeManager) GetRESTMapper() meta.RESTMapper                 { return m.client.RESTMapper() }
func (m *fakeManager) GetConfig() *rest.Config                        { return &rest.Config{} }
func (m *fakeManager) GetHTTPClient() *http.Client                    { return http.DefaultClient }
func (m *fakeManager) GetLogger() logr.Logger                         { return logr.Discard() }
func (m *fakeManager) GetEventRecorder(string) recorder.EventRecorder { return noEvents{} }

type noEvents struct{ recorder.EventRecorder }

func (noEvents) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

// apiClient reads from the cache, which follows the server at once, and writes to the server.
type apiClient struct {
	*ssatest.Server
	cache  *ssatest.Cache
	scheme *runtime.Scheme
}

func (c apiClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return c.cache.Get(ctx, key, into, options...)
}

func (c apiClient) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return c.cache.List(ctx, into, options...)
}

func (c apiClient) SubResource(name string) client.SubResourceClient {
	if name == "token" {
		return nil // no test uses tokens of ServiceAccounts
	}
	return c.Server.SubResource(name)
}

// RESTMapper knows all kinds but those of the Gateway API.
func (c apiClient) RESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range c.scheme.AllKnownTypes() {
		if kind.Group != "gateway.networking.k8s.io" {
			mapper.Add(kind, meta.RESTScopeNamespace)
		}
	}
	return mapper
}

// watchless is a client without watches, which plans do not need.
type watchless struct{ client.Client }

func (watchless) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.New("a plan must not watch")
}

// httpClient sends requests to the handler in this process.
func httpClient(handler http.Handler) *http.Client {
	return &http.Client{Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Body == nil {
			request.Body = http.NoBody
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		response := recorder.Result()
		response.Request = request
		return response, nil
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
