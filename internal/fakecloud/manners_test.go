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

// Each manner: the knob that turns it on, what is done, and what is answered.
func TestManners(t *testing.T) {
	minute := Fixed(time.Minute)
	for _, c := range []struct {
		name   string
		knobs  Knobs
		act    func(w *world) error
		code   string
		status int
	}{
		{"a second PUT while the first is worked on", Knobs{AccountCreation: minute},
			func(w *world) error { w.Expect(w.create("data1")).To(Succeed()); return w.create("data1") },
			"StorageAccountOperationInProgress", 409},
		{"a PATCH before the account is provisioned", Knobs{AccountCreation: minute},
			func(w *world) error { w.Expect(w.create("data1")).To(Succeed()); return w.tag("data1", "x") },
			"StorageAccountIsNotProvisioned", 409},
		{"a DELETE before the account is provisioned", Knobs{AccountCreation: minute},
			func(w *world) error { w.Expect(w.create("data1")).To(Succeed()); return w.delete("data1") },
			"StorageAccountOperationInProgress", 409},
		{"a PATCH while another is worked on", Knobs{AccountUpdate: minute},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				w.Expect(w.tag("data1", "x")).To(Succeed())
				return w.tag("data1", "y")
			}, "StorageAccountOperationInProgress", 409},
		{"a PUT right after a PATCH is through", Knobs{AccountUpdate: minute},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				w.Expect(w.tag("data1", "x")).To(Succeed())
				w.clock.Step(time.Minute)
				return w.create("data1")
			}, "", 0},
		{"a GET right after the PUT", Knobs{ReadAfterWrite: minute},
			func(w *world) error { w.Expect(w.create("data1")).To(Succeed()); return w.err404("data1") },
			"ResourceNotFound", 404},
		{"a GET a while after the PUT", Knobs{ReadAfterWrite: minute},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				w.clock.Step(time.Minute)
				return w.err404("data1")
			}, "", 0},
		{"a GET while the account is deleted", Knobs{AccountDeletion: minute},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				w.Expect(w.delete("data1")).To(Succeed())
				w.Expect(*w.mustGet("data1").Properties.ProvisioningState).To(Equal(armstorage.ProvisioningStateDeleting))
				w.clock.Step(time.Minute)
				return w.err404("data1")
			}, "ResourceNotFound", 404},
		{"a PUT while the account is deleted", Knobs{AccountDeletion: minute},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				w.Expect(w.delete("data1")).To(Succeed())
				return w.create("data1")
			}, "StorageAccountOperationInProgress", 409},
		{"the name of an account deleted just now", Knobs{NameHold: minute},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				w.Expect(w.delete("data1")).To(Succeed())
				return w.create("data1")
			}, "StorageAccountAlreadyTaken", 409},
		{"a grant without principalType before the directory knows", Knobs{DirectoryDelay: minute},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				return w.grant(assignmentName, w.cloud.Principal("data1"), nil)
			}, "PrincipalNotFound", 400},
		{"a grant with principalType before the directory knows", Knobs{DirectoryDelay: minute},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				return w.grant(assignmentName, w.cloud.Principal("data1"), servicePrincipal())
			}, "", 0},
		{"a grant without principalType after the directory knows", Knobs{DirectoryDelay: minute},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				w.clock.Step(time.Minute)
				return w.grant(assignmentName, w.cloud.Principal("data1"), nil)
			}, "", 0},
		{"encryption before any grant", Knobs{},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				return w.encrypt("data1", w.demo.Key, "")
			}, "KeyVaultAuthenticationFailure", 403},
		{"encryption before the grant has propagated", Knobs{GrantDelay: Fixed(10 * time.Minute)},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				w.Expect(w.grant(assignmentName, w.cloud.Principal("data1"), servicePrincipal())).To(Succeed())
				w.clock.Step(10*time.Minute - 1)
				return w.encrypt("data1", w.demo.Key, "")
			}, "KeyVaultAuthenticationFailure", 403},
		{"encryption when the grant has propagated", Knobs{GrantDelay: Fixed(10 * time.Minute)},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				w.Expect(w.grant(assignmentName, w.cloud.Principal("data1"), servicePrincipal())).To(Succeed())
				w.clock.Step(10 * time.Minute)
				return w.encrypt("data1", w.demo.Key, "")
			}, "", 0},
		{"the same grant under another name", Knobs{},
			func(w *world) error {
				w.encrypted("data1")
				return w.grant("99999999-2222-4333-8444-555555555555", w.cloud.Principal("data1"), servicePrincipal())
			}, "RoleAssignmentExists", 409},
		{"the same grant under the same name", Knobs{},
			func(w *world) error {
				w.encrypted("data1")
				return w.grant(assignmentName, w.cloud.Principal("data1"), servicePrincipal())
			}, "", 0},
		{"another grant under the same name", Knobs{},
			func(w *world) error {
				w.encrypted("data1")
				w.Expect(w.create("data2")).To(Succeed())
				return w.grant(assignmentName, w.cloud.Principal("data2"), servicePrincipal())
			}, "RoleAssignmentUpdateNotPermitted", 400},
		{"a lock on the group", Knobs{},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				w.Expect(w.cloud.Lock("/subscriptions/"+w.demo.Subscription+"/resourceGroups/"+w.demo.Group, "keep", "CanNotDelete")).To(Succeed())
				return w.delete("data1")
			}, "ScopeLocked", 409},
		{"a lock that was taken away", Knobs{},
			func(w *world) error {
				w.Expect(w.create("data1")).To(Succeed())
				w.Expect(w.cloud.Lock(w.accountPath("data1"), "keep", "ReadOnly")).To(Succeed())
				w.Expect(code(w.tag("data1", "x"))).To(Equal("ScopeLocked"))
				w.Expect(w.cloud.Unlock(w.accountPath("data1"))).To(Succeed())
				return w.delete("data1")
			}, "", 0},
		{"two writes of a vault at once", Knobs{VaultUpdate: minute},
			func(w *world) error {
				w.Expect(w.policies(armkeyvault.AccessPolicyUpdateKindAdd, "p1")).To(Succeed())
				return w.policies(armkeyvault.AccessPolicyUpdateKindAdd, "p2")
			}, "ConflictError", 409},
		{"server errors", Knobs{ServerErrors: 1},
			func(w *world) error { return w.create("data1") }, "InternalServerError", 500},
		{"a permission that was denied", Knobs{Denied: []Denial{{Who: "tester", Action: "Microsoft.Storage/storageAccounts/write", Scope: "/subscriptions/" + DemoSubscription}}},
			func(w *world) error { return w.create("data1") }, "AuthorizationFailed", 403},
		{"a permission that somebody else was denied", Knobs{Denied: []Denial{{Who: "somebody", Action: "Microsoft.Storage/*"}}},
			func(w *world) error { return w.create("data1") }, "", 0},
		{"another permission that was denied", Knobs{Denied: []Denial{{Who: "tester", Action: "Microsoft.Storage/storageAccounts/delete"}}},
			func(w *world) error { return w.create("data1") }, "", 0},
		{"a permission that was denied elsewhere", Knobs{Denied: []Denial{{Action: "Microsoft.Storage/*", Scope: "/subscriptions/" + DemoSubscription + "/resourceGroups/other"}}},
			func(w *world) error { return w.create("data1") }, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.knobs)
			err := c.act(w)
			w.Expect(code(err)).To(Equal(c.code))
			w.Expect(status(err)).To(Equal(c.status))
			w.Expect(w.cloud.Created("storageAccounts/data1")).To(BeNumerically("<=", 1))
		})
	}
}

