package authorization

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	. "github.com/onsi/gomega"
)

func TestAcceptsTokensOfEachAlgorithm(t *testing.T) {
	shared := rsaKey("rsa", "")
	keys := []key{signing(), ecKey("384", jose.ES384), ecKey("521", jose.ES512), edKey("ed")}
	for _, algorithm := range []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512} {
		keys = append(keys, key{"rsa", algorithm, shared.private})
	}
	e := newEndpoint(t)
	e.issuer.publish(keys[:5]...)
	for _, k := range keys {
		t.Run(string(k.algorithm), func(t *testing.T) {
			response := e.with(sign(t, k, e.claims(nil), nil))
			NewWithT(t).Expect(response.StatusCode).To(Equal(http.StatusOK))
		})
	}
}

func TestAcceptsTokens(t *testing.T) {
	e := newEndpoint(t)
	for name, token := range map[string]string{
		"of an access token":              e.token(nil),
		"without a type":                  sign(t, signing(), e.claims(nil), nil),
		"of the type JWT":                 sign(t, signing(), e.claims(nil), map[string]any{"typ": "JWT"}),
		"of the type as a media type":     sign(t, signing(), e.claims(nil), map[string]any{"typ": "application/AT+JWT"}),
		"without a key ID, of a sole key": sign(t, key{"", jose.ES256, signing().private}, e.claims(nil), nil),
		"for the endpoint in the cluster": e.token(map[string]any{"aud": internal}),
		"for several resources":           e.token(map[string]any{"aud": []string{"https://other.example.com", external}}),
		"for another form of the URL":     e.token(map[string]any{"aud": "HTTPS://Tools.Example.com:443/mcp/"}),
		"expired within the leeway":       e.token(map[string]any{"exp": e.clock.in(-leeway + time.Second)}),
		"not valid yet within the leeway": e.token(map[string]any{"nbf": e.clock.in(leeway - time.Second)}),
		"without nbf and sub":             e.token(map[string]any{"nbf": nil, "sub": nil}),
		"with scp as a list":              e.token(map[string]any{"scope": nil, "scp": []string{"other", "mcp"}}),
		"with scp as a string":            e.token(map[string]any{"scope": nil, "scp": "mcp other"}),
	} {
		t.Run(name, func(t *testing.T) {
			response := e.with(token)
			NewWithT(t).Expect(response.StatusCode).To(Equal(http.StatusOK))
		})
	}
}

