package campaign

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// environment holds what the manager needs: simulated Kubernetes controllers, a server that answers for all MCPServers,
// and a cloud.
type environment struct {
	t         *testing.T
	cloud     *fakecloud.Server
	cloudAt   *fakecloud.Endpoint
	mcpServer *httptest.Server
	log       *logTail
	cache     client.Reader
	stop      func()
}

// fixtureName is the name of all objects that specs refer to.
const fixtureName = "campaign"

// newEnvironment starts an environment with a manager for the duration of a test.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	env := &environment{t: t, log: &logTail{}}
	knobs := fakecloud.Realistic().Compress(200)
	knobs.GrantDelay, knobs.PolicyDelay = fakecloud.Between(50*time.Millisecond, 300*time.Millisecond), fakecloud.Between(50*time.Millisecond, 300*time.Millisecond)
	knobs.KeyLookup = fakecloud.Period(24 * time.Hour)
	env.cloud = fakecloud.New(fakecloud.Options{Knobs: knobs, Seed: int64(*seed)}) //nolint:gosec // any number is a valid seed
	env.cloudAt = env.cloud.StartHTTP()
	t.Cleanup(env.cloudAt.Close)
	demo := env.cloud.SeedDemo()
	env.cloud.SeedVault(demo.Subscription, demo.Group, "fixpoint-old", fakecloud.VaultSpec{AccessPolicies: true, PurgeProtection: true})
	if _, err := env.cloud.SeedKey("fixpoint-old", demo.Key, fakecloud.KeySpec{}); err != nil {
		t.Fatal(err)
	}
	env.mcpServer = newMCPServer(t)
	createIngressClasses(t)
	startKubeControllers(t)
	env.cache = watchKinds(t)
	env.startManager()
	return env
}

// createIngressClasses creates a default IngressClass and another one.
func createIngressClasses(t *testing.T) {
	t.Helper()
	for name, isDefault := range map[string]string{fixtureName: "true", "other": "false"} {
		class := &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault}},
			Spec:       networkingv1.IngressClassSpec{Controller: "fixpoint.test/none"},
		}
		if err := api.Create(t.Context(), class); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// startManager runs a manager with empty caches.
func (env *environment) startManager() {
	env.t.Helper()
	g := NewWithT(env.t)
	ctx, cancel := context.WithCancel(context.Background())
	endpoint, err := url.Parse(env.mcpServer.URL)
	g.Expect(err).NotTo(HaveOccurred())
	const workers = 16
	manager, err := controllers.NewManager(ctx, shared.Admin(), controllers.Options{
		Concurrency: workers, ProbeEndpoint: endpoint,
		PodOverrides: mcpserver.OverridesAll, // what the API server says about pods is the subject
		Cloud:        cloud.Config{Cloud: fakecloud.CloudAt("http://cloud.test"), AllowHTTP: true, Transport: env},
		Credentials:  cloud.TokenCredentials{Token: fakecloud.Token("manager")}, AmbientScopes: harness.AmbientScopes(),
		Logger: env.log.logger(),
	})
	g.Expect(err).NotTo(HaveOccurred())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := manager.Start(ctx); err != nil {
			env.t.Errorf("the manager failed: %v", err)
		}
	}()
	env.stop = func() {
		cancel()
		<-ended
	}
	env.t.Cleanup(env.stop)
	select {
	case <-manager.Elected():
	case <-ended:
		env.t.Fatalf("the manager did not start:\n%s", env.log)
	}
}

// Do implements the transport of the cloud's SDK with the fake cloud.
func (env *environment) Do(request *http.Request) (*http.Response, error) {
	at, err := url.Parse(env.cloudAt.URL)
	if err != nil {
		return nil, fmt.Errorf("parsing the address of the cloud: %w", err)
	}
	request.URL.Scheme, request.URL.Host, request.Host = at.Scheme, at.Host, at.Host
	return env.cloudAt.Client().Do(request)
}

// createNamespace creates a namespace with all objects that specs refer to.
func (env *environment) createNamespace(name string) {
	env.t.Helper()
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: name, Name: fixtureName} }
	credentials := &corev1.Secret{ObjectMeta: at(name), StringData: map[string]string{
		"tenantID": "tenant", "clientID": "client", "clientSecret": fakecloud.Token("manager")}}
	credentials.Name = "azure.credentials-1"
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&corev1.Secret{ObjectMeta: at(name), StringData: map[string]string{"token": "t", "password": "p", "client-id": "i", "client-secret": "s", "tls.crt": string(env.certificates())}},
		&corev1.ConfigMap{ObjectMeta: at(name), Data: map[string]string{"mode": "fast", "a.json": "{}"}},
		&corev1.ServiceAccount{ObjectMeta: at(name)},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: at(name), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}},
		credentials,
	}
	for _, object := range objects {
		if err := api.Create(context.Background(), object); err != nil {
			env.t.Errorf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// certificates returns some valid PEM certificates. No connection uses them.
func (env *environment) certificates() []byte {
	return shared.Admin().CAData
}

// newMCPServer starts a server that speaks MCP at every path: SSE for requests for an event stream, streamable HTTP for
// all others.
func newMCPServer(t *testing.T) *httptest.Server {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "campaign", Version: "1"}, nil)
	serve := func(*http.Request) *mcp.Server { return server }
	older, current := mcp.NewSSEHandler(serve, nil), mcp.NewStreamableHTTPHandler(serve, nil)
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("sessionid") || r.Method == http.MethodGet && r.Header.Get("Mcp-Session-Id") == "" {
			older.ServeHTTP(w, r)
			return
		}
		current.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		answers.CloseClientConnections()
		answers.Close()
	})
	return answers
}

// panics returns the number of panics in reconciles of this process.
func panics() (float64, error) { return sumOf("controller_runtime_reconcile_panics_total") }

// reconciles returns the number of reconciles in this process.
func reconciles() (float64, error) { return sumOf("controller_runtime_reconcile_total") }

// sumOf returns the sum of a counter over all labels.
func sumOf(name string) (float64, error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return 0, fmt.Errorf("reading metrics: %w", err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		sum := 0.0
		for _, metric := range family.GetMetric() {
			sum += metric.GetCounter().GetValue()
		}
		return sum, nil
	}
	return 0, fmt.Errorf("the counter %s does not exist: no controller ran, or the metric was renamed", name)
}

// expectNoPanics is called at the end of a test.
func (env *environment) expectNoPanics() {
	env.t.Helper()
	g := NewWithT(env.t)
	count, err := panics()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(count).To(BeZero(), "a reconcile panicked:\n%s", env.log)
}

// logTail keeps the last lines of a log.
type logTail struct {
	mu    sync.Mutex
	lines []string
}

func (l *logTail) logger() logr.Logger {
	const most = 400
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, prefix+" "+args)
		if len(l.lines) > 2*most {
			l.lines = append([]string(nil), l.lines[most:]...)
		}
	}, funcr.Options{LogTimestamp: true})
}

// String returns the last lines.
func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 40
	return strings.Join(l.lines[max(0, len(l.lines)-most):], "\n")
}
