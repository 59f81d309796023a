package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/chromedp/cdproto/cdp"
)

// serveHTTP serves a handler on loopback until the test ends.
func (w *fixture) serveHTTP(handler http.Handler) string {
	server := httptest.NewServer(handler)
	w.T.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
}

// apiServerWith returns the configuration of an API server that has many AppServices and answers what the console asks
// for the fleet. A cluster would take minutes to create them, and the other tests would see them.
func (w *fixture) apiServerWith(objects int) *rest.Config {
	answer := func(out http.ResponseWriter, value any) {
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(value) // the console leaves its requests when the test ends
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", func(out http.ResponseWriter, _ *http.Request) {
		answer(out, map[string]any{
			"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": map[string]any{"userInfo": map[string]any{"username": "reader"}},
		})
	})
	mux.HandleFunc("GET /apis/fixpoint.dev/v1beta1/{resource}", func(out http.ResponseWriter, r *http.Request) {
		var items []map[string]any
		kind := map[string]string{"appservices": "AppService", "mcpservers": "MCPServer", "securestorages": "SecureStorage"}[r.PathValue("resource")]
		if kind == "AppService" {
			items = manyApps(objects)
		}
		if r.URL.Query().Get("watch") == "" {
			answer(out, map[string]any{
				"apiVersion": "fixpoint.dev/v1beta1", "kind": kind + "List", "metadata": map[string]any{"resourceVersion": "20000"}, "items": items,
			})
			return
		}
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			for _, item := range items {
				answer(out, map[string]any{"type": "ADDED", "object": item})
			}
			answer(out, map[string]any{"type": "BOOKMARK", "object": map[string]any{
				"apiVersion": "fixpoint.dev/v1beta1", "kind": kind,
				"metadata": map[string]any{"resourceVersion": "20000", "annotations": map[string]string{"k8s.io/initial-events-end": "true"}},
			}})
		}
		_ = http.NewResponseController(out).Flush()
		<-r.Context().Done()
	})
	return &rest.Config{Host: w.serveHTTP(mux)}
}

// manyApps are AppServices of which one in five hundred is not ready.
func manyApps(objects int) []map[string]any {
	var items []map[string]any
	for i := range objects {
		status, reason, message, phase := "True", "Ready", "all phases are ready", "Running"
		if i%1000 == 500 {
			status, reason, message, phase = "False", "PodsFailing", "Deployment: 1 of 2 pods are failing: container app is in CrashLoopBackOff", "Degraded"
		}
		items = append(items, map[string]any{
			"apiVersion": "fixpoint.dev/v1beta1", "kind": "AppService",
			"metadata": map[string]any{
				"name": fmt.Sprintf("object-%05d", i), "namespace": fmt.Sprintf("team-%02d", i/500), "uid": fmt.Sprintf("uid-%d", i),
				"resourceVersion": fmt.Sprint(10_000 + i), "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
			},
			"spec": map[string]any{"image": "registry.test/shop:1", "replicas": 2},
			"status": map[string]any{"observedGeneration": 1, "phase": phase, "conditions": []any{map[string]any{
				"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:01:00Z", "observedGeneration": 1,
			}}},
		})
	}
	return items
}

// heap is the memory that the page holds after a garbage collection: of its scripts, its elements and its buffers.
func (b *chromium) heap() int64 {
	b.T.Helper()
	_, err := chromedp.Call(b.ctx, heapprofiler.CollectGarbage, cdp.Empty{})
	b.Expect(err).NotTo(HaveOccurred())
	usage, err := chromedp.Call(b.ctx, runtime.GetHeapUsage, cdp.Empty{})
	b.Expect(err).NotTo(HaveOccurred())
	return int64(usage.UsedSize + usage.EmbedderHeapUsedSize + usage.BackingStorageSize)
}
