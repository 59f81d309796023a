package fakecloud

import (
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
	. "github.com/onsi/gomega"
)

// Each case has the knobs, the requests, and the response.
func TestKnobs(t *testing.T) {
	minute := Fixed(time.Minute)
	for _, c := range []struct {
		name   string
		knobs  Knobs
		act    func(f *fixture) error
		code   string
		status int
	}{
		{"a second PUT during the creation", Knobs{AccountCreation: minute},
			func(f *fixture) error { f.Expect(f.create("data1")).To(Succeed()); return f.create("data1") },
			"StorageAccountOperationInProgress", 409},
		{"a PATCH before the account is provisioned", Knobs{AccountCreation: minute},
			func(f *fixture) error { f.Expect(f.create("data1")).To(Succeed()); return f.tag("data1", "x") },
			"StorageAccountIsNotProvisioned", 409},
		{"a DELETE before the account is provisioned", Knobs{AccountCreation: minute},
			func(f *fixture) error { f.Expect(f.create("data1")).To(Succeed()); return f.delete("data1") },
			"StorageAccountOperationInProgress", 409},
		{"a PATCH while another is worked on", Knobs{AccountUpdate: minute},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				f.Expect(f.tag("data1", "x")).To(Succeed())
				return f.tag("data1", "y")
			}, "StorageAccountOperationInProgress", 409},
		{"a PUT right after a PATCH is through", Knobs{AccountUpdate: minute},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				f.Expect(f.tag("data1", "x")).To(Succeed())
				f.clock.Step(time.Minute)
				return f.create("data1")
			}, "", 0},
		{"a GET right after the PUT", Knobs{ReadAfterWrite: minute},
			func(f *fixture) error { f.Expect(f.create("data1")).To(Succeed()); return f.err404("data1") },
			"ResourceNotFound", 404},
		{"a GET a while after the PUT", Knobs{ReadAfterWrite: minute},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				f.clock.Step(time.Minute)
				return f.err404("data1")
			}, "", 0},
		{"a GET while the account is deleted", Knobs{AccountDeletion: minute},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				f.Expect(f.delete("data1")).To(Succeed())
				f.Expect(*f.mustGet("data1").Properties.ProvisioningState).To(Equal(armstorage.ProvisioningStateDeleting))
				f.clock.Step(time.Minute)
				return f.err404("data1")
			}, "ResourceNotFound", 404},
		{"a PUT while the account is deleted", Knobs{AccountDeletion: minute},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				f.Expect(f.delete("data1")).To(Succeed())
				return f.create("data1")
			}, "StorageAccountOperationInProgress", 409},
		{"the name of an account deleted just now", Knobs{NameHold: minute},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				f.Expect(f.delete("data1")).To(Succeed())
				return f.create("data1")
			}, "StorageAccountAlreadyTaken", 409},
		{"a grant without principalType before the directory knows", Knobs{DirectoryDelay: minute},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				return f.grant(assignmentName, f.cloud.Principal("data1"), nil)
			}, "PrincipalNotFound", 400},
		{"a grant with principalType before the directory knows", Knobs{DirectoryDelay: minute},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				return f.grant(assignmentName, f.cloud.Principal("data1"), servicePrincipal())
			}, "", 0},
		{"a grant without principalType after the directory knows", Knobs{DirectoryDelay: minute},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				f.clock.Step(time.Minute)
				return f.grant(assignmentName, f.cloud.Principal("data1"), nil)
			}, "", 0},
		{"encryption before any grant", Knobs{},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				return f.encrypt("data1", f.demo.Key, "")
			}, "KeyVaultAuthenticationFailure", 403},
		{"encryption before the grant has propagated", Knobs{GrantDelay: Fixed(10 * time.Minute)},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				f.Expect(f.grant(assignmentName, f.cloud.Principal("data1"), servicePrincipal())).To(Succeed())
				f.clock.Step(10*time.Minute - 1)
				return f.encrypt("data1", f.demo.Key, "")
			}, "KeyVaultAuthenticationFailure", 403},
		{"encryption when the grant has propagated", Knobs{GrantDelay: Fixed(10 * time.Minute)},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				f.Expect(f.grant(assignmentName, f.cloud.Principal("data1"), servicePrincipal())).To(Succeed())
				f.clock.Step(10 * time.Minute)
				return f.encrypt("data1", f.demo.Key, "")
			}, "", 0},
		{"the same grant under another name", Knobs{},
			func(f *fixture) error {
				f.encrypted("data1")
				return f.grant("99999999-2222-4333-8444-555555555555", f.cloud.Principal("data1"), servicePrincipal())
			}, "RoleAssignmentExists", 409},
		{"the same grant under the same name", Knobs{},
			func(f *fixture) error {
				f.encrypted("data1")
				return f.grant(assignmentName, f.cloud.Principal("data1"), servicePrincipal())
			}, "", 0},
		{"another grant under the same name", Knobs{},
			func(f *fixture) error {
				f.encrypted("data1")
				f.Expect(f.create("data2")).To(Succeed())
				return f.grant(assignmentName, f.cloud.Principal("data2"), servicePrincipal())
			}, "RoleAssignmentUpdateNotPermitted", 400},
		{"a lock on the group", Knobs{},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				f.Expect(f.cloud.Lock("/subscriptions/"+f.demo.Subscription+"/resourceGroups/"+f.demo.Group, "keep", "CanNotDelete")).To(Succeed())
				return f.delete("data1")
			}, "ScopeLocked", 409},
		{"a lock that was taken away", Knobs{},
			func(f *fixture) error {
				f.Expect(f.create("data1")).To(Succeed())
				f.Expect(f.cloud.Lock(f.accountPath("data1"), "keep", "ReadOnly")).To(Succeed())
				f.Expect(code(f.tag("data1", "x"))).To(Equal("ScopeLocked"))
				f.Expect(f.cloud.Unlock(f.accountPath("data1"))).To(Succeed())
				return f.delete("data1")
			}, "", 0},
		{"two writes of a vault at once", Knobs{VaultUpdate: minute},
			func(f *fixture) error {
				f.Expect(f.policies(armkeyvault.AccessPolicyUpdateKindAdd, "p1")).To(Succeed())
				return f.policies(armkeyvault.AccessPolicyUpdateKindAdd, "p2")
			}, "ConflictError", 409},
		{"server errors", Knobs{ServerErrors: 1},
			func(f *fixture) error { return f.create("data1") }, "InternalServerError", 500},
		{"a permission that was denied", Knobs{Denied: []Denial{{Who: "tester", Action: "Microsoft.Storage/storageAccounts/write", Scope: "/subscriptions/" + DemoSubscription}}},
			func(f *fixture) error { return f.create("data1") }, "AuthorizationFailed", 403},
		{"a permission that is denied to another caller", Knobs{Denied: []Denial{{Who: "other", Action: "Microsoft.Storage/*"}}},
			func(f *fixture) error { return f.create("data1") }, "", 0},
		{"another permission that was denied", Knobs{Denied: []Denial{{Who: "tester", Action: "Microsoft.Storage/storageAccounts/delete"}}},
			func(f *fixture) error { return f.create("data1") }, "", 0},
		{"a permission that was denied elsewhere", Knobs{Denied: []Denial{{Action: "Microsoft.Storage/*", Scope: "/subscriptions/" + DemoSubscription + "/resourceGroups/other"}}},
			func(f *fixture) error { return f.create("data1") }, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, c.knobs)
			err := c.act(f)
			f.Expect(code(err)).To(Equal(c.code))
			f.Expect(status(err)).To(Equal(c.status))
			f.Expect(f.cloud.Created("storageAccounts/data1")).To(BeNumerically("<=", 1))
		})
	}
}

