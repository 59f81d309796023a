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

// patience is for a disk, or for a machine that links other tests at the same time.
const patience = 30 * time.Second

func TestTheCommandLine(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":              {nil, ""},
		"a preset":             {[]string{"--knobs=instant"}, ""},
		"an unknown preset":    {[]string{"--knobs=wild"}, "--knobs: preset \"wild\": known are instant, realistic"},
		"an argument":          {[]string{"serve"}, "every setting is a flag"},
		"half a certificate":   {[]string{"--tls-cert=x"}, "--tls-cert and --tls-key go together"},
		"an address in pieces": {[]string{"--listen=7443"}, "write an address and a port"},
		"a nameless token":     {[]string{"--token=x"}, "write NAME=VALUE"},
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

			// Given a server
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			out := gbytes.NewBuffer()
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, s, out) }()

			// When it says where it is
			g.Eventually(out).WithTimeout(patience).Should(gbytes.Say("demo         subscription " + fakecloud.DemoSubscription))
			address := regexp.MustCompile(`https?://[^/ ]+`).FindString(string(out.Contents()))

			// Then it answers there
			client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted(s.caFile), MinVersion: tls.VersionTLS12}}}
			response, err := client.Get(address + "/healthz")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Body.Close()).To(Succeed())
			g.Expect(response.StatusCode).To(Equal(http.StatusOK))
			client.CloseIdleConnections()

			// And when it is told to end, it keeps what it knows
			stop()
			g.Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
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

func TestAnAddressThatIsTaken(t *testing.T) {
	g := NewWithT(t)
	s, err := parse([]string{"--listen=203.0.113.1:1"}, io.Discard)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(run(t.Context(), s, io.Discard)).To(MatchError(ContainSubstring("listening:")))
}
