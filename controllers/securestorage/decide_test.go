package securestorage

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
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
		"an identity":    {cloud.Encryption{KeySource: cloud.CustomerManaged, VaultURI: "https://v.vault.azure.net", KeyName: "k", UserIdentity: "id"}, []string{"encryption.identity.userAssignedIdentity"}},
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
			g, s := NewWithT(t), newScope()
			s.account = &cloud.Account{PrincipalID: "p", Encryption: c.now}
			g.Expect(s.wasVaultAccepted()).To(BeFalse(), "without a role assignment")
			s.grant = &cloud.Grant{ID: "of a user"}
			g.Expect(s.wasVaultAccepted()).To(Equal(c.want))
			s.storage.Status.Grants = []v1beta1.SecureStorageGrant{{VaultID: vaultOf(s.storage).id(), PrincipalID: "p", AccessType: v1beta1.AccessPolicy}}
			g.Expect(s.wasVaultAccepted()).To(BeFalse(), "with an access policy")
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
			if wait, ok := verdict.(phases.Verdict); ok {
				g.Expect(wait.After()).To(BeNumerically("~", 5*time.Second, 500*time.Millisecond))
			}
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
		"encrypted, a grant is left":    {kind: v1beta1.ConditionEncryptionReady, reason: v1beta1.ReasonGrantNotRevoked, generation: 2, want: v1beta1.ReasonEncryptionDrifted},
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
		NewWithT(t).Expect(verdict.After()).To(BeNumerically("~", time.Minute, time.Minute/10))
	}
}

// Azure throttles whoever does not wait for as long as it asks for.
func TestErrorsAreNotRetriedBeforeAzureAsks(t *testing.T) {
	const asked, tries = 7 * time.Second, 100
	for _, kind := range []cloud.Kind{cloud.Throttled, cloud.InProgress, cloud.NotFound, cloud.Propagating, cloud.Unreachable} {
		for i := range tries {
			s := newScope()
			s.storage.UID = types.UID(strconv.Itoa(i))
			verdict, err := s.classifyError(&cloud.Error{Kind: kind, RetryAfter: asked})
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(verdict.After()).To(BeNumerically(">=", asked), "%s", kind)
		}
	}
}

// Objects that were created together do not stay together, and an object does not have the same delay each time.
func TestDelaysDependOnObjectAndTime(t *testing.T) {
	for name, delay := range map[string]func(*scope) time.Duration{
		"jitter":        func(s *scope) time.Duration { return s.jitter(time.Minute) },
		"poll interval": (*scope).pollInterval,
		"throttled":     func(s *scope) time.Duration { return s.atLeast(time.Minute) },
	} {
		g := NewWithT(t)
		uids, times := map[time.Duration]bool{}, map[time.Duration]bool{}
		for i := range 100 {
			s := newScope()
			s.clock = clocktesting.NewFakePassiveClock(noon.Add(time.Duration(i) * time.Second))
			times[delay(s)] = true
			s = newScope()
			s.storage.UID = types.UID(strconv.Itoa(i))
			uids[delay(s)] = true
			g.Expect(delay(s)).To(Equal(delay(s)), name)
		}
		g.Expect(uids).To(HaveLen(100), name)
		g.Expect(times).To(HaveLen(100), name)
	}
}