// forged builds a token by hand, with any header and signature.
func forged(t *testing.T, header, claims map[string]any, signature []byte) string {
	t.Helper()
	part := func(value any) string {
		raw, err := json.Marshal(value)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	return part(header) + "." + part(claims) + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// withPublicKeyAsSecret is a token that is signed with HMAC, with the public key of the issuer as the secret.
func withPublicKeyAsSecret(t *testing.T, public any, claims map[string]any) string {
	t.Helper()
	g := NewWithT(t)
	der, err := x509.MarshalPKIXPublicKey(public)
	g.Expect(err).NotTo(HaveOccurred())
	secret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return sign(t, key{"one", jose.HS256, secret}, claims, nil)
}

func TestRefusesTokens(t *testing.T) {
	e := newEndpoint(t)
	other, weak := ecKey("one", jose.ES256), weakKey()
	rsaOne := rsaKey("rsa", jose.RS256)
	e.issuer.publish(signing(), rsaOne, weak)
	attackers := ecKey("another", jose.ES256)
	attackersPublic := attackers.public()
	valid := e.token(nil)
	parts := strings.Split(valid, ".")

	const (
		algorithm = "accepted algorithm"
		signature = "signature"
		noKey     = "no key with the ID"
	)
	for name, c := range map[string]struct{ token, says string }{
		"alg none":                          {forged(t, map[string]any{"alg": "none", "kid": "one"}, e.claims(nil), nil), algorithm},
		"alg None, without a signature":     {forged(t, map[string]any{"alg": "nOnE"}, e.claims(nil), nil), algorithm},
		"no alg":                            {forged(t, map[string]any{"kid": "one"}, e.claims(nil), nil), algorithm},
		"HS256 with the public key":         {withPublicKeyAsSecret(t, signing().public().Key, e.claims(nil)), algorithm},
		"HS256 with the public RSA key":     {withPublicKeyAsSecret(t, rsaOne.public().Key, e.claims(nil)), algorithm},
		"the signature removed":             {parts[0] + "." + parts[1] + ".", signature},
		"the signature of another token":    {parts[0] + "." + parts[1] + "." + strings.Split(e.token(map[string]any{"sub": "bob"}), ".")[2], signature},
		"other claims":                      {parts[0] + "." + strings.Split(e.token(map[string]any{"sub": "bob"}), ".")[1] + "." + parts[2], signature},
		"another key under the same ID":     {sign(t, other, e.claims(nil), nil), signature},
		"an unknown key ID":                 {sign(t, attackers, e.claims(nil), nil), noKey},
		"no key ID with several keys":       {sign(t, key{"", jose.ES256, attackers.private}, e.claims(nil), nil), signature},
		"a key in the header":               {sign(t, key{"one", jose.ES256, attackers.private}, e.claims(nil), map[string]any{"jwk": attackersPublic}), signature},
		"a URL of keys in the header":       {sign(t, attackers, e.claims(nil), map[string]any{"jku": "https://evil.example.com/keys"}), noKey},
		"the key of another algorithm":      {forged(t, map[string]any{"alg": "RS256", "kid": "one"}, e.claims(nil), []byte("x")), noKey},
		"an RSA key of 1024 bits":           {sign(t, weak, e.claims(nil), nil), noKey},
		"a critical header":                 {forged(t, map[string]any{"alg": "ES256", "kid": "one", "crit": []string{"exp"}}, e.claims(nil), []byte("x")), "critical"},
		"another issuer":                    {e.token(map[string]any{"iss": "https://evil.example.com"}), "issuer of the token is not accepted"},
		"the issuer with a slash":           {e.token(map[string]any{"iss": e.issuer.URL + "/"}), "issuer of the token is not accepted"},
		"no issuer":                         {e.token(map[string]any{"iss": nil}), "issuer of the token is not accepted"},
		"an issuer that is a list":          {e.token(map[string]any{"iss": []string{e.issuer.URL}}), "cannot be read"},
		"another audience":                  {e.token(map[string]any{"aud": "https://other.example.com/mcp"}), "another resource"},
		"another path":                      {e.token(map[string]any{"aud": "https://tools.example.com/other"}), "another resource"},
		"the origin as the audience":        {e.token(map[string]any{"aud": "https://tools.example.com"}), "another resource"},
		"a prefix as the audience":          {e.token(map[string]any{"aud": "https://tools.example.com/mcp/sub"}), "another resource"},
		"another scheme":                    {e.token(map[string]any{"aud": "http://tools.example.com/mcp"}), "another resource"},
		"a user in the audience":            {e.token(map[string]any{"aud": "https://x@tools.example.com/mcp"}), "another resource"},
		"no audience":                       {e.token(map[string]any{"aud": nil}), "another resource"},
		"an empty list of audiences":        {e.token(map[string]any{"aud": []string{}}), "another resource"},
		"expired":                           {e.token(map[string]any{"exp": e.clock.in(-leeway)}), "expired"},
		"never expires":                     {e.token(map[string]any{"exp": nil}), "does not expire"},
		"not valid yet":                     {e.token(map[string]any{"nbf": e.clock.in(leeway + time.Second)}), "not valid yet"},
		"a date that is not a number":       {e.token(map[string]any{"exp": "tomorrow"}), "cannot be read"},
		"bound to a key of the client":      {e.token(map[string]any{"cnf": map[string]string{"jkt": "x"}}), "cnf"},
		"another type":                      {sign(t, signing(), e.claims(nil), map[string]any{"typ": "logout+jwt"}), "type of the token"},
		"scopes that are a number":          {e.token(map[string]any{"scope": 7}), "cannot be read"},
		"not a token":                       {"opaque", "not a signed JWT"},
		"two parts":                         {parts[0] + "." + parts[1], "not a signed JWT"},
		"an encrypted token":                {strings.Repeat("a.", 4) + "a", "not a signed JWT"},
		"JSON serialization":                {`{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, "not a signed JWT"},
		"white space within":                {parts[0] + ". " + parts[1] + "." + parts[2], "not a signed JWT"},
		"two tokens in one header":          {valid + ", Bearer " + valid, "not a signed JWT"},
		"claims that are not JSON":          {parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte("{")) + "." + parts[2], "cannot be read"},
		"a huge token":                      {e.token(map[string]any{"x": strings.Repeat("x", maxToken)}), "longer than"},
		"padding":                           {parts[0] + "=." + parts[1] + "." + parts[2], algorithm},
		"an ID that is not a string":        {forged(t, map[string]any{"alg": "ES256", "kid": 7}, e.claims(nil), []byte("x")), algorithm},
		"a type that is not a string":       {forged(t, map[string]any{"alg": "ES256", "typ": 7}, e.claims(nil), []byte("x")), "type of the token"},
		"the same name twice in the claims": {twice(t, e), "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)

			response := e.with(c.token)

			g.Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
			g.Expect(response.Header.Get("WWW-Authenticate")).To(And(
				HavePrefix(`Bearer resource_metadata="https://tools.example.com/.well-known/oauth-protected-resource/mcp", scope="mcp", error="invalid_token", error_description="`),
				ContainSubstring(c.says)))
			code, description := e.failure(response)
			g.Expect(code).To(Equal("invalid_token"))
			g.Expect(description).To(ContainSubstring(c.says))
			g.Expect(e.received).To(BeEmpty())
		})
	}
	e.Expect(e.with(valid).StatusCode).To(Equal(http.StatusOK), "the valid token, last")
}

