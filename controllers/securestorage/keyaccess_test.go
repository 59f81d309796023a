package securestorage

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// observed is what an observation, or an error, means for the phase.
func observed(observation phases.Observation, err error) string {
	if missing, ok := observation.(phases.MissingObservation); ok && err == nil {
		return "missing: " + missing.Reason()
	}
	verdict, _ := observation.(phases.Verdict)
	return outcome(verdict, err)
}

// Losing the key means losing the data: the key vault has to protect it, and to heed the kind of grant.
func TestDecideVault(t *testing.T) {
	for name, c := range map[string]struct {
		vault  cloud.Vault
		access v1beta1.SecureStorageAccessType
		want   string
	}{
		"protected, with roles":            {vault: cloud.Vault{SoftDelete: true, PurgeProtection: true, RBAC: true}, want: "done"},
		"protected, with policies":         {vault: cloud.Vault{SoftDelete: true, PurgeProtection: true}, access: v1beta1.AccessPolicy, want: "done"},
		"no soft delete":                   {vault: cloud.Vault{PurgeProtection: true, RBAC: true}, want: "stalled: VaultNotProtected"},
		"no purge protection":              {vault: cloud.Vault{SoftDelete: true, RBAC: true}, want: "stalled: VaultNotProtected"},
		"policies, a role is wanted":       {vault: cloud.Vault{SoftDelete: true, PurgeProtection: true}, access: v1beta1.AccessRoleAssignment, want: "stalled: AccessTypeMismatch"},
		"roles, a policy is wanted":        {vault: cloud.Vault{SoftDelete: true, PurgeProtection: true, RBAC: true}, access: v1beta1.AccessPolicy, want: "stalled: AccessTypeMismatch"},
		"neither protected nor the access": {access: v1beta1.AccessRoleAssignment, want: "stalled: VaultNotProtected"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope(func(spec *v1beta1.SecureStorageSpec) { spec.Access.Type = c.access })
			NewWithT(t).Expect(outcome(s.decideVault(&c.vault), nil)).To(Equal(c.want))
		})
	}
}

func TestDecideKey(t *testing.T) {
	both := []string{"sign", "wrapKey", "unwrapKey"}
	for name, c := range map[string]struct {
		key  cloud.Key
		want string
	}{
		"2048 bits":              {cloud.Key{Enabled: true, Type: "RSA", Size: 2048, Operations: both}, "done"},
		"3072 bits":              {cloud.Key{Enabled: true, Type: "RSA", Size: 3072, Operations: both}, "done"},
		"4096 bits, in hardware": {cloud.Key{Enabled: true, Type: "RSA-HSM", Size: 4096, Operations: both}, "done"},
		"a size that is unknown": {cloud.Key{Enabled: true, Type: "RSA"}, "done"},
		"1024 bits":              {cloud.Key{Enabled: true, Type: "RSA", Size: 1024}, "stalled: KeyUnsuitable"},
		"an elliptic curve":      {cloud.Key{Enabled: true, Type: "EC", Size: 2048}, "stalled: KeyUnsuitable"},
		"cannot wrap":            {cloud.Key{Enabled: true, Type: "RSA", Size: 2048, Operations: []string{"unwrapKey"}}, "stalled: KeyUnsuitable"},
		"cannot unwrap":          {cloud.Key{Enabled: true, Type: "RSA", Size: 2048, Operations: []string{"wrapKey"}}, "stalled: KeyUnsuitable"},
		"disabled":               {cloud.Key{Type: "RSA", Size: 2048, Operations: both}, "stalled: KeyDisabled"},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(outcome(newScope().decideKey(&c.key), nil)).To(Equal(c.want)) })
	}
}

