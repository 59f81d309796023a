// Package contracts reads the ConfigMap with the contracts of an MCPServer, and compares them.
package contracts

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
)

// Contract is a contract in full.
type Contract struct {
	Digest string `json:"digest"`
	// Verified is true if no item is omitted, and the items have the digest.
	Verified bool `json:"verified"`
	prober.ContractText
}

// Stored are the contracts of an MCPServer; nil if the ConfigMap does not have them.
type Stored struct {
	Current  *Contract `json:"current,omitempty"`
	Previous *Contract `json:"previous,omitempty"`
	Pending  *Contract `json:"pending,omitempty"`
}

// Read reads the data of the ConfigMap.
func Read(data map[string]string) (Stored, error) {
	var stored Stored
	for key, value := range data {
		for prefix, into := range map[string]**Contract{
			v1beta1.ContractKeyCurrent: &stored.Current, v1beta1.ContractKeyPrevious: &stored.Previous, v1beta1.ContractKeyPending: &stored.Pending,
		} {
			digest, ok := strings.CutPrefix(key, prefix)
			if !ok {
				continue
			}
			contract := &Contract{Digest: digest}
			if err := json.Unmarshal([]byte(value), &contract.ContractText); err != nil {
				return Stored{}, fmt.Errorf("reading the key %s of the ConfigMap: %w", key, err)
			}
			contract.Verified = prober.DigestOfText(contract.ContractText) == digest
			*into = contract
		}
	}
	return stored, nil
}

// Change returns the contracts to compare: the current one and the one that waits for approval, or else the previous one
// and the current one. Either may be nil.
func (s Stored) Change() (from, to *Contract) {
	if s.Pending != nil {
		return s.Current, s.Pending
	}
	return s.Previous, s.Current
}