func TestDelaysAreNeverTooShort(t *testing.T) {
	g := NewWithT(t)
	s := newScope(func(spec *v1beta1.SecureStorageSpec) { spec.PollInterval.Duration = 10 * time.Second })
	for i := range 1000 {
		s.storage.UID = types.UID(strconv.Itoa(i))
		g.Expect(s.atLeast(17 * time.Second)).To(And(BeNumerically(">=", 17*time.Second), BeNumerically("<=", 18*time.Second)))
		g.Expect(s.pollInterval()).To(And(BeNumerically(">=", 10*time.Second), BeNumerically("<=", 11*time.Second)))
		g.Expect(s.jitter(10 * time.Second)).To(And(BeNumerically(">=", 9*time.Second), BeNumerically("<=", 11*time.Second)))
	}
	g.Expect(s.jitter(0)).To(BeZero())
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

// asStored is a desired status as the API server stores it.
func asStored(g *WithT, s *scope, summary phases.Summary) v1beta1.SecureStorageStatus {
	raw, err := json.Marshal(desiredStatus(s, summary).Status)
	g.Expect(err).NotTo(HaveOccurred())
	var stored v1beta1.SecureStorageStatus
	g.Expect(json.Unmarshal(raw, &stored)).To(Succeed())
	return stored
}

// The status has what was read, and the last known values of what was not.
func TestStatusShowsWhatWasRead(t *testing.T) {
	// byUser is no grant that is recorded.
	const byUser = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v/providers/Microsoft.Authorization/roleAssignments/1"
	owned := map[string]string{cloud.OwnerTag: "uid"}
	account := func(tags map[string]string, source string) *cloud.Account {
		return &cloud.Account{
			ID: "id", State: "Succeeded", PrincipalID: "p", Tags: tags, Endpoints: cloud.Endpoints{Blob: "blob", Web: "web"},
			Encryption: cloud.Encryption{KeySource: source, CurrentKeyID: "uri", CurrentVersion: "1"},
		}
	}
	before := v1beta1.SecureStorageStatus{AccountID: "old", PrincipalID: "old", GrantID: byUser, Endpoint: "old", Encryption: v1beta1.EncryptionCustomerKey, KeyURI: "old", KeyVersion: "old"}
	policies := &cloud.Vault{ID: "vault", Policies: map[string][]string{"p": {"all"}}}
	desired := []v1beta1.SecureStorageGrant{{VaultID: vaultLocation{"s", "g", "v"}.id(), PrincipalID: "p", AccessType: v1beta1.AccessPolicy}}
	for name, c := range map[string]struct {
		edit func(*scope)
		want v1beta1.SecureStorageStatus
	}{
		"not read": {func(s *scope) { s.accountRead = false }, before},
		"missing": {func(*scope) {}, v1beta1.SecureStorageStatus{AccountID: "old", PrincipalID: "old", GrantID: byUser, Grants: []v1beta1.SecureStorageGrant{
			{VaultID: vaultLocation{"s", "g", "v"}.id(), AccessType: v1beta1.AccessRoleAssignment}}}},
		"managed": {func(s *scope) { s.account = account(owned, cloud.CustomerManaged) }, v1beta1.SecureStorageStatus{
			AccountID: "id", PrincipalID: "p", GrantID: byUser, Endpoint: "blob", Encryption: v1beta1.EncryptionCustomerKey, KeyURI: "uri", KeyVersion: "1"}},
		"with the keys of Microsoft": {func(s *scope) { s.account = account(owned, cloud.PlatformKeys) }, v1beta1.SecureStorageStatus{
			AccountID: "id", PrincipalID: "p", GrantID: byUser, Endpoint: "blob", Encryption: v1beta1.EncryptionPlatformKeys}},
		"with a role of a user": {func(s *scope) { s.account, s.grant = account(owned, cloud.CustomerManaged), &cloud.Grant{ID: "grant"} }, v1beta1.SecureStorageStatus{
			AccountID: "id", PrincipalID: "p", GrantID: "grant", Endpoint: "blob", Encryption: v1beta1.EncryptionCustomerKey, KeyURI: "uri", KeyVersion: "1"}},
		"with a policy": {func(s *scope) {
			byPolicy(&s.storage.Spec)
			s.account, s.vault = account(owned, cloud.CustomerManaged), policies
		}, v1beta1.SecureStorageStatus{
			AccountID: "id", PrincipalID: "p", GrantID: "vault", Grants: desired, Endpoint: "blob", Encryption: v1beta1.EncryptionCustomerKey, KeyURI: "uri", KeyVersion: "1"}},
		"without a policy": {func(s *scope) {
			byPolicy(&s.storage.Spec)
			s.account, s.vault = account(owned, cloud.CustomerManaged), &cloud.Vault{ID: "vault"}
		}, v1beta1.SecureStorageStatus{
			AccountID: "id", PrincipalID: "p", GrantID: byUser, Endpoint: "blob", Encryption: v1beta1.EncryptionCustomerKey, KeyURI: "uri", KeyVersion: "1"}},
		"with a policy of which the vault was not read": {func(s *scope) {
			byPolicy(&s.storage.Spec)
			s.account, s.granted = account(owned, cloud.CustomerManaged), true
		}, v1beta1.SecureStorageStatus{
			AccountID: "id", PrincipalID: "p", GrantID: byUser, Grants: desired, Endpoint: "blob", Encryption: v1beta1.EncryptionCustomerKey, KeyURI: "uri", KeyVersion: "1"}},
		"of another owner": {func(s *scope) { s.account = account(map[string]string{cloud.OwnerTag: "other"}, cloud.CustomerManaged) }, v1beta1.SecureStorageStatus{
			AccountID: "old", PrincipalID: "old", GrantID: byUser}},
		"observed": {func(s *scope) { observe(&s.storage.Spec); s.account = account(nil, cloud.CustomerManaged) }, v1beta1.SecureStorageStatus{
			AccountID: "old", PrincipalID: "old", GrantID: byUser, Endpoint: "blob", Encryption: v1beta1.EncryptionCustomerKey, KeyURI: "uri", KeyVersion: "1"}},
		"observed, and missing": {func(s *scope) { observe(&s.storage.Spec) }, v1beta1.SecureStorageStatus{AccountID: "old", PrincipalID: "old", GrantID: byUser}},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), newScope()
			s.storage.Annotations = map[string]string{v1beta1.AnnotationReconcileRequest: "now"}
			s.storage.Status, s.accountRead = before, true
			c.edit(s)
			conditions := []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", ObservedGeneration: 7, LastTransitionTime: metav1.NewTime(noon.Local())}}
			want := c.want
			want.ObservedGeneration, want.Phase, want.Conditions, want.AccountName, want.LastHandledReconcileAt = 7, v1beta1.PhaseReady, conditions, accountName(s.storage), "now"
			g.Expect(asStored(g, s, phases.Summary{ObservedGeneration: 7, Ready: true, Conditions: conditions})).To(Equal(want))
			for i, grant := range desiredStatus(s, phases.Summary{}).Status.Grants {
				g.Expect(grant.PrincipalID != nil).To(Equal(want.Grants[i].PrincipalID != ""), "the schema refuses an empty principal")
			}
		})
	}
}

