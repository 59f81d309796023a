package versions_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/internal/certificates"
	"github.com/fixpoint-dev/fixpoint/internal/conversion"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

const service = "fixpoint-webhook"

// definition is the CustomResourceDefinition that these tests let replicas serve.
const definition = "mcpservers.fixpoint.dev"

// replica is what of a manager serves conversions.
type replica struct {
	keeper *certificates.Keeper
	server *http.Server
	cancel context.CancelFunc
	// deciding is the number of handshakes that wait for the keeper.
	deciding atomic.Int32
}

// retrying is a clock of the test, except that retries are in real time: on a busy machine, the API server does not complete
// each write of a CustomResourceDefinition in time.
type retrying struct{ *clocktesting.FakeClock }

func (r retrying) NewTimer(wait time.Duration) clock.Timer {
	if wait <= time.Minute {
		return clock.RealClock{}.NewTimer(wait)
	}
	return r.FakeClock.NewTimer(wait)
}

// startReplica serves conversions on an address of this machine, and adds it to the Service.
func (f *fixture) startReplica(address string, now *clocktesting.FakeClock) *replica {
	f.T.Helper()
	keeper, err := certificates.New(certificates.Options{
		Config: suite.Cluster.Config(harness.ManagerUser), Namespace: f.Namespace, Service: service, Definitions: []string{definition}, Current: beta, Logger: logr.Discard(), Clock: retrying{now},
	})
	f.Expect(err).NotTo(HaveOccurred())
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	f.Expect(err).NotTo(HaveOccurred())
	mux := http.NewServeMux()
	mux.HandleFunc(conversion.Path, func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Connection", "close") // so that each request verifies the certificate
		conversion.Handler(logr.Discard(), nil).ServeHTTP(w, request)
	})
	r := &replica{keeper: keeper}
	r.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			r.deciding.Add(1)
			defer r.deciding.Add(-1)
			return keeper.GetCertificate(hello)
		}},
	}
	ctx, cancel := context.WithCancel(f.Ctx)
	r.cancel = cancel
	var running sync.WaitGroup
	running.Go(func() { keeper.Run(ctx) })
	running.Go(func() { _ = r.server.ServeTLS(listener, "", "") })
	f.T.Cleanup(func() {
		cancel()
		_ = r.server.Close()
		running.Wait()
	})
	port, _ := listener.Addr().(*net.TCPAddr)
	f.expose(address, int32(port.Port)) //nolint:gosec // a port
	return r
}

// expose adds an address to the Service.
func (f *fixture) expose(address string, port int32) {
	f.T.Helper()
	f.Expect(suite.API.Create(f.Ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: service + "-", Namespace: f.Namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: &port}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	})).To(Succeed())
}

// machineAddress is an address of this machine that an EndpointSlice may have.
func machineAddress(t *testing.T) string {
	t.Helper()
	address, err := cluster.MachineAddress()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return address
}

// mostHistory is the maximum of spec.driftHistoryLimit.
const mostHistory = 50

// define edits the definition and sets the maximum of spec.driftHistoryLimit, to one that it does not have yet. It returns
// once the API server judges objects by that maximum: it takes in edits in their order, hence also all earlier ones.
func (f *fixture) define(definitions apiextensionsclient.CustomResourceDefinitionInterface, maximum int, edits ...func(spec *apiextensionsv1.CustomResourceDefinitionSpec)) {
	f.T.Helper()
	f.Eventually(func() error {
		live, err := definitions.Get(f.Ctx, definition, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, edit := range edits {
			edit(&live.Spec)
		}
		for i := range live.Spec.Versions {
			spec := live.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"]
			limit := spec.Properties["driftHistoryLimit"]
			limit.Maximum = ptr.To(float64(maximum))
			spec.Properties["driftHistoryLimit"] = limit
		}
		_, err = definitions.Update(f.Ctx, live, metav1.UpdateOptions{FieldManager: "test"})
		return err
	}).Should(Succeed())
	client, _ := f.in(beta, "MCPServer")
	judged := func(limit int) error {
		_, err := client.Create(f.Ctx, f.object(beta, "MCPServer", "judged", fmt.Sprintf("{image: a, driftHistoryLimit: %d}", limit)), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	f.Eventually(func() error { return judged(maximum) }).Should(Succeed())
	f.Eventually(func() error { return judged(maximum + 1) }).Should(MatchError(apierrors.IsInvalid, "IsInvalid"))
}

// convertThrough lets a Service convert the definition until the test ends.
func (f *fixture) convertThrough() apiextensionsclient.CustomResourceDefinitionInterface {
	f.T.Helper()
	f.Expect(suite.API.Create(f.Ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service, Namespace: f.Namespace},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	})).To(Succeed())
	extensions, err := apiextensionsclient.NewForConfig(suite.Cluster.Admin())
	f.Expect(err).NotTo(HaveOccurred())
	definitions := extensions.CustomResourceDefinitions()
	replace := func(config apiextensionsv1.WebhookClientConfig, maximum int) {
		f.define(definitions, maximum, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
			spec.Conversion.Webhook.ClientConfig = &config
		})
	}
	live, err := definitions.Get(f.Ctx, definition, metav1.GetOptions{})
	f.Expect(err).NotTo(HaveOccurred())
	before := *live.Spec.Conversion.Webhook.ClientConfig
	f.T.Cleanup(func() { replace(before, mostHistory) })
	replace(apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: f.Namespace, Name: service, Path: ptr.To(conversion.Path)}}, mostHistory-1)
	return definitions
}