// policies changes the access policies of the demo key vault.
func (f *fixture) policies(kind armkeyvault.AccessPolicyUpdateKind, principals ...string) error {
	parameters := armkeyvault.VaultAccessPolicyParameters{Properties: &armkeyvault.VaultAccessPolicyProperties{}}
	for _, principal := range principals {
		parameters.Properties.AccessPolicies = append(parameters.Properties.AccessPolicies, &armkeyvault.AccessPolicyEntry{
			TenantID: to.Ptr(Tenant), ObjectID: to.Ptr(principal),
			Permissions: &armkeyvault.Permissions{Keys: []*armkeyvault.KeyPermissions{
				to.Ptr(armkeyvault.KeyPermissionsGet), to.Ptr(armkeyvault.KeyPermissionsWrapKey), to.Ptr(armkeyvault.KeyPermissionsUnwrapKey)}},
		})
	}
	_, err := f.vaults.UpdateAccessPolicy(f.ctx(), f.demo.Group, f.demo.Vault, kind, parameters, nil)
	return err
}

func TestDenialNamesActionAndScope(t *testing.T) {
	f := newFixture(t, Instant())
	f.cloud.Deny(Denial{Action: "Microsoft.Authorization/roleAssignments/write"})
	err := f.grant(assignmentName, "00000000-0000-4000-8000-000000000001", servicePrincipal())
	f.Expect(err).To(MatchError(And(
		ContainSubstring("Microsoft.Authorization/roleAssignments/write"),
		ContainSubstring("over scope '"+f.demo.VaultID+"/providers/Microsoft.Authorization/roleAssignments/"+assignmentName+"'"))))
	f.cloud.Allow("")
	f.Expect(f.grant(assignmentName, "00000000-0000-4000-8000-000000000001", servicePrincipal())).To(Succeed())
}

