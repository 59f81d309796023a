package prober

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestAnEmptyCredentialPrintsNothing(t *testing.T) {
	g := NewWithT(t)
	g.Expect(fmt.Sprintf("%v", Credential{})).To(BeEmpty())
	g.Expect(fmt.Sprintf("%v", Credential("x"))).To(Equal("[hidden]"))
}

func TestTargetIsACopy(t *testing.T) {
	g := NewWithT(t)
	given := Target{
		Addresses: []string{"b:1", "a:1", "b:1"}, Unready: []string{"d:1", "a:1", "c:1", "d:1"}, Identities: map[string]string{"a:1": "1"},
		Bearer: Credential("t"), CA: []byte("ca"),
	}
	complete := given.complete()
	given.Addresses[1], given.Unready[2], given.Identities["a:1"] = "x", "x", "x"
	given.Bearer[0], given.CA[0] = 'x', 'x'
	g.Expect(complete).To(Equal(Target{
		Transport: StreamableHTTP, Interval: DefaultInterval, Timeout: DefaultTimeout,
		Addresses: []string{"a:1", "b:1"}, Unready: []string{"c:1", "d:1"}, Identities: map[string]string{"a:1": "1"},
		Bearer: Credential("t"), CA: []byte("ca"),
	}))
	g.Expect(Target{}.complete().Addresses).To(Equal([]string{""}), "the host of the URL")
	g.Expect(Target{Unready: []string{"a:1"}}.complete().Addresses).To(BeEmpty())
	g.Expect(Target{Interval: -1, Timeout: -1, Transport: SSE}.complete()).To(And(
		HaveField("Interval", DefaultInterval), HaveField("Timeout", DefaultTimeout), HaveField("Transport", SSE)))
	g.Expect(Target{Interval: time.Minute, Timeout: time.Second}.complete()).To(And(
		HaveField("Interval", time.Minute), HaveField("Timeout", time.Second)))
}

// TestResultsOfAnotherServerAreDropped changes each field of a target.
func TestResultsOfAnotherServerAreDropped(t *testing.T) {
	before := Target{URL: "http://web/mcp", Bearer: Credential("t"), Token: "1"}
	for name, c := range map[string]struct {
		change                  func(*Target)
		sameServer, sameRequest bool
	}{
		"URL":        {func(t *Target) { t.URL = "http://web/other" }, false, true},
		"Transport":  {func(t *Target) { t.Transport = SSE }, false, true},
		"Token":      {func(t *Target) { t.Token = "2" }, false, true},
		"Addresses":  {func(t *Target) { t.Addresses = []string{"a:1"} }, true, true},
		"Unready":    {func(t *Target) { t.Unready = []string{"a:1"} }, true, true},
		"Identities": {func(t *Target) { t.Identities = map[string]string{"a:1": "1"} }, true, true},
		"Version":    {func(t *Target) { t.Version = "2" }, true, true},
		"Bearer":     {func(t *Target) { t.Bearer = Credential("u") }, true, false},
		"CA":         {func(t *Target) { t.CA = []byte{} }, true, false},
		"Interval":   {func(t *Target) { t.Interval = time.Hour }, true, true},
		"Timeout":    {func(t *Target) { t.Timeout = time.Hour }, true, true},
		"Contract":   {func(t *Target) { t.Contract = true }, true, true},
		"Verify":     {func(t *Target) { t.Verify = true }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, exists := reflect.TypeFor[Target]().FieldByName(name)
			g.Expect(exists).To(BeTrue())
			after := before
			c.change(&after)
			g.Expect(before.sameServer(after)).To(Equal(c.sameServer))
			g.Expect(before.sameRequest(after)).To(Equal(c.sameRequest))
		})
	}
	g := NewWithT(t)
	g.Expect(Target{CA: []byte("a")}.sameRequest(Target{CA: []byte("b")})).To(BeFalse())
}

func TestCredentialsThatHTTPDoesNotAllowAreRefused(t *testing.T) {
	for what, c := range map[string]struct {
		bearer string
		want   string
	}{
		"letters":                 {"token", "Bearer token"},
		"none":                    {"", ""},
		"only a space":            {" ", ""},
		"a tab":                   {"a\tb", "Bearer a\tb"},
		"a line break at the end": {"token\n", "Bearer token"},
		"the last printable one":  {"~", "Bearer ~"},
		"beyond ASCII":            {"é", "Bearer é"},
		"a line break":            {"a\nb", "refused"},
		"a unit separator":        {"a\x1fb", "refused"},
		"a delete":                {"a\x7fb", "refused"},
	} {
		t.Run(what, func(t *testing.T) {
			g := NewWithT(t)
			h, ok := header(Target{Bearer: Credential(c.bearer)})
			g.Expect(ok).To(Equal(c.want != "refused"))
			if ok {
				g.Expect(h.Get("Authorization")).To(Equal(c.want))
			} else {
				g.Expect(h).To(BeNil())
			}
		})
	}
}

// Otherwise whoever has a certificate of a public authority would get the credential.
func TestCABundleReplacesTheSystemCAs(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	only := x509.NewCertPool()
	only.AddCert(server.Certificate())
	e := &entry{target: Target{
		URL: server.URL, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}.complete()}
	e.prepare(nil)
	g.Expect(e.tls.RootCAs.Equal(only)).To(BeTrue())
}

func TestTargetsThatCannotBeProbedSayWhy(t *testing.T) {
	for name, c := range map[string]struct {
		target Target
		want   string
	}{
		"a transport":              {Target{URL: "http://web/mcp", Transport: "stdio"}, "the transport is unknown"},
		"a URL":                    {Target{URL: "http://we b/mcp"}, "the URL is not valid"},
		"a scheme":                 {Target{URL: "ftp://web/mcp"}, "the URL is not valid"},
		"a credential":             {Target{URL: "http://web/mcp", Bearer: Credential("a\nb")}, "the credential contains characters that HTTP headers cannot have"},
		"a CA bundle":              {Target{URL: "https://web/mcp", CA: []byte("x")}, "the CA bundle contains no certificate"},
		"a CA bundle without text": {Target{URL: "https://web/mcp", CA: []byte{}}, "the CA bundle contains no certificate"},
		"nothing":                  {Target{URL: "https://web/mcp", Transport: SSE}, ""},
		"no CA, HTTP":              {Target{URL: "http://web/mcp", CA: []byte("x")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := &entry{target: c.target.complete()}
			e.prepare(nil)
			if c.want != "" {
				g.Expect(e.invalid).To(Equal(&Error{Kind: Invalid, Detail: c.want}))
				return
			}
			g.Expect(e.invalid).To(BeNil())
			if isTLS := strings.HasPrefix(c.target.URL, "https"); isTLS {
				g.Expect(e.tls.MinVersion).To(BeEquivalentTo(tls.VersionTLS12))
				g.Expect(e.tls.ClientSessionCache).NotTo(BeNil())
			} else {
				g.Expect(e.tls).To(BeNil())
			}

			// A target that is corrected, or becomes wrong, is parsed again.
			e.target.URL = "x"
			e.prepare(nil)
			g.Expect(e.invalid).NotTo(BeNil())
			g.Expect(e.url).To(BeNil())
			g.Expect(e.tls).To(BeNil())
		})
	}
}
