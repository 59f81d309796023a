package validation

import (
	"fmt"
	"strings"
)

// The drifts of all kinds are of one type, so their limits are the same.
func init() {
	for limit, c := range limitRefusals {
		if strings.HasPrefix(limit, "status.drifts") {
			secureStorageLimits[limit] = c
		}
	}
}

var secureStorageLimits = map[string]limitRefusal{
	"spec required":          {says: `spec: Required value`},
	"spec.provider required": {spec: storage(`provider: null`), says: `spec.provider: Required value`},
	"spec.provider.subscriptionID required": {
		spec: storage(`provider: {subscriptionID: null}`),
		says: `spec.provider.subscriptionID: Required value`},
	"spec.provider.subscriptionID maxLength": tooLong("provider.subscriptionID", 36),
	"spec.provider.resourceGroup required": {
		spec: storage(`provider: {resourceGroup: null}`),
		says: `spec.provider.resourceGroup: Required value`},
	"spec.provider.resourceGroup maxLength": tooLong("provider.resourceGroup", 90),
	"spec.provider.location required": {
		spec: storage(`provider: {location: null}`),
		says: `spec.provider.location: Required value`},
	"spec.provider.location maxLength": tooLong("provider.location", 64),
	"spec.provider.credentialsSecretRef.name required": {
		spec: storage(`provider: {credentialsSecretRef: {}}`),
		says: `spec.provider.credentialsSecretRef.name: Required value`},
	"spec.provider.credentialsSecretRef.name maxLength": tooLong("provider.credentialsSecretRef.name", 253),
	"spec.provider.workloadIdentity.clientID required": {
		spec: storage(`provider: {workloadIdentity: {tenantID: ` + anyUUID + `}}`),
		says: `spec.provider.workloadIdentity.clientID: Required value`},
	"spec.provider.workloadIdentity.clientID maxLength": tooLong("provider.workloadIdentity.clientID", 36, anyIdentity),
	"spec.provider.workloadIdentity.tenantID required": {
		spec: storage(`provider: {workloadIdentity: {clientID: ` + anyUUID + `}}`),
		says: `spec.provider.workloadIdentity.tenantID: Required value`},
	"spec.provider.workloadIdentity.tenantID maxLength":           tooLong("provider.workloadIdentity.tenantID", 36, anyIdentity),
	"spec.provider.workloadIdentity.serviceAccountName maxLength": tooLong("provider.workloadIdentity.serviceAccountName", 253, anyIdentity),
	"spec.sku enum": {
		spec: storage(`sku: Standard_ABC`),
		says: `spec.sku: Unsupported value: "Standard_ABC": supported values: "Standard_LRS", "Standard_ZRS", "Standard_GRS", "Standard_RAGRS", "Standard_GZRS", "Standard_RAGZRS", "Premium_LRS"`},
	"spec.accountName maxLength": tooLong("accountName", 24),
	"spec.tags maxProperties": {
		spec: storage(fmt.Sprintf(`tags: {%s}`, entries("tag", 13))),
		says: `spec.tags: Too many: 13: must have at most 12 items`},
	"spec.key required":          {spec: storage(`key: null`), says: `spec.key: Required value`},
	"spec.key.vaultID maxLength": tooLong("key.vaultID", 256, `key: {vault: null}`),
	"spec.key.vault.name required": {
		spec: storage(`key: {vault: {name: null}}`),
		says: `spec.key.vault.name: Required value`},
	"spec.key.vault.name maxLength":          tooLong("key.vault.name", 24),
	"spec.key.vault.resourceGroup maxLength": tooLong("key.vault.resourceGroup", 90),
	"spec.key.name required":                 {spec: storage(`key: {name: null}`), says: `spec.key.name: Required value`},
	"spec.key.name maxLength":                tooLong("key.name", 127),
	"spec.key.version maxLength":             tooLong("key.version", 32),
	"spec.access.type enum": {
		spec: storage(`access: {type: Owner}`),
		says: `spec.access.type: Unsupported value: "Owner": supported values: "RoleAssignment", "AccessPolicy"`},
	"spec.managementPolicy enum": {
		spec: storage(`managementPolicy: Watch`),
		says: `spec.managementPolicy: Unsupported value: "Watch": supported values: "Manage", "Observe"`},
	"spec.deletionPolicy enum": {
		spec: storage(`deletionPolicy: Orphan`),
		says: `spec.deletionPolicy: Unsupported value: "Orphan": supported values: "Retain", "Delete"`},
	"spec.adoptionPolicy enum": {
		spec: storage(`adoptionPolicy: Always`),
		says: `spec.adoptionPolicy: Unsupported value: "Always": supported values: "Never", "IfUnowned"`},
	"spec.accountLossPolicy enum": {
		spec: storage(`accountLossPolicy: Ignore`),
		says: `spec.accountLossPolicy: Unsupported value: "Ignore": supported values: "Stall", "Recreate"`},

	// The controller keeps the status within these; a test of them shows that it has to.
	"status.phase enum": {
		status: `{phase: Fine}`,
		says:   `status.phase: Unsupported value: "Fine": supported values: "Pending", "Provisioning", "Ready", "Degraded", "Failed", "Suspended", "Deleting"`},
	"status.lastHandledReconcileAt maxLength": {
		status: fmt.Sprintf(`{lastHandledReconcileAt: %s}`, strings.Repeat("a", 65)),
		says:   `status.lastHandledReconcileAt: Too long: may not be more than 64 bytes`},
	"status.conditions maxItems": {
		status: fmt.Sprintf(`{conditions: [%s]}`, repeated(33, `{type: T%d, status: "True", reason: R, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}`)),
		says:   `status.conditions: Too many: 33: must have at most 32 items`},
	"status.accountName maxLength": tooLongStatus("accountName", 24),
	"status.accountID maxLength":   tooLongStatus("accountID", 512),
	"status.principalID maxLength": tooLongStatus("principalID", 64),
	"status.endpoint maxLength":    tooLongStatus("endpoint", 2048),
	"status.grantID maxLength":     tooLongStatus("grantID", 1024),
	"status.grants maxItems": {
		status: fmt.Sprintf(`{grants: [%s]}`, repeated(9, `{vaultID: v%d, accessType: AccessPolicy}`)),
		says:   `status.grants: Too many: 9: must have at most 8 items`},
	"status.grants[].vaultID required": {
		status: `{grants: [{accessType: AccessPolicy}]}`,
		says:   `status.grants[0].vaultID: Required value`},
	"status.grants[].vaultID maxLength": {
		status: fmt.Sprintf(`{grants: [{vaultID: %s, accessType: AccessPolicy}]}`, strings.Repeat("a", 513)),
		says:   `status.grants[0].vaultID: Too long: may not be more than 512 bytes`},
	"status.grants[].accessType required": {
		status: `{grants: [{vaultID: v}]}`,
		says:   `status.grants[0].accessType: Required value`},
	"status.grants[].accessType enum": {
		status: `{grants: [{vaultID: v, accessType: Owner}]}`,
		says:   `status.grants[0].accessType: Unsupported value: "Owner": supported values: "RoleAssignment", "AccessPolicy"`},
	"status.grants[].principalID maxLength": {
		status: fmt.Sprintf(`{grants: [{vaultID: v, accessType: AccessPolicy, principalID: %s}]}`, strings.Repeat("a", 65)),
		says:   `status.grants[0].principalID: Too long: may not be more than 64 bytes`},
	"status.encryption maxLength": tooLongStatus("encryption", 64),
	"status.keyURI maxLength":     tooLongStatus("keyURI", 512),
	"status.keyVersion maxLength": tooLongStatus("keyVersion", 64),
}

const anyIdentity = `provider: {workloadIdentity: {clientID: ` + anyUUID + `, tenantID: ` + anyUUID + `}}`

// tooLong is a spec whose field, by its path, is one character longer than it may be.
func tooLong(path string, limit int, beside ...string) limitRefusal {
	names := strings.Split(path, ".")
	difference := strings.Join(names, ": {") + ": " + strings.Repeat("a", limit+1) + strings.Repeat("}", len(names)-1)
	return limitRefusal{
		spec: storage(append(beside, difference)...),
		says: fmt.Sprintf("spec.%s: Too long: may not be more than %d bytes", path, limit)}
}

func tooLongStatus(field string, limit int) limitRefusal {
	return limitRefusal{
		status: field + ": " + strings.Repeat("a", limit+1),
		says:   fmt.Sprintf("status.%s: Too long: may not be more than %d bytes", field, limit)}
}
