package authorization

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	. "github.com/onsi/gomega"
)

func (e *endpoint) status(k key) func() int {
	return func() int {
		// Another ID of the token each time, so that it is not cached.
		e.clock.pass(time.Nanosecond)
		return e.with(sign(e.t, k, e.claims(map[string]any{"jti": e.clock.now().UnixNano()}), nil)).StatusCode
	}
}

func TestRotationWithOverlapRefusesNoToken(t *testing.T) {
	e := newEndpoint(t)
	old, next := signing(), ecKey("two", jose.ES256)
	e.Expect(e.status(old)()).To(Equal(http.StatusOK))

	e.issuer.publish(old, next)
	e.clock.pass(retryAfter)

	e.Expect(e.status(next)()).To(Equal(http.StatusOK), "the unknown key is fetched at once")
	e.Expect(e.status(old)()).To(Equal(http.StatusOK))
	e.Expect(e.issuer.fetches()).To(Equal(2))
}

func TestRotationWithoutOverlap(t *testing.T) {
	e := newEndpoint(t)
	old, next := signing(), ecKey("two", jose.ES256)
	e.Expect(e.status(old)()).To(Equal(http.StatusOK))

	e.issuer.publish(next)
	e.clock.pass(retryAfter)

	e.Expect(e.status(next)()).To(Equal(http.StatusOK))
	e.Expect(e.status(old)()).To(Equal(http.StatusUnauthorized), "the key was removed")
}

func TestRotationUnderTheSameID(t *testing.T) {
	e := newEndpoint(t)
	e.Expect(e.status(signing())()).To(Equal(http.StatusOK))
	next := ecKey(signing().id, jose.ES256)

	e.issuer.publish(next)
	e.clock.pass(retryAfter)

	e.Expect(e.status(next)()).To(Equal(http.StatusOK))
}

func TestRemovedKeyIsForgottenByTheRefresh(t *testing.T) {
	e := newEndpoint(t)
	old := signing()
	token := sign(t, old, e.claims(map[string]any{"exp": e.clock.in(1000 * time.Hour)}), nil) // It does not expire below.
	e.Expect(e.with(token).StatusCode).To(Equal(http.StatusOK))
	e.issuer.publish(ecKey("two", jose.ES256))

	e.clock.pass(refreshAfter)

	// The first requests do not wait for the refresh, and a token is not verified again within maxAge.
	e.Eventually(func() int {
		e.clock.pass(maxAge)
		return e.with(token).StatusCode
	}).Should(Equal(http.StatusUnauthorized))
}

func TestUnknownKeyIDsFetchAtABoundedRate(t *testing.T) {
	e := newEndpoint(t)
	e.Expect(e.status(signing())()).To(Equal(http.StatusOK))
	attacker := ecKey("x", jose.ES256)
	for i := range 200 {
		attacker.id = strings.Repeat("x", i+1)
		e.Expect(e.status(attacker)()).To(Equal(http.StatusUnauthorized))
	}
	e.Expect(e.issuer.fetches()).To(Equal(1))
	e.clock.pass(retryAfter)
	for range 10 {
		e.Expect(e.status(attacker)()).To(Equal(http.StatusUnauthorized))
	}
	e.Expect(e.issuer.fetches()).To(Equal(2))
}

func TestKnownKeysStayWhileTheIssuerIsDown(t *testing.T) {
	e := newEndpoint(t)
	e.Expect(e.status(signing())()).To(Equal(http.StatusOK))

	e.issuer.set(true)
	e.clock.pass(30 * time.Minute)

	for range 3 {
		e.Expect(e.status(signing())()).To(Equal(http.StatusOK))
		e.clock.pass(retryAfter)
	}
	e.Eventually(e.status(ecKey("two", jose.ES256))).Should(Equal(http.StatusServiceUnavailable), "it may be a new key")
}

func TestIssuerThatIsDownAtTheStart(t *testing.T) {
	e := newEndpoint(t)
	e.issuer.set(true)

	response := e.with(e.token(nil))

	e.Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
	e.Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
	code, description := e.failure(response)
	e.Expect(code).To(Equal("temporarily_unavailable"))
	e.Expect(description).To(ContainSubstring("retry later"))

	e.issuer.set(false)
	e.clock.pass(retryAfter)
	e.Expect(e.with(e.token(nil)).StatusCode).To(Equal(http.StatusOK))
}

func TestConcurrentRequestsFetchOnce(t *testing.T) {
	e := newEndpoint(t)
	token := e.token(nil)
	h := e.auth.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			r := httptest.NewRequest(http.MethodGet, external, http.NoBody)
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
		})
	}
	all.Wait()
	e.Expect(e.issuer.fetches()).To(Equal(1))
}

func writeKeys(g *WithT, path string, keys ...key) {
	var set jose.JSONWebKeySet
	for _, k := range keys {
		set.Keys = append(set.Keys, k.public())
	}
	raw, err := json.Marshal(set)
	g.Expect(err).NotTo(HaveOccurred())
	// As the kubelet does: a new file in the place of the old one.
	g.Expect(os.WriteFile(path+".new", raw, 0o600)).To(Succeed())
	g.Expect(os.Rename(path+".new", path)).To(Succeed())
}

