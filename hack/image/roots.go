package main

import (
	"bytes"
	"encoding/pem"
	"errors"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// rootsPath is where Go programs on Linux look first.
const rootsPath = "/etc/ssl/certs/ca-certificates.crt"

// certificates are the authorities that Mozilla trusts without reserve, from a
// pinned module: those of the machine that builds would differ from machine to
// machine. The manager needs them for calls to Azure.
func certificates() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		// What an authority may vouch for only until a date, a file cannot say.
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	if out.Len() == 0 {
		return nil, errors.New("the bundle of authorities is empty")
	}
	return out.Bytes(), nil
}