// policies changes the access policies of the demo's vault.
func (w *world) policies(kind armkeyvault.AccessPolicyUpdateKind, principals ...string) error {
	parameters := armkeyvault.VaultAccessPolicyParameters{Properties: &armkeyvault.VaultAccessPolicyProperties{}}
	for _, principal := range principals {
		parameters.Properties.AccessPolicies = append(parameters.Properties.AccessPolicies, &armkeyvault.AccessPolicyEntry{
			TenantID: to.Ptr(Tenant), ObjectID: to.Ptr(principal),
			Permissions: &armkeyvault.Permissions{Keys: []*armkeyvault.KeyPermissions{
				to.Ptr(armkeyvault.KeyPermissionsGet), to.Ptr(armkeyvault.KeyPermissionsWrapKey), to.Ptr(armkeyvault.KeyPermissionsUnwrapKey)}},
		})
	}
	_, err := w.vaults.UpdateAccessPolicy(w.ctx(), w.demo.Group, w.demo.Vault, kind, parameters, nil)
	return err
}

func TestADenialNamesActionAndScope(t *testing.T) {
	w := newWorld(t, Instant())
	w.cloud.Deny(Denial{Action: "Microsoft.Authorization/roleAssignments/write"})
	err := w.grant(assignmentName, "00000000-0000-4000-8000-000000000001", servicePrincipal())
	w.Expect(err).To(MatchError(And(
		ContainSubstring("Microsoft.Authorization/roleAssignments/write"),
		ContainSubstring("over scope '"+w.demo.VaultID+"/providers/Microsoft.Authorization/roleAssignments/"+assignmentName+"'"))))
	w.cloud.Allow("")
	w.Expect(w.grant(assignmentName, "00000000-0000-4000-8000-000000000001", servicePrincipal())).To(Succeed())
}

