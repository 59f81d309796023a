package mcpserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	// pem is what clients trust it by.
	pem string
}

func newAuthority(w *fixture, name string) authority {
	w.T.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	w.Expect(err).NotTo(HaveOccurred())
	certificate, err := x509.ParseCertificate(der)
	w.Expect(err).NotTo(HaveOccurred())
	return authority{certificate, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// sign makes a certificate for a host that ends at a time.
func (a authority) sign(w *fixture, host string, end time.Time) tls.Certificate {
	w.T.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	w.Expect(err).NotTo(HaveOccurred())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serveTLS serves a stand-in with a certificate.
func serveTLS(t *testing.T, certificate tls.Certificate) *fakeServer {
	t.Helper()
	s := newServer("1.2.3")
	s.http = httptest.NewUnstartedServer(s.handler)
	s.http.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	s.http.StartTLS()
	t.Cleanup(s.close)
	return s
}

// encrypted says that the server speaks TLS, with a certificate by an authority that is kept there.
func encrypted(kind v1beta1.MCPServerCAKind, name, key string) edit {
	return func(s *v1beta1.MCPServerSpec) {
		often(s)
		s.Protocol.Scheme, s.Protocol.CARef = v1beta1.SchemeHTTPS, &v1beta1.MCPServerCARef{Kind: kind, Name: name, Key: key}
	}
}

func (w *fixture) createConfigMap(name, key, value string) {
	w.T.Helper()
	w.Expect(api.Create(w.Ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}, Data: map[string]string{key: value}})).To(Succeed())
}

func TestServersThatSpeakTLS(t *testing.T) {
	w, network := newNetworkedFixture(t)
	trusted, other := newAuthority(w, "trusted"), newAuthority(w, "other")
	soon := time.Now().Add(time.Hour)
	host := func(name string) string { return name + "." + w.Namespace + ".svc" }
	serve := func(name, host string, end time.Time) {
		network.lead("registry.test/"+name+":1", serveTLS(t, trusted.sign(w, host, end)))
	}
	create := func(name string, e edit) {
		w.create(name, withImage("registry.test/"+name+":1"), e, func(s *v1beta1.MCPServerSpec) {
			s.Probes = &v1beta1.MCPServerProbes{Readiness: &v1beta1.MCPServerProbe{Type: v1beta1.ProbeHTTP, Path: "/ready"}}
		})
	}
	w.createConfigMap("trusted", "ca.crt", trusted.pem)
	w.createConfigMap("other", "ca.crt", other.pem)
	w.createConfigMap("none", "ca.crt", "a certificate should be here")
	w.createSecret("trusted", "root.pem", trusted.pem)

	serve("by-configmap", host("by-configmap"), soon)
	serve("by-secret", host("by-secret"), soon)
	serve("strange", host("strange"), soon)
	serve("expired", host("expired"), time.Now().Add(-time.Minute))
	serve("misnamed", "localhost", soon)
	serve("unbundled", host("unbundled"), soon)
	create("by-configmap", encrypted(v1beta1.CAKindConfigMap, "trusted", "ca.crt"))
	create("by-secret", encrypted(v1beta1.CAKindSecret, "trusted", "root.pem"))
	create("strange", encrypted(v1beta1.CAKindConfigMap, "other", "ca.crt"))
	create("expired", encrypted(v1beta1.CAKindConfigMap, "trusted", "ca.crt"))
	create("misnamed", encrypted(v1beta1.CAKindConfigMap, "trusted", "ca.crt"))
	create("unbundled", encrypted(v1beta1.CAKindConfigMap, "none", "ca.crt"))
	create("plain", encrypted(v1beta1.CAKindConfigMap, "trusted", "ca.crt"))

	for _, name := range []string{"by-configmap", "by-secret"} {
		server := w.ready(name)
		w.Expect(server.Status.Endpoint).To(Equal("https://" + host(name) + ":8080/mcp"))
		harness.Eventually(w, name, &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
			g.Expect(m.Status.Server).To(HaveField("Tools", BeEquivalentTo(2)))
		})
		probe := w.deployment(name).Spec.Template.Spec.Containers[0].ReadinessProbe
		w.Expect(probe.HTTPGet.Scheme).To(Equal(corev1.URISchemeHTTPS))
	}
	for name, why := range map[string]string{
		"strange":   "TLS handshake failed: the certificate is not signed by a trusted authority",
		"expired":   "TLS handshake failed: the certificate has expired or is not valid yet",
		"misnamed":  "TLS handshake failed: the certificate is for another host",
		"plain":     "TLS handshake failed: the server does not speak TLS",
		"unbundled": "invalid probe configuration: the CA bundle contains no certificate",
	} {
		w.shows(name, "ProtocolReady", "False ProtocolFailing", HavePrefix("MCP handshake failed: "+why+"; "))
	}

	// When the authority is corrected, the server becomes Ready, and no pod is replaced.
	harness.Update(w, "user", "other", &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data["ca.crt"] += trusted.pem })
	w.ready("strange")
	w.Expect(w.replicaSets("strange")).To(HaveLen(1))

	// A Secret that loses its authority makes a server that answers fail.
	w.rotate("trusted", "root.pem", other.pem)
	w.shows("by-secret", "ProtocolReady", "False ProtocolFailing", ContainSubstring("is not signed by a trusted authority"))
}