// An access policy is complete, or it is set again; it is revoked as long as any part of it is left.
func TestPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		permissions  []string
		has, hasAny  bool
		ofOtherOwner bool
	}{
		"what is granted":      {permissions: []string{"get", "wrapkey", "unwrapkey"}, has: true, hasAny: true},
		"more":                 {permissions: []string{"list", "unwrapkey", "wrapkey", "get"}, has: true, hasAny: true},
		"everything":           {permissions: []string{"all"}, has: true},
		"without get":          {permissions: []string{"wrapkey", "unwrapkey"}, hasAny: true},
		"without wrapkey":      {permissions: []string{"get", "unwrapkey"}, hasAny: true},
		"without unwrapkey":    {permissions: []string{"get", "wrapkey"}, hasAny: true},
		"another one":          {permissions: []string{"list"}},
		"of another principal": {permissions: []string{"get", "wrapkey", "unwrapkey"}, ofOtherOwner: true},
		"none":                 {},
	} {
		t.Run(name, func(t *testing.T) {
			g, principal := NewWithT(t), "p"
			if c.ofOtherOwner {
				principal = "q"
			}
			vault := &cloud.Vault{Policies: map[string][]string{principal: c.permissions}}
			g.Expect(hasPolicy(vault, "P")).To(Equal(c.has))
			g.Expect(hasAnyPolicy(vault, "P")).To(Equal(c.hasAny))
		})
	}
}

// A grant of the other access type is none.
func TestIsGranted(t *testing.T) {
	vault := &cloud.Vault{Policies: map[string][]string{"p": {"all"}}}
	for name, c := range map[string]struct {
		edit func(*scope)
		want bool
	}{
		"a role":                       {func(s *scope) { s.grant = &cloud.Grant{} }, true},
		"a role that was just created": {func(s *scope) { s.granted = true }, true},
		"no role, but a policy":        {func(s *scope) { s.vault = vault }, false},
		"a policy":                     {func(s *scope) { byPolicy(&s.storage.Spec); s.vault = vault }, true},
		"a policy that was just set":   {func(s *scope) { byPolicy(&s.storage.Spec); s.granted = true }, true},
		"no policy":                    {func(s *scope) { byPolicy(&s.storage.Spec); s.vault = &cloud.Vault{} }, false},
		"no policy, but a role":        {func(s *scope) { byPolicy(&s.storage.Spec); s.grant = &cloud.Grant{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.account = &cloud.Account{PrincipalID: "p"}
			c.edit(s)
			NewWithT(t).Expect(s.isGranted()).To(Equal(c.want))
		})
	}
}

// A grant that is missing is drift only after the account was encrypted with it, or if it is only observed.
func TestDecideMissingGrant(t *testing.T) {
	access := []ssa.Drift{{Path: "vaults/v/access", Desired: "RoleAssignment", Actual: "none"}}
	for name, c := range map[string]struct {
		edit   func(*v1beta1.SecureStorageSpec)
		status metav1.ConditionStatus
		want   []ssa.Drift
	}{
		"never encrypted":     {status: metav1.ConditionFalse},
		"encrypted before":    {status: metav1.ConditionTrue, want: access},
		"only observed":       {edit: observe, status: metav1.ConditionUnknown, want: access},
		"by policy, observed": {edit: both(observe, byPolicy), want: []ssa.Drift{{Path: "vaults/v/access", Desired: "AccessPolicy", Actual: "none"}}},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), newScope()
			if c.edit != nil {
				c.edit(&s.storage.Spec)
			}
			s.storage.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionEncryptionReady, Status: c.status}}
			missing, ok := s.decideMissingGrant().(phases.MissingObservation)
			g.Expect(ok).To(BeTrue())
			g.Expect(missing.Reason()).To(Equal(v1beta1.ReasonGranting))
			g.Expect(missing.Drifts()).To(Equal(c.want))
		})
	}
}

