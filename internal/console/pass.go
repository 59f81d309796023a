package console

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// passedPath is where the paths of requests that are passed begin.
const passedPath = "/apis/fixpoint.dev/"

// passedMethods are those that the API server gets.
var passedMethods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// passedHeaders are those of a request that the API server gets. Cookies, credentials and impersonation are not among them.
var passedHeaders = []string{"Accept", "Accept-Encoding", "Content-Type", "Content-Length", "If-Match", "If-None-Match", "User-Agent"}

// pass passes a request to the API server, with the credential of the user.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, c *caller) error {
	if !slices.Contains(passedMethods, r.Method) {
		return refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "the method is %s: use one of %s", r.Method, strings.Join(passedMethods, ", "))
	}
	if !strings.HasPrefix(path.Clean(r.URL.Path), passedPath) {
		return notFound("the console passes %s only", passedPath)
	}
	server, _, err := rest.DefaultServerUrlFor(s.options.Config)
	if err != nil {
		return err
	}
	// It is read here, so that the transport can send it again: an API server that closes a connection refuses requests
	// that are on their way, without executing them.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	whole, err := http.NewRequestWithContext(r.Context(), r.Method, "/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	if err := endless(w); err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Transport:     c.transport,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{Scheme: server.Scheme, Host: server.Host, Path: path.Join("/", server.Path, p.In.URL.Path), RawQuery: p.In.URL.RawQuery}
			p.Out.Host = server.Host
			p.Out.Body, p.Out.GetBody, p.Out.ContentLength = whole.Body, whole.GetBody, whole.ContentLength
			for name := range p.Out.Header {
				if !slices.Contains(passedHeaders, name) {
					p.Out.Header.Del(name)
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { writeError(w, err) },
	}
	proxy.ServeHTTP(w, r)
	return nil
}

// endless takes the deadlines from a request that may be a stream.
func endless(w http.ResponseWriter) error {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	return control.SetWriteDeadline(time.Time{})
}
