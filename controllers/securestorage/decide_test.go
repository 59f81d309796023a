package securestorage

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newScope has a SecureStorage with the key vault "v", at noon.
func newScope(edits ...func(*v1beta1.SecureStorageSpec)) *scope {
	storage := &v1beta1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Name: "invoices", Namespace: "billing", UID: "uid", Generation: 1},
		Spec: v1beta1.SecureStorageSpec{
			Provider: v1beta1.SecureStorageProvider{SubscriptionID: "s", ResourceGroup: "g", Location: "westeurope"},
			SKU:      v1beta1.SKUStandardLRS,
			Key:      v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: "v"}, Name: "k"},
		},
	}
	for _, edit := range edits {
		edit(&storage.Spec)
	}
	return &scope{storage: storage, clock: clocktesting.NewFakePassiveClock(noon)}
}

func TestVaultOf(t *testing.T) {
	for name, c := range map[string]struct {
		key  v1beta1.SecureStorageKey
		want vaultLocation
	}{
		"by name":            {v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: "v"}}, vaultLocation{"s", "g", "v"}},
		"in another group":   {v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: "v", ResourceGroup: "h"}}, vaultLocation{"s", "h", "v"}},
		"by ID":              {v1beta1.SecureStorageKey{VaultID: "/subscriptions/t/resourceGroups/h/providers/Microsoft.KeyVault/vaults/w"}, vaultLocation{"t", "h", "w"}},
		"case-insensitively": {v1beta1.SecureStorageKey{VaultID: "/SUBSCRIPTIONS/T/resourcegroups/H/providers/microsoft.keyvault/VAULTS/W/"}, vaultLocation{"T", "H", "W"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope(func(spec *v1beta1.SecureStorageSpec) { spec.Key = c.key })
			NewWithT(t).Expect(vaultOf(s.storage)).To(Equal(c.want))
		})
	}
	at := vaultLocation{"s", "g", "v"}
	NewWithT(t).Expect(vaultLocation{}.parse(at.id())).To(Equal(at))
}

func TestPinnedVersion(t *testing.T) {
	for version, want := range map[string]string{"": "", "latest": "", "0123": "0123"} {
		NewWithT(t).Expect(pinnedVersion(newScope(pinned(version)).storage)).To(Equal(want))
	}
}

func TestEncryptionDrifts(t *testing.T) {
	want := cloud.Encryption{KeySource: cloud.CustomerManaged, VaultURI: "https://v.vault.azure.net", KeyName: "k"}
	for name, c := range map[string]struct {
		have  cloud.Encryption
		paths []string
	}{
		"the same":       {cloud.Encryption{KeySource: cloud.CustomerManaged, VaultURI: "https://v.vault.azure.net", KeyName: "k", CurrentVersion: "1"}, nil},
		"different case": {cloud.Encryption{KeySource: "microsoft.keyvault", VaultURI: "https://V.vault.azure.net/", KeyName: "K"}, nil},
		"empty":          {cloud.Encryption{}, []string{"encryption.keySource", "encryption.keyVaultUri", "encryption.keyName"}},
		"pinned":         {cloud.Encryption{KeySource: cloud.CustomerManaged, VaultURI: "https://v.vault.azure.net", KeyName: "k", KeyVersion: "1"}, []string{"encryption.keyVersion"}},
	} {
		t.Run(name, func(t *testing.T) {
			var paths []string
			for _, drift := range encryptionDrifts(want, c.have) {
				paths = append(paths, drift.Path)
			}
			NewWithT(t).Expect(paths).To(Equal(c.paths))
		})
	}
}

// What was accepted once is not read again: nothing else may count as accepted.
func TestVaultOfTheEncryptionWasAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		now  cloud.Encryption
		want bool
	}{
		"a key of the vault":                         {cloud.Encryption{KeySource: cloud.CustomerManaged, VaultURI: "https://V.vault.azure.net/", KeyName: "other"}, true},
		"a key of another vault":                     {cloud.Encryption{KeySource: cloud.CustomerManaged, VaultURI: "https://w.vault.azure.net"}, false},
		"a key of Microsoft, after one of the vault": {cloud.Encryption{KeySource: "Microsoft.Storage", VaultURI: "https://v.vault.azure.net"}, false},
		"none": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.account = &cloud.Account{Encryption: c.now}
			NewWithT(t).Expect(s.wasVaultAccepted()).To(Equal(c.want))
		})
	}
	// A grant that a user created proves nothing.
	s := newScope()
	s.account, s.grant = &cloud.Account{PrincipalID: "p"}, &cloud.Grant{ID: vaultOf(s.storage).id() + "/providers/Microsoft.Authorization/roleAssignments/1"}
	NewWithT(t).Expect(s.wasVaultAccepted()).To(BeFalse())
}

