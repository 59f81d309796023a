package console

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

// refusedOnce is a transport whose first connection the API server closes when the request has been sent, without
// executing it. That of HTTP/2 sends it again, if it can get the body again.
type refusedOnce struct{ sent []string }

// RoundTrip implements [http.RoundTripper].
func (t *refusedOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	body := r.Body
	for range 2 {
		raw, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		t.sent = append(t.sent, r.Method+" "+string(raw))
		if body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: http.NoBody, ContentLength: r.ContentLength, Request: r}, nil
}

func TestPassedBodyCanBeSentAgain(t *testing.T) {
	g := NewWithT(t)
	transport := &refusedOnce{}
	s := &Server{options: Options{Config: &rest.Config{Host: "https://api.invalid"}}}
	console := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.pass(w, r, &caller{user: &user{transport: transport}}); err != nil {
			writeError(w, err)
		}
	}))
	defer console.Close()
	// without a length, as curl sends what it reads from a pipe
	for _, body := range []io.Reader{strings.NewReader(`{"kind":"AppService"}`), io.MultiReader(bytes.NewReader([]byte(`{"kind":`)), strings.NewReader(`"AppService"}`))} {
		transport.sent = nil
		response, err := http.Post(console.URL+appPath, "application/json", body)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		g.Expect(response.StatusCode).To(Equal(http.StatusCreated))
		g.Expect(transport.sent).To(HaveExactElements(`POST {"kind":"AppService"}`, `POST {"kind":"AppService"}`))
	}
}
