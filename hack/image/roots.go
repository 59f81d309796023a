package main

import (
	"bytes"
	"encoding/pem"
	"errors"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// rootsPath is where Go programs on Linux look first.
const rootsPath = "/etc/ssl/certs/ca-certificates.crt"

// certificates are the authorities that Mozilla trusts without constraints, from a
// pinned module, since those of the build machine differ between machines. The
// manager needs them for calls to Azure.
func certificates() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		// A PEM file cannot express a constraint such as a date.
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
