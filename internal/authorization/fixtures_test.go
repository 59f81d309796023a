package authorization

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	. "github.com/onsi/gomega"
)

const (
	external = "https://tools.example.com/mcp"
	internal = "http://tools.acme.svc:8080/mcp"
)

// key is a private key with an ID.
type key struct {
	id        string
	algorithm jose.SignatureAlgorithm
	private   any
}

func rsaKey(id string, algorithm jose.SignatureAlgorithm) key {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key{id, algorithm, private}
}

func ecKey(id string, algorithm jose.SignatureAlgorithm) key {
	private, err := ecdsa.GenerateKey(curves[algorithm], rand.Reader)
	if err != nil {
		panic(err)
	}
	return key{id, algorithm, private}
}

func edKey(id string) key {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return key{id, jose.EdDSA, private}
}

// public is the key as an issuer publishes it, without the algorithm.
func (k key) public() jose.JSONWebKey {
	full := jose.JSONWebKey{Key: k.private, KeyID: k.id, Use: "sig"}
	return full.Public()
}

// The key of the issuer in most tests.
var signing = sync.OnceValue(func() key { return ecKey("one", jose.ES256) })

// clock is a time that tests change.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time         { return time.Unix(0, c.at.Load()) }
func (c *clock) pass(d time.Duration)   { c.at.Add(int64(d)) }
func (c *clock) in(d time.Duration) any { return c.now().Add(d).Unix() }

// issuer is an authorization server.
type issuer struct {
	*httptest.Server
	mu sync.Mutex
	// keys are published; nothing is served while down.
	keys  []any
	down  bool
	reads int
	// metadata are served by path.
	metadata map[string]map[string]string
}

func newIssuer(t testing.TB, keys ...key) *issuer {
	t.Helper()
	i := &issuer{metadata: map[string]map[string]string{}}
	i.publish(keys...)
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) publish(keys ...key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = nil
	for _, k := range keys {
		i.keys = append(i.keys, k.public())
	}
}

func (i *issuer) set(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

func (i *issuer) fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.reads
}

func (i *issuer) keysURL() string { return i.URL + "/keys" }

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.down {
		http.Error(w, "down", http.StatusBadGateway)
		return
	}
	if metadata, ok := i.metadata[r.URL.Path]; ok {
		_ = json.NewEncoder(w).Encode(metadata)
		return
	}
	if r.URL.Path != "/keys" {
		http.NotFound(w, r)
		return
	}
	i.reads++
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": i.keys})
}

// sign returns a token with these claims and header fields.
func sign(t testing.TB, with key, claims map[string]any, header map[string]any) string {
	t.Helper()
	g := NewWithT(t)
	options := &jose.SignerOptions{ExtraHeaders: map[jose.HeaderKey]any{}}
	if with.id != "" {
		options.ExtraHeaders["kid"] = with.id
	}
	for name, value := range header {
		options.ExtraHeaders[jose.HeaderKey(name)] = value
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: with.algorithm, Key: with.private}, options)
	g.Expect(err).NotTo(HaveOccurred())
	payload, err := json.Marshal(claims)
	g.Expect(err).NotTo(HaveOccurred())
	signed, err := signer.Sign(payload)
	g.Expect(err).NotTo(HaveOccurred())
	token, err := signed.CompactSerialize()
	g.Expect(err).NotTo(HaveOccurred())
	return token
}

// endpoint is a protected endpoint with its issuer.
type endpoint struct {
	*WithT
	t      testing.TB
	issuer *issuer
	clock  *clock
	auth   *Authorizer
	http   http.Handler
	// received are the requests that reached the server.
	received []*http.Request
	body     string
}

func newEndpoint(t testing.TB, change ...func(*Options)) *endpoint {
	t.Helper()
	e := &endpoint{WithT: NewWithT(t), t: t, issuer: newIssuer(t, signing()), clock: newClock()}
	e.SetDefaultEventuallyTimeout(time.Minute)
	opts := Options{
		Issuers:   []Issuer{{URL: e.issuer.URL, Keys: e.issuer.keysURL()}},
		Resources: []string{external, internal},
		Scopes:    []string{"mcp"},
		now:       e.clock.now,
	}
	for _, c := range change {
		c(&opts)
	}
	auth, err := New(opts)
	e.Expect(err).NotTo(HaveOccurred())
	e.auth = auth
	e.http = auth.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.received = append(e.received, r)
		body, err := io.ReadAll(r.Body)
		e.Expect(err).NotTo(HaveOccurred())
		e.body = string(body)
		w.WriteHeader(http.StatusOK)
	}))
	return e
}

// claims are those of a valid token, with changes; a nil value removes one.
func (e *endpoint) claims(changes map[string]any) map[string]any {
	all := map[string]any{
		"iss": e.issuer.URL, "sub": "ann", "aud": external, "exp": e.clock.in(time.Hour), "nbf": e.clock.in(-time.Minute), "scope": "mcp",
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	return all
}

// token is a valid token with changes of its claims.
func (e *endpoint) token(changes map[string]any) string {
	e.t.Helper()
	return sign(e.t, signing(), e.claims(changes), map[string]any{"typ": "at+jwt"})
}

// do sends a request; the body is JSON.
func (e *endpoint) do(method, target, body string, header ...string) *http.Response {
	e.t.Helper()
	e.received, e.body = nil, ""
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequest(method, target, http.NoBody)
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Content-Type" {
			r.Header.Del(header[i])
		}
		// As net/http reads it from a connection: not canonical if it is not a name of letters, digits and -.
		r.Header[http.CanonicalHeaderKey(header[i])] = append(r.Header[http.CanonicalHeaderKey(header[i])], header[i+1])
	}
	w := httptest.NewRecorder()
	e.http.ServeHTTP(w, r)
	return w.Result()
}

// with sends a request with a token.
func (e *endpoint) with(token string) *http.Response {
	e.t.Helper()
	return e.do(http.MethodPost, external, `{}`, "Authorization", "Bearer "+token)
}

// failure is the error in a response.
func (e *endpoint) failure(r *http.Response) (code, description string) {
	e.t.Helper()
	defer r.Body.Close()
	var body struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	e.Expect(r.Header.Get("Content-Type")).To(Equal("application/json"))
	e.Expect(json.NewDecoder(r.Body).Decode(&body)).To(Succeed())
	return body.Code, body.Description
}
