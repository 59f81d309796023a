package conversion

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// reviewOf encodes a ConversionReview as the API server does.
func reviewOf(to string, objects ...string) []byte {
	review := apiextensionsv1.ConversionReview{Request: &apiextensionsv1.ConversionRequest{UID: "705ab4f5", DesiredAPIVersion: to}}
	review.APIVersion, review.Kind = "apiextensions.k8s.io/v1", "ConversionReview"
	for _, object := range objects {
		review.Request.Objects = append(review.Request.Objects, runtime.RawExtension{Raw: []byte(object)})
	}
	encoded, err := json.Marshal(review)
	if err != nil {
		panic(err)
	}
	return encoded
}

func respond(g *WithT, method string, body []byte) (int, *apiextensionsv1.ConversionResponse, string) {
	recorder := httptest.NewRecorder()
	Handler(logr.Discard(), nil).ServeHTTP(recorder, httptest.NewRequest(method, Path, bytes.NewReader(body)))
	if recorder.Code != http.StatusOK {
		return recorder.Code, nil, recorder.Body.String()
	}
	var review apiextensionsv1.ConversionReview
	g.Expect(json.Unmarshal(recorder.Body.Bytes(), &review)).To(Succeed(), "%s", recorder.Body)
	g.Expect(review.Kind).To(Equal("ConversionReview"))
	g.Expect(review.APIVersion).To(Equal("apiextensions.k8s.io/v1"))
	return recorder.Code, review.Response, ""
}

func TestHandlerConvertsTheObjectsOfAReview(t *testing.T) {
	g := NewWithT(t)
	_, response, _ := respond(g, http.MethodPost, reviewOf(v1beta1,
		`{"apiVersion":"fixpoint.dev/v1alpha1","kind":"MCPServer","metadata":{},"spec":{"protocol":{"tls":true}}}`,
		`{"apiVersion":"fixpoint.dev/v1beta1","kind":"MCPServer","spec":{"protocol":{"scheme":"HTTP"}}}`,
		`{"apiVersion":"fixpoint.dev/v1alpha1","kind":"SecureStorage","metadata":{},"spec":{"key":{"keyName":"a"}}}`))

	g.Expect(response.UID).To(BeEquivalentTo("705ab4f5"))
	g.Expect(response.Result.Status).To(Equal("Success"))
	var converted []string
	for _, object := range response.ConvertedObjects {
		converted = append(converted, string(object.Raw))
	}
	g.Expect(converted).To(Equal([]string{
		`{"apiVersion":"fixpoint.dev/v1beta1","kind":"MCPServer","metadata":{},"spec":{"protocol":{"scheme":"HTTPS"}}}`,
		`{"apiVersion":"fixpoint.dev/v1beta1","kind":"MCPServer","spec":{"protocol":{"scheme":"HTTP"}}}`,
		`{"apiVersion":"fixpoint.dev/v1beta1","kind":"SecureStorage","metadata":{},"spec":{"key":{"name":"a"}}}`,
	}))
}

func TestHandlerReadsMembersInAnyOrder(t *testing.T) {
	g := NewWithT(t)
	_, response, _ := respond(g, http.MethodPost, []byte(
		`{"request":{"objects":[ {"kind":"AppService","apiVersion":"fixpoint.dev/v1alpha1"} , {"apiVersion":"fixpoint.dev/v1beta1"} ],"desiredAPIVersion":"fixpoint.dev/v1beta1","uid":"a\"b"}}`))
	g.Expect(response.UID).To(BeEquivalentTo(`a"b`))
	g.Expect(response.ConvertedObjects).To(HaveLen(2))
	g.Expect(response.ConvertedObjects[0].Raw).To(MatchJSON(`{"kind":"AppService","apiVersion":"fixpoint.dev/v1beta1","metadata":{}}`))
}

