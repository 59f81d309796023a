package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// timeout is long enough for a slow disk and a loaded machine.
const timeout = time.Minute

func TestFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":              {nil, ""},
		"a preset":             {[]string{"--knobs=instant"}, ""},
		"an unknown preset":    {[]string{"--knobs=wild"}, "--knobs: unknown preset \"wild\"; use one of instant, realistic"},
		"an argument":          {[]string{"serve"}, "see --help"},
		"half a certificate":   {[]string{"--tls-cert=x"}, "--tls-cert and --tls-key must be set together"},
		"an address in pieces": {[]string{"--listen=7443"}, "use an address and a port"},
		"a nameless token":     {[]string{"--token=x"}, "use NAME=VALUE"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := parse(c.args, io.Discard)
			if c.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(c.want)))
		})
	}
}

func TestHelp(t *testing.T) {
	g := NewWithT(t)
	var usage bytes.Buffer
	_, err := parse([]string{"--help"}, &usage)
	g.Expect(err).To(MatchError(flag.ErrHelp))
	g.Expect(usage.String()).To(ContainSubstring("realistic/N"))
}

func TestServing(t *testing.T) {
	for name, args := range map[string][]string{"over HTTP": nil, "over HTTPS": {"--tls"}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			args = append(args, "--listen=127.0.0.1:0", "--demo", "--knobs=instant", "--state="+filepath.Join(folder, "state.json"), "--tls-ca-out="+filepath.Join(folder, "ca.pem"))
			s, err := parse(args, io.Discard)
			g.Expect(err).NotTo(HaveOccurred())

			// given a server
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			out := gbytes.NewBuffer()
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, s, out) }()

			// when it has printed its address
			g.Eventually(out).WithTimeout(timeout).Should(gbytes.Say("demo         subscription " + fakecloud.DemoSubscription))
			address := regexp.MustCompile(`https?://[^/ ]+`).FindString(string(out.Contents()))

			// then it responds there
			client := &http.Client{Timeout: timeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted(s.caFile), MinVersion: tls.VersionTLS12}}}
			response, err := client.Get(address + "/healthz")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Body.Close()).To(Succeed())
			g.Expect(response.StatusCode).To(Equal(http.StatusOK))
			client.CloseIdleConnections()

			// and it writes its state when it stops
			stop()
			g.Eventually(ended).WithTimeout(timeout).Should(Receive(BeNil()))
			state, err := os.ReadFile(filepath.Join(folder, "state.json"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(state)).To(ContainSubstring(fakecloud.DemoSubscription))
		})
	}
}

func trusted(file string) *x509.CertPool {
	pool := x509.NewCertPool()
	if certificate, err := os.ReadFile(file); err == nil {
		pool.AppendCertsFromPEM(certificate)
	}
	return pool
}

func TestAddressInUse(t *testing.T) {
	g := NewWithT(t)
	s, err := parse([]string{"--listen=203.0.113.1:1"}, io.Discard)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(run(t.Context(), s, io.Discard)).To(MatchError(ContainSubstring("listening:")))
}
