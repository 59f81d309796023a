package ha_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// scraped is a pair of replicas whose metrics are served, and who may read them.
type scraped struct {
	Gomega
	t               *testing.T
	leader, standby string // addresses
	reader, unbound string // tokens
}

func newScraped(t *testing.T, args ...string) *scraped {
	t.Helper()
	s := &scraped{Gomega: NewWithT(t), t: t}
	ctx := context.Background()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "metrics-"}}
	s.Expect(api.Create(ctx, namespace)).To(Succeed())
	s.reader, s.unbound = s.token(ctx, namespace.Name, "reader"), s.token(ctx, namespace.Name, "unbound")
	s.mayRead(ctx, namespace.Name, "reader")
	endpoint := fakecloud.New(fakecloud.Options{}).StartHTTP()
	t.Cleanup(endpoint.Close)
	for i, address := range []*string{&s.leader, &s.standby} {
		*address = harness.FreeAddress(t)
		r := startReplica(t, fmt.Sprintf("%s-%d", namespace.Name, i+1), managerProgram, nil, append(args,
			// The leader stays the leader, also on a busy machine: nobody starts it again.
			"--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=110s",
			"--leader-elect", "--leader-election-namespace="+namespace.Name, "--namespaces="+namespace.Name,
			"--cloud-endpoint="+endpoint.URL, "--metrics-bind-address="+*address)...)
		s.Eventually(r.isReady).Should(BeTrue(), "%s: %s", r, r.tail(20))
		s.Eventually(func() bool { return r.answers("/healthz") }).Should(BeTrue())
		s.Eventually(func() error { _, _, err := scrape(*address, ""); return err }).Should(Succeed())
		s.Eventually(func() error { // the first is the leader before the second is there
			return api.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: controllers.LeaderElectionID}, &coordinationv1.Lease{})
		}).Should(Succeed())
	}
	return s
}

func (s *scraped) token(ctx context.Context, namespace, name string) string {
	s.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.Expect(api.Create(ctx, account)).To(Succeed())
	request := &authenticationv1.TokenRequest{}
	s.Expect(api.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}

// mayRead gives the role that is shipped for it.
func (s *scraped) mayRead(ctx context.Context, namespace, name string) {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "metrics_reader_role.yaml"))
	s.Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.ClusterRole{}
	s.Expect(yaml.UnmarshalStrict(content, role)).To(Succeed())
	role.Name = namespace + "-" + role.Name
	s.Expect(api.Create(ctx, role)).To(Succeed())
	s.Expect(api.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	})).To(Succeed())
}

const metricsPath = "/metrics"

// scrape asks over a connection of its own, by HTTP/2 if the server will.
func scrape(address, token string) (*http.Response, string, error) {
	return ask(address, metricsPath, token)
}

func ask(address, path, token string) (*http.Response, string, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequest(http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		return nil, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// answer is the answer to a request, once the API server has told the replica who asks and what for. If that takes too long,
// the answer is an internal error.
func (s *scraped) answer(address, path, token string) (*http.Response, string) {
	s.t.Helper()
	var response *http.Response
	var body string
	s.Eventually(func() (int, error) {
		var err error
		if response, body, err = ask(address, path, token); err != nil {
			return 0, StopTrying("the replica does not answer").Wrap(err)
		}
		return response.StatusCode, nil
	}).ShouldNot(Equal(http.StatusInternalServerError))
	return response, body
}

func TestMetricsNeedPermission(t *testing.T) {
	t.Parallel()
	s := newScraped(t)
	for replica, address := range map[string]string{"the leader": s.leader, "a standby": s.standby} {
		response, _ := s.answer(address, metricsPath, "")
		s.Expect(response.StatusCode).To(Equal(http.StatusUnauthorized), "%s, without a token", replica)

		response, _ = s.answer(address, metricsPath, s.unbound)
		s.Expect(response.StatusCode).To(Equal(http.StatusForbidden), "%s, without the right", replica)

		response, body := s.answer(address, metricsPath, s.reader)
		s.Expect(response.StatusCode).To(Equal(http.StatusOK), replica)
		s.Expect(response.ProtoMajor).To(Equal(1), "HTTP/2 is off")
		s.Expect(body).To(ContainSubstring(`fixpoint_build_info{commit="0123abc",date="2026-01-02T03:04:05Z",go="go`), replica)
		s.Expect(body).To(ContainSubstring("fixpoint_lease_held "), replica)
	}
	s.Eventually(func() (string, error) { _, body, err := scrape(s.leader, s.reader); return body, err }).Should(ContainSubstring("fixpoint_lease_held 1"))
	_, body := s.answer(s.standby, metricsPath, s.reader)
	s.Expect(body).To(ContainSubstring("fixpoint_lease_held 0"))

	response, _ := s.answer(s.leader, "/debug/pprof/", s.reader)
	s.Expect(response.StatusCode).To(Equal(http.StatusNotFound), "profiles are not served with the metrics")
}

func TestServesMountedCertificateAndRereadsIt(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	mounted := t.TempDir()
	first := writeCertificate(g, mounted, "first.test")

	s := newScraped(t, "--metrics-cert-path="+mounted)
	s.Expect(served(s.leader)).To(Equal(first))

	second := writeCertificate(g, mounted, "second.test")
	s.Eventually(func() (string, error) { return served(s.leader) }).Should(Equal(second))
	response, _ := s.answer(s.leader, metricsPath, s.reader)
	s.Expect(response.StatusCode).To(Equal(http.StatusOK))
}

// writeCertificate makes a certificate in the way of cert-manager's Secrets, and returns whom it is for.
func writeCertificate(g *WithT, folder, host string) string {
	certificate, key, err := certutil.GenerateSelfSignedCertKeyWithFixtures(host, []net.IP{net.IPv4(127, 0, 0, 1)}, nil, "")
	g.Expect(err).NotTo(HaveOccurred())
	for name, content := range map[string][]byte{"tls.key": key, "tls.crt": certificate} {
		fresh := filepath.Join(folder, name+".new")
		g.Expect(os.WriteFile(fresh, content, 0o600)).To(Succeed())
		g.Expect(os.Rename(fresh, filepath.Join(folder, name))).To(Succeed())
	}
	return host
}

// served is whom the certificate of a server is for.
func served(address string) (string, error) {
	var host string
	connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
		certificate, err := x509.ParseCertificate(raw[0])
		if err == nil && len(certificate.DNSNames) > 0 {
			host = certificate.DNSNames[0]
		}
		return err
	}})
	if err != nil {
		return "", err
	}
	return host, connection.Close()
}

func TestVersionIsOfTheBuild(t *testing.T) {
	g := NewWithT(t)
	output, err := exec.Command(managerProgram, "--version").Output()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.TrimSpace(string(output))).To(HavePrefix("manager v0.0.0-test, commit 0123abc, date 2026-01-02T03:04:05Z, built with go"))
}