// The time of the phase that blocks, from which delays follow, is not that of Ready, which changes earlier.
func TestWaitingSince(t *testing.T) {
	at := func(kind string, status metav1.ConditionStatus, minutes int) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute).Local())}
	}
	g, s := NewWithT(t), newScope()
	waiting := []metav1.Condition{
		at(v1beta1.ConditionReady, metav1.ConditionFalse, 0), at(v1beta1.ConditionStorageAccountReady, metav1.ConditionTrue, 1),
		at(v1beta1.ConditionIdentityReady, metav1.ConditionUnknown, 2), at(v1beta1.ConditionKeyAccessReady, metav1.ConditionFalse, 3), at(v1beta1.ConditionEncryptionReady, metav1.ConditionFalse, 4),
	}
	g.Expect(asStored(g, s, phases.Summary{Conditions: waiting}).WaitingSince).To(Equal(&waiting[3].LastTransitionTime))
	g.Expect(asStored(g, s, phases.Summary{Conditions: waiting[:3]}).WaitingSince).To(BeNil())
}

// The phase of an account that is only observed follows from what was read.
func TestPhaseOfObserved(t *testing.T) {
	g, s := NewWithT(t), newScope(observe)
	g.Expect(phaseOf(s, phases.Summary{})).To(Equal(v1beta1.PhaseProvisioning), "nothing is known")
	s.accountRead = true
	g.Expect(phaseOf(s, phases.Summary{})).To(Equal(v1beta1.PhasePending))
	s.account = &cloud.Account{Encryption: cloud.Encryption{KeySource: cloud.PlatformKeys}}
	g.Expect(phaseOf(s, phases.Summary{})).To(Equal(v1beta1.PhaseProvisioning))
	s.account.Encryption.KeySource = cloud.CustomerManaged
	g.Expect(phaseOf(s, phases.Summary{})).To(Equal(v1beta1.PhaseDegraded))
	s = newScope()
	s.accountRead, s.account = true, &cloud.Account{Tags: map[string]string{cloud.OwnerTag: "uid"}, Encryption: cloud.Encryption{KeySource: cloud.PlatformKeys}}
	g.Expect(phaseOf(s, phases.Summary{})).To(Equal(v1beta1.PhaseProvisioning))
	s.account = nil
	g.Expect(phaseOf(s, phases.Summary{})).To(Equal(v1beta1.PhaseProvisioning))
}

