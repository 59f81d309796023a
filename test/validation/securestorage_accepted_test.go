package validation

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// The everything... cases together set every field that a spec has; there are
// some because fields exclude each other. A test keeps it so.
var secureStorageAcceptances = map[string]acceptance{
	"the least": {spec: storage(), stored: storage(storageDefaults)},
	"access without a type": {
		spec: storage(`access: {}`), stored: storage(storageDefaults)},
	"everything, with a Secret and a vault by its name": {
		spec: `
provider:
  subscriptionID: ABCDEFab-0123-4567-89ab-cdefABCDEF01
  resourceGroup: .rg_(1)-b
  location: westeurope2
  credentialsSecretRef: {name: azure.credentials-1}
sku: Premium_LRS
accountName: abc
tags: {team: billing, cost center: "4711 + 1"}
key:
  vault: {name: a-b-c, resourceGroup: keys}
  name: "-1"
  version: 0123456789abcdef0123456789abcdef
access: {type: AccessPolicy}
export: {accountKeys: false}
managementPolicy: Observe
deletionPolicy: Delete
adoptionPolicy: IfUnowned
accountLossPolicy: Recreate
pollInterval: 10s
propagationDeadline: 1s
suspend: true`},
	"everything, with a workload identity and a vault by its ID": {
		spec: `
provider:
  subscriptionID: 00000000-0000-0000-0000-000000000001
  resourceGroup: ` + strings.Repeat("r", 90) + `
  location: ` + strings.Repeat("l", 64) + `
  workloadIdentity: {clientID: ` + anyUUID + `, tenantID: ` + anyUUID + `, serviceAccountName: invoices}
sku: Standard_RAGZRS
accountName: a23456789012345678901234
tags: {` + entries("tag", 12) + `}
key:
  vaultID: /subscriptions/` + anyUUID + `/resourcegroups/Keys/providers/microsoft.keyvault/vaults/Demo-Vault
  name: ` + strings.Repeat("k", 127) + `
  version: latest
access: {type: RoleAssignment}
export: {accountKeys: true}
managementPolicy: Manage
deletionPolicy: Retain
adoptionPolicy: Never
accountLossPolicy: Stall
pollInterval: 24h
propagationDeadline: 23h59m60.0s
suspend: false`},
	// Rules cost the API server time, and it gives up on one that costs too much.
	"tags as large as they may be": {
		spec: storage(storageDefaults, fmt.Sprintf(`tags: {%s}`,
			repeated(12, strings.Repeat("ä", 126)+"%02d: "+strings.Repeat("ö", 256))))},
}

func TestWhatMayChangeOfASecureStorage(t *testing.T) {
	for given, c := range map[string]struct{ was, is string }{
		"nothing":                          {`accountName: invoices`, `accountName: invoices`},
		"the key":                          {`{}`, `key: {vault: {name: other-vault}, name: other}`},
		"the vault, from a name to an ID":  {`{}`, `key: {` + byID(vaultID+"other-vault") + `}`},
		"the version, from latest to one":  {`{}`, `key: {version: 0123456789abcdef0123456789abcdef}`},
		"the way of access":                {`{}`, `access: {type: AccessPolicy}`},
		"the credentials":                  {`provider: {credentialsSecretRef: {name: azure}}`, anyIdentity},
		"the copies":                       {`{}`, `sku: Standard_GRS`},
		"what happens to the data at last": {`{}`, `deletionPolicy: Delete`},
		"what is exported":                 {`{export: {accountKeys: true}, managementPolicy: Manage}`, `{export: {}, managementPolicy: Observe}`},
		"whether it is managed":            {`{}`, `managementPolicy: Observe`},
		"all the rest":                     {`{}`, `{tags: {a: b}, adoptionPolicy: IfUnowned, accountLossPolicy: Recreate, pollInterval: 1h, propagationDeadline: 1h, suspend: true}`},
	} {
		t.Run(given, func(t *testing.T) {
			g := NewWithT(t)

			g.Expect(refusal{was: storage(c.was), spec: storage(c.is)}.try(t, "SecureStorage")).To(Succeed())
		})
	}
}
