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
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// world is what the manager works in: the API server, somebody who plays what a cluster adds to it, a
// server that answers for all MCPServers, and a cloud.
type world struct {
	t       *testing.T
	cloud   *fakecloud.Server
	cloudAt *fakecloud.Endpoint
	answers *httptest.Server
	log     *lastLines
	seen    client.Reader
	stop    func()
}

// common is the name of everything that specs refer to: a Secret, a ConfigMap and so on.
const common = "campaign"

// newWorld makes a world with a manager of all controllers in it, for the time of a test.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, log: &lastLines{}}
	knobs := fakecloud.Realistic().Compress(200)
	knobs.GrantDelay, knobs.PolicyDelay = fakecloud.Between(50*time.Millisecond, 300*time.Millisecond), fakecloud.Between(50*time.Millisecond, 300*time.Millisecond)
	knobs.KeyLookup = fakecloud.Period(24 * time.Hour)
	w.cloud = fakecloud.New(fakecloud.Options{Knobs: knobs, Seed: int64(*seed)}) //nolint:gosec // any number is a seed
	w.cloudAt = w.cloud.StartHTTP()
	t.Cleanup(w.cloudAt.Close)
	demo := w.cloud.SeedDemo()
	w.cloud.SeedVault(demo.Subscription, demo.Group, "fixpoint-old", fakecloud.VaultSpec{AccessPolicies: true, PurgeProtection: true})
	if _, err := w.cloud.SeedKey("fixpoint-old", demo.Key, fakecloud.KeySpec{}); err != nil {
		t.Fatal(err)
	}
	w.answers = newAnswers(t)
	makeIngressClasses(t)
	play(t)
	w.seen = watchKinds(t)
	w.startManager()
	return w
}

// makeIngressClasses makes the class that is the cluster's default, and another one.
func makeIngressClasses(t *testing.T) {
	t.Helper()
	for name, isDefault := range map[string]string{common: "true", "other": "false"} {
		class := &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault}},
			Spec:       networkingv1.IngressClassSpec{Controller: "fixpoint.test/nobody"},
		}
		if err := api.Create(t.Context(), class); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// startManager runs a manager that knows nothing yet.
func (w *world) startManager() {
	w.t.Helper()
	g := NewWithT(w.t)
	ctx, cancel := context.WithCancel(context.Background())
	endpoint, err := url.Parse(w.answers.URL)
	g.Expect(err).NotTo(HaveOccurred())
	const workers = 16
	manager, err := controllers.NewManager(ctx, shared.Admin(), controllers.Options{
		Concurrency: workers, ProbeEndpoint: endpoint,
		Cloud:       cloud.Config{Cloud: fakecloud.CloudAt("http://cloud.test"), AllowHTTP: true, Transport: w},
		Credentials: cloud.TokenCredentials{Token: fakecloud.Token("manager")},
		Logger:      w.log.logger(),
	})
	g.Expect(err).NotTo(HaveOccurred())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := manager.Start(ctx); err != nil {
			w.t.Errorf("the manager ends with an error: %v", err)
		}
	}()
	w.stop = func() {
		cancel()
		<-ended
	}
	w.t.Cleanup(w.stop)
	select {
	case <-manager.Elected():
	case <-ended:
		w.t.Fatalf("the manager does not start:\n%s", w.log)
	}
}

// Do implements the transport of the cloud's SDK: every way leads to the fake.
func (w *world) Do(request *http.Request) (*http.Response, error) {
	at, err := url.Parse(w.cloudAt.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the cloud: %w", err)
	}
	request.URL.Scheme, request.URL.Host, request.Host = at.Scheme, at.Host, at.Host
	return w.cloudAt.Client().Do(request)
}

// namespace makes a namespace with all that specs refer to.
func (w *world) namespace(name string) {
	w.t.Helper()
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: name, Name: common} }
	credentials := &corev1.Secret{ObjectMeta: at(name), StringData: map[string]string{
		"tenantID": "tenant", "clientID": "client", "clientSecret": fakecloud.Token("manager")}}
	credentials.Name = "azure.credentials-1"
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&corev1.Secret{ObjectMeta: at(name), StringData: map[string]string{"token": "t", "password": "p", "tls.crt": string(w.authorities())}},
		&corev1.ConfigMap{ObjectMeta: at(name), Data: map[string]string{"mode": "fast", "a.json": "{}"}},
		&corev1.ServiceAccount{ObjectMeta: at(name)},
		&corev1.PersistentVolumeClaim{ObjectMeta: at(name), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}},
		credentials,
	}
	for _, object := range objects {
		if err := api.Create(context.Background(), object); err != nil {
			w.t.Errorf("making %T %s: %v", object, object.GetName(), err)
		}
	}
}

// authorities are certificates in PEM, of no use but to be read: nobody speaks TLS here.
func (w *world) authorities() []byte {
	return shared.Admin().CAData
}

// newAnswers is a server that speaks the Model Context Protocol at every path: the older transport
// where a stream is asked for, or continued, and the current one elsewhere.
func newAnswers(t *testing.T) *httptest.Server {
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

// panics is how often a reconcile of any manager of this process has panicked.
func panics() (float64, error) { return sumOf("controller_runtime_reconcile_panics_total") }

// reconciles is how many passes there have been in this process.
func reconciles() (float64, error) { return sumOf("controller_runtime_reconcile_total") }

// sumOf adds up a counter over all of its labels.
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
	return 0, fmt.Errorf("there is no counter %s: no controller ran, or it is named otherwise now", name)
}

// expectNoPanics is for the end of a test.
func (w *world) expectNoPanics() {
	w.t.Helper()
	g := NewWithT(w.t)
	count, err := panics()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(count).To(BeZero(), "a reconcile panicked:\n%s", w.log)
}

// lastLines keeps the youngest lines of a log.
type lastLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *lastLines) logger() logr.Logger {
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

// String is the log with what is about panics and errors, or all of it.
func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 40
	return strings.Join(l.lines[max(0, len(l.lines)-most):], "\n")
}