// The time of the grant in Azure counts, and without one, that of the phase that has ended.
func TestGrantedAt(t *testing.T) {
	ready := func(status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: v1beta1.ConditionKeyAccessReady, Status: status, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}}
	}
	for name, c := range map[string]struct {
		grant      *cloud.Grant
		conditions []metav1.Condition
		want       time.Time
	}{
		"a role":                   {&cloud.Grant{CreatedOn: noon.Add(-time.Minute)}, ready(metav1.ConditionTrue), noon.Add(-time.Minute)},
		"a role without a time":    {&cloud.Grant{}, ready(metav1.ConditionTrue), noon.Add(-time.Hour)},
		"a policy":                 {nil, ready(metav1.ConditionTrue), noon.Add(-time.Hour)},
		"a policy, being set":      {nil, ready(metav1.ConditionFalse), noon},
		"a policy, and no status":  {nil, nil, noon},
		"no time, and not decided": {&cloud.Grant{}, ready(metav1.ConditionUnknown), noon},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.grant, s.storage.Status.Conditions = c.grant, c.conditions
			NewWithT(t).Expect(s.grantedAt()).To(Equal(c.want))
		})
	}
}

// A grant propagates within the deadline, which passes after its last moment.
func TestPropagationDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		age, deadline time.Duration
		want          string
		after         time.Duration
	}{
		"a moment ago":            {age: 0, want: "wait: Propagating", after: 1500 * time.Millisecond},
		"ten seconds ago":         {age: 10 * time.Second, want: "wait: Propagating", after: 5 * time.Second},
		"at the default deadline": {age: 15 * time.Minute, want: "wait: Propagating", after: 30 * time.Second},
		"past it":                 {age: 15*time.Minute + 1, want: "stalled: PropagationTimedOut", after: 5*time.Minute + 15*time.Second},
		"a negative deadline":     {age: 15 * time.Minute, deadline: -1, want: "wait: Propagating", after: 30 * time.Second},
		"a longer deadline":       {age: time.Hour, deadline: time.Hour, want: "wait: Propagating", after: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), newScope(func(spec *v1beta1.SecureStorageSpec) { spec.PropagationDeadline.Duration = c.deadline })
			s.grant = &cloud.Grant{CreatedOn: noon.Add(-c.age)}
			verdict := s.decidePropagation()
			g.Expect(outcome(verdict, nil)).To(Equal(c.want))
			g.Expect(verdict.After()).To(BeNumerically("~", c.after, c.after/10))
			if verdict.IsWait() {
				g.Expect(verdict.Message()).To(Equal("waiting for the grant on key vault v to propagate in Azure, which takes up to ten minutes"))
			}
		})
	}
}

