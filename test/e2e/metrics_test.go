package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// certificateSecret is mounted by config/certificate.
	certificateSecret = "metrics-certificate"
	metricsHost       = managerName + "-metrics." + systemNamespace + ".svc"
	metricsPort       = "8443"
	metricsReader     = "fixpoint-metrics-reader"
	// certificateOverlay adds config/certificate to the manager of these tests.
	certificateOverlay = `resources:
- ../e2e
components:
- ../certificate
`
	// renewalTimeout allows for the kubelet to update the mounted Secret, which takes up to a minute by default.
	renewalTimeout = 3 * time.Minute
)

func TestMetricsRequireTheReaderRole(t *testing.T) {
	env := newEnvironment(t)
	env.Eventually(func() error { // a leader that loses its Lease exits
		_, err := clientset.CoreV1().Pods(systemNamespace).ProxyGet("https", env.leader().Name, metricsPort, "/metrics", nil).DoRaw(env.ctx)
		if err == nil {
			return StopTrying("the metrics are served without a token")
		}
		return err
	}).Should(MatchError(Or(ContainSubstring("Unauthorized"), ContainSubstring("Forbidden"), ContainSubstring(http.StatusText(http.StatusUnauthorized)),
		ContainSubstring("the server has asked for the client to provide credentials"))))
}

// TestMetricsServeTheRenewedCertificate mounts a certificate, which every replica must serve, and renews it without a
// restart. Later tests run with the certificate.
func TestMetricsServeTheRenewedCertificate(t *testing.T) {
	env := newEnvironment(t).withCustomClient(func(pod *corev1.Pod) {
		pod.Spec.AutomountServiceAccountToken = ptr.To(true)
	})
	env.grantMetricsReader()
	authority := env.newAuthority()
	env.applyCertificate(authority, 1001)

	env.Expect(applyOverlay(env.ctx, "e2e-certificate", certificateOverlay)).To(Succeed())
	ctx, cancel := context.WithTimeout(env.ctx, deployTime)
	defer cancel()
	env.Expect(available(ctx, systemNamespace, managerName, managerReplicas)).To(Succeed())
	pods := env.waitForReplicas()
	for _, pod := range pods {
		env.Eventually(func(g Gomega) { env.verifyMetrics(g, pod, authority, "1001") }).Should(Succeed())
	}

	env.applyCertificate(authority, 1002)
	changed := time.Now()

	for _, pod := range pods {
		env.Eventually(func(g Gomega) { env.verifyMetrics(g, pod, authority, "1002") }, renewalTimeout).Should(Succeed())
	}
	t.Logf("the renewed certificate is served by all replicas after %s", time.Since(changed).Round(time.Second))
	for _, pod := range pods {
		var now corev1.Pod
		env.Expect(api.Get(env.ctx, client.ObjectKeyFromObject(&pod), &now)).To(Succeed())
		env.Expect(now.UID).To(Equal(pod.UID))
		env.verifyRestarts(now, pod.Status.ContainerStatuses[0].RestartCount)
	}
}

// grantMetricsReader authorizes the pods of the namespace to read metrics.
func (env *environment) grantMetricsReader() {
	env.t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: env.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: metricsReader},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: env.namespace, Name: "default"}},
	}
	env.Expect(api.Create(env.ctx, binding)).To(Succeed())
	env.t.Cleanup(func() { NewWithT(env.t).Expect(api.Delete(env.ctx, binding)).To(Succeed()) })
}

// verifyMetrics checks that a replica serves metrics to authorized clients only, with the certificate of the given serial
// number.
func (env *environment) verifyMetrics(g Gomega, pod corev1.Pod, by *authority, serial string) {
	var found struct {
		Anonymous, Status, Lines int
		Serial                   string
	}
	g.Expect(env.requestInto(&found, "/scrape", "address", net.JoinHostPort(pod.Status.PodIP, metricsPort), "name", metricsHost, "ca", string(by.pem))).To(Succeed())
	g.Expect(found.Serial).To(Equal(serial), pod.Name)
	g.Expect(found.Anonymous).To(Equal(http.StatusUnauthorized))
	g.Expect(found.Status).To(Equal(http.StatusOK))
	g.Expect(found.Lines).To(BeNumerically(">", 100))
}

// applyCertificate creates or renews the Secret with the certificate.
func (env *environment) applyCertificate(by *authority, serial int64) {
	env.t.Helper()
	certificate, key := env.issue(by, serial)
	secret := corev1ac.Secret(certificateSecret, systemNamespace).WithType(corev1.SecretTypeTLS).WithData(map[string][]byte{
		corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key, "ca.crt": by.pem,
	})
	_, err := clientset.CoreV1().Secrets(systemNamespace).Apply(env.ctx, secret, metav1.ApplyOptions{FieldManager: "e2e", Force: true})
	env.Expect(err).NotTo(HaveOccurred())
}

// authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func (env *environment) newAuthority() *authority {
	env.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	env.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1000), Subject: pkix.Name{CommonName: "e2e"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	env.Expect(err).NotTo(HaveOccurred())
	return &authority{certificate: template, key: key, pem: encodePEM("CERTIFICATE", der)}
}

// issue returns a certificate for the metrics endpoint and its key.
func (env *environment) issue(by *authority, serial int64) (certificate, key []byte) {
	env.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	env.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{metricsHost},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.certificate, private.Public(), by.key)
	env.Expect(err).NotTo(HaveOccurred())
	encoded, err := x509.MarshalECPrivateKey(private)
	env.Expect(err).NotTo(HaveOccurred())
	return encodePEM("CERTIFICATE", der), encodePEM("EC PRIVATE KEY", encoded)
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