func TestDecideOwnership(t *testing.T) {
	for name, c := range map[string]struct {
		tags      map[string]string
		principal string
		edit      func(*v1beta1.SecureStorageSpec)
		managed   bool
	}{
		"owner tag":                                {tags: map[string]string{cloud.OwnerTag: "uid"}, managed: true},
		"owner tag in different case":              {tags: map[string]string{"Fixpoint.dev-Owner": "uid"}, managed: true},
		"tag of another owner":                     {tags: map[string]string{cloud.OwnerTag: "other"}},
		"tag of another owner, IfUnowned":          {tags: map[string]string{cloud.OwnerTag: "other"}, edit: adopt},
		"tag of another owner, recorded principal": {tags: map[string]string{cloud.OwnerTag: "other"}, principal: "recorded"},
		"no tag":                              {},
		"no tag, recorded principal":          {principal: "RECORDED", managed: true},
		"no tag, no principal":                {principal: ""},
		"no tag, another principal":           {principal: "else"},
		"no tag, IfUnowned":                   {edit: adopt, managed: true},
		"no tag, IfUnowned, another location": {edit: func(s *v1beta1.SecureStorageSpec) { adopt(s); s.Provider.Location = "eastus" }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			if c.edit != nil {
				c.edit(&s.storage.Spec)
			}
			s.storage.Status.PrincipalID = "recorded"
			s.account = &cloud.Account{Name: "a", Location: "westeurope", Tags: c.tags, PrincipalID: c.principal}
			verdict, managed := s.decideOwnership()
			NewWithT(t).Expect(managed).To(Equal(c.managed))
			if !managed {
				NewWithT(t).Expect(verdict.Reason()).To(Equal(v1beta1.ReasonAccountNotOwned))
			}
		})
	}
}

// A former grant is revoked only if EncryptionReady was decided for the current spec before: right after
// a change of the spec, a stale read may hide that the account uses the grant.
func TestDecideFormerGrants(t *testing.T) {
	for name, c := range map[string]struct {
		condition *metav1.Condition
		waits     bool
	}{
		"no condition":                          {waits: true},
		"unknown for this generation":           {condition: &metav1.Condition{Status: metav1.ConditionUnknown, ObservedGeneration: 2}, waits: true},
		"ready for an earlier generation":       {condition: &metav1.Condition{Status: metav1.ConditionTrue, ObservedGeneration: 1}, waits: true},
		"not ready for an earlier generation":   {condition: &metav1.Condition{Status: metav1.ConditionFalse, ObservedGeneration: 1}, waits: true},
		"waiting for a second read of the same": {condition: &metav1.Condition{Status: metav1.ConditionFalse, ObservedGeneration: 2}},
		"ready for this generation":             {condition: &metav1.Condition{Status: metav1.ConditionTrue, ObservedGeneration: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newScope()
			s.storage.Generation = 2
			if c.condition != nil {
				c.condition.Type = v1beta1.ConditionEncryptionReady
				s.storage.Status.Conditions = []metav1.Condition{*c.condition}
			}
			verdict := s.decideFormerGrants([]keyGrant{{vault: vaultLocation{"s", "g", "former"}, principal: "p", access: v1beta1.AccessRoleAssignment}})
			if c.waits {
				g.Expect(verdict).To(BeAssignableToTypeOf(phases.Wait("", "", 0)))
			} else {
				g.Expect(verdict).To(BeAssignableToTypeOf(phases.Missing("", "")))
			}
			g.Expect(verdict.Reason()).To(Equal(v1beta1.ReasonUpdating))
			g.Expect(verdict.Message()).To(ContainSubstring("key vault former"))
		})
	}
}

