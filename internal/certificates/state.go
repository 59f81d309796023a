package certificates

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"time"
)

const (
	// lifetime of a certificate.
	lifetime = 90 * 24 * time.Hour
	// renewBefore is how long before the end of a certificate the next one is issued.
	renewBefore = 30 * 24 * time.Hour
	// propagation is how long a certificate is in the CA bundle before it is served. API servers observe a change of
	// the bundle within seconds.
	propagation = 10 * time.Minute
	// clockSkew is by how much the clocks of API servers may be behind that of the manager.
	clockSkew = time.Hour
)

// Entries of the Secret.
const (
	entryCertificate, entryKey         = "tls.crt", "tls.key"
	entryNextCertificate, entryNextKey = "next.crt", "next.key"
	entryBundle                        = "ca.crt"
)

// pair is a certificate and its key.
type pair struct {
	// certificate and key are PEM.
	certificate, key []byte
	// leaf is the parsed certificate.
	leaf *x509.Certificate
}

// state is the content of the Secret.
type state struct {
	// serving is the certificate to serve, and next the one that follows it; nil without one.
	serving, next *pair
	// bundle holds the certificates that API servers trust, in PEM.
	bundle []byte
}

// parse reads the Secret. What cannot be used is absent from the state, and replaced.
func parse(data map[string][]byte) state {
	return state{
		serving: parsePair(data[entryCertificate], data[entryKey]),
		next:    parsePair(data[entryNextCertificate], data[entryNextKey]),
		bundle:  data[entryBundle],
	}
}

func parsePair(certificate, key []byte) *pair {
	parsed, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil
	}
	return &pair{certificate: certificate, key: key, leaf: parsed.Leaf}
}

// data is the content of the Secret that holds a state.
func (s state) data() map[string][]byte {
	data := map[string][]byte{entryBundle: s.bundle}
	if s.serving != nil {
		data[entryCertificate], data[entryKey] = s.serving.certificate, s.serving.key
	}
	if s.next != nil {
		data[entryNextCertificate], data[entryNextKey] = s.next.certificate, s.next.key
	}
	return data
}

// action is what to do about a state.
type action string

const (
	// keep leaves the state as it is.
	keep action = "Keep"
	// replace issues a certificate and serves it at once, because the present one cannot be used.
	replace action = "Replace"
	// stage issues the next certificate, and publishes it.
	stage action = "Stage"
	// promote serves the next certificate.
	promote action = "Promote"
)

// decide returns what to do about a state, and when to decide again if nothing changes until then.
func decide(s state, names []string, now time.Time) (do action, again time.Time) {
	switch {
	case s.serving == nil, !s.serving.covers(names), !s.serving.isValidAt(now), !trusts(s.bundle, s.serving):
		return replace, now
	case s.next != nil && s.next.covers(names) && s.next.isValidAt(now) && trusts(s.bundle, s.next):
		ready := s.next.leaf.NotBefore.Add(clockSkew + propagation)
		if now.Before(ready) {
			return keep, ready
		}
		return promote, now
	case now.After(s.serving.leaf.NotAfter.Add(-renewBefore)):
		return stage, now
	default:
		return keep, s.serving.leaf.NotAfter.Add(-renewBefore)
	}
}

// perform returns the state that follows an action.
func perform(do action, s state, names []string, now time.Time) (state, error) {
	switch do {
	case replace:
		issued, err := issue(names, now)
		if err != nil {
			return s, err
		}
		// Replicas serve the previous certificate until they observe the Secret.
		return state{serving: issued, bundle: bundleOf(issued, s.serving)}, nil
	case stage:
		issued, err := issue(names, now)
		if err != nil {
			return s, err
		}
		return state{serving: s.serving, next: issued, bundle: bundleOf(s.serving, issued)}, nil
	case promote:
		return state{serving: s.next, bundle: bundleOf(s.next, s.serving)}, nil
	default:
		return s, nil
	}
}

func (p *pair) covers(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return p.leaf.VerifyHostname(name) != nil })
}

// isValidAt reports whether API servers accept the certificate at a time. It may be of the future: the clock was wrong when
// it was issued.
func (p *pair) isValidAt(now time.Time) bool {
	return !now.Before(p.leaf.NotBefore) && !now.After(p.leaf.NotAfter)
}

// bundleOf is the PEM of certificates, of which some may be nil.
func bundleOf(pairs ...*pair) []byte {
	var bundle []byte
	for _, p := range pairs {
		if p != nil {
			bundle = append(bundle, p.certificate...)
		}
	}
	return bundle
}

func trusts(bundle []byte, p *pair) bool {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if bytes.Equal(block.Bytes, p.leaf.Raw) {
			return true
		}
	}
	return false
}

// issue returns a self-signed certificate for DNS names.
func issue(names []string, now time.Time) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("generating a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: names[0], Organization: []string{"fixpoint.dev"}},
		DNSNames:     names,
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	issued := parsePair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	return issued, nil
}
