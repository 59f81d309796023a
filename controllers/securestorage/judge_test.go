package securestorage

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newScope is a pass over a SecureStorage in the vault "v", at noon.
func newScope(edits ...func(*v1alpha1.SecureStorageSpec)) *scope {
	storage := &v1alpha1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Name: "invoices", Namespace: "billing", UID: "uid", Generation: 1},
		Spec: v1alpha1.SecureStorageSpec{
			Provider: v1alpha1.SecureStorageProvider{SubscriptionID: "s", ResourceGroup: "g", Location: "westeurope"},
			SKU:      v1alpha1.SKUStandardLRS,
			Key:      v1alpha1.SecureStorageKey{Vault: &v1alpha1.SecureStorageVault{Name: "v"}, KeyName: "k"},
		},
	}
	for _, edit := range edits {
		edit(&storage.Spec)
	}
	return &scope{storage: storage, clock: clocktesting.NewFakePassiveClock(noon)}
}

func TestVaultOf(t *testing.T) {
	for name, c := range map[string]struct {
		key  v1alpha1.SecureStorageKey
		want vaultLocation
	}{
		"by name":      {v1alpha1.SecureStorageKey{Vault: &v1alpha1.SecureStorageVault{Name: "v"}}, vaultLocation{"s", "g", "v"}},
		"in its group": {v1alpha1.SecureStorageKey{Vault: &v1alpha1.SecureStorageVault{Name: "v", ResourceGroup: "h"}}, vaultLocation{"s", "h", "v"}},
		"by id":        {v1alpha1.SecureStorageKey{VaultID: "/subscriptions/t/resourceGroups/h/providers/Microsoft.KeyVault/vaults/w"}, vaultLocation{"t", "h", "w"}},
		"in any case":  {v1alpha1.SecureStorageKey{VaultID: "/SUBSCRIPTIONS/T/resourcegroups/H/providers/microsoft.keyvault/VAULTS/W/"}, vaultLocation{"T", "H", "W"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope(func(spec *v1alpha1.SecureStorageSpec) { spec.Key = c.key })
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
		"the same":        {cloud.Encryption{KeySource: cloud.CustomerManaged, VaultURI: "https://v.vault.azure.net", KeyName: "k", CurrentVersion: "1"}, nil},
		"other spellings": {cloud.Encryption{KeySource: "microsoft.keyvault", VaultURI: "https://V.vault.azure.net/", KeyName: "K"}, nil},
		"nothing":         {cloud.Encryption{}, []string{"encryption.keySource", "encryption.keyVaultUri", "encryption.keyName"}},
		"a pinned one":    {cloud.Encryption{KeySource: cloud.CustomerManaged, VaultURI: "https://v.vault.azure.net", KeyName: "k", KeyVersion: "1"}, []string{"encryption.keyVersion"}},
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

func TestJudgeOwner(t *testing.T) {
	for name, c := range map[string]struct {
		tags      map[string]string
		principal string
		edit      func(*v1alpha1.SecureStorageSpec)
		ours      bool
	}{
		"with our tag":                     {tags: map[string]string{cloud.OwnerTag: "uid"}, ours: true},
		"with our tag in other letters":    {tags: map[string]string{"Fixpoint.dev-Owner": "uid"}, ours: true},
		"of another":                       {tags: map[string]string{cloud.OwnerTag: "other"}},
		"of another, to adopt":             {tags: map[string]string{cloud.OwnerTag: "other"}, edit: adopt},
		"of another, with our principal":   {tags: map[string]string{cloud.OwnerTag: "other"}, principal: "noted"},
		"of nobody":                        {},
		"of nobody, with our principal":    {principal: "NOTED", ours: true},
		"of nobody, with no principal":     {principal: ""},
		"of nobody, with another's":        {principal: "else"},
		"of nobody, to adopt":              {edit: adopt, ours: true},
		"of nobody elsewhere, not adopted": {edit: func(s *v1alpha1.SecureStorageSpec) { adopt(s); s.Provider.Location = "eastus" }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			if c.edit != nil {
				c.edit(&s.storage.Spec)
			}
			s.storage.Status.PrincipalID = "noted"
			s.account = &cloud.Account{Name: "a", Location: "westeurope", Tags: c.tags, PrincipalID: c.principal}
			verdict, ours := s.judgeOwner()
			NewWithT(t).Expect(ours).To(Equal(c.ours))
			if !ours {
				NewWithT(t).Expect(verdict.Reason()).To(Equal(v1alpha1.ReasonAccountNotOwned))
			}
		})
	}
}

func TestJudgePropagation(t *testing.T) {
	done := func(at time.Time, status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionKeyAccessReady, Status: status, LastTransitionTime: metav1.NewTime(at)}}
	}
	for name, c := range map[string]struct {
		grant      *cloud.Grant
		conditions []metav1.Condition
		deadline   time.Duration
		reason     string
		atMost     time.Duration
	}{
		"just granted":                {grant: &cloud.Grant{CreatedOn: noon}, reason: v1alpha1.ReasonPropagating, atMost: 2 * time.Second},
		"a minute ago":                {grant: &cloud.Grant{CreatedOn: noon.Add(-time.Minute)}, reason: v1alpha1.ReasonPropagating, atMost: 33 * time.Second},
		"past the default deadline":   {grant: &cloud.Grant{CreatedOn: noon.Add(-16 * time.Minute)}, reason: v1alpha1.ReasonPropagationTimedOut, atMost: 6 * time.Minute},
		"past a short deadline":       {grant: &cloud.Grant{CreatedOn: noon.Add(-2 * time.Second)}, deadline: time.Second, reason: v1alpha1.ReasonPropagationTimedOut, atMost: 6 * time.Minute},
		"a policy, since it is there": {conditions: done(noon.Add(-16*time.Minute), metav1.ConditionTrue), reason: v1alpha1.ReasonPropagationTimedOut, atMost: 6 * time.Minute},
		"a policy, made right now":    {conditions: done(noon.Add(-16*time.Minute), metav1.ConditionUnknown), reason: v1alpha1.ReasonPropagating, atMost: 2 * time.Second},
		"nothing is known":            {reason: v1alpha1.ReasonPropagating, atMost: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope(func(spec *v1alpha1.SecureStorageSpec) { spec.PropagationDeadline.Duration = c.deadline })
			s.grant, s.storage.Status.Conditions = c.grant, c.conditions
			verdict := s.judgePropagation()
			NewWithT(t).Expect(verdict.Reason()).To(Equal(c.reason))
			NewWithT(t).Expect(verdict.After()).To(BeNumerically("<=", c.atMost))
		})
	}
}