func TestDecideFormerGrantsOfObservedAccountAtOnce(t *testing.T) {
	s := newScope(observe)
	former := []keyGrant{{vault: vaultLocation{"s", "g", "former"}, principal: "p", access: v1beta1.AccessRoleAssignment}}
	NewWithT(t).Expect(s.decideFormerGrants(former)).To(BeAssignableToTypeOf(phases.Missing("", "")), "nothing is revoked")
}

// Drift is of an encryption that was complete for this spec, until it is complete again.
func TestNotEncryptedReason(t *testing.T) {
	for name, c := range map[string]struct {
		kind, reason string
		generation   int64
		want         string
	}{
		"never encrypted":               {kind: "Other", reason: v1beta1.ReasonReady, generation: 2, want: v1beta1.ReasonEncrypting},
		"encrypted for another spec":    {kind: v1beta1.ConditionEncryptionReady, reason: v1beta1.ReasonReady, generation: 1, want: v1beta1.ReasonEncrypting},
		"encrypted":                     {kind: v1beta1.ConditionEncryptionReady, reason: v1beta1.ReasonReady, generation: 2, want: v1beta1.ReasonEncryptionDrifted},
		"drifted":                       {kind: v1beta1.ConditionEncryptionReady, reason: v1beta1.ReasonEncryptionDrifted, generation: 2, want: v1beta1.ReasonEncryptionDrifted},
		"waiting for the first time":    {kind: v1beta1.ConditionEncryptionReady, reason: v1beta1.ReasonPropagating, generation: 2, want: v1beta1.ReasonEncrypting},
		"drifted, and the spec changed": {kind: v1beta1.ConditionEncryptionReady, reason: v1beta1.ReasonEncryptionDrifted, generation: 1, want: v1beta1.ReasonEncrypting},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.storage.Generation = 2
			s.storage.Status.Conditions = []metav1.Condition{{Type: c.kind, Reason: c.reason, ObservedGeneration: c.generation}}
			NewWithT(t).Expect(s.notEncryptedReason()).To(Equal(c.want))
		})
	}
}

// A former grant that cannot be revoked now blocks the reconcile only if a retry can help.
func TestIsTransient(t *testing.T) {
	g := NewWithT(t)
	g.Expect(isTransient(nil)).To(BeFalse())
	g.Expect(isTransient(errors.New("the credential cannot be read"))).To(BeTrue())
	for kind, want := range map[cloud.Kind]bool{
		cloud.Throttled: true, cloud.InProgress: true, cloud.Unreachable: true,
		cloud.Denied: false, cloud.Locked: false, cloud.OutOfScope: false, cloud.BadCredentials: false,
	} {
		g.Expect(isTransient(&cloud.Error{Kind: kind})).To(Equal(want), "%s", kind)
	}
}

func TestUnsuitableKeyIsDescribed(t *testing.T) {
	g := NewWithT(t)
	g.Expect(newScope().decideKey(&cloud.Key{Enabled: true, Type: "EC"}).Message()).To(HavePrefix("key k is EC, but"))
	g.Expect(newScope().decideKey(&cloud.Key{Enabled: true, Type: "RSA", Size: 1024}).Message()).To(HavePrefix("key k is RSA with 1024 bits, but"))
}

// An operation is read again after half the time that it has taken, within bounds.
func TestBackoffFollowsTheTimeOfTheOperation(t *testing.T) {
	ago := func(status metav1.ConditionStatus, d time.Duration) *metav1.Condition {
		return &metav1.Condition{Type: v1beta1.ConditionIdentityReady, Status: status, LastTransitionTime: metav1.NewTime(noon.Add(-d))}
	}
	for name, c := range map[string]struct {
		condition *metav1.Condition
		want      time.Duration
	}{
		"not begun":             {nil, 500 * time.Millisecond},
		"has just begun":        {ago(metav1.ConditionFalse, 0), 500 * time.Millisecond},
		"10 s ago":              {ago(metav1.ConditionFalse, 10*time.Second), 5 * time.Second},
		"an hour ago":           {ago(metav1.ConditionFalse, time.Hour), 17 * time.Second},
		"was True":              {ago(metav1.ConditionTrue, time.Hour), 500 * time.Millisecond},
		"not known, an hour":    {ago(metav1.ConditionUnknown, time.Hour), 500 * time.Millisecond},
		"an unknown begin time": {&metav1.Condition{Type: v1beta1.ConditionIdentityReady, Status: metav1.ConditionFalse}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			if c.condition != nil {
				s.storage.Status.Conditions = []metav1.Condition{*c.condition}
			}
			NewWithT(t).Expect(s.backoffOf(v1beta1.ConditionIdentityReady)).To(Equal(c.want))
		})
	}
}