func TestRequirementsOfTheKey(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(f *fixture)
		key     string
		version string
		code    string
		status  int
	}{
		{name: "fit", key: "storage"},
		{name: "without purge protection", key: "storage", prepare: func(f *fixture) { f.Expect(f.cloud.SetPurgeProtection(f.demo.Vault, false)).To(Succeed()) }, code: "KeyVaultPolicyError", status: 400},
		{name: "missing", key: "other", code: "KeyVaultKeyNotFound", status: 400},
		{name: "deleted", key: "storage", prepare: func(f *fixture) { f.Expect(f.cloud.DeleteKey(f.demo.Vault, "storage")).To(Succeed()) }, code: "KeyVaultKeyNotFound", status: 400},
		{name: "recovered", key: "storage", prepare: func(f *fixture) {
			f.Expect(f.cloud.DeleteKey(f.demo.Vault, "storage")).To(Succeed())
			f.Expect(f.cloud.RecoverKey(f.demo.Vault, "storage")).To(Succeed())
		}},
		{name: "without that version", key: "storage", version: "0123456789abcdef0123456789abcdef", code: "KeyVaultKeyNotFound", status: 400},
		{name: "disabled", key: "storage", prepare: func(f *fixture) { f.Expect(f.cloud.EnableKey(f.demo.Vault, "storage", "", false)).To(Succeed()) }, code: "KeyVaultKeyDisabled", status: 400},
		{name: "of an elliptic curve", key: "curve", prepare: func(f *fixture) { f.seedKey("curve", KeySpec{Type: "EC"}) }, code: "KeyVaultKeyTypeNotSupported", status: 400},
		{name: "too small", key: "small", prepare: func(f *fixture) { f.seedKey("small", KeySpec{Size: 1024}) }, code: "KeyVaultKeyTypeNotSupported", status: 400},
		{name: "not for wrapping", key: "signer", prepare: func(f *fixture) { f.seedKey("signer", KeySpec{Ops: []string{"sign"}}) }, code: "KeyVaultKeyOperationNotAllowed", status: 400},
		{name: "in a closed vault", key: "storage", prepare: func(f *fixture) { f.Expect(f.cloud.EnableVault(f.demo.Vault, false)).To(Succeed()) }, code: "KeyVaultAccessForbidden", status: 403},
		{name: "in a deleted vault", key: "storage", prepare: func(f *fixture) { f.Expect(f.cloud.DeleteVault(f.demo.Vault)).To(Succeed()) }, code: "KeyVaultNotFound", status: 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, Instant())
			f.Expect(f.create("data1")).To(Succeed())
			f.Expect(f.grant(assignmentName, f.cloud.Principal("data1"), servicePrincipal())).To(Succeed())
			if c.prepare != nil {
				c.prepare(f)
			}
			err := f.encrypt("data1", c.key, c.version)
			f.Expect(code(err)).To(Equal(c.code))
			f.Expect(status(err)).To(Equal(c.status))
		})
	}
}

func (f *fixture) seedKey(name string, spec KeySpec) {
	f.t.Helper()
	_, err := f.cloud.SeedKey(f.demo.Vault, name, spec)
	f.Expect(err).NotTo(HaveOccurred())
}