// twice is a token whose claims have the name of the issuer twice.
func twice(t *testing.T, e *endpoint) string {
	t.Helper()
	g := NewWithT(t)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: signing().private}, (&jose.SignerOptions{}).WithHeader("kid", "one"))
	g.Expect(err).NotTo(HaveOccurred())
	signed, err := signer.Sign([]byte(`{"iss":"https://evil.example.com","iss":"` + e.issuer.URL + `"}`))
	g.Expect(err).NotTo(HaveOccurred())
	token, err := signed.CompactSerialize()
	g.Expect(err).NotTo(HaveOccurred())
	return token
}

func weakKey() key {
	private, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		panic(err)
	}
	return key{"weak", jose.RS256, private}
}

func TestCanonicalURL(t *testing.T) {
	g := NewWithT(t)
	for given, want := range map[string]string{
		"https://A.example.com:443/mcp/": "https://a.example.com/mcp",
		"http://a.example.com:80":        "http://a.example.com",
		"http://a.example.com:443/":      "http://a.example.com:443",
		"https://[::1]:443/x":            "https://[::1]/x",
		"https://a.example.com/Mcp":      "https://a.example.com/Mcp",
		"https://a.example.com/mcp?a=b":  "https://a.example.com/mcp?a=b",
		"https://a.example.com/mcp#a":    "https://a.example.com/mcp#a",
		"https://u@a.example.com/mcp":    "https://u@a.example.com/mcp",
		"urn:tools":                      "urn:tools",
		"tools":                          "tools",
		"%zz":                            "%zz",
	} {
		g.Expect(canonicalURL(given)).To(Equal(want), given)
	}
}

func FuzzParseToken(f *testing.F) {
	for _, seed := range []string{"", "a.b.c", "..", "eyJhbGciOiJFUzI1NiJ9.e30.AA", "eyJhbGciOiJub25lIn0.e30."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		token, err := parseToken(raw)
		if err == nil && (len(token.Headers) != 1 || !isAccepted(token.Headers[0].Algorithm)) {
			t.Errorf("%q: accepted with the headers %v", raw, token.Headers)
		}
	})
}

func isAccepted(algorithm string) bool {
	for _, accepted := range algorithms {
		if string(accepted) == algorithm {
			return true
		}
	}
	return false
}