// A certificate is issued, trusted and rotated while clients read and write through it, without one failed request.
func TestRotationBreaksNoRequest(t *testing.T) {
	const lifetime, renewBefore, propagation = 90 * 24 * time.Hour, 30 * 24 * time.Hour, 10 * time.Minute
	f := newFixture(t)
	address := machineAddress(t)
	// Issued in the past, so that the certificates are valid at the time of the API server as well.
	now := clocktesting.NewFakeClock(time.Now().Add(-(lifetime - renewBefore) - time.Minute))
	definitions := f.convertThrough()
	bundle := func() string {
		live, err := definitions.Get(f.Ctx, definition, metav1.GetOptions{})
		f.Expect(err).NotTo(HaveOccurred())
		return string(live.Spec.Conversion.Webhook.ClientConfig.CABundle)
	}
	replicas := []*replica{f.startReplica(address, now), f.startReplica(address, now)}
	serving := func() []string {
		var serials []string
		for _, r := range replicas {
			if certificate, err := r.keeper.GetCertificate(nil); err == nil {
				serials = append(serials, certificate.Leaf.SerialNumber.String())
			}
		}
		return serials
	}
	f.Eventually(serving).Should(HaveLen(2))
	first := serving()
	f.Expect(first[0]).To(Equal(first[1]), "the replicas serve the same certificate")
	f.Eventually(bundle).ShouldNot(BeEmpty())

	// Given clients of both versions
	old, _ := f.in(alpha, "MCPServer")
	f.Eventually(func() error {
		_, err := old.Create(f.Ctx, f.object(alpha, "MCPServer", "tools", "{image: a, protocol: {tls: true}}"), metav1.CreateOptions{})
		return err
	}).Should(Succeed())
	load := harness.StartLoad(f.Ctx, 50, func(i int) error {
		_, err := old.Apply(f.Ctx, "tools", f.object(alpha, "MCPServer", "tools", fmt.Sprintf("{image: 'a:%d', protocol: {tls: true}}", i)), metav1.ApplyOptions{FieldManager: "load", Force: true})
		// The API server gives a handshake 10 seconds, in which a busy machine may not run this process at all. A keeper
		// that is to blame is still deciding, and a certificate that is not trusted fails otherwise.
		isDeciding := slices.ContainsFunc(replicas, func(r *replica) bool { return r.deciding.Load() > 0 })
		if err != nil && strings.HasSuffix(err.Error(), "net/http: TLS handshake timeout") && !isDeciding {
			return nil
		}
		return err
	})

	// When the certificate is due
	before := bundle()
	now.Step(lifetime - renewBefore + time.Second)
	f.define(definitions, mostHistory-2) // wakes a keeper that has read the time before the step, and set its timer after it
	f.Eventually(bundle).ShouldNot(Equal(before), "the next certificate is published")
	f.Expect(bundle()).To(HavePrefix(before))
	f.define(definitions, mostHistory-3) // the API server trusts it then
	f.Consistently(serving, "1s").Should(Equal(first), "and not served yet")
	now.Step(propagation)
	f.define(definitions, mostHistory-4) // wakes a keeper, as above
	f.Eventually(serving).ShouldNot(ContainElement(first[0]), "and then served")
	sent := load.Count()
	f.Eventually(load.Count).Should(BeNumerically(">", sent+100))

	// Then no request has failed.
	f.Expect(load.Stop()).To(BeEmpty())
}

// What is deleted or overwritten is restored, and conversions work again.
func TestCertificatesAreRestored(t *testing.T) {
	f := newFixture(t)
	definitions := f.convertThrough()
	r := f.startReplica(machineAddress(t), clocktesting.NewFakeClock(time.Now()))
	config := func() *apiextensionsv1.CustomResourceDefinition {
		live, err := definitions.Get(f.Ctx, definition, metav1.GetOptions{})
		f.Expect(err).NotTo(HaveOccurred())
		return live
	}
	bundle := func() []byte { return config().Spec.Conversion.Webhook.ClientConfig.CABundle }
	serial := func() string {
		certificate, err := r.keeper.GetCertificate(nil)
		if err != nil {
			return ""
		}
		return certificate.Leaf.SerialNumber.String()
	}
	old, _ := f.in(alpha, "MCPServer")
	converts := func() {
		f.T.Helper()
		f.Eventually(func() error {
			_, err := old.Apply(f.Ctx, "tools", f.object(alpha, "MCPServer", "tools", "{image: a, protocol: {tls: true}}"), metav1.ApplyOptions{FieldManager: "a", Force: true})
			return err
		}).Should(Succeed())
	}
	f.Eventually(bundle).ShouldNot(BeEmpty())
	converts()

	// When the CA bundle is removed
	before := bundle()
	f.Eventually(func() error {
		live := config()
		live.Spec.Conversion.Webhook.ClientConfig.CABundle = nil
		_, err := definitions.Update(f.Ctx, live, metav1.UpdateOptions{FieldManager: "kubectl-replace"})
		return err
	}).Should(Succeed())
	f.Eventually(bundle).Should(Equal(before))

	// And when the Secret is deleted
	first := serial()
	f.Expect(suite.API.Delete(f.Ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: certificates.SecretName, Namespace: f.Namespace}})).To(Succeed())
	f.Eventually(serial).ShouldNot(Equal(first))
	f.Eventually(bundle).ShouldNot(Equal(before))
	converts()
	f.Expect(r.keeper.StoresOlder()).To(BeFalse(), "objects were only ever stored in %s", beta)
}