// What is not there is found out, one request after the other, and a request that fails is reported.
func TestKeyAccessReadsWhatItNeeds(t *testing.T) {
	get := func(resource string, status int, code string) fakecloud.Fault {
		return fakecloud.Fault{Method: http.MethodGet, Resource: resource, Status: status, Code: code}
	}
	const roles, vault, key = "/roleassignments", "/vaults/fixpoint-demo", "/keys/storage"
	notThere := func(resource string) fakecloud.Fault { return get(resource, http.StatusNotFound, "ResourceNotFound") }
	noGroup := func(resource string) fakecloud.Fault {
		return get(resource, http.StatusNotFound, "ResourceGroupNotFound")
	}
	// The credential may only not see the subscription of the key vault.
	hidden := func(resource string) fakecloud.Fault {
		return get(resource, http.StatusNotFound, "SubscriptionNotFound")
	}
	down := func(resource string) fakecloud.Fault {
		return get(resource, http.StatusServiceUnavailable, "ServerTimeout")
	}
	after := func(n int, fault fakecloud.Fault) fakecloud.Fault { fault.Skip = n; return fault }
	for name, c := range map[string]struct {
		edit   func(*v1beta1.SecureStorageSpec)
		change func(*scope)
		faults []fakecloud.Fault
		// refused is the number of a request that the transport refuses, or 0.
		refused int
		want    string
		reads   int
	}{
		"all is there":                            {want: "done", reads: 2},
		"by policy":                               {edit: byPolicy, want: "stalled: AccessTypeMismatch", reads: 1},
		"an assumed identity":                     {change: func(s *scope) { s.account.PrincipalID = "" }, want: "missing: Granting", reads: 2},
		"an assumed identity, nothing accepted":   {change: func(s *scope) { s.account.PrincipalID, s.account.Encryption = "", cloud.Encryption{} }, want: "missing: Granting", reads: 2},
		"no role":                                 {faults: []fakecloud.Fault{notThere(roles)}, want: "missing: Granting", reads: 3},
		"no group of the role":                    {faults: []fakecloud.Fault{noGroup(roles)}, want: "missing: Granting", reads: 3},
		"the role cannot be read":                 {faults: []fakecloud.Fault{down(roles)}, want: "wait: CloudUnavailable", reads: 1},
		"no key vault":                            {edit: inVault("absent"), want: "stalled: VaultMissing", reads: 2},
		"no group of the key vault":               {change: notAccepted, faults: []fakecloud.Fault{after(1, noGroup(vault))}, want: "stalled: VaultMissing", reads: 2},
		"hidden when the role is read":            {faults: []fakecloud.Fault{hidden(roles)}, want: "stalled: ResourceGroupMissing", reads: 1},
		"hidden when the key vault is read":       {change: notAccepted, faults: []fakecloud.Fault{after(1, hidden(vault))}, want: "stalled: ResourceGroupMissing", reads: 2},
		"hidden when the key is read":             {faults: []fakecloud.Fault{hidden(key)}, want: "stalled: ResourceGroupMissing", reads: 2},
		"the key vault cannot be read":            {change: notAccepted, faults: []fakecloud.Fault{after(1, down(vault))}, want: "wait: CloudUnavailable", reads: 2},
		"no key":                                  {faults: []fakecloud.Fault{notThere(key)}, want: "stalled: KeyMissing", reads: 3},
		"no group of the key":                     {faults: []fakecloud.Fault{noGroup(key)}, want: "stalled: KeyMissing", reads: 3},
		"no key, the vault was read":              {change: notAccepted, faults: []fakecloud.Fault{notThere(key)}, want: "stalled: KeyMissing", reads: 3},
		"no key, and no key vault":                {faults: []fakecloud.Fault{after(1, notThere(vault)), notThere(vault)}, want: "stalled: VaultMissing", reads: 3},
		"no key, and the vault cannot be read":    {faults: []fakecloud.Fault{notThere(key), after(1, down(vault))}, want: "wait: CloudUnavailable", reads: 3},
		"no key, and then the transport":          {faults: []fakecloud.Fault{notThere(key)}, refused: 3, want: "error: reading the key vault: write refused: another replica holds the Lease", reads: 2},
		"the key cannot be read":                  {faults: []fakecloud.Fault{down(key)}, want: "wait: CloudUnavailable", reads: 2},
		"no version":                              {edit: pinned(strings.Repeat("0", 32)), want: "stalled: KeyVersionMissing", reads: 4},
		"no version, and no key":                  {edit: pinned(strings.Repeat("0", 32)), faults: []fakecloud.Fault{after(1, notThere(key))}, want: "stalled: KeyMissing", reads: 4},
		"no version, and the key cannot be read":  {edit: pinned(strings.Repeat("0", 32)), faults: []fakecloud.Fault{after(1, down(key))}, want: "wait: CloudUnavailable", reads: 4},
		"no version, and the key may not be read": {edit: pinned(strings.Repeat("0", 32)), faults: []fakecloud.Fault{after(1, get(key, http.StatusForbidden, "AuthorizationFailed"))}, want: "stalled: PermissionMissing", reads: 4},
	} {
		t.Run(name, func(t *testing.T) {
			f := readyFixture(t)
			s := f.connected()
			if c.edit != nil {
				c.edit(&s.storage.Spec)
			}
			if c.change != nil {
				c.change(s)
			}
			for _, fault := range c.faults {
				f.server.Inject(fault)
			}
			before, requests := f.calls, 0
			f.refuse = func(*http.Request) error {
				if requests++; requests == c.refused {
					return &lease.Error{Reason: lease.Lost}
				}
				return nil
			}
			f.Expect(observed(observeKeyAccess(t.Context(), s))).To(Equal(c.want))
			f.Expect(f.calls - before).To(Equal(c.reads))
		})
	}
}