// The reads of a reconcile are reserved before the first one.
func TestReadsFollowFromTheStatus(t *testing.T) {
	g := NewWithT(t)
	s := newScope()
	g.Expect(s.reads()).To(Equal(1), "the account may not exist")
	s.storage.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionStorageAccountReady, Status: metav1.ConditionFalse}}
	g.Expect(s.reads()).To(Equal(1))
	s.storage.Status.Conditions[0].Status = metav1.ConditionTrue
	g.Expect(s.reads()).To(Equal(4), "the account, the grant, the key and the key vault")
	g.Expect(newScope(observe).reads()).To(Equal(4))
}

// Access can be granted only to a principal that exists.
func TestObserveIdentityWaitsForPrincipal(t *testing.T) {
	g := NewWithT(t)
	s := newScope()
	s.account = &cloud.Account{Name: "a", HasIdentity: true}
	verdict, err := observeIdentity(t.Context(), s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verdict).To(BeAssignableToTypeOf(phases.Wait("", "", 0)))
	g.Expect(verdict.Reason()).To(Equal(v1beta1.ReasonWaitingForPrincipal))
	g.Expect(verdict.Message()).To(Equal("waiting for the principal ID of the storage account's system-assigned identity"))

	s.account.PrincipalID = "p"
	verdict, err = observeIdentity(t.Context(), s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verdict).To(BeAssignableToTypeOf(phases.Done("")))
	g.Expect(verdict.Message()).To(Equal("system-assigned identity has principal ID p"))
}

func TestDecidePropagation(t *testing.T) {
	done := func(at time.Time, status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: v1beta1.ConditionKeyAccessReady, Status: status, LastTransitionTime: metav1.NewTime(at)}}
	}
	for name, c := range map[string]struct {
		grant      *cloud.Grant
		conditions []metav1.Condition
		deadline   time.Duration
		reason     string
		atMost     time.Duration
	}{
		"just granted":              {grant: &cloud.Grant{CreatedOn: noon}, reason: v1beta1.ReasonPropagating, atMost: 2 * time.Second},
		"a minute ago":              {grant: &cloud.Grant{CreatedOn: noon.Add(-time.Minute)}, reason: v1beta1.ReasonPropagating, atMost: 33 * time.Second},
		"past the default deadline": {grant: &cloud.Grant{CreatedOn: noon.Add(-16 * time.Minute)}, reason: v1beta1.ReasonPropagationTimedOut, atMost: 6 * time.Minute},
		"past a short deadline":     {grant: &cloud.Grant{CreatedOn: noon.Add(-2 * time.Second)}, deadline: time.Second, reason: v1beta1.ReasonPropagationTimedOut, atMost: 6 * time.Minute},
		"a policy, KeyAccess ready": {conditions: done(noon.Add(-16*time.Minute), metav1.ConditionTrue), reason: v1beta1.ReasonPropagationTimedOut, atMost: 6 * time.Minute},
		"a policy, just created":    {conditions: done(noon.Add(-16*time.Minute), metav1.ConditionUnknown), reason: v1beta1.ReasonPropagating, atMost: 2 * time.Second},
		"no grant and no condition": {reason: v1beta1.ReasonPropagating, atMost: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope(func(spec *v1beta1.SecureStorageSpec) { spec.PropagationDeadline.Duration = c.deadline })
			s.grant, s.storage.Status.Conditions = c.grant, c.conditions
			verdict := s.decidePropagation()
			NewWithT(t).Expect(verdict.Reason()).To(Equal(c.reason))
			NewWithT(t).Expect(verdict.After()).To(BeNumerically("<=", c.atMost))
		})
	}
}

