package securestorage

import (
	"regexp"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// acceptedVaultID and acceptedVaultName are the rule of spec.key.vaultID in the schema.
var acceptedVaultID = regexp.MustCompile(`^(?i)/subscriptions/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/resourceGroups/[-0-9a-z_.()]{0,89}[-0-9a-z_()]/providers/Microsoft[.]KeyVault/vaults/[a-z](-?[0-9a-z]){2,23}$`)

var acceptedVaultName = regexp.MustCompile(`/[^/]{3,24}$`)

// A vault ID that the schema accepts is the same key vault for the SDK, and in the scopes that contain it.
func FuzzVaultID(f *testing.F) {
	const id = "/subscriptions/00000000-0000-4000-8000-00000000f1c5/resourceGroups/g/providers/Microsoft.KeyVault/vaults/demo"
	for _, seed := range []string{
		id, strings.ToLower(id), strings.ToUpper(id), id + "/", "//" + id, id + "/keys/k", "", "/", "/vaults/", "/subscriptions/vaults/vaults/subscriptions",
		"/subscriptions/00000000-0000-4000-8000-00000000f1c5/resourceGroups/a..b(c)/providers/Microsoft.KeyVault/vaults/a-b", "/\xff/..",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		at := vaultLocation{}.parse(id)
		if strings.Contains(at.subscription+at.group+at.name, "/") {
			t.Fatalf("%q is %+v", id, at)
		}
		if !acceptedVaultID.MatchString(id) || !acceptedVaultName.MatchString(id) {
			return
		}
		if !strings.EqualFold(at.id(), id) || (vaultLocation{}).parse(at.id()) != at {
			t.Errorf("%q is %+v", id, at)
		}
		parsed, err := arm.ParseResourceID(id)
		if err != nil || parsed.SubscriptionID != at.subscription || parsed.ResourceGroupName != at.group || parsed.Name != at.name {
			t.Errorf("%q is %+v, and %v for the SDK (%v)", id, at, parsed, err)
		}
		scope, err := cloud.ParseScope(id)
		if err != nil || !scope.Contains(at.id()) {
			t.Errorf("the scope of %q does not contain it (%v)", id, err)
		}
		storage := &v1beta1.SecureStorage{Spec: v1beta1.SecureStorageSpec{Key: v1beta1.SecureStorageKey{VaultID: id}}}
		if vaultOf(storage) != at {
			t.Errorf("spec.key.vaultID %q is %+v", id, vaultOf(storage))
		}
	})
}

// Key identifiers come from the cloud.
func FuzzKeyID(f *testing.F) {
	for _, seed := range []string{"https://v.vault.azure.net/keys/k/1", "https://V.vault.azure.net/", "v", "", "/keys/", "https://", "https://./keys/", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		uri := vaultURI(id)
		if !strings.HasPrefix(id, uri) || strings.Contains(uri, "/keys/") {
			t.Errorf("the vault of %q is %q", id, uri)
		}
		name := vaultName(uri)
		if strings.Contains(name, ".") || name != vaultName(strings.ToUpper(uri)) && isASCII(uri) {
			t.Errorf("the name of %q is %q", uri, name)
		}
		uri = strings.TrimSuffix(uri, "/")
		want, have := cloud.Encryption{VaultURI: uri, KeyName: name}, cloud.Encryption{VaultURI: strings.ToUpper(uri) + "/", KeyName: name}
		if drifts := encryptionDrifts(want, have); isASCII(uri) && !strings.HasSuffix(uri, "/") && len(drifts) > 0 {
			t.Errorf("%q drifts from itself: %+v", uri, drifts)
		}
	})
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 127 })
}