func TestTrouble(t *testing.T) {
	for kind, want := range map[cloud.Kind]struct {
		reason  string
		stalled bool
		after   time.Duration
	}{
		cloud.NotFound:       {v1alpha1.ReasonOperationInProgress, false, 5 * time.Second},
		cloud.GroupMissing:   {v1alpha1.ReasonResourceGroupMissing, true, 5 * time.Minute},
		cloud.Throttled:      {v1alpha1.ReasonThrottled, false, 7 * time.Second},
		cloud.InProgress:     {v1alpha1.ReasonOperationInProgress, false, 7 * time.Second},
		cloud.Propagating:    {v1alpha1.ReasonPropagating, false, 7 * time.Second},
		cloud.NameTaken:      {v1alpha1.ReasonNameTaken, true, 5 * time.Minute},
		cloud.Locked:         {v1alpha1.ReasonPermissionMissing, true, 5 * time.Minute},
		cloud.Disallowed:     {v1alpha1.ReasonInvalidRequest, true, 5 * time.Minute},
		cloud.Denied:         {v1alpha1.ReasonPermissionMissing, true, 5 * time.Minute},
		cloud.NoAssertion:    {v1alpha1.ReasonCredentialsMissing, true, time.Minute},
		cloud.BadCredentials: {v1alpha1.ReasonCredentialsInvalid, true, time.Minute},
		cloud.Invalid:        {v1alpha1.ReasonInvalidRequest, true, 5 * time.Minute},
		cloud.Unreachable:    {v1alpha1.ReasonCloudUnavailable, false, 7 * time.Second},
	} {
		t.Run(string(kind), func(t *testing.T) {
			g := NewWithT(t)
			failure := &cloud.Error{Kind: kind, Message: "it is so", RetryAfter: want.after}
			if kind == cloud.NotFound {
				failure.RetryAfter = 0
			}
			verdict, err := newScope().trouble(failure)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verdict.Reason()).To(Equal(want.reason))
			g.Expect(verdict.IsStalled()).To(Equal(want.stalled))
			g.Expect(verdict.After()).To(And(BeNumerically(">=", want.after*9/10), BeNumerically("<=", want.after*12/10)))
			again, _ := newScope().trouble(failure)
			g.Expect(again.Message()).To(Equal(verdict.Message()), "the same from try to try")
		})
	}
	// What is no answer of the cloud is tried again with backoff.
	_, err := newScope().trouble(errors.New("reading the credentials"))
	NewWithT(t).Expect(err).To(HaveOccurred())
	// What a lock or a policy keeps from being deleted is told as such.
	for _, kind := range []cloud.Kind{cloud.Locked, cloud.Disallowed} {
		s := newScope()
		s.storage.DeletionTimestamp = &metav1.Time{Time: noon}
		verdict, _ := s.trouble(&cloud.Error{Kind: kind})
		NewWithT(t).Expect(verdict.Reason()).To(Equal(v1alpha1.ReasonDeletionBlocked))
		NewWithT(t).Expect(verdict.Message()).To(ContainSubstring(v1alpha1.AnnotationAbandon))
	}
}