// A key vault that uses access policies ignores role assignments: the account would lose its key with its access policy.
func TestKeepsTheAccessPolicyThatTheKeyVaultHeeds(t *testing.T) {
	for name, change := range map[string]func(*fixture){
		"without a role assignment": func(*fixture) {},
		"with a role assignment": func(f *fixture) {
			_, err := f.connected().vaults.CreateGrant(t.Context(), f.name(), vaultOf(f.storage).id(), f.storage.Status.PrincipalID)
			f.Expect(err).NotTo(HaveOccurred())
		},
	} {
		t.Run(name, func(t *testing.T) {
			// given an account that uses its key by an access policy
			f := newVaultsFixture(t, byPolicy, inVault("policies"))
			f.runUntilReady()
			change(f)
			before := f.grants()
			// when the spec asks for a role assignment
			f.edit(byRole)
			// then nothing is granted or revoked, and the data stays readable
			f.runUntilReason(v1beta1.ReasonAccessTypeMismatch)
			f.reconcileTimes(3)
			f.Expect(f.grants()).To(Equal(before))
			f.Expect(f.recorded()).To(HaveEach("policies"))
			f.clock.Step(time.Hour)
			f.Expect(f.server.ReadData(f.name())).To(Succeed())
			f.delete()
			f.runUntilDeleted()
			f.Expect(f.grants()).To(BeEmpty())
		})
	}
}

// notAccepted lets nothing show that the key vault was accepted before.
func notAccepted(s *scope) {
	s.account.Encryption, s.account.PrincipalID = cloud.Encryption{}, "another"
}

