package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	// checksumsFile lists the files of a release. Its signature is one of all of them.
	checksumsFile = "checksums.txt"
	// signatureFile is the signature of a key, and bundleFile that of an identity.
	signatureFile = checksumsFile + ".sig"
	bundleFile    = checksumsFile + ".sigstore.json"
)

func runSign(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("image sign", flag.ContinueOnError)
	flags.SetOutput(stderr)
	key := flags.String("key", "", "File with an ECDSA P-256 private key in PEM. Left out, cosign signs with the identity of the CI job.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("one folder of a release is needed, such as dist/release/v1.2.3")
	}
	checksums := filepath.Join(flags.Arg(0), checksumsFile)
	content, err := os.ReadFile(checksums)
	if err != nil {
		return fmt.Errorf("reading the checksums: %w: run 'make release' first", err)
	}
	if *key == "" {
		return signWithIdentity(ctx, checksums, filepath.Join(flags.Arg(0), bundleFile), stdout, stderr)
	}
	signature, err := signWithKey(*key, content)
	if err != nil {
		return err
	}
	to := filepath.Join(flags.Arg(0), signatureFile)
	if err := publish(to, []byte(signature+"\n")); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s signs the checksums of all other files\n", to)
	return err
}

// signWithKey returns the signature that `cosign verify-blob --key` verifies: ECDSA over
// SHA-256, in ASN.1, in base64.
func signWithKey(path string, content []byte) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the key: %w", err)
	}
	key, err := parseKey(text)
	if err != nil {
		return "", fmt.Errorf("-key %s: %w; create one with: openssl ecparam -name prime256v1 -genkey -noout -out FILE", path, err)
	}
	digest := sha256.Sum256(content)
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		return "", fmt.Errorf("signing the checksums: %w", err)
	}
	return base64.StdEncoding.EncodeToString(signature), nil
}

func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("not a PEM file")
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil && key.Curve == elliptic.P256() {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if key, ok := parsed.(*ecdsa.PrivateKey); err == nil && ok && key.Curve == elliptic.P256() {
		return key, nil
	}
	return nil, fmt.Errorf("%q is not an unencrypted ECDSA P-256 key", block.Type)
}

// signWithIdentity has cosign sign keylessly: with a certificate for the identity of the
// CI job, and an entry in the transparency log.
func signWithIdentity(ctx context.Context, checksums, bundle string, stdout, stderr io.Writer) error {
	cosign, err := exec.LookPath("cosign")
	if err != nil {
		return errors.New("the program cosign, which signs with the identity of a CI job, is not in PATH: install it, or sign with a key (-key)")
	}
	cmd := exec.CommandContext(ctx, cosign, "sign-blob", "--yes", "--bundle", bundle, checksums)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("signing with cosign: %w", err)
	}
	return nil
}
