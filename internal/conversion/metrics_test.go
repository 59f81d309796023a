package conversion

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
)

func TestMetricsCountConversionsByResult(t *testing.T) {
	g, registry := NewWithT(t), prometheus.NewRegistry()
	metrics, err := NewMetrics(registry)
	g.Expect(err).NotTo(HaveOccurred())
	again, err := NewMetrics(registry)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.duration).To(BeIdenticalTo(metrics.duration))

	handler := Handler(logr.Discard(), metrics)
	for _, body := range []string{
		string(reviewOf(v1beta1, `{"apiVersion":"fixpoint.dev/v1alpha1","kind":"AppService"}`)),
		string(reviewOf(v1beta1, `{"apiVersion":"fixpoint.dev/v1alpha1","kind":"AppService"}`)),
		string(reviewOf(v1beta1, `{"apiVersion":"fixpoint.dev/v1alpha1","kind":"MCPServer","spec":{"protocol":{"tls":"yes"}}}`)),
		"hello",
	} {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body)))
	}

	gathered, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(gathered).To(HaveLen(1))
	counts := map[string]uint64{}
	for _, metric := range gathered[0].GetMetric() {
		counts[metric.GetLabel()[0].GetValue()] = metric.GetHistogram().GetSampleCount()
	}
	g.Expect(counts).To(Equal(map[string]uint64{"converted": 2, "failed": 1, "refused": 1}))
}