// A full record makes room before a grant is recorded, and a transient failure of that is retried.
func TestRecordsGrantFirst(t *testing.T) {
	full := func(s *scope) {
		for _, vault := range []string{"a", "b", "c", "d", "e", "f"}[:maxRecordedGrants-1] {
			s.storage.Status.Grants = append(s.storage.Status.Grants, v1beta1.SecureStorageGrant{
				VaultID: vaultLocation{s.storage.Spec.Provider.SubscriptionID, s.group(), vault}.id(), PrincipalID: s.account.PrincipalID, AccessType: v1beta1.AccessRoleAssignment,
			})
		}
	}
	for name, c := range map[string]struct {
		change  func(*scope)
		fault   *fakecloud.Fault
		want    string
		planned bool
		// records is how many grants are recorded afterwards.
		records, deletes int
		// abandoned is in the Event about grants that cannot be revoked; none is emitted if it is empty.
		abandoned string
	}{
		"not full":                  {want: "wait: Granting", planned: true, records: 2},
		"full":                      {change: full, want: "wait: Granting", planned: true, records: 2, deletes: 5},
		"full, one is not revoked":  {change: full, fault: &fakecloud.Fault{Method: http.MethodDelete, Status: http.StatusForbidden, Code: "AuthorizationFailed"}, want: "wait: Granting", planned: true, records: 2, deletes: 5, abandoned: "the former grant on key vault a may still exist"},
		"full, none is revoked":     {change: full, fault: &fakecloud.Fault{Method: http.MethodDelete, Times: 5, Status: http.StatusForbidden, Code: "AuthorizationFailed", Message: strings.Repeat("é", 1024)}, want: "wait: Granting", planned: true, records: 2, deletes: 5, abandoned: "the former grant on key vault a, b, c, d, e may still exist"},
		"full, Azure does not work": {change: full, fault: &fakecloud.Fault{Method: http.MethodDelete, Status: http.StatusServiceUnavailable, Code: "ServerTimeout"}, want: "wait: CloudUnavailable", records: 6, deletes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newVaultsFixture(t)
			f.runUntilReady()
			s := f.connected()
			inVault("second")(&s.storage.Spec)
			if c.change != nil {
				c.change(s)
			}
			if c.fault != nil {
				f.server.Inject(*c.fault)
			}
			deletes := 0
			f.onRequest = func(r *http.Request) {
				if r.Method == http.MethodDelete {
					deletes++
				}
			}
			verdict, err := ensureKeyAccess(t.Context(), s)
			f.Expect(outcome(verdict, err)).To(Equal(c.want))
			f.Expect(s.grantPlanned).To(Equal(c.planned))
			f.Expect(s.grantsToRecord()).To(HaveLen(c.records))
			f.Expect(deletes).To(Equal(c.deletes))
			if c.abandoned != "" {
				f.Expect(f.eventsWith("Warning Abandoned: " + c.abandoned + "; delete it manually, because it cannot be revoked: ")).To(Equal(1))
				f.Expect(f.events[len(f.events)-1]).To(Satisfy(utf8.ValidString))
			} else {
				f.Expect(f.eventsWith("Warning Abandoned")).To(BeZero())
			}
			f.Expect(s.unrevoked).To(BeEmpty())
			if c.planned {
				f.Expect(verdict.After()).To(BeNumerically("~", 500*time.Millisecond, 50*time.Millisecond))
			}
		})
	}
}

// A grant is recorded by its key vault, its principal and its kind, before it is created.
func TestIsRecorded(t *testing.T) {
	const vaults = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/"
	for name, c := range map[string]struct {
		grant v1beta1.SecureStorageGrant
		want  bool
	}{
		"the same":                  {v1beta1.SecureStorageGrant{VaultID: vaults + "V", PrincipalID: "P", AccessType: v1beta1.AccessRoleAssignment}, true},
		"for the first principal":   {v1beta1.SecureStorageGrant{VaultID: vaults + "v", AccessType: v1beta1.AccessRoleAssignment}, true},
		"of another principal":      {v1beta1.SecureStorageGrant{VaultID: vaults + "v", PrincipalID: "q", AccessType: v1beta1.AccessRoleAssignment}, false},
		"on another vault":          {v1beta1.SecureStorageGrant{VaultID: vaults + "w", PrincipalID: "p", AccessType: v1beta1.AccessRoleAssignment}, false},
		"on another, for the first": {v1beta1.SecureStorageGrant{VaultID: vaults + "w", AccessType: v1beta1.AccessRoleAssignment}, false},
		"of another kind":           {v1beta1.SecureStorageGrant{VaultID: vaults + "v", PrincipalID: "p", AccessType: v1beta1.AccessPolicy}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.storage.Status.Grants = []v1beta1.SecureStorageGrant{c.grant}
			NewWithT(t).Expect(s.isRecorded(s.desiredGrant("p"))).To(Equal(c.want))
		})
	}
}