func TestAccessPoliciesInsteadOfRoles(t *testing.T) {
	f := newFixture(t, Knobs{PolicyDelay: Fixed(time.Second), RevokeDelay: Fixed(time.Minute)})
	f.cloud.SeedVault(f.demo.Subscription, f.demo.Group, "older", VaultSpec{PurgeProtection: true, AccessPolicies: true})
	f.demo.Vault = "older"
	f.seedKey("storage", KeySpec{})
	f.Expect(f.create("data1")).To(Succeed())
	principal := f.cloud.Principal("data1")

	f.Expect(f.policies(armkeyvault.AccessPolicyUpdateKindAdd, principal)).To(Succeed())
	f.Expect(code(f.encrypt("data1", "storage", ""))).To(Equal("KeyVaultAuthenticationFailure"))
	f.clock.Step(time.Second)
	f.Expect(f.encrypt("data1", "storage", "")).To(Succeed())
	vault, err := f.vaults.Get(f.ctx(), f.demo.Group, "older", nil)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(vault.Properties.AccessPolicies).To(HaveLen(1))

	// The removed policy stays effective for a while
	f.Expect(f.policies(armkeyvault.AccessPolicyUpdateKindRemove, principal)).To(Succeed())
	f.Expect(f.cloud.ReadData("data1")).To(Succeed())
	f.clock.Step(time.Minute)
	f.Expect(f.cloud.ReadData("data1")).To(MatchError(ContainSubstring("403")))
}

func TestUnavailableKeyMakesDataUnavailable(t *testing.T) {
	for name, c := range map[string]struct {
		away func(f *fixture) error
		back func(f *fixture) error
	}{
		"disabled key":   {func(f *fixture) error { return f.cloud.EnableKey(f.demo.Vault, f.demo.Key, "", false) }, func(f *fixture) error { return f.cloud.EnableKey(f.demo.Vault, f.demo.Key, "", true) }},
		"deleted key":    {func(f *fixture) error { return f.cloud.DeleteKey(f.demo.Vault, f.demo.Key) }, func(f *fixture) error { return f.cloud.RecoverKey(f.demo.Vault, f.demo.Key) }},
		"disabled vault": {func(f *fixture) error { return f.cloud.EnableVault(f.demo.Vault, false) }, func(f *fixture) error { return f.cloud.EnableVault(f.demo.Vault, true) }},
		"removed grant":  {func(f *fixture) error { return f.cloud.RemoveGrants(f.cloud.Principal("data1")) }, func(f *fixture) error { return f.grant(assignmentName, f.cloud.Principal("data1"), servicePrincipal()) }},
		"deleted vault": {func(f *fixture) error { return f.cloud.DeleteVault(f.demo.Vault) }, func(f *fixture) error {
			f.Expect(f.cloud.RecoverVault(f.demo.Vault)).To(Succeed())
			f.Expect(f.cloud.ReadData("data1")).NotTo(Succeed(), "the role assignments do not come back with the vault")
			return f.grant(assignmentName, f.cloud.Principal("data1"), servicePrincipal())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Instant())
			f.encrypted("data1")
			f.Expect(*f.mustGet("data1").Properties.StatusOfPrimary).To(Equal(armstorage.AccountStatusAvailable))
			f.Expect(c.away(f)).To(Succeed())
			f.Expect(f.cloud.ReadData("data1")).To(HaveField("Status", http.StatusForbidden))
			f.Expect(*f.mustGet("data1").Properties.StatusOfPrimary).To(Equal(armstorage.AccountStatusUnavailable))
			f.Expect(c.back(f)).To(Succeed())
			f.Expect(f.cloud.ReadData("data1")).To(Succeed())
		})
	}
}

func TestFollowsNewKeyVersionOnceADay(t *testing.T) {
	f := newFixture(t, Instant())
	f.encrypted("data1")
	current := func() string {
		return *f.mustGet("data1").Properties.Encryption.KeyVaultProperties.CurrentVersionedKeyIdentifier
	}
	first := current()
	version, err := f.cloud.RotateKey(f.demo.Vault, f.demo.Key)
	f.Expect(err).NotTo(HaveOccurred())
	f.clock.Step(24*time.Hour - 1)
	f.Expect(current()).To(Equal(first))
	f.clock.Step(1)
	f.Expect(current()).To(HaveSuffix("/" + version))
	f.Expect(f.cloud.Ledger()).To(ContainElement(And(HaveField("Who", WhoCloud), HaveField("Key", HaveSuffix(version)))))

	// A pinned version does not change
	f.Expect(f.encrypt("data1", f.demo.Key, version)).To(Succeed())
	_, err = f.cloud.RotateKey(f.demo.Vault, f.demo.Key)
	f.Expect(err).NotTo(HaveOccurred())
	f.clock.Step(48 * time.Hour)
	f.Expect(current()).To(HaveSuffix("/" + version))
	f.Expect(f.cloud.DeleteKeyVersion(f.demo.Vault, f.demo.Key, version)).To(Succeed())
	f.Expect(f.cloud.ReadData("data1")).NotTo(Succeed())
}

