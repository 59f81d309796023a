package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	. "github.com/onsi/gomega"
)

const (
	testResource = "https://tools.example.com/mcp"
	testIssuer   = "https://id.example.com"
)

// issuing returns the flags for an issuer, and a function that returns its tokens.
func issuing(t *testing.T, g *WithT) (flags []string, token func(subject, scope string) string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "one"}}})
	g.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(t.TempDir(), "jwks.json")
	g.Expect(os.WriteFile(file, keys, 0o600)).To(Succeed())
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: private, KeyID: "one"}}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	flags = []string{"-issuer", testIssuer + " " + file, "-resource", testResource, "-scopes", "mcp", "-tool-scopes", "delete_* admin", "-issuer-ca", "/no/such/file"}
	return flags, func(subject, scope string) string {
		signed, err := jwt.Signed(signer).Claims(jwt.Claims{
			Issuer: testIssuer, Subject: subject, Audience: jwt.Audience{testResource}, Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
		}).Claims(map[string]any{"scope": scope}).Serialize()
		g.Expect(err).NotTo(HaveOccurred())
		return signed
	}
}

// send posts a message, and returns the status and the headers of the response.
func send(g *WithT, address, message, token, session string) (int, http.Header) {
	request, err := http.NewRequest(http.MethodPost, address+"/mcp", strings.NewReader(message))
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if session != "" {
		request.Header.Set("Mcp-Session-Id", session)
	}
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, response.Header
}

const (
	initializeMessage = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`
	pingMessage       = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	deleteMessage     = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"delete_all"}}`
)

func TestBridgeRequiresTokens(t *testing.T) {
	g := NewWithT(t)
	flags, token := issuing(t, g)
	_, _, address, admin := serving(t, g, tiny, flags...)

	code, header := send(g, address, initializeMessage, "", "")
	g.Expect(code).To(Equal(http.StatusUnauthorized))
	g.Expect(header.Get("WWW-Authenticate")).To(ContainSubstring(`resource_metadata="https://tools.example.com/.well-known/oauth-protected-resource/mcp"`))
	g.Expect(status(address + "/.well-known/oauth-protected-resource/mcp")).To(Equal(http.StatusOK))
	g.Expect(status(admin + "/readyz")).To(Equal(http.StatusOK))

	t.Log("a session serves only the caller that started it")
	code, header = send(g, address, initializeMessage, token("ann", "mcp"), "")
	g.Expect(code).To(Equal(http.StatusOK))
	session := header.Get("Mcp-Session-Id")
	g.Expect(session).NotTo(BeEmpty())
	code, _ = send(g, address, pingMessage, token("bob", "mcp"), session)
	g.Expect(code).To(Equal(http.StatusNotFound))
	code, _ = send(g, address, pingMessage, token("ann", "mcp other"), session)
	g.Expect(code).To(Equal(http.StatusOK))

	t.Log("a tool needs its scopes")
	code, _ = send(g, address, deleteMessage, token("ann", "mcp"), session)
	g.Expect(code).To(Equal(http.StatusForbidden))
	code, _ = send(g, address, deleteMessage, token("ann", "mcp admin"), session)
	g.Expect(code).To(Equal(http.StatusOK))
}

func TestProxy(t *testing.T) {
	g := NewWithT(t)
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("Fixpoint-User-Subject") != "ann" {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer behind.Close()
	flags, token := issuing(t, g)
	cmd, out, address, admin := proxying(t, g, behind.URL, flags...)

	g.Expect(status(admin + "/healthz")).To(Equal(http.StatusOK))
	g.Expect(status(admin + "/readyz")).To(Equal(http.StatusOK))
	g.Expect(status(address + "/mcp")).To(Equal(http.StatusUnauthorized))
	g.Expect(status(address + "/readyz")).To(Equal(http.StatusUnauthorized))
	code, _ := send(g, address, pingMessage, token("ann", "mcp"), "")
	g.Expect(code).To(Equal(http.StatusOK))
	code, _ = send(g, address, deleteMessage, token("ann", "mcp"), "")
	g.Expect(code).To(Equal(http.StatusForbidden))

	g.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(cmd.Wait()).To(Succeed(), out.String())
	g.Expect(out.String()).NotTo(ContainSubstring(token("ann", "mcp")[:40]))
}

func TestInvalidAuthorizationIsReported(t *testing.T) {
	valid := []string{"-issuer", testIssuer, "-resource", testResource}
	for name, c := range map[string]struct {
		args    []string
		code    int
		message string
	}{
		"proxy without a port":     {append([]string{"proxy"}, valid...), exitUsage, "-server-port"},
		"proxy without an issuer":  {[]string{"proxy", "-server-port", "8080"}, exitUsage, "-issuer"},
		"proxy with a command":     {append(append([]string{"proxy", "-server-port", "8080"}, valid...), "--", "true"), exitUsage, "starts no command"},
		"proxy without a resource": {[]string{"proxy", "-server-port", "8080", "-issuer", testIssuer}, exitFailed, "no resource"},
		"proxy without a drain":    {append([]string{"proxy", "-server-port", "8080", "-drain-timeout", "0s"}, valid...), exitUsage, "-drain-timeout"},
		"bridge without an issuer": {[]string{"serve", "-scopes", "mcp", "--", "true"}, exitFailed, "no issuer"},
		"an issuer over HTTP":      {[]string{"serve", "-issuer", "http://id.example.com", "-resource", testResource, "--", "true"}, exitFailed, "must use https"},
		"a tool without scopes":    {append([]string{"serve", "-tool-scopes", "x"}, append(valid, "--", "true")...), exitUsage, "delete_* admin"},
		"exchange without a URL":   {append([]string{"proxy", "-server-port", "8080", "-exchange-credentials", "/client"}, valid...), exitUsage, "-exchange-url"},
		"exchange without a target": {append([]string{"proxy", "-server-port", "8080", "-exchange-credentials", "/client", "-exchange-url", testIssuer + "/token"}, valid...),
			exitFailed, "neither an audience nor a resource"},
		"exchange without an issuer": {[]string{"proxy", "-server-port", "8080", "-requests-per-minute", "60", "-exchange-url", testIssuer + "/token"}, exitUsage, "no -issuer"},
		"exchange of a bridge":       {[]string{"serve", "-exchange-url", testIssuer + "/token", "--", "true"}, exitUsage, "not defined"},
		"CA certificates":            {append([]string{"serve", "-issuer-ca", "main.go"}, append(valid, "--", "true")...), exitFailed, "no CA certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			args := append([]string{c.args[0], "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0", "-termination-log", ""}, c.args[1:]...)
			cmd, out := program(t, args...)
			g.Expect(cmd.Run()).NotTo(Succeed())
			g.Expect(cmd.ProcessState.ExitCode()).To(Equal(c.code), out.String())
			g.Expect(out.String()).To(ContainSubstring(c.message))
		})
	}
}

func TestInstallCopiesTheCertificates(t *testing.T) {
	g := NewWithT(t)
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	g.Expect(os.WriteFile(from, []byte("certificates"), 0o600)).To(Succeed())
	g.Expect(installFile(from, to, 0o644)).To(Succeed())
	info, err := os.Stat(to)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o644)))
}