// A status of an old version has the grant in grantID.
func TestRecordedInGrantID(t *testing.T) {
	const vault = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v"
	f := readyFixture(t)
	managed, principal := f.storage.Status.GrantID, f.storage.Status.PrincipalID
	at := vaultLocation{f.demo.Subscription, f.demo.Group, f.demo.Vault}
	for name, c := range map[string]struct {
		id, principal string
		want          []keyGrant
	}{
		"none":                {principal: "p"},
		"no principal":        {id: vault},
		"access policy":       {id: vault, principal: "p", want: []keyGrant{{vaultLocation{"s", "g", "v"}, "p", v1beta1.AccessPolicy}}},
		"role assignment":     {id: managed, principal: principal, want: []keyGrant{{at, principal, v1beta1.AccessRoleAssignment}}},
		"role of a user":      {id: managed + "0", principal: principal},
		"of another identity": {id: managed, principal: "p"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.storage.Status.GrantID, s.storage.Status.PrincipalID = c.id, c.principal
			NewWithT(t).Expect(s.recordedGrants()).To(Equal(c.want))
		})
	}
}

// The record has what exists and what is about to exist: a grant that is forgotten is never revoked.
func TestGrantsToRecord(t *testing.T) {
	const vaults = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/"
	at := func(vault, principal string) v1beta1.SecureStorageGrant {
		return v1beta1.SecureStorageGrant{VaultID: vaults + vault, PrincipalID: principal, AccessType: v1beta1.AccessRoleAssignment}
	}
	owned := func(principal string) *cloud.Account {
		return &cloud.Account{Tags: map[string]string{cloud.OwnerTag: "uid"}, PrincipalID: principal}
	}
	many := make([]v1beta1.SecureStorageGrant, 0, maxRecordedGrants)
	for _, vault := range []string{"a", "b", "c", "d", "e", "f"} {
		many = append(many, at(vault, "q"))
	}
	for name, c := range map[string]struct {
		grants []v1beta1.SecureStorageGrant
		edit   func(*scope)
		want   string
	}{
		"the account was not read":           {grants: []v1beta1.SecureStorageGrant{at("w", "")}, edit: func(s *scope) { s.accountRead = false }, want: "w/"},
		"only observed":                      {grants: []v1beta1.SecureStorageGrant{at("w", "")}, edit: func(s *scope) { observe(&s.storage.Spec) }, want: "w/"},
		"another owner":                      {grants: []v1beta1.SecureStorageGrant{at("w", "")}, edit: func(s *scope) { s.account = &cloud.Account{PrincipalID: "p"} }, want: "w/"},
		"no account":                         {want: "v/"},
		"no account, deleted":                {edit: func(s *scope) { deletedFor(s, 0) }},
		"no account, a former identity":      {grants: []v1beta1.SecureStorageGrant{at("w", "q"), at("w", "")}, want: "w/q v/"},
		"no account, and the record is full": {grants: many, want: "a/q b/q c/q d/q e/q f/q"},
		"no account, and there is room":      {grants: many[1:], want: "b/q c/q d/q e/q f/q v/"},
		"the first identity":                 {grants: []v1beta1.SecureStorageGrant{at("w", ""), at("v", "")}, edit: func(s *scope) { s.account = owned("p") }, want: "w/p v/p"},
		"the first one, twice":               {grants: []v1beta1.SecureStorageGrant{at("w", "p"), at("w", "")}, edit: func(s *scope) { s.account = owned("p") }, want: "w/p"},
		"revoked": {grants: []v1beta1.SecureStorageGrant{at("w", "p"), at("x", "p")}, edit: func(s *scope) {
			s.account = owned("p")
			s.revoked = []keyGrant{{vaultLocation{"s", "g", "w"}, "p", v1beta1.AccessRoleAssignment}}
		}, want: "x/p"},
		"not granted":                {edit: func(s *scope) { s.account = owned("p") }},
		"about to be granted":        {edit: func(s *scope) { s.account, s.grantPlanned = owned("p"), true }, want: "v/p"},
		"just granted":               {edit: func(s *scope) { s.account, s.granted = owned("p"), true }, want: "v/p"},
		"just granted, and recorded": {grants: []v1beta1.SecureStorageGrant{at("v", "p")}, edit: func(s *scope) { s.account, s.granted = owned("p"), true }, want: "v/p"},
		"granted by a user": {edit: func(s *scope) {
			s.account, s.grant = owned("p"), &cloud.Grant{ID: vaults + "v/providers/Microsoft.Authorization/roleAssignments/1"}
		}},
		"granted, and deleted": {edit: func(s *scope) { s.account, s.granted = owned("p"), true; deletedFor(s, 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.accountRead, s.storage.Status.Grants = true, c.grants
			if c.edit != nil {
				c.edit(s)
			}
			var found []string
			for _, grant := range s.grantsToRecord() {
				found = append(found, grant.vault.name+"/"+grant.principal)
			}
			NewWithT(t).Expect(strings.Join(found, " ")).To(Equal(c.want))
		})
	}
}

// Only what this SecureStorage manages has former grants.
func TestFormerGrants(t *testing.T) {
	const vaults = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/"
	for name, c := range map[string]struct {
		account *cloud.Account
		want    string
	}{
		"none":            {},
		"managed":         {account: &cloud.Account{Tags: map[string]string{cloud.OwnerTag: "uid"}, PrincipalID: "p"}, want: "w"},
		"another owner":   {account: &cloud.Account{Tags: map[string]string{cloud.OwnerTag: "other"}, PrincipalID: "p"}},
		"has no identity": {account: &cloud.Account{Tags: map[string]string{cloud.OwnerTag: "uid"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.accountRead, s.account = true, c.account
			for _, vault := range []string{"v", "w"} {
				s.storage.Status.Grants = append(s.storage.Status.Grants, v1beta1.SecureStorageGrant{VaultID: vaults + vault, PrincipalID: "p", AccessType: v1beta1.AccessRoleAssignment})
			}
			NewWithT(t).Expect(vaultNames(s.formerGrants())).To(Equal(c.want))
		})
	}
}

// A policy is removed if the principal has any part of it, from the key vault in its own subscription.
func TestRevokesPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*fixture)
		existed bool
		want    string
		writes  int
	}{
		"exists":            {existed: true, writes: 1},
		"was removed":       {change: func(f *fixture) { f.Expect(f.server.RemoveGrants(f.server.Principal(f.name()))).To(Succeed()) }},
		"the vault is gone": {change: func(f *fixture) { f.Expect(f.server.DeleteVault("old-vault")).To(Succeed()) }},
		"may not be read":   {change: func(f *fixture) { f.server.Deny(fakecloud.Denial{Action: "Microsoft.KeyVault/vaults/read"}) }, want: "AuthorizationFailed"},
		"may not be removed": {change: func(f *fixture) {
			f.server.Deny(fakecloud.Denial{Action: "Microsoft.KeyVault/vaults/accessPolicies/write"})
		}, existed: true, want: "AuthorizationFailed", writes: 1},
		"the group is gone": {change: func(f *fixture) {
			f.server.Inject(fakecloud.Fault{Method: http.MethodGet, Resource: "/vaults/", Status: http.StatusNotFound, Code: "ResourceGroupNotFound"})
		}},
		"the subscription is not found": {change: func(f *fixture) {
			f.server.Inject(fakecloud.Fault{Method: http.MethodGet, Resource: "/vaults/", Status: http.StatusNotFound, Code: "SubscriptionNotFound"})
		}, want: "SubscriptionNotFound"},
		"Secret is not there": {change: func(f *fixture) { delete(f.secrets, "billing/own") }, want: "Secret own (spec.provider.credentialsSecretRef) does not exist; create it"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureFor(t, "policy", withSecret("own"))
			f.runUntilReady()
			s := f.connected()
			s.credential = nil
			if c.change != nil {
				c.change(f)
			}
			writes := f.server.Total("").Writes
			existed, err := s.revoke(t.Context(), s.desiredGrant(s.account.PrincipalID))
			f.Expect(existed).To(Equal(c.existed))
			if c.want == "" {
				f.Expect(err).NotTo(HaveOccurred())
			} else {
				f.Expect(err).To(MatchError(ContainSubstring(c.want)))
			}
			f.Expect(f.server.Total("").Writes - writes).To(Equal(c.writes))
		})
	}
}