func TestDeletingAccountOrphansItsGrant(t *testing.T) {
	f := newFixture(t, Instant())
	f.encrypted("data1")
	f.Expect(f.delete("data1")).To(Succeed())
	f.Expect(f.cloud.Orphans()).To(ConsistOf(HaveField("Name", assignmentName)))

	// An account of the same name has another principal, without the old grant
	f.Expect(f.create("data1")).To(Succeed())
	f.Expect(code(f.encrypt("data1", f.demo.Key, ""))).To(Equal("KeyVaultAuthenticationFailure"))
	f.Expect(f.cloud.Orphans()).To(HaveLen(1))

	// Until it is deleted
	_, err := f.roles.Delete(f.ctx(), f.demo.VaultID, assignmentName, nil)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(f.cloud.Orphans()).To(BeEmpty())
}

func TestLosesResponseAfterTheEffect(t *testing.T) {
	f := newFixture(t, Knobs{LostResponses: 1})
	f.Expect(code(f.create("data1"))).To(ContainSubstring("EOF"))
	f.Expect(f.cloud.Ledger()).To(ConsistOf(And(HaveField("Effect", Created), HaveField("Lost", true), HaveField("Status", 0))))
	f.Expect(f.err404("data1")).To(Succeed(), "reads are not lost")

	f.cloud.SetKnobs(Knobs{ErrorsAfterEffect: 1})
	f.Expect(status(f.create("data2"))).To(Equal(500))
	f.Expect(f.cloud.Created("storageAccounts/data2")).To(Equal(1))
}

func TestScriptedFaults(t *testing.T) {
	f := newFixture(t, Instant())
	f.cloud.Inject(Fault{Method: "PATCH", Resource: "data1", Skip: 1, Times: 2, Status: 409, Code: "Scripted", Message: "as asked", RetryAfter: Period(3 * time.Second)})
	f.Expect(f.create("data1")).To(Succeed())
	f.Expect(f.tag("data1", "1")).To(Succeed())
	f.Expect(code(f.tag("data1", "2"))).To(Equal("Scripted"))
	f.Expect(f.cloud.Knobs().Faults).To(ConsistOf(HaveField("Times", 1)))
	f.Expect(code(f.tag("data1", "3"))).To(Equal("Scripted"))
	f.Expect(f.tag("data1", "4")).To(Succeed())
	f.Expect(f.cloud.Knobs().Faults).To(BeEmpty())

	f.cloud.Inject(Fault{Resource: "data1", Lost: true})
	f.Expect(code(f.tag("data1", "5"))).To(ContainSubstring("EOF"))
	f.Expect(*f.mustGet("data1").Tags["owner"]).To(Equal("5"))

	f.cloud.Inject(Fault{Resource: "data2", FailLate: true})
	f.Expect(f.create("data2")).To(Succeed())
	f.Expect(code(f.err404("data2"))).To(Equal("ResourceNotFound"))
}

func TestETags(t *testing.T) {
	f := newFixture(t, Instant())
	f.Expect(f.create("data1")).To(Succeed())
	var response *http.Response
	_, err := f.accounts.GetProperties(policy.WithCaptureResponse(f.ctx(), &response), f.demo.Group, "data1", nil)
	f.Expect(err).NotTo(HaveOccurred())
	etag := response.Header.Get("ETag")
	conditional := func(header, value, tag string) error {
		ctx := policy.WithHTTPHeader(f.ctx(), http.Header{header: {value}})
		_, err := f.accounts.Update(ctx, f.demo.Group, "data1", armstorage.AccountUpdateParameters{Tags: map[string]*string{"t": to.Ptr(tag)}}, nil)
		return err
	}
	f.Expect(conditional("If-Match", etag, "1")).To(Succeed())
	f.Expect(status(conditional("If-Match", etag, "2"))).To(Equal(http.StatusPreconditionFailed))
	f.Expect(status(conditional("If-None-Match", "*", "2"))).To(Equal(http.StatusPreconditionFailed))
	f.Expect(conditional("If-Match", "*", "2")).To(Succeed())
}

