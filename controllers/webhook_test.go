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
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/internal/certificates"
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

// patient lets a process that is paused keep the connections of its webhook.
func patient(w *webhook) {
	w.server.ReadHeaderTimeout, w.server.ReadTimeout, w.server.WriteTimeout = time.Minute, time.Minute, time.Minute
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
	patient(w)
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
	stop() // a second call returns
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
	stop() // a second call returns
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

// definitionOf is a CustomResourceDefinition that this webhook converts.
func definitionOf(name string, stored ...string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Conversion: &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "fixpoint", Name: "webhook"}},
			},
		}},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: stored},
	}
}

func TestTheWebhookKeepsItsCertificate(t *testing.T) {
	for name, c := range map[string]struct {
		provided bool
		// controllers of the manager. Objects of appservices are stored in an older version.
		controllers []string
		needed      bool
	}{
		"its own certificate":                           {controllers: Names(), needed: true},
		"a certificate in files":                        {provided: true, controllers: Names(), needed: true},
		"no objects of its controllers are older":       {controllers: []string{mcpserver.Name}},
		"the older objects are those of its controller": {controllers: []string{appservice.Name}, needed: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.SetDefaultEventuallyTimeout(time.Minute)
			server, cfg := startAPIServer(t)
			older, current := definitionOf("appservices.fixpoint.dev", "v1alpha1", "v1beta1"), definitionOf("mcpservers.fixpoint.dev", "v1beta1")
			for _, definition := range []*apiextensionsv1.CustomResourceDefinition{older, current} {
				stored := definition.Status
				g.Expect(server.Create(t.Context(), definition)).To(Succeed())
				definition.Status = stored // a create stores no status
				g.Expect(server.Status().Update(t.Context(), definition)).To(Succeed())
			}
			var mu sync.Mutex
			var logged []string
			logs := func() []string {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(logged)
			}
			o := Options{
				Controllers: c.controllers, WebhookAddress: "127.0.0.1:0", WebhookService: "webhook", PodNamespace: "fixpoint",
				Logger: funcr.New(func(name, args string) {
					mu.Lock()
					defer mu.Unlock()
					logged = append(logged, name+": "+args)
				}, funcr.Options{}),
			}
			if c.provided {
				o.WebhookCertDir = t.TempDir()
				certificateIn(t, o.WebhookCertDir)
			}
			w, err := o.newWebhook(cfg)
			g.Expect(err).NotTo(HaveOccurred())
			patient(w)
			g.Expect(w.after).NotTo(BeNil())
			w.after = func(time.Duration) <-chan time.Time { return time.After(0) }
			g.Expect(w.ready(nil) == nil).To(Equal(c.provided))
			g.Expect(w.isNeededByCaches()).To(BeFalse())
			stop, err := w.start(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			stop = sync.OnceFunc(stop)
			t.Cleanup(stop) // before the API server, which waits for the requests of the webhook

			g.Eventually(logs).Should(ContainElement(And(HavePrefix("webhook: "), ContainSubstring("Serving the conversion webhook"))))
			g.Eventually(func() error { return w.ready(nil) }).Should(Succeed())
			g.Eventually(w.keeper.DefinitionChanged()).Should(Receive())
			g.Eventually(w.isNeededByCaches).Should(Equal(c.needed))
			var secret corev1.Secret
			read := func() error {
				return server.Get(t.Context(), client.ObjectKey{Namespace: "fixpoint", Name: certificates.SecretName}, &secret)
			}
			if c.provided {
				g.Expect(read()).NotTo(Succeed())
				g.Expect(server.sent(http.MethodGet, "/api/v1/namespaces/fixpoint/secrets")).To(BeEmpty())
			} else {
				g.Expect(read()).To(Succeed())
				for _, definition := range []*apiextensionsv1.CustomResourceDefinition{older, current} {
					g.Eventually(func() []byte {
						g.Expect(server.Get(t.Context(), client.ObjectKeyFromObject(definition), definition)).To(Succeed())
						return definition.Spec.Conversion.Webhook.ClientConfig.CABundle
					}).ShouldNot(BeEmpty(), "API servers trust the certificate")
				}
				g.Eventually(logs).Should(ContainElement(And(HavePrefix("webhook: "), ContainSubstring("Serving a certificate of the webhook"))))
				g.Expect(w.isNeededByCaches()).To(Equal(c.needed), "all definitions have been read")
				roots := x509.NewCertPool()
				g.Expect(roots.AppendCertsFromPEM(older.Spec.Conversion.Webhook.ClientConfig.CABundle)).To(BeTrue())
				transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "webhook.fixpoint.svc", MinVersion: tls.VersionTLS12}}
				t.Cleanup(transport.CloseIdleConnections)
				convert(g, &http.Client{Transport: transport}, w.address)
			}
			mgr := &recordingManager{cached: syncing{}}
			g.Expect(addChecks(mgr, nil, w)).To(Succeed())
			g.Expect(mgr.checks["readyz/caches"](httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)) == nil).
				To(Equal(c.needed), "API servers send requests only to replicas that are ready")
			for _, path := range []string{"appservices", "mcpservers", "securestorages"} {
				g.Eventually(func() []*http.Request {
					return server.sent(http.MethodGet, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
				}).Should(ContainElement(HaveField("URL.RawQuery", ContainSubstring("metadata.name%3D"+path+".fixpoint.dev"))))
			}

			stop()
			for _, request := range server.sent(http.MethodGet, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions") {
				g.Eventually(request.Context().Err).Should(HaveOccurred(), "no watch goes on: %s", request.URL)
			}
			g.Consistently(logs, "20ms").ShouldNot(ContainElement(Or(ContainSubstring("Failed to serve"), ContainSubstring("Failed to watch"))), "its end is no failure")
		})
	}
}

