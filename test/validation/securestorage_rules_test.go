package validation

import (
	"fmt"
	"strings"
)

const (
	subscriptionMessage = "subscriptionID must be a UUID such as 00000000-0000-0000-0000-000000000001: copy the id from the output of `az account show`"
	subscriptionMoved   = "subscriptionID is immutable, because the storage account and its data are in this subscription: restore the previous value, and create a new SecureStorage for the other subscription"
	groupMessage        = "resourceGroup must consist of 1 to 90 letters, digits, '-', '_', '.', '(' and ')', not ending with '.': use the name of a resource group, not its ID"
	groupMoved          = "resourceGroup is immutable, because the storage account and its data are in this resource group: restore the previous value, and create a new SecureStorage for the other resource group"
	locationMessage     = "location must be the short name of an Azure location, in lower-case letters and digits: use a value such as westeurope instead of 'West Europe'"
	locationMoved       = "location is immutable, because Azure does not move the data of a storage account: restore the previous value, create a new SecureStorage in the other location and copy the data"
	credentialsMessage  = "credentialsSecretRef and workloadIdentity are mutually exclusive: remove credentialsSecretRef to use the workload identity, or workloadIdentity to use the Secret"
	secretMessage       = "name must be the name of a Secret in this namespace: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	clientMessage       = "clientID must be a UUID: use the client ID of the application or the managed identity, not its name"
	tenantMessage       = "tenantID must be a UUID: use the ID of the tenant, not its domain"
	nameOfAccount       = "accountName must consist of 3 to 24 lower-case letters and digits: use a value such as acmeinvoices, or omit accountName to derive a name"
	nameChanged         = "accountName is immutable and cannot be set or removed later, because the data is stored under this name: revert the change, and create a new SecureStorage for an account with another name"
	tagKeyMessage       = "tags must have keys of 1 to 128 characters without '<', '>', '%', '&', '?', '/' and the backslash: rename the key"
	tagPrefixMessage    = "tags must not have keys that start with 'fixpoint.dev', which are reserved for Fixpoint: rename the key"
	tagValueMessage     = "tags must have values of at most 256 characters: shorten the value"
	vaultsMessage       = "key needs exactly one of vault and vaultID: set vault for a key vault in the same subscription, or vaultID for a key vault in any subscription, and remove the other"
	vaultIDMessage      = "vaultID must be the resource ID of a key vault, whose name has 3 to 24 characters: use the form /subscriptions/<UUID>/resourceGroups/<group>/providers/Microsoft.KeyVault/vaults/<name>, as in the output of `az keyvault show`"
	vaultMessage        = "name must consist of 3 to 24 letters, digits and single '-', starting with a letter and ending with a letter or digit: use the name of a key vault, not its URI"
	vaultGroupMessage   = "resourceGroup must consist of 1 to 90 letters, digits, '-', '_', '.', '(' and ')', not ending with '.': use the name of a resource group, or omit it for the resource group of the storage account"
	keyNameMessage      = "name must consist of 1 to 127 letters, digits and '-': use the name of a key, not its URI"
	versionMessage      = "version must be a version of the key, of 32 digits and lower-case letters from a to f, or 'latest': copy it from the end of the URI of the key, or omit it to follow the latest version"
	pollMessage         = "pollInterval must be a duration from 10s to 24h, in hours, minutes and seconds: use a value such as 5m or 1h30m"
	exportMessage       = "export.accountKeys requires managementPolicy Manage, because the keys of a storage account that is only observed are not read: remove accountKeys, or set managementPolicy to Manage"
	deadlineMessage     = "propagationDeadline must be a duration from 1s to 24h, in hours, minutes and seconds: use a value such as 15m or 1h30m"
)

const (
	anyUUID = "11111111-2222-3333-4444-555555555555"
	vaultID = "/subscriptions/" + anyUUID + "/resourceGroups/keys/providers/Microsoft.KeyVault/vaults/"
)

// provider and key are refusals of one field there, by what differs from the least spec.
func provider(difference, field, message string) refusal {
	return refusal{spec: storage(`provider: {` + difference + `}`), field: "spec.provider." + field, message: message}
}

func key(difference, field, message string) refusal {
	return refusal{spec: storage(`key: {` + difference + `}`), field: strings.TrimSuffix("spec.key."+field, "."), message: message}
}

func identity(difference, field, message string) refusal {
	return provider(`workloadIdentity: {`+difference+`}`, "workloadIdentity."+field, message)
}

