package controllers

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
)

// discovery is a fake API server that serves some kinds of fixpoint.dev/v1beta1.
type discovery struct {
	// kinds are in the document of the version, and aggregated in that of all groups. API servers update the latter later.
	kinds, aggregated atomic.Value
	// status is the code of all responses, if it is not 0.
	status atomic.Int32
	asked  atomic.Int32
}

func (d *discovery) serve(kinds ...string) {
	d.kinds.Store(kinds)
	d.aggregated.Store(kinds)
}

func (d *discovery) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.asked.Add(1)
	if code := int(d.status.Load()); code != 0 {
		respond(w, code, "application/json", metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: reasons[code], Code: int32(code)}) //nolint:gosec // a status code
		return
	}
	switch r.URL.Path {
	case "/api":
		respond(w, http.StatusOK, aggregatedType, apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{{Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1"}}}}})
	case "/apis":
		groups := []apidiscoveryv2.APIGroupDiscovery{{ObjectMeta: metav1.ObjectMeta{Name: "apps"}, Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1"}}}}
		if kinds, _ := d.aggregated.Load().([]string); len(kinds) > 0 {
			version := apidiscoveryv2.APIVersionDiscovery{Version: "v1beta1"}
			for _, kind := range kinds {
				version.Resources = append(version.Resources, apidiscoveryv2.APIResourceDiscovery{
					Resource: strings.ToLower(kind) + "s", ResponseKind: &metav1.GroupVersionKind{Kind: kind}, Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"list"},
				})
			}
			groups = append(groups, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: "fixpoint.dev"}, Versions: []apidiscoveryv2.APIVersionDiscovery{version}})
		}
		respond(w, http.StatusOK, aggregatedType, apidiscoveryv2.APIGroupDiscoveryList{Items: groups})
	default:
		kinds, _ := d.kinds.Load().([]string)
		if len(kinds) == 0 {
			respond(w, http.StatusNotFound, "application/json", metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
			return
		}
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "fixpoint.dev/v1beta1"}
		for _, kind := range kinds {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: true})
		}
		respond(w, http.StatusOK, "application/json", list)
	}
}

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

var reasons = map[int]metav1.StatusReason{
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusUnauthorized: metav1.StatusReasonUnauthorized,
	http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
}

