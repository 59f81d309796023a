package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A cluster lives for minutes; a day leaves room for one that is kept for inspection.
const certificateLifetime = 24 * time.Hour

// authority signs the certificates of one cluster.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	pem         []byte
}

// pair is a certificate and its key, both in PEM.
type pair struct {
	certificate, key []byte
}

func newAuthority(name string) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := newTemplate(pkix.Name{CommonName: name})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing the authority %s: %w", name, err)
	}
	return &authority{certificate: certificate, key: key, pem: pemOf("CERTIFICATE", der)}, nil
}

// client issues a client certificate for a user and its groups.
func (a *authority) client(user string, groups []string) (pair, error) {
	template := newTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(template)
}

// server issues a server certificate for the loopback address and the names of the Service.
func (a *authority) server(serviceIP net.IP) (pair, error) {
	template := newTemplate(pkix.Name{CommonName: "kube-apiserver"})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), serviceIP}
	template.DNSNames = []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	return a.sign(template)
}

func (a *authority) sign(template *x509.Certificate) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("signing the certificate of %s: %w", template.Subject, err)
	}
	keyPEM, err := keyPEM(key)
	if err != nil {
		return pair{}, err
	}
	return pair{certificate: pemOf("CERTIFICATE", der), key: keyPEM}, nil
}

func newTemplate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      subject,
		// The clock can be set back by a few minutes.
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(certificateLifetime),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pemOf("PRIVATE KEY", der), nil
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// credentials are the files that the components of one cluster share.
type credentials struct {
	dir string
	ca  *authority
}

// serviceIP is the first address of serviceRange, the address of the Service "kubernetes".
var serviceIP = net.IPv4(10, 96, 0, 1)

// newCredentials writes the cluster's keys and certificates to dir.
func newCredentials(dir string) (*credentials, error) {
	c := &credentials{dir: dir}
	var err error
	if c.ca, err = newAuthority("fixpoint-local-cluster"); err != nil {
		return nil, err
	}
	if err := c.writeAPIServer(); err != nil {
		return nil, err
	}
	if err := c.writeServiceAccounts(); err != nil {
		return nil, err
	}
	if err := c.writeKubeletClient(); err != nil {
		return nil, err
	}
	return c, c.writeFrontProxy()
}

func (c *credentials) file(name string) string { return filepath.Join(c.dir, name) }

func (c *credentials) write(name string, content []byte) error {
	if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

func (c *credentials) writePair(name string, p pair) error {
	if err := c.write(name+".crt", p.certificate); err != nil {
		return err
	}
	return c.write(name+".key", p.key)
}

func (c *credentials) writeAPIServer() error {
	server, err := c.ca.server(serviceIP)
	if err != nil {
		return err
	}
	if err := c.writePair("apiserver", server); err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.ca.key)
	if err != nil {
		return fmt.Errorf("encoding the authority's key: %w", err)
	}
	return c.writePair("ca", pair{certificate: c.ca.pem, key: pemOf("PRIVATE KEY", key)})
}

// writeServiceAccounts creates the key that signs service account tokens.
func (c *credentials) writeServiceAccounts() error {
	key, err := newKey()
	if err != nil {
		return err
	}
	private, err := keyPEM(key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encoding the service account key: %w", err)
	}
	return c.writePair("service-account", pair{certificate: pemOf("PUBLIC KEY", der), key: private})
}

// writeKubeletClient creates the certificate with which the API server calls kubelets. Simulated kubelets do not verify it.
func (c *credentials) writeKubeletClient() error {
	client, err := c.ca.client("kube-apiserver-kubelet-client", []string{Masters})
	if err != nil {
		return err
	}
	return c.writePair("kubelet-client", client)
}

// writeFrontProxy creates the certificate with which the aggregation layer signs its requests. It has a separate authority,
// because the owner of such a certificate can impersonate any user.
func (c *credentials) writeFrontProxy() error {
	ca, err := newAuthority("fixpoint-front-proxy")
	if err != nil {
		return err
	}
	if err := c.write("front-proxy-ca.crt", ca.pem); err != nil {
		return err
	}
	client, err := ca.client(frontProxyUser, nil)
	if err != nil {
		return err
	}
	return c.writePair("front-proxy-client", client)
}