func TestClassifyError(t *testing.T) {
	for kind, want := range map[cloud.Kind]struct {
		reason  string
		stalled bool
		after   time.Duration
	}{
		cloud.NotFound:       {v1beta1.ReasonOperationInProgress, false, 5 * time.Second},
		cloud.GroupMissing:   {v1beta1.ReasonResourceGroupMissing, true, 5 * time.Minute},
		cloud.Throttled:      {v1beta1.ReasonThrottled, false, 7 * time.Second},
		cloud.InProgress:     {v1beta1.ReasonOperationInProgress, false, 7 * time.Second},
		cloud.Propagating:    {v1beta1.ReasonPropagating, false, 7 * time.Second},
		cloud.NameTaken:      {v1beta1.ReasonNameTaken, true, 5 * time.Minute},
		cloud.Locked:         {v1beta1.ReasonPermissionMissing, true, 5 * time.Minute},
		cloud.Disallowed:     {v1beta1.ReasonInvalidRequest, true, 5 * time.Minute},
		cloud.Denied:         {v1beta1.ReasonPermissionMissing, true, 5 * time.Minute},
		cloud.OutOfScope:     {v1beta1.ReasonCredentialsNotAllowed, true, 0},
		cloud.NoAssertion:    {v1beta1.ReasonCredentialsMissing, true, time.Minute},
		cloud.BadCredentials: {v1beta1.ReasonCredentialsInvalid, true, time.Minute},
		cloud.Invalid:        {v1beta1.ReasonInvalidRequest, true, 5 * time.Minute},
		cloud.Unreachable:    {v1beta1.ReasonCloudUnavailable, false, 7 * time.Second},
	} {
		t.Run(string(kind), func(t *testing.T) {
			g := NewWithT(t)
			failure := &cloud.Error{Kind: kind, Message: "the message", RetryAfter: want.after}
			if kind == cloud.NotFound {
				failure.RetryAfter = 0
			}
			verdict, err := newScope().classifyError(failure)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verdict.Reason()).To(Equal(want.reason))
			g.Expect(verdict.IsStalled()).To(Equal(want.stalled))
			g.Expect(verdict.After()).To(And(BeNumerically(">=", want.after*9/10), BeNumerically("<=", want.after*12/10)))
			again, _ := newScope().classifyError(failure)
			g.Expect(again.Message()).To(Equal(verdict.Message()), "the message must not change between retries")
		})
	}
	// Without a delay that Azure asks for
	for kind, want := range map[cloud.Kind]time.Duration{
		cloud.InProgress: 5 * time.Second, cloud.NotFound: 5 * time.Second, cloud.Propagating: 5 * time.Second, cloud.Unreachable: 15 * time.Second,
	} {
		verdict, err := newScope().classifyError(&cloud.Error{Kind: kind})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(verdict.After()).To(BeNumerically("~", want, want/10), "%s", kind)
	}
	// An operation that does not finish is asked for less often.
	waiting := newScope()
	for began, want := range map[time.Duration]time.Duration{time.Second: 5 * time.Second, 30 * time.Second: 15 * time.Second, time.Hour: time.Minute} {
		waiting.storage.Status.WaitingSince = &metav1.Time{Time: noon.Add(-began)}
		verdict, err := waiting.classifyError(&cloud.Error{Kind: cloud.InProgress})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(verdict.After()).To(BeNumerically("~", want, want/10))
	}
	// Errors that are not about the cloud are returned, to be retried with backoff.
	_, err := newScope().classifyError(errors.New("reading the credentials"))
	NewWithT(t).Expect(err).To(HaveOccurred())
	// During a deletion, a lock or a policy is reported as DeletionBlocked.
	for _, kind := range []cloud.Kind{cloud.Locked, cloud.Disallowed} {
		s := newScope()
		s.storage.DeletionTimestamp = &metav1.Time{Time: noon}
		verdict, _ := s.classifyError(&cloud.Error{Kind: kind})
		NewWithT(t).Expect(verdict.Reason()).To(Equal(v1beta1.ReasonDeletionBlocked))
		NewWithT(t).Expect(verdict.Message()).To(ContainSubstring("annotation fixpoint.dev/abandon=true"))
		NewWithT(t).Expect(verdict.After()).To(BeNumerically("~", time.Minute, time.Minute/10))
	}
}