func TestHandlerAnswersAReviewWithoutObjects(t *testing.T) {
	g := NewWithT(t)
	_, response, _ := respond(g, http.MethodPost, []byte(`{"request":{"uid":"a","desiredAPIVersion":"fixpoint.dev/v1beta1","objects":[]}}`))
	g.Expect(response.Result.Status).To(Equal("Success"))
	g.Expect(response.ConvertedObjects).To(BeEmpty())
}

func TestHandlerReportsTheFieldThatFails(t *testing.T) {
	g := NewWithT(t)
	_, response, _ := respond(g, http.MethodPost, reviewOf(v1beta1,
		`{"apiVersion":"fixpoint.dev/v1alpha1","kind":"MCPServer"}`,
		`{"apiVersion":"fixpoint.dev/v1alpha1","kind":"MCPServer","spec":{"protocol":{"tls":"yes"}}}`))
	g.Expect(response.UID).To(BeEquivalentTo("705ab4f5"))
	g.Expect(response.Result.Status).To(Equal("Failure"))
	g.Expect(response.Result.Message).To(Equal(`spec.protocol.tls: is "yes": set one of false, true`))
	g.Expect(response.ConvertedObjects).To(BeEmpty())
}

func TestHandlerRefusesOtherRequests(t *testing.T) {
	for name, c := range map[string]struct {
		method, body string
		code         int
		says         string
	}{
		"another method": {http.MethodGet, "", http.StatusMethodNotAllowed, "send a ConversionReview in a POST request"},
		"no JSON":        {http.MethodPost, "hello", http.StatusBadRequest, "parsing the ConversionReview: unexpected character 'h' at byte 0"},
		"nothing":        {http.MethodPost, "", http.StatusBadRequest, "parsing the ConversionReview: unexpected end of JSON"},
		"no request":     {http.MethodPost, `{"kind":"ConversionReview"}`, http.StatusBadRequest, "request.uid, request.desiredAPIVersion or request.objects is missing"},
		"no objects":     {http.MethodPost, `{"request":{"uid":"a","desiredAPIVersion":"fixpoint.dev/v1beta1"}}`, http.StatusBadRequest, "request.objects is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			code, _, says := respond(g, c.method, []byte(c.body))
			g.Expect(code).To(Equal(c.code))
			g.Expect(says).To(ContainSubstring(c.says))
		})
	}
}

// largest is an MCPServer of the size that etcd limits a request to, 1.5 MiB, with text that JSON escapes.
func largest() string {
	var files, args []string
	line := `{\"name\": \"tool\", \"path\": \"C:\\\\tools\"}\n`
	for i := range 4 {
		files = append(files, fmt.Sprintf(`{"path":"/etc/tools-%d.json","content":"%s"}`, i, strings.Repeat(line, 131072*4/5/len(line))))
	}
	for len(args) < 64 {
		args = append(args, `"`+strings.Repeat("a", 16384)+`"`)
	}
	return fmt.Sprintf(`{"apiVersion":"fixpoint.dev/v1alpha1","kind":"MCPServer","metadata":{"name":"tools"},`+
		`"spec":{"args":[%s],"files":[%s],"protocol":{"disabled":false,"tls":true}},"status":{"askedVersions":["a"],"drifts":[{"from":"a","to":"b"}]}}`,
		strings.Join(args, ","), strings.Join(files, ","))
}

// BenchmarkReview measures the conversion of the largest valid object, and of one of the usual size.
func BenchmarkReview(b *testing.B) {
	usual := `{"apiVersion":"fixpoint.dev/v1alpha1","kind":"MCPServer","metadata":{"name":"tools","managedFields":[` + strings.Repeat(`{"fieldsV1":{"f:spec":{}}},`, 60) + `{}]},"spec":{"image":"a","protocol":{"tls":true}},"status":{}}`
	for name, object := range map[string]string{"largest": largest(), "usual": usual} {
		body := reviewOf(v1beta1, object)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			var times []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, _, err := answer(body); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(start))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
		})
	}
}