// Grants that cannot be revoked are reported together, with the first cause.
func TestUnrevokedGrantsAreReported(t *testing.T) {
	g, s := NewWithT(t), newScope()
	s.storage.Spec.PollInterval.Duration = time.Minute
	s.account = &cloud.Account{Name: "a"}
	verdict := s.encrypted()
	g.Expect([]string{verdict.Reason(), verdict.Message()}).To(Equal([]string{v1beta1.ReasonReady, "storage account is encrypted with key k"}))
	for _, vault := range []string{"first", "second", "first"} {
		s.unrevoked = append(s.unrevoked, unrevokedGrant{keyGrant{vault: vaultLocation{"s", "g", vault}}, errors.New(vault + " is locked")})
	}
	verdict = s.encrypted()
	g.Expect(outcome(verdict, nil)).To(Equal("done"))
	g.Expect(verdict.Reason()).To(Equal(v1beta1.ReasonGrantNotRevoked))
	g.Expect(verdict.Message()).To(Equal("storage account is encrypted with key k; the unused grant on key vault first, second cannot be revoked: first is locked; " +
		"check the credential and its permissions on this key vault, or delete the grant manually; retrying"))
	g.Expect(verdict.After()).To(BeNumerically("~", time.Minute+3*time.Second, 3*time.Second))
}