func TestTheWebhookReportsThatItCannotServe(t *testing.T) {
	g, dir := NewWithT(t), t.TempDir()
	certificateIn(t, dir)
	logged := make(chan string, 10)
	logger := funcr.New(func(_, args string) { logged <- args }, funcr.Options{})
	w, err := Options{WebhookAddress: "127.0.0.1:0", WebhookCertDir: dir, NoClusterRights: true, Logger: logger}.newWebhook(&rest.Config{Host: "127.0.0.1:1"})
	g.Expect(err).NotTo(HaveOccurred())
	w.server.TLSConfig.GetCertificate = nil
	stop, err := w.start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	defer stop()
	g.Eventually(logged, time.Minute).Should(Receive(ContainSubstring("Failed to serve the webhook")))
}

// A certificate in files is renewed by replacing the files.
func TestTheWebhookServesTheCertificateThatReplacesItsOwn(t *testing.T) {
	g, dir := NewWithT(t), t.TempDir()
	g.SetDefaultEventuallyTimeout(time.Minute)
	certificateIn(t, dir)
	w, err := Options{WebhookAddress: "127.0.0.1:0", WebhookCertDir: dir, NoClusterRights: true, Logger: logr.Discard()}.newWebhook(&rest.Config{Host: "127.0.0.1:1"})
	g.Expect(err).NotTo(HaveOccurred())
	patient(w)
	stop, err := w.start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	defer stop()
	renewed := certificateIn(t, dir)
	g.Eventually(func() error {
		// The watch may begin after the first replacement.
		g.Expect(os.Chtimes(filepath.Join(dir, "tls.crt"), time.Now(), time.Now())).To(Succeed())
		response, err := renewed.Get("https://" + w.address)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}).Should(Succeed())
}

// A request that an API server has sent is answered, unless that takes too long.
func TestTheWebhookEndsRequestsThatTakeTooLong(t *testing.T) {
	g, dir := NewWithT(t), t.TempDir()
	client := certificateIn(t, dir)
	w, err := Options{WebhookAddress: "127.0.0.1:0", WebhookCertDir: dir, NoClusterRights: true, Logger: logr.Discard()}.newWebhook(&rest.Config{Host: "127.0.0.1:1"})
	g.Expect(err).NotTo(HaveOccurred())
	patient(w)
	running := make(chan struct{})
	w.server.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(running)
		<-r.Context().Done()
	})
	stop, err := w.start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() {
		_, err := client.Get("https://" + w.address)
		ended <- err
	}()
	g.Eventually(running, "1m").Should(BeClosed())
	began := time.Now()
	stop()
	g.Expect(time.Since(began)).To(BeNumerically(">=", webhookShutdown))
	g.Eventually(ended, "1m").Should(Receive(HaveOccurred()))
}