// What Azure refuses is said with what to do.
func TestMessagesOfErrorsNameTheRemedy(t *testing.T) {
	for name, c := range map[string]struct {
		failure  cloud.Error
		deleting bool
		want     string
	}{
		"throttled":             {cloud.Error{Kind: cloud.Throttled}, false, "throttled by Azure; retrying"},
		"in progress":           {cloud.Error{Kind: cloud.InProgress, Message: "m"}, false, ": m; waiting for the operation in progress to finish"},
		"not found":             {cloud.Error{Kind: cloud.NotFound, Message: "m"}, false, ": m; the resource was deleted or moved during the reconcile; retrying"},
		"propagating":           {cloud.Error{Kind: cloud.Propagating, Message: "m"}, false, ": m; waiting for the change to propagate in Azure, which takes several minutes"},
		"unreachable":           {cloud.Error{Kind: cloud.Unreachable, Message: "m"}, false, ": m; retrying"},
		"no group":              {cloud.Error{Kind: cloud.GroupMissing, Message: "m"}, false, ": m; create resource group g in subscription s, or use a credential that has access to this subscription"},
		"name taken":            {cloud.Error{Kind: cloud.NameTaken, Message: "m", Code: "Taken"}, false, "storage account name a is already taken in Azure, or reserved by a deleted account that can be restored (Taken); create a SecureStorage with another spec.accountName, or without one"},
		"locked":                {cloud.Error{Kind: cloud.Locked, Message: "m"}, false, ": m; remove the lock or deny assignment"},
		"locked, deleting":      {cloud.Error{Kind: cloud.Locked, Message: "m"}, true, ": m; remove the lock, deny assignment or policy"},
		"disallowed":            {cloud.Error{Kind: cloud.Disallowed, Message: "m"}, false, ": m; correct the spec, or change the Azure policy"},
		"out of scope":          {cloud.Error{Kind: cloud.OutOfScope, Message: "m"}, false, ": m; set spec.provider.workloadIdentity or spec.provider.credentialsSecretRef, or have an administrator extend the flag --ambient-credentials of the manager"},
		"denied for an account": {cloud.Error{Kind: cloud.Denied, Message: "m", Target: cloud.OnAccount}, false, ": m; assign the role Storage Account Contributor on resource group g to the identity of the credential"},
		"denied for a vault":    {cloud.Error{Kind: cloud.Denied, Message: "m", Target: cloud.OnVault}, false, ": m; assign the role Key Vault Reader on key vault v to the identity of the credential (Key Vault Contributor if spec.access.type is AccessPolicy)"},
		"denied for roles":      {cloud.Error{Kind: cloud.Denied, Message: "m", Target: cloud.OnRoles}, false, ": m; assign the role Role Based Access Control Administrator on key vault v to the identity of the credential"},
		"no assertion":          {cloud.Error{Kind: cloud.NoAssertion, Message: "m"}, false, "m"},
		"bad credentials":       {cloud.Error{Kind: cloud.BadCredentials, Message: "m"}, false, ": m; have an administrator renew the credential of the manager, and check that it belongs to the tenant of the subscription"},
		"invalid":               {cloud.Error{Kind: cloud.Invalid, Message: "m"}, false, ": m; correct the spec"},
		"no such location":      {cloud.Error{Kind: cloud.Invalid, Message: "m", Code: "LocationNotAvailableForResourceType"}, false, ": m (LocationNotAvailableForResourceType); create a SecureStorage with another spec.provider.location"},
		"disabled":              {cloud.Error{Kind: cloud.Invalid, Message: "m", Code: "ReadOnlyDisabledSubscription"}, false, ": m (ReadOnlyDisabledSubscription); enable the subscription"},
		"not registered":        {cloud.Error{Kind: cloud.Invalid, Message: "m", Code: "SubscriptionNotRegistered"}, false, ": m (SubscriptionNotRegistered); register the resource provider in the subscription with 'az provider register'"},
		"not registered at all": {cloud.Error{Kind: cloud.Invalid, Message: "m", Code: "MissingSubscriptionRegistration"}, false, ": m (MissingSubscriptionRegistration); register the resource provider in the subscription with 'az provider register'"},
		"too many accounts":     {cloud.Error{Kind: cloud.Invalid, Message: "m", Code: "MaxStorageAccountsCountPerSubscriptionExceeded"}, false, ": m (MaxStorageAccountsCountPerSubscriptionExceeded); have the limit raised, or delete what is not needed in the subscription"},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), newScope(named("a"))
			if c.deleting {
				deletedFor(s, 0)
			}
			verdict, err := s.classifyError(&c.failure)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verdict.Message()).To(Equal(c.want))
		})
	}
}

