package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
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
	// certificateSecret is the one that config/certificate mounts.
	certificateSecret = "metrics-certificate"
	metricsHost       = managerName + "-metrics." + systemNamespace + ".svc"
	metricsPort       = "8443"
	metricsReader     = "fixpoint-metrics-reader"
	// withCertificate is the manager of these tests with config/certificate.
	withCertificate = `resources:
- ../e2e
components:
- ../certificate
`
	// renewalTime is for the kubelet to write the Secret into the pods, which it does
	// when it looks at a pod the next time, once a minute by default.
	renewalTime = 3 * time.Minute
)

func TestMetricsAreForReadersOnly(t *testing.T) {
	w := newWorld(t)
	leader := w.leader()
	_, err := clientset.CoreV1().Pods(systemNamespace).ProxyGet("https", leader.Name, metricsPort, "/metrics", nil).DoRaw(w.ctx)
	w.Expect(err).To(HaveOccurred())
	w.Expect(fmt.Sprint(err)).To(Or(ContainSubstring("Unauthorized"), ContainSubstring("Forbidden"), ContainSubstring(http.StatusText(http.StatusUnauthorized)),
		ContainSubstring("the server has asked for the client to provide credentials")))
}

// A certificate that somebody's authority has issued is mounted, served by every replica
// and, once renewed, served without a restart. The manager keeps it for the tests after
// this one.
func TestMetricsWithAMountedCertificateThatIsRenewed(t *testing.T) {
	w := newWorld(t).withClientThat(func(pod *corev1.Pod) {
		pod.Spec.AutomountServiceAccountToken = ptr.To(true)
	})
	w.mayReadMetrics()
	authority := w.newAuthority()
	w.putCertificate(authority, 1001)

	w.Expect(applyOverlay(w.ctx, "e2e-certificate", withCertificate)).To(Succeed())
	ctx, cancel := context.WithTimeout(w.ctx, deployTime)
	defer cancel()
	w.Expect(available(ctx, systemNamespace, managerName, managerReplicas)).To(Succeed())
	pods := w.complete()
	for _, pod := range pods {
		w.Eventually(func(g Gomega) { w.serves(g, pod, authority, "1001") }).Should(Succeed())
	}

	w.putCertificate(authority, 1002)
	changed := time.Now()

	for _, pod := range pods {
		w.Eventually(func(g Gomega) { w.serves(g, pod, authority, "1002") }, renewalTime).Should(Succeed())
	}
	t.Logf("the renewed certificate is served by all replicas after %s", time.Since(changed).Round(time.Second))
	for _, pod := range pods {
		var now corev1.Pod
		w.Expect(api.Get(w.ctx, client.ObjectKeyFromObject(&pod), &now)).To(Succeed())
		w.Expect(now.UID).To(Equal(pod.UID))
		w.Expect(now.Status.ContainerStatuses[0].RestartCount).To(Equal(pod.Status.ContainerStatuses[0].RestartCount))
	}
}

// mayReadMetrics lets the pods of the namespace read metrics.
func (w *world) mayReadMetrics() {
	w.t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: metricsReader},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "default"}},
	}
	w.Expect(api.Create(w.ctx, binding)).To(Succeed())
	w.t.Cleanup(func() { NewWithT(w.t).Expect(api.Delete(w.ctx, binding)).To(Succeed()) })
}

// serves says that a replica serves metrics to readers, and the certificate with that
// number, which clients can verify.
func (w *world) serves(g Gomega, pod corev1.Pod, by *authority, serial string) {
	var found struct {
		Anonymous, Status, Lines int
		Serial                   string
	}
	g.Expect(w.askFor(&found, "/scrape", "address", net.JoinHostPort(pod.Status.PodIP, metricsPort), "name", metricsHost, "ca", string(by.pem))).To(Succeed())
	g.Expect(found.Serial).To(Equal(serial), pod.Name)
	g.Expect(found.Anonymous).To(Equal(http.StatusUnauthorized))
	g.Expect(found.Status).To(Equal(http.StatusOK))
	g.Expect(found.Lines).To(BeNumerically(">", 100))
}

// putCertificate has a Secret with a certificate of that number mounted, or renews it.
func (w *world) putCertificate(by *authority, serial int64) {
	w.t.Helper()
	certificate, key := w.issue(by, serial)
	secret := corev1ac.Secret(certificateSecret, systemNamespace).WithType(corev1.SecretTypeTLS).WithData(map[string][]byte{
		corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key, "ca.crt": by.pem,
	})
	_, err := clientset.CoreV1().Secrets(systemNamespace).Apply(w.ctx, secret, metav1.ApplyOptions{FieldManager: "e2e", Force: true})
	w.Expect(err).NotTo(HaveOccurred())
}

// authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func (w *world) newAuthority() *authority {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1000), Subject: pkix.Name{CommonName: "e2e"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	w.Expect(err).NotTo(HaveOccurred())
	return &authority{certificate: template, key: key, pem: inPEM("CERTIFICATE", der)}
}

// issue returns a certificate for the metrics, and its key.
func (w *world) issue(by *authority, serial int64) (certificate, key []byte) {
	w.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{metricsHost},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.certificate, private.Public(), by.key)
	w.Expect(err).NotTo(HaveOccurred())
	encoded, err := x509.MarshalECPrivateKey(private)
	w.Expect(err).NotTo(HaveOccurred())
	return inPEM("CERTIFICATE", der), inPEM("EC PRIVATE KEY", encoded)
}

func inPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
