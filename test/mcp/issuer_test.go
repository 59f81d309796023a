package mcp

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// testIssuer signs tokens with a key that the proxy knows from a file.
type testIssuer struct {
	key  ed25519.PrivateKey
	file string
}

const issuerURL = "https://id.example.com"

func newIssuer(t *testing.T, g *WithT) *testIssuer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	i := &testIssuer{key: private, file: filepath.Join(t.TempDir(), "jwks.json")}
	keys := map[string]any{"keys": []any{map[string]string{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": base64.RawURLEncoding.EncodeToString(public)}}}
	raw, err := json.Marshal(keys)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(i.file, raw, 0o600)).To(Succeed())
	return i
}

// flags make the proxy accept the tokens for a resource.
func (i *testIssuer) flags(resource string) []string {
	return []string{"-issuer", issuerURL + " " + i.file, "-resource", resource, "-scopes", "mcp"}
}

// token is one with all scopes that the tests use.
func (i *testIssuer) token(g *WithT, resource string) string {
	encode := func(part any) string {
		raw, err := json.Marshal(part)
		g.Expect(err).NotTo(HaveOccurred())
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	signed := encode(map[string]string{"alg": "EdDSA", "kid": "1", "typ": "at+jwt"}) + "." + encode(map[string]any{
		"iss": issuerURL, "sub": "conformance", "aud": resource, "scope": "mcp tools", "exp": time.Now().Add(time.Hour).Unix(),
	})
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(i.key, []byte(signed)))
}

// authorized serves a front that adds a token to each request, because the suite sends none. It returns its URL.
func (i *testIssuer) authorized(t *testing.T, g *WithT, protect func(resource string) string) string {
	t.Helper()
	const resource = "https://tools.example.com/"
	to, err := url.Parse(protect(resource))
	g.Expect(err).NotTo(HaveOccurred())
	refused, err := http.Get(to.String())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(refused.Body.Close()).To(Succeed())
	g.Expect(refused.StatusCode).To(Equal(http.StatusUnauthorized), "a token is needed")
	token := i.token(g, resource)
	front := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
		r.Out.Host = r.In.Host
		r.Out.Header.Set("Authorization", "Bearer "+token)
	}})
	t.Cleanup(front.Close)
	return front.URL + "/"
}

// proxied serves an HTTP server through the proxy, and returns the URL.
func proxied(t *testing.T, g *WithT, b tools, server string, flags ...string) string {
	t.Helper()
	at, err := url.Parse("http://" + server)
	g.Expect(err).NotTo(HaveOccurred())
	args := append([]string{"proxy", "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0", "-server-port", at.Port(), "-drain-timeout", "100ms"}, flags...)
	out := serve(t, g, exec.Command(b.bridge, args...))
	var found []string
	g.Eventually(func() []string {
		found = servedAt.FindStringSubmatch(string(out.Contents()))
		return found
	}).ShouldNot(BeEmpty())
	g.Eventually(func() bool { return answers("http://" + found[2] + "/readyz") }).Should(BeTrue())
	return "http://" + found[1] + "/"
}