func TestDelaysAreNeverTooShort(t *testing.T) {
	g := NewWithT(t)
	s := newScope(func(spec *v1beta1.SecureStorageSpec) { spec.PollInterval.Duration = 10 * time.Second })
	for range 1000 {
		g.Expect(atLeast(17 * time.Second)).To(And(BeNumerically(">=", 17*time.Second), BeNumerically("<=", 18*time.Second)))
		g.Expect(s.pollInterval()).To(And(BeNumerically(">=", 10*time.Second), BeNumerically("<=", 11*time.Second)))
		g.Expect(jitter(10 * time.Second)).To(And(BeNumerically(">=", 9*time.Second), BeNumerically("<=", 11*time.Second)))
	}
	g.Expect(jitter(0)).To(BeZero())
	g.Expect(newScope().pollInterval()).To(BeNumerically(">=", 5*time.Minute))
}

func TestPhaseOf(t *testing.T) {
	encrypted := &cloud.Account{Tags: map[string]string{cloud.OwnerTag: "uid"}, Encryption: cloud.Encryption{KeySource: cloud.CustomerManaged}}
	for name, c := range map[string]struct {
		summary     phases.Summary
		account     *cloud.Account
		accountRead bool
		before      v1beta1.SecureStorageEncryption
		want        v1beta1.Phase
	}{
		"deleting":                   {summary: phases.Summary{Deleting: true, Ready: true}, want: v1beta1.PhaseDeleting},
		"suspended":                  {summary: phases.Summary{Suspended: true}, want: v1beta1.PhaseSuspended},
		"ready":                      {summary: phases.Summary{Ready: true}, want: v1beta1.PhaseReady},
		"in progress":                {accountRead: true, want: v1beta1.PhaseProvisioning},
		"stalled":                    {summary: phases.Summary{Stalled: true}, accountRead: true, want: v1beta1.PhaseFailed},
		"encrypted, but stalled":     {summary: phases.Summary{Stalled: true}, accountRead: true, account: encrypted, want: v1beta1.PhaseDegraded},
		"not read, encrypted before": {before: v1beta1.EncryptionCustomerKey, want: v1beta1.PhaseDegraded},
		"read, deleted":              {before: v1beta1.EncryptionCustomerKey, accountRead: true, summary: phases.Summary{Stalled: true}, want: v1beta1.PhaseFailed},
		"unmanaged account":          {accountRead: true, account: &cloud.Account{Encryption: encrypted.Encryption}, want: v1beta1.PhaseProvisioning},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.account, s.accountRead, s.storage.Status.Encryption = c.account, c.accountRead, c.before
			NewWithT(t).Expect(phaseOf(s, c.summary)).To(Equal(c.want))
		})
	}
}

func TestStatusKeepsLastKnownValues(t *testing.T) {
	g := NewWithT(t)
	s := newScope()
	s.storage.Status = v1beta1.SecureStorageStatus{AccountID: "id", PrincipalID: "p", GrantID: "grant", Encryption: v1beta1.EncryptionCustomerKey, KeyURI: "uri", KeyVersion: "1", Endpoint: "e"}
	// given a cloud that could not be read: the last known values stay
	status := desiredStatus(s, phases.Summary{}).Status
	g.Expect(*status.KeyVersion).To(Equal("1"))
	g.Expect(*status.Endpoint).To(Equal("e"))
	// given an account that was deleted: only its IDs stay
	s.accountRead = true
	status = desiredStatus(s, phases.Summary{}).Status
	g.Expect(status.KeyVersion).To(BeNil())
	g.Expect(status.Encryption).To(BeNil())
	g.Expect(*status.AccountID).To(Equal("id"))
	g.Expect(*status.GrantID).To(Equal("grant"))
	// given an account that is created again: its ID is set once it is provisioned
	s.storage.Status.AccountID = ""
	s.account = &cloud.Account{ID: "new", State: "Creating", Tags: map[string]string{cloud.OwnerTag: "uid"}, Encryption: cloud.Encryption{KeySource: cloud.PlatformKeys}}
	g.Expect(desiredStatus(s, phases.Summary{}).Status.AccountID).To(BeNil())
	s.account.State = "Succeeded"
	g.Expect(*desiredStatus(s, phases.Summary{}).Status.AccountID).To(Equal("new"))
}