// Only a Secret has a credential that its owner renews.
func TestInvalidCredentialsNameTheRemedy(t *testing.T) {
	for want, edit := range map[string]func(*v1beta1.SecureStorageSpec){
		": m; renew the credential in Secret own (spec.provider.credentialsSecretRef), and check that it belongs to the tenant of the subscription": adopt,
		": m; correct spec.provider.workloadIdentity, or the issuer, the subject and the audience of the federated credential, " +
			"and check that it belongs to the tenant of the subscription": func(s *v1beta1.SecureStorageSpec) {
			s.Provider.WorkloadIdentity = &v1beta1.SecureStorageWorkloadIdentity{}
		},
	} {
		g := NewWithT(t)
		verdict, err := newScope(edit).classifyError(&cloud.Error{Kind: cloud.BadCredentials, Message: "m"})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(verdict.Message()).To(Equal(want))
	}
}

// An account that is only observed needs no role that permits writes.
func TestObservingAsksForRolesThatRead(t *testing.T) {
	for target, role := range map[cloud.Target]string{
		cloud.OnAccount: "Reader on resource group g",
		cloud.OnVault:   "Key Vault Reader on key vault v",
		cloud.OnRoles:   "Key Vault Reader on key vault v",
	} {
		t.Run(string(target), func(t *testing.T) {
			g := NewWithT(t)
			verdict, err := newScope(observe).classifyError(&cloud.Error{Kind: cloud.Denied, Message: "m", Target: target})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verdict.Reason()).To(Equal(v1beta1.ReasonPermissionMissing))
			g.Expect(verdict.Message()).To(Equal(": m; assign the role " + role + " to the identity of the credential"))
		})
	}
}