func respond(w http.ResponseWriter, code int, contentType string, object any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func startDiscovery(t *testing.T) (*discovery, meta.RESTMapper) {
	t.Helper()
	d := &discovery{}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	mapper, err := newMapper(&rest.Config{Host: server.URL})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return d, mapper
}

func TestStartsAtOnceIfAllKindsAreServed(t *testing.T) {
	g := NewWithT(t)
	d, mapper := startDiscovery(t)
	d.serve("AppService", "MCPServer", "SecureStorage")
	g.Expect(Options{Controllers: Names(), HealthProbeAddress: "not an address", Logger: logr.Discard()}.awaitKinds(t.Context(), mapper, time.Hour)).To(Succeed())
	g.Expect(d.asked.Load()).To(BeEquivalentTo(2), "the core group and all others")
}

// A mapper of its own would fail in the manager, which would exit.
func TestMapperOfTheManagerKnowsKindsThatAreNotAggregatedYet(t *testing.T) {
	g := NewWithT(t)
	d, mapper := startDiscovery(t)
	d.kinds.Store([]string{"AppService", "MCPServer", "SecureStorage"})
	g.Expect(Options{Controllers: Names(), HealthProbeAddress: "127.0.0.1:0", Logger: logr.Discard()}.awaitKinds(t.Context(), mapper, time.Millisecond)).To(Succeed())
	for _, kind := range []string{"AppService", "MCPServer", "SecureStorage"} {
		_, err := mapper.RESTMapping(schema.GroupKind{Group: "fixpoint.dev", Kind: kind}, "v1beta1")
		g.Expect(err).NotTo(HaveOccurred())
	}
}

func TestWaitsForTheKindsOfItsControllers(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	d, mapper := startDiscovery(t)
	listener, err := net.Listen("tcp", "127.0.0.77:0") // no other test takes its port meanwhile
	g.Expect(err).NotTo(HaveOccurred())
	address := listener.Addr().String()
	g.Expect(listener.Close()).To(Succeed())
	logged := make(chan string, 10)
	options := Options{Controllers: Names(), HealthProbeAddress: address, Logger: funcr.New(func(_, args string) { logged <- args }, funcr.Options{})}
	probe := func(path string) (int, string) {
		response, err := http.Get("http://" + address + path) //nolint:noctx // a probe
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	ended := make(chan error, 1)
	go func() { ended <- options.awaitKinds(t.Context(), mapper, time.Millisecond) }()

	g.Eventually(logged).Should(Receive(And(ContainSubstring("Waiting for the kinds"), ContainSubstring("missing appservices, mcpservers, securestorages"))))
	g.Eventually(func() int { code, _ := probe("/healthz"); return code }).Should(Equal(http.StatusOK))
	code, text := probe("/readyz")
	g.Expect(code).To(Equal(http.StatusServiceUnavailable))
	g.Expect(text).To(ContainSubstring("apply install.yaml of this version"))
	d.serve("AppService", "SecureStorage")
	g.Eventually(logged).Should(Receive(ContainSubstring("missing mcpservers")))
	g.Consistently(ended, "20ms").ShouldNot(Receive())

	d.serve("AppService", "MCPServer", "SecureStorage")
	g.Eventually(ended).Should(Receive(BeNil()))
	g.Eventually(logged).Should(Receive(ContainSubstring("All kinds are served")))
	code, _ = probe("/healthz")
	g.Expect(code).To(BeZero(), "the manager uses the address")
}

func TestWaitsForNoKindOfOtherControllers(t *testing.T) {
	d, mapper := startDiscovery(t)
	d.serve("AppService")
	NewWithT(t).Expect(Options{Controllers: []string{appservice.Name}, Logger: logr.Discard()}.awaitKinds(t.Context(), mapper, time.Hour)).To(Succeed())
}

func TestWaitsForKindsUntilItIsStopped(t *testing.T) {
	_, mapper := startDiscovery(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	NewWithT(t).Expect(Options{Controllers: Names(), Logger: logr.Discard()}.awaitKinds(ctx, mapper, time.Hour)).To(MatchError(context.Canceled))
}

// The reason is logged when it changes.
func TestTheReasonToWaitForKindsListsThemInOrder(t *testing.T) {
	_, mapper := startDiscovery(t)
	for range 20 {
		reason, err := Options{Controllers: Names()}.whyKindsAreMissing(mapper)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(reason).To(Equal("apply install.yaml of this version: missing appservices, mcpservers, securestorages"))
	}
}

func TestWaitsForAnAPIServerThatDoesNotRespond(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	d, mapper := startDiscovery(t)
	d.serve("AppService", "MCPServer", "SecureStorage")
	d.status.Store(http.StatusServiceUnavailable)
	logged := make(chan string, 10)
	options := Options{Controllers: Names(), HealthProbeAddress: "127.0.0.1:0", Logger: funcr.New(func(_, args string) { logged <- args }, funcr.Options{})}
	ended := make(chan error, 1)
	go func() { ended <- options.awaitKinds(t.Context(), mapper, time.Millisecond) }()

	g.Eventually(logged).Should(Receive(ContainSubstring("the API server does not respond")))
	g.Consistently(ended, "20ms").ShouldNot(Receive())
	d.status.Store(0)
	g.Eventually(ended).Should(Receive(BeNil()))
}

func TestFailsWithoutPermissionToReadTheKinds(t *testing.T) {
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		d, mapper := startDiscovery(t)
		d.status.Store(int32(code)) //nolint:gosec // a status code
		err := Options{Controllers: Names(), HealthProbeAddress: "not an address", Logger: logr.Discard()}.awaitKinds(t.Context(), mapper, time.Hour)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("reading the kinds that the API server serves")))
	}
}

func TestDiscoveryHasATimeout(t *testing.T) {
	g := NewWithT(t)
	server, cfg := startAPIServer(t)
	mapper, err := newMapper(cfg)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cfg.Timeout).To(BeZero(), "watches have none")
	_, err = mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "v1")
	g.Expect(err).NotTo(HaveOccurred())
	for _, request := range server.sent(http.MethodGet, "/apis") {
		g.Expect(request.URL.Query().Get("timeout")).To(Equal("10s"))
	}
}

func TestServesHealthProbesOnlyAtAnAddress(t *testing.T) {
	g := NewWithT(t)
	for _, address := range []string{"", "0"} {
		stop, err := serveWaiting(address)
		g.Expect(err).NotTo(HaveOccurred())
		stop()
	}
	_, mapper := startDiscovery(t)
	err := Options{Controllers: Names(), HealthProbeAddress: "not an address", Logger: logr.Discard()}.awaitKinds(t.Context(), mapper, time.Hour)
	g.Expect(err).To(MatchError(HavePrefix("serving health probes: ")))
}

func TestStopsWaitingForKindsWithoutPermission(t *testing.T) {
	g := NewWithT(t)
	d, mapper := startDiscovery(t)
	logger := funcr.New(func(string, string) { d.status.Store(http.StatusForbidden) }, funcr.Options{})
	err := Options{Controllers: Names(), Logger: logger}.awaitKinds(t.Context(), mapper, time.Millisecond)
	g.Expect(err).To(MatchError(ContainSubstring("reading the kinds that the API server serves")))
}
