package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

const testChecksums = "0123  install.yaml\n"

// released is a folder with checksums.
func released(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	NewWithT(t).Expect(os.WriteFile(filepath.Join(folder, checksumsFile), []byte(testChecksums), 0o600)).To(Succeed())
	return folder
}

// writeKey writes a private key as openssl does.
func writeKey(t *testing.T, curve elliptic.Curve, kind string) (string, *ecdsa.PublicKey) {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	encode := x509.MarshalPKCS8PrivateKey
	if kind == "EC PRIVATE KEY" {
		encode = func(any) ([]byte, error) { return x509.MarshalECPrivateKey(key) }
	}
	content, err := encode(key)
	g.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(t.TempDir(), "key.pem")
	g.Expect(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)).To(Succeed())
	return path, &key.PublicKey
}

// TestSignatureIsVerifiedBySigstore verifies with the library that cosign verifies blobs with, and with openssl.
func TestSignatureIsVerifiedBySigstore(t *testing.T) {
	for _, kind := range []string{"EC PRIVATE KEY", "PRIVATE KEY"} {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)
			folder := released(t)
			key, public := writeKey(t, elliptic.P256(), kind)

			g.Expect(run(t.Context(), []string{"sign", "-key", key, folder}, io.Discard, io.Discard)).To(Succeed())

			encoded := bytes.TrimSpace(read(g, folder, signatureFile))
			signed, err := base64.StdEncoding.DecodeString(string(encoded))
			g.Expect(err).NotTo(HaveOccurred())
			text, err := cryptoutils.MarshalPublicKeyToPEM(public)
			g.Expect(err).NotTo(HaveOccurred())
			loaded, err := cryptoutils.UnmarshalPEMToPublicKey(text)
			g.Expect(err).NotTo(HaveOccurred())
			verifier, err := signature.LoadVerifier(loaded, crypto.SHA256)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verifier.VerifySignature(bytes.NewReader(signed), bytes.NewReader([]byte(testChecksums)))).To(Succeed())
			g.Expect(verifier.VerifySignature(bytes.NewReader(signed), bytes.NewReader([]byte(testChecksums+"a")))).NotTo(Succeed())
		})
	}
}

func TestSigningIsRefused(t *testing.T) {
	short, _ := writeKey(t, elliptic.P224(), "PRIVATE KEY")
	notPEM := filepath.Join(t.TempDir(), "key.pem")
	NewWithT(t).Expect(os.WriteFile(notPEM, []byte("a"), 0o600)).To(Succeed())
	for name, c := range map[string]struct {
		args func(folder string) []string
		want string
	}{
		"no folder":          {func(string) []string { return nil }, "one folder of a release is needed"},
		"a folder of no use": {func(string) []string { return []string{t.TempDir()} }, "run 'make release' first"},
		"no key":             {func(folder string) []string { return []string{"-key", "absent", folder} }, "reading the key"},
		"no PEM":             {func(folder string) []string { return []string{"-key", notPEM, folder} }, "not a PEM file; create one with: openssl ecparam -name prime256v1 -genkey -noout -out FILE"},
		"another curve":      {func(folder string) []string { return []string{"-key", short, folder} }, "is not an unencrypted ECDSA P-256 key"},
		"no cosign":          {func(folder string) []string { return []string{folder} }, "install it, or sign with a key (-key)"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("PATH", t.TempDir())
			folder := released(t)

			err := run(t.Context(), append([]string{"sign"}, c.args(folder)...), io.Discard, io.Discard)

			g.Expect(err).To(MatchError(ContainSubstring(c.want)))
			g.Expect(filepath.Join(folder, signatureFile)).NotTo(BeAnExistingFile())
		})
	}
}

// TestIdentityIsThatOfCosign runs a program in place of cosign, and shows what it is asked to do.
func TestIdentityIsThatOfCosign(t *testing.T) {
	g := NewWithT(t)
	folder, bin := released(t), t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(bin, "cosign"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o700)).To(Succeed())
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	found, err := exec.LookPath("cosign")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(HavePrefix(bin))
	var out bytes.Buffer

	g.Expect(run(t.Context(), []string{"sign", folder}, &out, io.Discard)).To(Succeed())

	g.Expect(out.String()).To(Equal("sign-blob --yes --bundle " + filepath.Join(folder, bundleFile) + " " + filepath.Join(folder, checksumsFile) + "\n"))
}