func TestKeysFromAFileAreReadAgainWhenItChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jwks.json")
	e := newEndpoint(t, func(o *Options) { o.Issuers[0] = Issuer{URL: "https://offline.example.com", Keys: path} })
	status := func(k key) int {
		return e.with(sign(t, k, e.claims(map[string]any{"iss": "https://offline.example.com"}), nil)).StatusCode
	}
	e.Expect(status(signing())).To(Equal(http.StatusServiceUnavailable), "no file yet")
	writeKeys(e.WithT, path, signing())
	e.clock.pass(recheckAfter)
	e.Expect(status(signing())).To(Equal(http.StatusOK))

	next := ecKey("two", jose.ES256)
	writeKeys(e.WithT, path, next)
	e.clock.pass(max(recheckAfter, maxAge))
	e.Expect(status(next)).To(Equal(http.StatusOK))
	e.Expect(status(signing())).To(Equal(http.StatusUnauthorized))

	t.Log("keys stay while the file is not valid")
	e.Expect(os.WriteFile(path, []byte("{"), 0o600)).To(Succeed())
	e.clock.pass(max(recheckAfter, maxAge))
	e.Expect(status(next)).To(Equal(http.StatusOK))
}

func TestDiscovery(t *testing.T) {
	for path, at := range map[string]string{
		"":          "/.well-known/oauth-authorization-server",
		"/":         "/.well-known/openid-configuration",
		"/tenant":   "/.well-known/oauth-authorization-server/tenant",
		"/tenant/":  "/.well-known/openid-configuration/tenant",
		"/a/tenant": "/a/tenant/.well-known/openid-configuration",
	} {
		t.Run(path+" at "+at, func(t *testing.T) {
			var url string
			e := newEndpoint(t, func(o *Options) {
				o.Issuers[0].URL += path
				o.Issuers[0].Keys = ""
				url = o.Issuers[0].URL
			})
			e.issuer.metadata[at] = map[string]string{"issuer": url, "jwks_uri": e.issuer.keysURL()}

			e.auth.Prefetch(t.Context())

			e.Expect(e.issuer.fetches()).To(Equal(1))
			e.Expect(e.with(e.token(map[string]any{"iss": url})).StatusCode).To(Equal(http.StatusOK))
		})
	}
}

func TestDiscoveryIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ issuer, keys, says string }{
		"metadata of another issuer": {"https://evil.example.com", "/keys", "not \""},
		"no keys":                    {"", "none", "no jwks_uri"},
		"keys over plain HTTP":       {"", "http://keys.example.com/", "https"},
		"no metadata at all":         {"missing", "", "404"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, func(o *Options) { o.Issuers[0].Keys = "" })
			if c.issuer == "" {
				c.issuer = e.issuer.URL
			}
			switch c.keys {
			case "/keys":
				c.keys = e.issuer.keysURL()
			case "none":
				c.keys = ""
			}
			if c.issuer != "missing" {
				e.issuer.metadata["/.well-known/oauth-authorization-server"] = map[string]string{"issuer": c.issuer, "jwks_uri": c.keys}
			}

			_, err := e.auth.verifier.keys[e.issuer.URL].find(t.Context(), "one")

			e.Expect(err).To(MatchError(ContainSubstring(c.says)))
			e.Expect(e.with(e.token(nil)).StatusCode).To(Equal(http.StatusServiceUnavailable))
		})
	}
}

func TestResponsesOfIssuersAreBounded(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"a large response":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxResponse+1)) },
		"redirects without end": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) },
		"a redirect to http": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://keys.example.com/", http.StatusFound)
		},
		"not JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"no keys":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) },
		"only symmetric keys": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"one"}]}`))
		},
		"more keys than are read": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys":[` + strings.Repeat("{},", maxKeys) + `{}]}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := httptest.NewServer(serve)
			defer server.Close()
			opts := Options{Issuers: []Issuer{{URL: "https://id.example.com"}}, Resources: []string{external}}
			g.Expect(opts.complete()).To(Succeed())

			_, err := newFetcher(&opts).keys(context.Background(), server.URL)

			g.Expect(err).To(HaveOccurred())
		})
	}
}

func TestUnsupportedKeysAreIgnored(t *testing.T) {
	g := NewWithT(t)
	one, err := json.Marshal(signing().public())
	g.Expect(err).NotTo(HaveOccurred())
	encryption := signing().public()
	encryption.Use = "enc"
	two, err := json.Marshal(encryption)
	g.Expect(err).NotTo(HaveOccurred())
	private, err := json.Marshal(jose.JSONWebKey{Key: signing().private, KeyID: "private"})
	g.Expect(err).NotTo(HaveOccurred())

	keys, err := parseKeys([]byte(`{"keys":[{"kty":"new"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},` + string(two) + `,` + string(private) + `,` + string(one) + `]}`))

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(keys).To(HaveLen(1))
	g.Expect(keys[0].KeyID).To(Equal("one"))
}