// The encryption is as desired, differs, or is refused by Azure, which may be a matter of time.
func TestEncrypts(t *testing.T) {
	refused := fakecloud.Fault{Method: http.MethodPatch, Status: http.StatusBadRequest, Code: "KeyVaultAuthenticationFailure"}
	noVault := fakecloud.Fault{Method: http.MethodGet, Resource: "/vaults/fixpoint-demo", Status: http.StatusNotFound, Code: "ResourceNotFound"}
	vaultDown := fakecloud.Fault{Method: http.MethodGet, Resource: "/vaults/fixpoint-demo", Status: http.StatusServiceUnavailable, Code: "ServerTimeout"}
	revokeDown := fakecloud.Fault{Method: http.MethodDelete, Status: http.StatusServiceUnavailable, Code: "ServerTimeout"}
	late := func(s *scope) { s.grant.CreatedOn = s.clock.Now().Add(-time.Hour) }
	for name, c := range map[string]struct {
		isEncrypted bool
		faults      []fakecloud.Fault
		change      func(*scope)
		want        string
		// refused is the number of a request that the transport refuses, or 0.
		refused int
		// vaults are the key vaults with a grant afterwards.
		vaults   []string
		patches  int
		requests int
	}{
		"encrypted":                         {isEncrypted: true, want: "done", vaults: []string{"fixpoint-demo"}, requests: 1},
		"another key":                       {want: "done", vaults: []string{"fixpoint-demo"}, patches: 1, requests: 2},
		"refused":                           {faults: []fakecloud.Fault{refused}, want: "wait: Propagating", vaults: []string{"fixpoint-demo"}, patches: 1, requests: 2},
		"refused for long":                  {faults: []fakecloud.Fault{refused}, change: late, want: "stalled: PropagationTimedOut", vaults: []string{"fixpoint-demo"}, patches: 1, requests: 3},
		"refused for long, after a read":    {faults: []fakecloud.Fault{refused}, change: func(s *scope) { late(s); s.vault = &cloud.Vault{} }, want: "stalled: PropagationTimedOut", vaults: []string{"fixpoint-demo"}, patches: 1, requests: 2},
		"refused, since the vault is gone":  {faults: []fakecloud.Fault{refused, noVault}, change: late, want: "stalled: VaultMissing", vaults: []string{"fixpoint-demo"}, patches: 1, requests: 3},
		"refused, and the vault is unknown": {faults: []fakecloud.Fault{refused, vaultDown}, change: late, want: "wait: CloudUnavailable", vaults: []string{"fixpoint-demo"}, patches: 1, requests: 3},
		"refused, and then the transport":   {faults: []fakecloud.Fault{refused}, change: late, refused: 3, want: "error: reading the key vault: write refused: another replica holds the Lease", vaults: []string{"fixpoint-demo"}, patches: 1, requests: 2},
		"refused, and nothing is revoked":   {faults: []fakecloud.Fault{refused, revokeDown}, want: "wait: CloudUnavailable", vaults: []string{"fixpoint-demo", "second"}, patches: 1, requests: 2},
		"not permitted":                     {faults: []fakecloud.Fault{{Method: http.MethodPatch, Status: http.StatusForbidden, Code: "AuthorizationFailed"}}, want: "stalled: PermissionMissing", vaults: []string{"fixpoint-demo", "second"}, patches: 1, requests: 1},
		"nothing is revoked":                {faults: []fakecloud.Fault{revokeDown}, want: "wait: CloudUnavailable", vaults: []string{"fixpoint-demo", "second"}, patches: 1, requests: 2},
	} {
		t.Run(name, func(t *testing.T) {
			// given an account with a grant on a former key vault
			f := newVaultsFixture(t, inVault("second"))
			f.runUntilReady()
			f.edit(inVault("fixpoint-demo"))
			for len(f.grants()) < 2 {
				f.reconcileTimes(1)
			}
			if !c.isEncrypted {
				f.Expect(f.server.UsePlatformKeys(f.name())).To(Succeed())
			} else {
				f.clock.Step(time.Minute)
				f.Expect(f.server.UseKey(f.name(), f.demo.Vault, f.demo.Key, "")).To(Succeed())
			}
			f.clock.Step(time.Minute)
			s := f.connected()
			f.Expect(observed(observeKeyAccess(t.Context(), s))).To(Equal("done"))
			s.vault = nil
			if c.change != nil {
				c.change(s)
			}
			for _, fault := range c.faults {
				f.server.Inject(fault)
			}
			patches, before := 0, f.calls
			requests := 0
			f.onRequest = func(r *http.Request) {
				if r.Method == http.MethodPatch {
					patches++
				}
			}
			f.refuse = func(*http.Request) error {
				if requests++; requests == c.refused {
					return &lease.Error{Reason: lease.Lost}
				}
				return nil
			}
			// when
			f.Expect(outcome(ensureEncryption(t.Context(), s))).To(Equal(c.want))
			// then
			f.Expect(patches).To(Equal(c.patches))
			f.Expect(f.calls - before).To(Equal(c.requests))
			f.clock.Step(time.Minute)
			f.Expect(f.grants()).To(Equal(c.vaults))
		})
	}
}

// onceUnreadable is a reader whose first read fails.
type onceUnreadable struct {
	client.Reader
	reads *int
}

// Get implements [client.Reader].
func (o onceUnreadable) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if *o.reads++; *o.reads == 1 {
		return errors.New("the API server does not respond")
	}
	return o.Reader.Get(ctx, key, into, options...)
}