func TestNamesAreUniqueInTheCloud(t *testing.T) {
	f := newFixture(t, Instant())
	const other = "00000000-0000-4000-8000-00000000beef"
	f.cloud.SeedGroup(other, "other", "westeurope")
	f.cloud.SeedGroup(f.demo.Subscription, "second", "westeurope")
	f.Expect(f.cloud.SeedAccount(other, "other", "data1", map[string]string{"owner": "them"})).To(Succeed())
	f.Expect(code(f.create("data1"))).To(Equal("StorageAccountAlreadyTaken"))
	f.Expect(f.cloud.SeedAccount(f.demo.Subscription, "second", "data2", nil)).To(Succeed())
	f.Expect(code(f.create("data2"))).To(Equal("StorageAccountInAnotherResourceGroup"))
	f.Expect(f.cloud.Created("storageAccounts")).To(BeZero(), "what was seeded does not count")

	for name, want := range map[string]armstorage.CheckNameAvailabilityResult{
		"data1": {NameAvailable: to.Ptr(false), Reason: to.Ptr(armstorage.ReasonAlreadyExists)},
		"Data":  {NameAvailable: to.Ptr(false), Reason: to.Ptr(armstorage.ReasonAccountNameInvalid)},
		"data3": {NameAvailable: to.Ptr(true)},
	} {
		got, err := f.accounts.CheckNameAvailability(f.ctx(), armstorage.AccountCheckNameAvailabilityParameters{Name: to.Ptr(name), Type: to.Ptr(accountKind)}, nil)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(got.NameAvailable).To(Equal(want.NameAvailable), name)
		f.Expect(got.Reason).To(Equal(want.Reason), name)
	}
}

func TestSoftDeletedKeyReservesItsName(t *testing.T) {
	f := newFixture(t, Instant())
	create := func(name string) error {
		_, err := f.keys.CreateIfNotExist(f.ctx(), f.demo.Group, f.demo.Vault, name, armkeyvault.KeyCreateParameters{
			Properties: &armkeyvault.KeyProperties{Kty: to.Ptr(armkeyvault.JSONWebKeyTypeRSA), KeySize: to.Ptr[int32](3072)}}, nil)
		return err
	}
	f.Expect(create("fresh")).To(Succeed())
	f.Expect(create("fresh")).To(Succeed())
	f.Expect(f.cloud.Created("keys/fresh")).To(Equal(1))
	f.Expect(f.cloud.DeleteKey(f.demo.Vault, "fresh")).To(Succeed())
	f.Expect(code(create("fresh"))).To(Equal("ObjectIsDeletedButRecoverable"))
	_, err := f.keys.Get(f.ctx(), f.demo.Group, f.demo.Vault, "fresh", nil)
	f.Expect(code(err)).To(Equal("KeyNotFound"))
}

func TestLedgerShowsMeddling(t *testing.T) {
	f := newFixture(t, Instant())
	f.encrypted("data1")
	before := f.cloud.KeyAt("data1", f.clock.Now())
	f.clock.Step(time.Minute)
	f.Expect(f.cloud.UsePlatformKeys("data1")).To(Succeed())
	f.Expect(f.cloud.KeyAt("data1", noon)).To(Equal(before))
	f.Expect(f.cloud.KeyAt("data1", f.clock.Now())).To(Equal("Microsoft.Storage"))
	f.Expect(*f.mustGet("data1").Properties.Encryption.KeySource).To(Equal(armstorage.KeySourceMicrosoftStorage))

	f.Expect(f.cloud.SetTags("data1", nil)).To(Succeed())
	f.Expect(f.mustGet("data1").Tags).To(BeEmpty())
	f.Expect(f.cloud.DropIdentity("data1")).To(Succeed())
	f.Expect(f.mustGet("data1").Identity).To(BeNil())
	f.Expect(f.cloud.DeleteAccount("data1")).To(Succeed())
	f.Expect(code(f.err404("data1"))).To(Equal("ResourceNotFound"))
	f.Expect(f.cloud.KeyAt("data1", f.clock.Now())).To(BeEmpty())
	f.Expect(f.cloud.DeleteAccount("data1")).To(MatchError(ContainSubstring("account data1 does not exist")))
}

func TestPurgedVaultIsRemoved(t *testing.T) {
	f := newFixture(t, Instant())
	f.Expect(f.cloud.DeleteVault(f.demo.Vault)).To(Succeed())
	_, err := f.vaults.BeginPurgeDeleted(f.ctx(), f.demo.Vault, "westeurope", nil)
	f.Expect(code(err)).To(Equal("MethodNotAllowed"), "purge protection")
	f.clock.Step(90 * 24 * time.Hour)
	_, err = f.vaults.GetDeleted(f.ctx(), f.demo.Vault, "westeurope", nil)
	f.Expect(code(err)).To(Equal("DeletedVaultNotFound"))
}