// What stands in the way of a key: what was made of the vault and the key, and the answer.
func TestWhatTheKeyHasToBe(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(w *world)
		key     string
		version string
		code    string
		status  int
	}{
		{name: "fit", key: "storage"},
		{name: "without purge protection", key: "storage", prepare: func(w *world) { w.Expect(w.cloud.SetPurgeProtection(w.demo.Vault, false)).To(Succeed()) }, code: "KeyVaultPolicyError", status: 400},
		{name: "not there", key: "other", code: "KeyVaultKeyNotFound", status: 400},
		{name: "deleted", key: "storage", prepare: func(w *world) { w.Expect(w.cloud.DeleteKey(w.demo.Vault, "storage")).To(Succeed()) }, code: "KeyVaultKeyNotFound", status: 400},
		{name: "recovered", key: "storage", prepare: func(w *world) {
			w.Expect(w.cloud.DeleteKey(w.demo.Vault, "storage")).To(Succeed())
			w.Expect(w.cloud.RecoverKey(w.demo.Vault, "storage")).To(Succeed())
		}},
		{name: "without that version", key: "storage", version: "0123456789abcdef0123456789abcdef", code: "KeyVaultKeyNotFound", status: 400},
		{name: "disabled", key: "storage", prepare: func(w *world) { w.Expect(w.cloud.EnableKey(w.demo.Vault, "storage", "", false)).To(Succeed()) }, code: "KeyVaultKeyDisabled", status: 400},
		{name: "of an elliptic curve", key: "curve", prepare: func(w *world) { w.seedKey("curve", KeySpec{Type: "EC"}) }, code: "KeyVaultKeyTypeNotSupported", status: 400},
		{name: "too small", key: "small", prepare: func(w *world) { w.seedKey("small", KeySpec{Size: 1024}) }, code: "KeyVaultKeyTypeNotSupported", status: 400},
		{name: "not for wrapping", key: "signer", prepare: func(w *world) { w.seedKey("signer", KeySpec{Ops: []string{"sign"}}) }, code: "KeyVaultKeyOperationNotAllowed", status: 400},
		{name: "in a vault that is closed", key: "storage", prepare: func(w *world) { w.Expect(w.cloud.EnableVault(w.demo.Vault, false)).To(Succeed()) }, code: "KeyVaultAccessForbidden", status: 403},
		{name: "in a vault that is deleted", key: "storage", prepare: func(w *world) { w.Expect(w.cloud.DeleteVault(w.demo.Vault)).To(Succeed()) }, code: "KeyVaultNotFound", status: 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Instant())
			w.Expect(w.create("data1")).To(Succeed())
			w.Expect(w.grant(assignmentName, w.cloud.Principal("data1"), servicePrincipal())).To(Succeed())
			if c.prepare != nil {
				c.prepare(w)
			}
			err := w.encrypt("data1", c.key, c.version)
			w.Expect(code(err)).To(Equal(c.code))
			w.Expect(status(err)).To(Equal(c.status))
		})
	}
}

func (w *world) seedKey(name string, spec KeySpec) {
	w.t.Helper()
	_, err := w.cloud.SeedKey(w.demo.Vault, name, spec)
	w.Expect(err).NotTo(HaveOccurred())
}