func TestPausesAreNeverEarly(t *testing.T) {
	g := NewWithT(t)
	s := newScope(func(spec *v1alpha1.SecureStorageSpec) { spec.PollInterval.Duration = 10 * time.Second })
	for range 1000 {
		g.Expect(later(17 * time.Second)).To(And(BeNumerically(">=", 17*time.Second), BeNumerically("<=", 18*time.Second)))
		g.Expect(s.pollInterval()).To(And(BeNumerically(">=", 10*time.Second), BeNumerically("<=", 11*time.Second)))
		g.Expect(jitter(10 * time.Second)).To(And(BeNumerically(">=", 9*time.Second), BeNumerically("<=", 11*time.Second)))
	}
	g.Expect(jitter(0)).To(BeZero())
	g.Expect(newScope().pollInterval()).To(BeNumerically(">=", 5*time.Minute))
}

func TestPhaseOf(t *testing.T) {
	encrypted := &cloud.Account{Tags: map[string]string{cloud.OwnerTag: "uid"}, Encryption: cloud.Encryption{KeySource: cloud.CustomerManaged}}
	for name, c := range map[string]struct {
		summary phases.Summary
		account *cloud.Account
		looked  bool
		before  v1alpha1.SecureStorageEncryption
		want    v1alpha1.SecureStoragePhase
	}{
		"deleting":                         {summary: phases.Summary{Deleting: true, Ready: true}, want: v1alpha1.SecureStorageDeleting},
		"suspended":                        {summary: phases.Summary{Suspended: true}, want: v1alpha1.SecureStorageSuspended},
		"ready":                            {summary: phases.Summary{Ready: true}, want: v1alpha1.SecureStorageReady},
		"on its way":                       {looked: true, want: v1alpha1.SecureStorageProvisioning},
		"stalled":                          {summary: phases.Summary{Stalled: true}, looked: true, want: v1alpha1.SecureStorageFailed},
		"encrypted, and not as declared":   {summary: phases.Summary{Stalled: true}, looked: true, account: encrypted, want: v1alpha1.SecureStorageDegraded},
		"not asked, and encrypted before":  {before: v1alpha1.EncryptionCustomerKey, want: v1alpha1.SecureStorageDegraded},
		"asked, and gone":                  {before: v1alpha1.EncryptionCustomerKey, looked: true, summary: phases.Summary{Stalled: true}, want: v1alpha1.SecureStorageFailed},
		"somebody else's, whatever it has": {looked: true, account: &cloud.Account{Encryption: encrypted.Encryption}, want: v1alpha1.SecureStorageProvisioning},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.account, s.looked, s.storage.Status.Encryption = c.account, c.looked, c.before
			NewWithT(t).Expect(phaseOf(s, c.summary)).To(Equal(c.want))
		})
	}
}

func TestWhatStandsInTheStatus(t *testing.T) {
	g := NewWithT(t)
	s := newScope()
	s.storage.Status = v1alpha1.SecureStorageStatus{AccountID: "id", PrincipalID: "p", GrantID: "grant", Encryption: v1alpha1.EncryptionCustomerKey, KeyURI: "uri", KeyVersion: "1", Endpoint: "e"}
	// given a cloud that could not be asked: what was seen last still stands
	status := desiredStatus(s, phases.Summary{}).Status
	g.Expect(*status.KeyVersion).To(Equal("1"))
	g.Expect(*status.Endpoint).To(Equal("e"))
	// given an account that is gone: only the names stay
	s.looked = true
	status = desiredStatus(s, phases.Summary{}).Status
	g.Expect(status.KeyVersion).To(BeNil())
	g.Expect(status.Encryption).To(BeNil())
	g.Expect(*status.AccountID).To(Equal("id"))
	g.Expect(*status.GrantID).To(Equal("grant"))
	// given one that is being made anew: it counts as there when it is complete
	s.storage.Status.AccountID = ""
	s.account = &cloud.Account{ID: "new", State: "Creating", Tags: map[string]string{cloud.OwnerTag: "uid"}, Encryption: cloud.Encryption{KeySource: cloud.PlatformKeys}}
	g.Expect(desiredStatus(s, phases.Summary{}).Status.AccountID).To(BeNil())
	s.account.State = "Succeeded"
	g.Expect(*desiredStatus(s, phases.Summary{}).Status.AccountID).To(Equal("new"))
}
