package peers

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// errNotPeer is the error of a connection whose other end is no replica of this server.
var errNotPeer = errors.New("the certificate is not derived from a session key of this server")

// selfSigned returns a certificate of the key. Replicas compare only the public key, so nothing else in it counts.
func selfSigned(key ed25519.PrivateKey) (tls.Certificate, ed25519.PublicKey, error) {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return tls.Certificate{}, nil, errors.New("creating the certificate of a replica: unexpected type of the public key")
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "mcp-bridge"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("creating the certificate of a replica: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, public, nil
}

// tlsConfig is for both ends of a connection between replicas. The keys are read for each connection, because they
// change. A resumed connection would not be verified with the present ones, so there is none.
func (k *keyring) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"http/1.1"},
		SessionTicketsDisabled: true,
		// The peer is verified by its key: it has no name, and no authority signs its certificate.
		InsecureSkipVerify: true, //nolint:gosec // see VerifyConnection
		ClientAuth:         tls.RequireAnyClientCert,
		VerifyConnection:   k.verify,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &k.sealing().certificate, nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &k.sealing().certificate, nil
		},
	}
}

// verify accepts a peer with the key that is derived from an accepted session key. TLS has verified that it has the
// private key.
func (k *keyring) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errNotPeer
	}
	public, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok || !k.trusts(public) {
		return errNotPeer
	}
	return nil
}