func TestAccessPoliciesInsteadOfRoles(t *testing.T) {
	w := newWorld(t, Knobs{PolicyDelay: Fixed(time.Second), RevokeDelay: Fixed(time.Minute)})
	w.cloud.SeedVault(w.demo.Subscription, w.demo.Group, "older", VaultSpec{PurgeProtection: true, AccessPolicies: true})
	w.demo.Vault = "older"
	w.seedKey("storage", KeySpec{})
	w.Expect(w.create("data1")).To(Succeed())
	principal := w.cloud.Principal("data1")

	w.Expect(w.policies(armkeyvault.AccessPolicyUpdateKindAdd, principal)).To(Succeed())
	w.Expect(code(w.encrypt("data1", "storage", ""))).To(Equal("KeyVaultAuthenticationFailure"))
	w.clock.Step(time.Second)
	w.Expect(w.encrypt("data1", "storage", "")).To(Succeed())
	vault, err := w.vaults.Get(w.ctx(), w.demo.Group, "older", nil)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(vault.Properties.AccessPolicies).To(HaveLen(1))

	// Removing it takes a while to be felt
	w.Expect(w.policies(armkeyvault.AccessPolicyUpdateKindRemove, principal)).To(Succeed())
	w.Expect(w.cloud.ReadData("data1")).To(Succeed())
	w.clock.Step(time.Minute)
	w.Expect(w.cloud.ReadData("data1")).To(MatchError(ContainSubstring("403")))
}

func TestAKeyOutOfReachIsDataOutOfReach(t *testing.T) {
	for name, c := range map[string]struct {
		away func(w *world) error
		back func(w *world) error
	}{
		"disabled key":   {func(w *world) error { return w.cloud.EnableKey(w.demo.Vault, w.demo.Key, "", false) }, func(w *world) error { return w.cloud.EnableKey(w.demo.Vault, w.demo.Key, "", true) }},
		"deleted key":    {func(w *world) error { return w.cloud.DeleteKey(w.demo.Vault, w.demo.Key) }, func(w *world) error { return w.cloud.RecoverKey(w.demo.Vault, w.demo.Key) }},
		"disabled vault": {func(w *world) error { return w.cloud.EnableVault(w.demo.Vault, false) }, func(w *world) error { return w.cloud.EnableVault(w.demo.Vault, true) }},
		"removed grant":  {func(w *world) error { return w.cloud.RemoveGrants(w.cloud.Principal("data1")) }, func(w *world) error { return w.grant(assignmentName, w.cloud.Principal("data1"), servicePrincipal()) }},
		"deleted vault": {func(w *world) error { return w.cloud.DeleteVault(w.demo.Vault) }, func(w *world) error {
			w.Expect(w.cloud.RecoverVault(w.demo.Vault)).To(Succeed())
			w.Expect(w.cloud.ReadData("data1")).NotTo(Succeed(), "the role assignments do not come back with the vault")
			return w.grant(assignmentName, w.cloud.Principal("data1"), servicePrincipal())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Instant())
			w.encrypted("data1")
			w.Expect(*w.mustGet("data1").Properties.StatusOfPrimary).To(Equal(armstorage.AccountStatusAvailable))
			w.Expect(c.away(w)).To(Succeed())
			w.Expect(w.cloud.ReadData("data1")).To(HaveField("Status", http.StatusForbidden))
			w.Expect(*w.mustGet("data1").Properties.StatusOfPrimary).To(Equal(armstorage.AccountStatusUnavailable))
			w.Expect(c.back(w)).To(Succeed())
			w.Expect(w.cloud.ReadData("data1")).To(Succeed())
		})
	}
}

func TestNewVersionsAreFollowedOnceADay(t *testing.T) {
	w := newWorld(t, Instant())
	w.encrypted("data1")
	current := func() string {
		return *w.mustGet("data1").Properties.Encryption.KeyVaultProperties.CurrentVersionedKeyIdentifier
	}
	first := current()
	version, err := w.cloud.RotateKey(w.demo.Vault, w.demo.Key)
	w.Expect(err).NotTo(HaveOccurred())
	w.clock.Step(24*time.Hour - 1)
	w.Expect(current()).To(Equal(first))
	w.clock.Step(1)
	w.Expect(current()).To(HaveSuffix("/" + version))
	w.Expect(w.cloud.Ledger()).To(ContainElement(And(HaveField("Who", WhoCloud), HaveField("Key", HaveSuffix(version)))))

	// A pinned version stays
	w.Expect(w.encrypt("data1", w.demo.Key, version)).To(Succeed())
	_, err = w.cloud.RotateKey(w.demo.Vault, w.demo.Key)
	w.Expect(err).NotTo(HaveOccurred())
	w.clock.Step(48 * time.Hour)
	w.Expect(current()).To(HaveSuffix("/" + version))
	w.Expect(w.cloud.DeleteKeyVersion(w.demo.Vault, w.demo.Key, version)).To(Succeed())
	w.Expect(w.cloud.ReadData("data1")).NotTo(Succeed())
}