// A reconcile connects, reads its credential and reads its account once.
func TestConnectsOnce(t *testing.T) {
	f := newFixture(t, fastCloud(), withSecret("own"))
	reads := 0
	f.process.access.secrets = onceUnreadable{f, &reads}
	s := f.scope()
	f.Expect(s.connectAndRead(t.Context())).To(MatchError(ContainSubstring("the API server does not respond")))
	f.Expect(reads).To(Equal(1))
	f.Expect(s.credential).To(BeNil())
	f.Expect(s.accounts).To(BeNil())
	f.Expect(s.connectAndRead(t.Context())).To(Succeed())
	accounts, vaults, calls := s.accounts, s.vaults, f.calls
	f.Expect(s.connectAndRead(t.Context())).To(Succeed())
	f.Expect(s.accounts).To(BeIdenticalTo(accounts))
	f.Expect(s.vaults).To(BeIdenticalTo(vaults))
	f.Expect(reads).To(Equal(2))
	f.Expect(f.calls).To(Equal(calls))
	f.Expect(s.readCredential(t.Context())).To(Succeed())
	f.Expect(reads).To(Equal(2))

	withoutEndpoint := fakecloud.CloudAt("https://fake.test")
	withoutEndpoint.Services = nil
	f.start(cloud.New(cloud.Config{Cloud: withoutEndpoint, Transport: f, Clock: f.clock}))
	f.Expect(f.scope().connect(t.Context())).To(MatchError(ContainSubstring("creating a client for subscription " + f.demo.Subscription)))
}

// The reads of the key vault are reserved once: by the connection, or as soon as the account exists.
func TestReservesTheReadsOfAReconcile(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*v1beta1.SecureStorage)
		left int
	}{
		"an account that may not exist": {edit: func(*v1beta1.SecureStorage) {}, left: 3},
		"an account that exists": {edit: func(s *v1beta1.SecureStorage) {
			s.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionStorageAccountReady, Status: metav1.ConditionTrue}}
		}, left: 4},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fastCloud())
			const atOnce = 8
			f.start(cloud.New(cloud.Config{Cloud: fakecloud.CloudAt("https://fake.test"), Transport: f, Clock: f.clock, Limits: cloud.Limits{ReadsPerSecond: 0.001, ReadsBurst: atOnce}}))
			c.edit(f.storage)
			s := f.connected()
			f.Expect(s.reserveVaultReads()).To(Succeed())
			f.Expect(s.accounts.ReserveReads("other", c.left)).To(Succeed())
			f.Expect(s.accounts.ReserveReads("next", 1)).NotTo(Succeed())
			// and where none are left, nothing is read
			f.storage.Status.Conditions = nil
			next, calls := f.scope(), f.calls
			next.storage.Spec.AccountName = "next"
			next.accounts, next.account = s.accounts, &cloud.Account{PrincipalID: "p"}
			f.Expect(observed(observeKeyAccess(t.Context(), next))).To(Equal("wait: Throttled"))
			f.Expect(f.calls).To(Equal(calls))
		})
	}
}

// A delay that Azure asks for is varied by a tenth, of at least ten milliseconds and at most a second.
func TestDelayOfAzureIsVaried(t *testing.T) {
	for asked, most := range map[time.Duration]time.Duration{0: 10 * time.Millisecond, time.Second: 100 * time.Millisecond, time.Hour: time.Second} {
		longest := time.Duration(0)
		for i := range 500 {
			s := newScope()
			s.storage.UID = types.UID(strconv.Itoa(i))
			delay := s.atLeast(asked)
			NewWithT(t).Expect(delay).To(And(BeNumerically(">=", asked), BeNumerically("<", asked+most)))
			longest = max(longest, delay-asked)
		}
		NewWithT(t).Expect(longest).To(BeNumerically(">", most/2))
	}
}
