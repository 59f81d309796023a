package controllers

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
)

// apiServer serves the resources of fixpoint.dev/v1beta1, or 404 without any.
func apiServer(t *testing.T) (cfg *rest.Config, serve func(resources ...string), asked *atomic.Int32) {
	t.Helper()
	var served atomic.Value
	served.Store([]string(nil))
	asked = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		names, _ := served.Load().([]string)
		w.Header().Set("Content-Type", "application/json")
		if len(names) == 0 {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
			return
		}
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "fixpoint.dev/v1beta1"}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}, func(resources ...string) { served.Store(resources) }, asked
}

func TestStartsAtOnceIfAllKindsAreServed(t *testing.T) {
	g := NewWithT(t)
	cfg, serve, asked := apiServer(t)
	serve("appservices", "mcpservers", "securestorages")
	g.Expect(Options{Controllers: Names(), HealthProbeAddress: "not an address", Logger: logr.Discard()}.awaitKinds(t.Context(), cfg, time.Hour)).To(Succeed())
	g.Expect(asked.Load()).To(BeEquivalentTo(1))
}

func TestWaitsForTheKindsOfItsControllers(t *testing.T) {
	g := NewWithT(t)
	cfg, serve, _ := apiServer(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
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
	go func() { ended <- options.awaitKinds(t.Context(), cfg, time.Millisecond) }()

	g.Eventually(logged).Should(Receive(And(ContainSubstring("Waiting for the CustomResourceDefinitions"), ContainSubstring(`"missing"="appservices, mcpservers, securestorages"`))))
	g.Eventually(func() int { code, _ := probe("/healthz"); return code }).Should(Equal(http.StatusOK))
	code, text := probe("/readyz")
	g.Expect(code).To(Equal(http.StatusServiceUnavailable))
	g.Expect(text).To(ContainSubstring("apply install.yaml of this version"))
	serve("appservices", "securestorages")
	g.Eventually(logged).Should(Receive(ContainSubstring(`"missing"="mcpservers"`)))
	g.Consistently(ended, "20ms").ShouldNot(Receive())

	serve("appservices", "mcpservers", "securestorages")
	g.Eventually(ended).Should(Receive(BeNil()))
	g.Eventually(logged).Should(Receive(ContainSubstring("All kinds are served")))
	code, _ = probe("/healthz")
	g.Expect(code).To(BeZero(), "the manager uses the address")
}

func TestWaitsForNoKindOfOtherControllers(t *testing.T) {
	cfg, serve, _ := apiServer(t)
	serve("appservices")
	NewWithT(t).Expect(Options{Controllers: []string{appservice.Name}, Logger: logr.Discard()}.awaitKinds(t.Context(), cfg, time.Hour)).To(Succeed())
}

func TestWaitsForKindsUntilItIsStopped(t *testing.T) {
	cfg, _, _ := apiServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	NewWithT(t).Expect(Options{Controllers: Names(), Logger: logr.Discard()}.awaitKinds(ctx, cfg, time.Hour)).To(MatchError(context.Canceled))
}

// The manager itself retries while the API server does not respond.
func TestDoesNotWaitForAnAPIServerThatDoesNotRespond(t *testing.T) {
	NewWithT(t).Expect(Options{Controllers: Names(), Logger: logr.Discard()}.awaitKinds(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}, time.Hour)).To(Succeed())
}