func TestDeletingTheAccountFirstOrphansItsGrant(t *testing.T) {
	w := newWorld(t, Instant())
	w.encrypted("data1")
	w.Expect(w.delete("data1")).To(Succeed())
	w.Expect(w.cloud.Orphans()).To(ConsistOf(HaveField("Name", assignmentName)))

	// An account of the same name is somebody else, and the old grant is not its own
	w.Expect(w.create("data1")).To(Succeed())
	w.Expect(code(w.encrypt("data1", w.demo.Key, ""))).To(Equal("KeyVaultAuthenticationFailure"))
	w.Expect(w.cloud.Orphans()).To(HaveLen(1))

	// Until it is deleted
	_, err := w.roles.Delete(w.ctx(), w.demo.VaultID, assignmentName, nil)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.cloud.Orphans()).To(BeEmpty())
}

func TestTheResponseIsLostAfterTheEffect(t *testing.T) {
	w := newWorld(t, Knobs{LostResponses: 1})
	w.Expect(code(w.create("data1"))).To(ContainSubstring("EOF"))
	w.Expect(w.cloud.Ledger()).To(ConsistOf(And(HaveField("Effect", Created), HaveField("Lost", true), HaveField("Status", 0))))
	w.Expect(w.err404("data1")).To(Succeed(), "reads are not lost")

	w.cloud.SetKnobs(Knobs{ErrorsAfterEffect: 1})
	w.Expect(status(w.create("data2"))).To(Equal(500))
	w.Expect(w.cloud.Created("storageAccounts/data2")).To(Equal(1))
}

func TestFaultsByScript(t *testing.T) {
	w := newWorld(t, Instant())
	w.cloud.Inject(Fault{Method: "PATCH", Resource: "data1", Skip: 1, Times: 2, Status: 409, Code: "Scripted", Message: "as asked", RetryAfter: Period(3 * time.Second)})
	w.Expect(w.create("data1")).To(Succeed())
	w.Expect(w.tag("data1", "1")).To(Succeed())
	w.Expect(code(w.tag("data1", "2"))).To(Equal("Scripted"))
	w.Expect(w.cloud.Knobs().Faults).To(ConsistOf(HaveField("Times", 1)))
	w.Expect(code(w.tag("data1", "3"))).To(Equal("Scripted"))
	w.Expect(w.tag("data1", "4")).To(Succeed())
	w.Expect(w.cloud.Knobs().Faults).To(BeEmpty())

	w.cloud.Inject(Fault{Resource: "data1", Lost: true})
	w.Expect(code(w.tag("data1", "5"))).To(ContainSubstring("EOF"))
	w.Expect(*w.mustGet("data1").Tags["owner"]).To(Equal("5"))

	w.cloud.Inject(Fault{Resource: "data2", FailLate: true})
	w.Expect(w.create("data2")).To(Succeed())
	w.Expect(code(w.err404("data2"))).To(Equal("ResourceNotFound"))
}

func TestETags(t *testing.T) {
	w := newWorld(t, Instant())
	w.Expect(w.create("data1")).To(Succeed())
	var response *http.Response
	_, err := w.accounts.GetProperties(policy.WithCaptureResponse(w.ctx(), &response), w.demo.Group, "data1", nil)
	w.Expect(err).NotTo(HaveOccurred())
	etag := response.Header.Get("ETag")
	conditional := func(header, value, tag string) error {
		ctx := policy.WithHTTPHeader(w.ctx(), http.Header{header: {value}})
		_, err := w.accounts.Update(ctx, w.demo.Group, "data1", armstorage.AccountUpdateParameters{Tags: map[string]*string{"t": to.Ptr(tag)}}, nil)
		return err
	}
	w.Expect(conditional("If-Match", etag, "1")).To(Succeed())
	w.Expect(status(conditional("If-Match", etag, "2"))).To(Equal(http.StatusPreconditionFailed))
	w.Expect(status(conditional("If-None-Match", "*", "2"))).To(Equal(http.StatusPreconditionFailed))
	w.Expect(conditional("If-Match", "*", "2")).To(Succeed())
}

