package controllers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/internal/conversion"
)

// certificateIn writes a self-signed certificate for 127.0.0.1 to a directory, and returns a client that trusts it.
func certificateIn(t *testing.T, dir string) *http.Client {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"webhook.test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	g.Expect(err).NotTo(HaveOccurred())
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	g.Expect(err).NotTo(HaveOccurred())
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	g.Expect(os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600)).To(Succeed())
	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(certificate)).To(BeTrue())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "webhook.test", MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

const review = `{"request":{"uid":"a","desiredAPIVersion":"fixpoint.dev/v1beta1","objects":[{"apiVersion":"fixpoint.dev/v1alpha1","spec":{"key":{"keyName":"k"}}}]}}`

// convert sends a review, and returns whether the connection ends with the response.
func convert(g *WithT, client *http.Client, address string) (ends bool) {
	response, err := client.Post("https://"+address+conversion.Path, "application/json", strings.NewReader(review))
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(body)).To(ContainSubstring(`"key":{"name":"k"}`))
	return response.Close
}

func TestTheWebhookServesUntilNoRequestsComeAnyMore(t *testing.T) {
	g, dir := NewWithT(t), t.TempDir()
	g.SetDefaultEventuallyTimeout(time.Minute)
	client := certificateIn(t, dir)
	w, err := Options{WebhookAddress: "127.0.0.1:0", WebhookCertDir: dir, NoClusterRights: true, Logger: logr.Discard()}.newWebhook(&rest.Config{Host: "127.0.0.1:1"})
	g.Expect(err).NotTo(HaveOccurred())
	lingers, lingered := make(chan time.Duration, 1), make(chan time.Time)
	w.after = func(linger time.Duration) <-chan time.Time {
		lingers <- linger
		return lingered
	}
	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()

	stop, err := w.start(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.ready(nil)).To(Succeed())
	g.Expect(w.isNeededByCaches()).To(BeFalse())
	g.Expect(convert(g, client, w.address)).To(BeFalse())

	terminated := time.Now()
	terminate()
	g.Eventually(w.terminating.Load).Should(BeTrue())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	var linger time.Duration
	g.Eventually(lingers).Should(Receive(&linger))
	g.Expect(linger).To(And(BeNumerically("<=", webhookLinger), BeNumerically(">=", webhookLinger-time.Since(terminated))))
	g.Expect(convert(g, client, w.address)).To(BeTrue(), "API servers connect to another replica")
	g.Expect(stopped).NotTo(BeClosed(), "an API server may send another request")
	close(lingered)
	g.Eventually(stopped).Should(BeClosed())
	_, err = client.Post("https://"+w.address+conversion.Path, "application/json", strings.NewReader(review))
	g.Expect(err).To(MatchError(ContainSubstring("connection refused")))
}

func TestTheWebhookEndsAtOnceWithAManagerThatFails(t *testing.T) {
	g, dir := NewWithT(t), t.TempDir()
	certificateIn(t, dir)
	w, err := Options{WebhookAddress: "127.0.0.1:0", WebhookCertDir: dir, NoClusterRights: true, Logger: logr.Discard()}.newWebhook(&rest.Config{Host: "127.0.0.1:1"})
	g.Expect(err).NotTo(HaveOccurred())
	w.after = func(time.Duration) <-chan time.Time { return nil }
	stop, err := w.start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	stop()
}

func TestTheWebhookIsOptional(t *testing.T) {
	for _, address := range []string{"", "0"} {
		g := NewWithT(t)
		w, err := Options{WebhookAddress: address}.newWebhook(&rest.Config{})
		g.Expect(err).NotTo(HaveOccurred())
		stop, err := w.start(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		stop()
		g.Expect(w.ready(nil)).To(Succeed())
		g.Expect(w.isNeededByCaches()).To(BeFalse())
	}
}

func TestTheWebhookNamesTheFlagsItNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		says    string
	}{
		"no namespace":   {Options{WebhookService: "a"}, "set --pod-namespace and --webhook-service, or mount a certificate and set --webhook-cert-path"},
		"no Service":     {Options{PodNamespace: "a"}, "set --pod-namespace and --webhook-service"},
		"no certificate": {Options{WebhookCertDir: "/nowhere"}, "reading the certificate of the webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.WebhookAddress, c.options.Logger = ":0", logr.Discard()
			_, err := c.options.newWebhook(&rest.Config{Host: "127.0.0.1:1"})
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(c.says)))
		})
	}
}
