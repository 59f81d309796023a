package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

func TestFlags(t *testing.T) {
	const needed = "--hosts=console.test --tls-cert=a --tls-key=b --server=https://api.test"
	for args, want := range map[string]string{
		"":                            "--hosts is empty: set the host names",
		"--hosts=a.test":              "--tls-cert is empty: set it and --tls-key, or set --behind-tls-proxy",
		"--hosts=a.test --tls-cert=a": "--tls-cert and --tls-key must be set together",
		"--hosts=https://a.test --behind-tls-proxy":                                  `--hosts has "https://a.test": set host names without scheme`,
		"--hosts=a.test --behind-tls-proxy":                                          "--server is empty, and the console does not run in a cluster",
		"--hosts=a.test --behind-tls-proxy --server=http://api":                      `--server is "http://api": set an https URL`,
		needed + " --behind-tls-proxy":                                               "--behind-tls-proxy excludes --tls-cert",
		needed + " --auth=none":                                                      `--auth is "none": set token or proxy`,
		needed + " --token-header=X-Token":                                           "--token-header requires --auth=proxy",
		needed + " --events-limit=0":                                                 "--events-limit is 0: set a positive number",
		needed + " --listen=8443":                                                    "--listen: ",
		needed + " --certificate-authority=" + filepath.Join(t.TempDir(), "no-such"): "--certificate-authority: ",
		needed + " more":                                                             `unexpected argument "more"`,
		"--no-such-flag":                                                             "see --help",
		needed + " --auth=proxy --token-header=X-Token":                              "",
	} {
		t.Run(args, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			_, err := parse(strings.Fields(args), io.Discard)
			if want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(want)))
		})
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	g := NewWithT(t)
	var usage bytes.Buffer
	_, err := parse([]string{"--help"}, &usage)
	g.Expect(err).To(MatchError(flag.ErrHelp))
	g.Expect(usage.String()).To(And(ContainSubstring("-hosts"), ContainSubstring("-auth")))
}

func TestFindsTheAPIServerOfItsClusterWithoutACredential(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	s, err := parse([]string{"--hosts=A.test, b.test", "--behind-tls-proxy"}, io.Discard)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.options.Hosts).To(Equal([]string{"a.test", "b.test"}))
	g.Expect(s.options.Config.Host).To(Equal("https://10.0.0.1:443"))
	g.Expect(s.options.Config.BearerToken + s.options.Config.BearerTokenFile).To(BeEmpty())
	g.Expect(s.options.TLS).To(BeTrue(), "browsers use HTTPS to the proxy")
}

func TestServesHTTPSWithARenewedCertificate(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	pool := x509.NewCertPool()
	write := func() {
		authority, err := fakecloud.NewAuthority()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pool.AppendCertsFromPEM(authority.PEM())).To(BeTrue())
		pair, err := authority.Issue("localhost", "127.0.0.1")
		g.Expect(err).NotTo(HaveOccurred())
		key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
		g.Expect(err).NotTo(HaveOccurred())
		for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key}} {
			g.Expect(os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600)).To(Succeed())
		}
	}
	write()
	args := []string{"--listen=127.0.0.1:0", "--hosts=localhost", "--server=https://api.test", "--tls-cert=" + filepath.Join(dir, "tls.crt"), "--tls-key=" + filepath.Join(dir, "tls.key")}
	s, err := parse(args, io.Discard)
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	logs, ended := gbytes.NewBuffer(), make(chan error, 1)
	go func() { ended <- run(ctx, s, logs) }()
	g.Eventually(logs, "30s").Should(gbytes.Say(`"msg":"Serving"`))
	port := regexp.MustCompile(`"address":"127.0.0.1:(\d+)"`).FindSubmatch(logs.Contents())[1]
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}}}
	served := func(g Gomega) []byte {
		defer client.CloseIdleConnections() // the next request is a new handshake
		response, err := client.Get("https://localhost:" + string(port) + "/")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		g.Expect(response.StatusCode).To(Equal(http.StatusOK))
		return response.TLS.PeerCertificates[0].Raw
	}
	first := served(g)

	write()
	g.Eventually(served, "30s").ShouldNot(Equal(first))
	second := served(g)
	g.Expect(os.Remove(filepath.Join(dir, "tls.key"))).To(Succeed())
	g.Expect(served(g)).To(Equal(second), "while the files are replaced")

	cancel()
	g.Eventually(ended, "30s").Should(Receive(BeNil()))
}