// A grant that was just created counts, although reads may not show it yet.
func TestCreatesGrant(t *testing.T) {
	for access := range accesses {
		t.Run(access, func(t *testing.T) {
			f := newFixtureFor(t, access)
			f.runUntilReady()
			f.Expect(f.server.RemoveGrants(f.server.Principal(f.name()))).To(Succeed())
			f.clock.Step(time.Minute)
			s := f.connected()
			f.Expect(observed(observeKeyAccess(t.Context(), s))).To(Equal("missing: Granting"))
			f.Expect(outcome(ensureKeyAccess(t.Context(), s))).To(Equal("done"))
			f.Expect(s.granted).To(BeTrue())
			f.Expect(s.isGranted()).To(BeTrue())
			f.Expect(s.grantsToRecord()).To(HaveLen(1))
			f.Expect(f.grants()).To(Equal([]string{f.vault()}))
			f.server.Deny(fakecloud.Denial{Action: "Microsoft.Authorization/roleAssignments/write"})
			f.server.Deny(fakecloud.Denial{Action: "Microsoft.KeyVault/vaults/accessPolicies/write"})
			s.granted, s.grant = false, nil
			f.Expect(outcome(ensureKeyAccess(t.Context(), s))).To(Equal("stalled: PermissionMissing"))
			f.Expect(s.isGranted() && access == "role").To(BeFalse())
		})
	}
}