func TestNamesAreUniqueInTheWholeCloud(t *testing.T) {
	w := newWorld(t, Instant())
	const other = "00000000-0000-4000-8000-00000000beef"
	w.cloud.SeedGroup(other, "theirs", "westeurope")
	w.cloud.SeedGroup(w.demo.Subscription, "second", "westeurope")
	w.Expect(w.cloud.SeedAccount(other, "theirs", "data1", map[string]string{"owner": "them"})).To(Succeed())
	w.Expect(code(w.create("data1"))).To(Equal("StorageAccountAlreadyTaken"))
	w.Expect(w.cloud.SeedAccount(w.demo.Subscription, "second", "data2", nil)).To(Succeed())
	w.Expect(code(w.create("data2"))).To(Equal("StorageAccountAlreadyExists"))
	w.Expect(w.cloud.Created("storageAccounts")).To(BeZero(), "what was seeded does not count")

	for name, want := range map[string]armstorage.CheckNameAvailabilityResult{
		"data1": {NameAvailable: to.Ptr(false), Reason: to.Ptr(armstorage.ReasonAlreadyExists)},
		"Data":  {NameAvailable: to.Ptr(false), Reason: to.Ptr(armstorage.ReasonAccountNameInvalid)},
		"data3": {NameAvailable: to.Ptr(true)},
	} {
		got, err := w.accounts.CheckNameAvailability(w.ctx(), armstorage.AccountCheckNameAvailabilityParameters{Name: to.Ptr(name), Type: to.Ptr(accountKind)}, nil)
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(got.NameAvailable).To(Equal(want.NameAvailable), name)
		w.Expect(got.Reason).To(Equal(want.Reason), name)
	}
}

func TestASoftlyDeletedKeyKeepsItsName(t *testing.T) {
	w := newWorld(t, Instant())
	create := func(name string) error {
		_, err := w.keys.CreateIfNotExist(w.ctx(), w.demo.Group, w.demo.Vault, name, armkeyvault.KeyCreateParameters{
			Properties: &armkeyvault.KeyProperties{Kty: to.Ptr(armkeyvault.JSONWebKeyTypeRSA), KeySize: to.Ptr[int32](3072)}}, nil)
		return err
	}
	w.Expect(create("fresh")).To(Succeed())
	w.Expect(create("fresh")).To(Succeed())
	w.Expect(w.cloud.Created("keys/fresh")).To(Equal(1))
	w.Expect(w.cloud.DeleteKey(w.demo.Vault, "fresh")).To(Succeed())
	w.Expect(code(create("fresh"))).To(Equal("ObjectIsDeletedButRecoverable"))
	_, err := w.keys.Get(w.ctx(), w.demo.Group, w.demo.Vault, "fresh", nil)
	w.Expect(code(err)).To(Equal("KeyNotFound"))
}

func TestMeddlingIsSeenInTheLedger(t *testing.T) {
	w := newWorld(t, Instant())
	w.encrypted("data1")
	before := w.cloud.KeyAt("data1", w.clock.Now())
	w.clock.Step(time.Minute)
	w.Expect(w.cloud.UsePlatformKeys("data1")).To(Succeed())
	w.Expect(w.cloud.KeyAt("data1", noon)).To(Equal(before))
	w.Expect(w.cloud.KeyAt("data1", w.clock.Now())).To(Equal("Microsoft.Storage"))
	w.Expect(*w.mustGet("data1").Properties.Encryption.KeySource).To(Equal(armstorage.KeySourceMicrosoftStorage))

	w.Expect(w.cloud.SetTags("data1", nil)).To(Succeed())
	w.Expect(w.mustGet("data1").Tags).To(BeEmpty())
	w.Expect(w.cloud.DropIdentity("data1")).To(Succeed())
	w.Expect(w.mustGet("data1").Identity).To(BeNil())
	w.Expect(w.cloud.DeleteAccount("data1")).To(Succeed())
	w.Expect(code(w.err404("data1"))).To(Equal("ResourceNotFound"))
	w.Expect(w.cloud.KeyAt("data1", w.clock.Now())).To(BeEmpty())
	w.Expect(w.cloud.DeleteAccount("data1")).To(MatchError(ContainSubstring("there is no account data1")))
}

func TestAPurgedVaultsTimeIsOver(t *testing.T) {
	w := newWorld(t, Instant())
	w.Expect(w.cloud.DeleteVault(w.demo.Vault)).To(Succeed())
	_, err := w.vaults.BeginPurgeDeleted(w.ctx(), w.demo.Vault, "westeurope", nil)
	w.Expect(code(err)).To(Equal("DeletedVaultPurge"), "purge protection")
	w.clock.Step(90 * 24 * time.Hour)
	_, err = w.vaults.GetDeleted(w.ctx(), w.demo.Vault, "westeurope", nil)
	w.Expect(code(err)).To(Equal("DeletedVaultNotFound"))
}