// byID takes the named vault out, since a key has one or the other.
func byID(id string) string { return `vault: null, vaultID: "` + id + `"` }

// moved is the change of a spec that differs from the least one before and after.
func moved(was, is, field, message string) refusal {
	return refusal{was: storage(was), spec: storage(is), field: field, message: message}
}

var secureStorageRefusals = map[string]refusal{
	"keys of an account that is only observed":     {spec: storage(`{export: {accountKeys: true}, managementPolicy: Observe}`), field: "spec.export.accountKeys", message: exportMessage},
	"observing an account whose keys are exported": moved(`export: {accountKeys: true}`, `{export: {accountKeys: true}, managementPolicy: Observe}`, "spec.export.accountKeys", exportMessage),
	"subscription by its name":                     provider(`subscriptionID: Pay-As-You-Go`, "subscriptionID", subscriptionMessage),
	"subscription that is empty":                   provider(`subscriptionID: ""`, "subscriptionID", subscriptionMessage),
	"subscription without its dashes":              provider(`subscriptionID: "00000000000000000000000000000001"`, "subscriptionID", subscriptionMessage),
	"subscription that is moved": moved(`{}`, `provider: {subscriptionID: `+anyUUID+`}`,
		"spec.provider.subscriptionID", subscriptionMoved),

	"group by its ID":            provider(`resourceGroup: /subscriptions/x/resourceGroups/demo`, "resourceGroup", groupMessage),
	"group that is empty":        provider(`resourceGroup: ""`, "resourceGroup", groupMessage),
	"group that ends with a dot": provider(`resourceGroup: demo.`, "resourceGroup", groupMessage),
	"group with a space":         provider(`resourceGroup: "demo 1"`, "resourceGroup", groupMessage),
	"group that is moved": moved(`{}`, `provider: {resourceGroup: other}`,
		"spec.provider.resourceGroup", groupMoved),

	"location as people write it": provider(`location: West Europe`, "location", locationMessage),
	"location that is empty":      provider(`location: ""`, "location", locationMessage),
	"location with a dash":        provider(`location: west-europe`, "location", locationMessage),
	"location that is moved": moved(`{}`, `provider: {location: northeurope}`,
		"spec.provider.location", locationMoved),

	"credentials of two kinds": provider(`credentialsSecretRef: {name: azure}, workloadIdentity: {clientID: `+anyUUID+`, tenantID: `+anyUUID+`}`,
		"credentialsSecretRef", credentialsMessage),
	"credentials of another namespace": provider(`credentialsSecretRef: {name: other/azure}`, "credentialsSecretRef.name", secretMessage),
	"credentials without a name":       provider(`credentialsSecretRef: {name: ""}`, "credentialsSecretRef.name", secretMessage),
	"credentials in upper case":        provider(`credentialsSecretRef: {name: Azure}`, "credentialsSecretRef.name", secretMessage),
	"identity by its name":             identity(`clientID: invoices, tenantID: `+anyUUID, "clientID", clientMessage),
	"identity in a tenant by its name": identity(`clientID: `+anyUUID+`, tenantID: acme.onmicrosoft.com`, "tenantID", tenantMessage),
	"identity trusting no good name": identity(`clientID: `+anyUUID+`, tenantID: `+anyUUID+`, serviceAccountName: Shop_Account`,
		"serviceAccountName", accountMessage),
	"identity trusting the nameless": identity(`clientID: `+anyUUID+`, tenantID: `+anyUUID+`, serviceAccountName: ""`,
		"serviceAccountName", accountMessage),

	"account with too short a name": {spec: storage(`accountName: ab`), field: "spec.accountName", message: nameOfAccount},
	"account in upper case":         {spec: storage(`accountName: Invoices`), field: "spec.accountName", message: nameOfAccount},
	"account with a dash":           {spec: storage(`accountName: acme-invoices`), field: "spec.accountName", message: nameOfAccount},
	"account without a name":        {spec: storage(`accountName: ""`), field: "spec.accountName", message: nameOfAccount},
	"account that is renamed": moved(`accountName: invoices1`, `accountName: invoices2`,
		"spec.accountName", nameChanged),
	"account that is named later":     moved(`{}`, `accountName: invoices1`, "spec.accountName", nameChanged),
	"account that loses its name":     moved(`accountName: invoices1`, `{}`, "spec.accountName", nameChanged),
	"tag with a slash":                {spec: storage(`tags: {example.com/team: billing}`), field: "spec.tags", message: tagKeyMessage},
	"tag with a backslash":            {spec: storage(`tags: {'team\billing': x}`), field: "spec.tags", message: tagKeyMessage},
	"tag with a question mark":        {spec: storage(`tags: {"team?": billing}`), field: "spec.tags", message: tagKeyMessage},
	"tag with an angle bracket":       {spec: storage(`tags: {"<team": billing}`), field: "spec.tags", message: tagKeyMessage},
	"tag without a key":               {spec: storage(`tags: {"": billing}`), field: "spec.tags", message: tagKeyMessage},
	"tag with too long a key":         {spec: storage(`tags: {` + strings.Repeat("k", 129) + `: x}`), field: "spec.tags", message: tagKeyMessage},
	"tag of Fixpoint's own":           {spec: storage(`tags: {fixpoint.dev-owner: me}`), field: "spec.tags", message: tagPrefixMessage},
	"tag of Fixpoint's in upper case": {spec: storage(`tags: {FixPoint.Dev: me}`), field: "spec.tags", message: tagPrefixMessage},
	"tag with too long a value":       {spec: storage(`tags: {team: ` + strings.Repeat("v", 257) + `}`), field: "spec.tags", message: tagValueMessage},

	"key in no vault":                 key(`vault: null`, "", vaultsMessage),
	"key in two vaults":               key(`vaultID: `+vaultID+`demo-vault`, "", vaultsMessage),
	"vault ID of nothing":             key(byID(""), "vaultID", vaultIDMessage),
	"vault ID of a name of 25":        key(byID(vaultID+"demo-vault-demo-vault-dem"), "vaultID", vaultIDMessage),
	"vault ID that is a URI":          key(byID("https://demo-vault.vault.azure.net/"), "vaultID", vaultIDMessage),
	"vault ID of a storage account":   key(byID("/subscriptions/"+anyUUID+"/resourceGroups/keys/providers/Microsoft.Storage/storageAccounts/x"), "vaultID", vaultIDMessage),
	"vault ID with more after it":     key(byID(vaultID+"demo-vault/keys/demo-key"), "vaultID", vaultIDMessage),
	"vault ID without a subscription": key(byID("/subscriptions/demo/resourceGroups/keys/providers/Microsoft.KeyVault/vaults/demo-vault"), "vaultID", vaultIDMessage),
	"vault by its URI":                key(`vault: {name: "https://vault"}`, "vault.name", vaultMessage),
	"vault with too short a name":     key(`vault: {name: ab}`, "vault.name", vaultMessage),
	"vault that starts with a digit":  key(`vault: {name: 1demo}`, "vault.name", vaultMessage),
	"vault that ends with a dash":     key(`vault: {name: demo-}`, "vault.name", vaultMessage),
	"vault with two dashes":           key(`vault: {name: demo--vault}`, "vault.name", vaultMessage),
	"vault in a group by its ID":      key(`vault: {resourceGroup: a/b}`, "vault.resourceGroup", vaultGroupMessage),
	"vault in a group of no name":     key(`vault: {resourceGroup: ""}`, "vault.resourceGroup", vaultGroupMessage),
	"key by its URI":                  key(`name: "https://demo-vault.vault.azure.net/keys/demo-key"`, "name", keyNameMessage),
	"key with an underscore":          key(`name: demo_key`, "name", keyNameMessage),
	"key without a name":              key(`name: ""`, "name", keyNameMessage),
	"version that is a number":        key(`version: "2"`, "version", versionMessage),
	"version in upper case":           key(`version: 0123456789ABCDEF0123456789ABCDEF`, "version", versionMessage),
	"version that is too short":       key(`version: 0123456789abcdef0123456789abcde`, "version", versionMessage),
	"version that is empty":           key(`version: ""`, "version", versionMessage),
}

func init() {
	for field, bad := range map[string]struct {
		message   string
		durations []string
	}{
		"pollInterval":        {pollMessage, []string{"9s", "9.999s", "24h1s", "1440m1s", "0s"}},
		"propagationDeadline": {deadlineMessage, []string{"0.999s", "24h0.1s", "0s"}},
	} {
		common := []string{"", "soon", "5", "-5m", "5 minutes", "PT5M", "1d", "5m1h", "500ms", "99999h", "9999999999999999999h", ".5h"}
		for _, duration := range append(common, bad.durations...) {
			secureStorageRefusals[fmt.Sprintf("%s of %q", field, duration)] = refusal{
				spec: storage(fmt.Sprintf("%s: %q", field, duration)), field: "spec." + field, message: bad.message}
		}
	}
}
