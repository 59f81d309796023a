package securestorage

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func observe(s *v1beta1.SecureStorageSpec) { s.ManagementPolicy = v1beta1.ManagementObserve }

func manage(s *v1beta1.SecureStorageSpec) { s.ManagementPolicy = v1beta1.ManagementManage }

// writes returns the write requests that callers sent, including refused ones.
func (f *fixture) writes() []fakecloud.Entry {
	return slices.DeleteFunc(f.server.Ledger(), func(e fakecloud.Entry) bool {
		return e.Who == fakecloud.WhoMeddler || e.Who == fakecloud.WhoCloud
	})
}

// changes returns the writes since an earlier number of writes that had an effect.
func (f *fixture) changes(since int) []fakecloud.Entry {
	return slices.DeleteFunc(f.writes()[since:], func(e fakecloud.Entry) bool { return e.Effect == fakecloud.Refused })
}

// observingFixture observes an account that was released, after the change in Azure. Edit and change are optional.
func observingFixture(t *testing.T, edit func(*v1beta1.SecureStorageSpec), change func(*fixture) error) *fixture {
	t.Helper()
	edits := []func(*v1beta1.SecureStorageSpec){observe}
	if edit != nil {
		edits = append(edits, edit)
	}
	f := releasedFixture(t, "role", edits...)
	if change != nil {
		f.Expect(change(f)).To(Succeed())
	}
	f.clock.Step(time.Minute) // until Azure shows the change everywhere
	return f
}

// releasedFixture has an account named coveted without an owner, which another SecureStorage with the same spec has
// created and released; its SecureStorage is new.
func releasedFixture(t *testing.T, access string, edits ...func(*v1beta1.SecureStorageSpec)) *fixture {
	t.Helper()
	f := newFixtureFor(t, access, named("coveted"), adopt, retain)
	released := f.storage.DeepCopy()
	f.runUntilReady()
	f.delete()
	f.runUntilDeleted()
	f.storage, f.deleted, f.events, f.statuses = released, false, nil, nil
	f.storage.UID = "5b0c7ad7-2f43-4e0e-9a53-4f1d5f3b2a11"
	for _, edit := range edits {
		edit(&f.storage.Spec)
	}
	f.restart()
	return f
}

func driftedFields(storage *v1beta1.SecureStorage) []string {
	fields := make([]string, 0, len(storage.Status.Drifts))
	for _, drift := range storage.Status.Drifts {
		fields = append(fields, fmt.Sprintf("%s: %s, found %s", drift.Field, drift.Desired, drift.Found))
	}
	return fields
}

func TestObserveIsReadyIfAccountMatches(t *testing.T) {
	for access := range accesses {
		t.Run(access, func(t *testing.T) {
			// given
			f := releasedFixture(t, access, observe)
			before := len(f.writes())
			// when
			f.runUntilReady()
			// then
			c := f.condition(v1beta1.ConditionStorageAccountReady)
			f.Expect(c.Reason).To(Equal(v1beta1.ReasonObserved))
			f.Expect(c.Message).To(ContainSubstring("nothing is changed"))
			f.Expect(f.storage.Status.Phase).To(Equal(v1beta1.PhaseReady))
			f.Expect(f.storage.Status.Drifts).To(BeEmpty())
			f.Expect(f.storage.Status.Encryption).To(Equal(v1beta1.EncryptionCustomerKey))
			f.Expect(f.storage.Status.KeyVersion).NotTo(BeEmpty())
			// and nothing makes this SecureStorage the owner
			f.Expect(f.storage.Status.AccountID).To(BeEmpty())
			f.Expect(f.storage.Status.PrincipalID).To(BeEmpty())
			f.Expect(f.storage.Status.Grants).To(BeEmpty())
			f.Expect(f.writes()[before:]).To(BeEmpty())
		})
	}
}

func TestObserveReportsDifferences(t *testing.T) {
	twelveTags, twelveDrifts := map[string]string{}, []string{}
	for i := range 12 {
		tag := fmt.Sprintf("team-%02d", i)
		twelveTags[tag] = "storage"
		twelveDrifts = append(twelveDrifts, "tags."+tag+": storage, found ")
	}
	for name, c := range map[string]struct {
		// edits are of the spec, and change is of the account.
		edits  []func(*v1beta1.SecureStorageSpec)
		change func(*fixture) error
		drifts []string
	}{
		"sku and tags": {
			edits:  []func(*v1beta1.SecureStorageSpec){tagged(map[string]string{"team": "storage"}), func(s *v1beta1.SecureStorageSpec) { s.SKU = v1beta1.SKUStandardGRS }},
			drifts: []string{"sku.name: Standard_GRS, found Standard_LRS", "tags.team: storage, found "},
		},
		"location": {
			edits:  []func(*v1beta1.SecureStorageSpec){func(s *v1beta1.SecureStorageSpec) { s.Provider.Location = "northeurope" }},
			drifts: []string{"location: northeurope, found westeurope"},
		},
		"grant": {
			change: func(f *fixture) error { return f.server.RemoveGrants(f.server.Principal("coveted")) },
			drifts: []string{"vaults/fixpoint-demo/access: RoleAssignment, found none"},
		},
		"encryption": {
			change: func(f *fixture) error { return f.server.UsePlatformKeys("coveted") },
			drifts: []string{"encryption.keySource: Microsoft.Keyvault, found Microsoft.Storage", "encryption.keyVaultUri: https://fixpoint-demo.vault.azure.net, found ", "encryption.keyName: storage, found "},
		},
		"identity, and what follows from it": {
			change: func(f *fixture) error { return f.server.DropIdentity("coveted") },
			drifts: []string{"identity.type: SystemAssigned, found None", "vaults/fixpoint-demo/access: RoleAssignment, found none"},
		},
		"fields of several phases": {
			edits:  []func(*v1beta1.SecureStorageSpec){tagged(map[string]string{"team": "storage"})},
			change: func(f *fixture) error { return f.server.UsePlatformKeys("coveted") },
			drifts: []string{"tags.team: storage, found ", "encryption.keySource: Microsoft.Keyvault, found Microsoft.Storage", "encryption.keyVaultUri: https://fixpoint-demo.vault.azure.net, found ", "encryption.keyName: storage, found "},
		},
		"as many tags as there may be": {
			edits:  []func(*v1beta1.SecureStorageSpec){tagged(twelveTags)},
			drifts: twelveDrifts,
		},
	} {
		t.Run(name, func(t *testing.T) {
			// given
			f := releasedFixture(t, "role", append(c.edits, observe)...)
			if c.change != nil {
				f.Expect(c.change(f)).To(Succeed())
			}
			f.clock.Step(time.Minute) // until Azure shows the change everywhere
			before := len(f.writes())
			// when
			message := f.runUntilReason(v1beta1.ReasonDiffers).Message
			// then
			f.Expect(driftedFields(f.storage)).To(Equal(c.drifts))
			f.Expect(message).To(ContainSubstring("coveted differs from the spec"))
			f.Expect(f.condition(v1beta1.ConditionStalled)).NotTo(BeNil())
			f.Expect(f.writes()[before:]).To(BeEmpty())
			// and the drifts keep their time
			found := f.storage.Status.DeepCopy()
			f.poll()
			f.Expect(f.storage.Status.Drifts).To(Equal(found.Drifts))
		})
	}
}

func TestObserveReportsAllDifferencesOrNone(t *testing.T) {
	// given an account that differs in several phases
	f := releasedFixture(t, "role", observe, tagged(map[string]string{"team": "storage"}))
	f.Expect(f.server.UsePlatformKeys("coveted")).To(Succeed())
	message := f.runUntilReason(v1beta1.ReasonDiffers).Message
	drifts := f.storage.Status.DeepCopy().Drifts
	f.Expect(drifts).To(HaveLen(4))
	// when some reads fail
	f.server.Turn(func(k *fakecloud.Knobs) { k.ServerErrors = 0.3 })
	reasons := map[string]int{}
	for range 40 {
		f.poll()
		reasons[f.ready().Reason]++
		// then the report is complete, or the reason says that Azure does not respond
		if f.ready().Reason == v1beta1.ReasonDiffers {
			f.Expect(f.ready().Message).To(Equal(message))
		}
		f.Expect(f.storage.Status.Drifts).To(Equal(drifts))
	}
	f.Expect(reasons).To(HaveLen(2))
	f.Expect(reasons).To(And(HaveKey(v1beta1.ReasonDiffers), HaveKey(v1beta1.ReasonCloudUnavailable)))
}

func TestObserveWaitsForMissingAccount(t *testing.T) {
	// given
	f := newFixture(t, fastCloud(), named("coveted"), adopt, observe)
	// when
	f.Expect(f.runUntilReason(v1beta1.ReasonAccountMissing).Message).To(ContainSubstring("coveted does not exist"))
	// then
	f.Expect(f.storage.Status.Phase).To(Equal(v1beta1.PhasePending))
	f.Expect(f.condition(v1beta1.ConditionStalled)).To(BeNil())
	f.Expect(f.storage.Status.Grants).To(BeEmpty())
	// and when it is created
	f.Expect(f.server.SeedAccount(f.demo.Subscription, f.demo.Group, "coveted", nil)).To(Succeed())
	f.runUntilReason(v1beta1.ReasonDiffers)
	f.Expect(f.storage.Status.Phase).To(Equal(v1beta1.PhaseFailed))
	f.Expect(f.writes()).To(BeEmpty())
}

// The manager crashes at any call, and the cloud fails in many ways: nothing is written.
func TestObserveNeverWrites(t *testing.T) {
	situations := map[string]struct {
		edit   func(*v1beta1.SecureStorageSpec)
		change func(*fixture) error
	}{
		"matches":         {},
		"account differs": {edit: tagged(map[string]string{"team": "storage"})},
		"no grant":        {change: func(f *fixture) error { return f.server.RemoveGrants(f.server.Principal("coveted")) }},
		"platform keys":   {change: func(f *fixture) error { return f.server.UsePlatformKeys("coveted") }},
		"no identity":     {change: func(f *fixture) error { return f.server.DropIdentity("coveted") }},
		"account deleted": {edit: recreate, change: func(f *fixture) error { return f.server.DeleteAccount("coveted") }},
		"another owner":   {change: func(f *fixture) error { return f.server.SetTags("coveted", map[string]string{cloud.OwnerTag: "other"}) }},
		"the own tag": {change: func(f *fixture) error {
			return f.server.SetTags("coveted", map[string]string{cloud.OwnerTag: string(f.storage.UID)})
		}},
		"key vault deleted":   {change: func(f *fixture) error { return f.server.DeleteVault(f.demo.Vault) }},
		"key disabled":        {change: func(f *fixture) error { return f.server.EnableKey(f.demo.Vault, f.demo.Key, "", false) }},
		"deletionPolicy":      {edit: func(s *v1beta1.SecureStorageSpec) { s.DeletionPolicy = v1beta1.DeletionDelete }},
		"account of the UID":  {edit: func(s *v1beta1.SecureStorageSpec) { s.AccountName = "" }},
		"adoption not wanted": {edit: func(s *v1beta1.SecureStorageSpec) { s.AdoptionPolicy = v1beta1.AdoptionNever }},
	}
	reconcile := func(f *fixture, times int) {
		for range times {
			f.clock.Step(max(f.reconcile(), time.Second))
		}
	}
	for name, situation := range situations {
		t.Run(name, func(t *testing.T) {
			// given
			edits := []func(*v1beta1.SecureStorageSpec){observe}
			if situation.edit != nil {
				edits = append(edits, situation.edit)
			}
			whole := releasedFixture(t, "role", edits...)
			if situation.change != nil {
				whole.Expect(situation.change(whole)).To(Succeed())
			}
			before, given := len(whole.writes()), whole.save()
			expectNoWrites := func(f *fixture) {
				f.runUntilDeleted()
				f.Expect(f.writes()[before:]).To(BeEmpty())
			}
			// when it crashes before the deletion
			const reconciles = 4
			for n := range reconciles {
				for _, crash := range whole.crashesDuring(func() { reconcile(whole, 1) }) {
					t.Run(fmt.Sprintf("reconcile %d/crash %s", n, crash.call), func(t *testing.T) {
						f := crash.open(t)
						f.clock.Step(afterCrash)
						reconcile(f, reconciles-n-1)
						f.delete()
						// then
						expectNoWrites(f)
					})
				}
			}
			// or during the deletion
			whole.delete()
			for _, crash := range whole.crashesUntil(whole.runUntilDeleted) {
				t.Run("deletion/crash "+crash.call, func(t *testing.T) { expectNoWrites(crash.restart(t)) })
			}
			// or the cloud fails
			for seed := range 5 {
				t.Run(fmt.Sprintf("faults %d", seed), func(t *testing.T) {
					f := given.open(t)
					f.storage.UID += "-" + uidSuffix(seed) // the faults depend on the UID
					f.server.Turn(func(k *fakecloud.Knobs) { k.LostResponses, k.ErrorsAfterEffect, k.ServerErrors = 0.2, 0.1, 0.2 })
					reconcile(f, 10)
					f.server.Turn(func(k *fakecloud.Knobs) { k.LostResponses, k.ErrorsAfterEffect, k.ServerErrors = 0, 0, 0 })
					f.delete()
					expectNoWrites(f)
				})
			}
		})
	}
}

func TestFromManageToObserveStopsWriting(t *testing.T) {
	// given
	f := readyFixture(t)
	account, _ := f.server.Account(f.name())
	grants := f.storage.Status.Grants
	before := len(f.writes())
	// when
	f.edit(observe)
	f.runUntilReady()
	// then the tag, the grant and the record of both are kept
	f.Expect(f.condition(v1beta1.ConditionStorageAccountReady).Message).To(ContainSubstring("grants of this SecureStorage are kept"))
	f.Expect(f.storage.Status.Grants).To(Equal(grants))
	f.Expect(f.storage.Status.AccountID).NotTo(BeEmpty())
	kept, _ := f.server.Account(f.name())
	f.Expect(kept.Tags).To(Equal(account.Tags))
	// and when the account is changed, the change is reported and not reverted
	f.Expect(f.server.UsePlatformKeys(f.name())).To(Succeed())
	f.poll()
	f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonDiffers))
	f.Expect(isEncrypted(f.storage.Status)).To(BeFalse())
	f.Expect(f.eventsWith("DriftCorrected")).To(BeZero())
	f.Expect(f.writes()[before:]).To(BeEmpty())
	// and when it is managed again, the change is reverted
	f.edit(manage)
	f.runUntilReady()
	f.Expect(f.changes(before)).To(HaveExactElements(HaveField("Method", "PATCH")))
}

func TestDeletionOfObservedKeepsEverything(t *testing.T) {
	// given an account that was managed, with deletionPolicy Delete
	f := readyFixture(t)
	f.edit(observe)
	f.runUntilReady()
	account, _ := f.server.Account(f.name())
	before := len(f.writes())
	// when
	f.delete()
	f.runUntilDeleted()
	// then
	kept, ok := f.server.Account(f.name())
	f.Expect(ok).To(BeTrue())
	f.Expect(kept.Tags).To(Equal(account.Tags))
	f.Expect(f.writes()[before:]).To(BeEmpty())
	f.Expect(f.eventsWith("Normal "+v1beta1.ReasonRetained, "spec.managementPolicy is Observe")).To(Equal(1))
}

func TestFromObserveToManageWritesOnlyWhatDiffers(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*v1beta1.SecureStorageSpec)
		change  func(*fixture) error
		methods []string
	}{
		"nothing but the owner tag": {methods: []string{"PATCH"}},
		"a tag":                     {edit: tagged(map[string]string{"team": "storage"}), methods: []string{"PATCH"}},
		"the encryption":            {change: func(f *fixture) error { return f.server.UsePlatformKeys("coveted") }, methods: []string{"PATCH", "PATCH"}},
		"the grant": {change: func(f *fixture) error { return f.server.RemoveGrants(f.server.Principal("coveted")) },
			methods: []string{"PATCH", "PUT"}},
	} {
		t.Run(name, func(t *testing.T) {
			// given
			f := observingFixture(t, c.edit, c.change)
			f.runUntil("observed", func() bool { return f.ready() != nil })
			before := len(f.writes())
			// when
			f.edit(manage)
			f.runUntilReady()
			// then
			methods := []string{}
			for _, entry := range f.changes(before) {
				f.Expect(entry.Effect).To(BeElementOf(fakecloud.Created, fakecloud.Updated))
				methods = append(methods, entry.Method)
			}
			f.Expect(methods).To(Equal(c.methods))
			account, _ := f.server.Account("coveted")
			f.Expect(account.Tags).To(HaveKeyWithValue(cloud.OwnerTag, string(f.storage.UID)))
			f.Expect(f.eventsWith("DriftCorrected")).To(BeZero(), "an adoption is not a drift")
		})
	}
}

// What was observed does not make the SecureStorage the owner: adoptionPolicy decides.
func TestFromObserveToManageNeedsConsent(t *testing.T) {
	f := releasedFixture(t, "role", observe, func(s *v1beta1.SecureStorageSpec) { s.AdoptionPolicy = v1beta1.AdoptionNever })
	f.runUntilReady()
	before := len(f.writes())
	f.edit(manage)
	f.runUntilReason(v1beta1.ReasonAccountNotOwned)
	f.Expect(f.writes()[before:]).To(BeEmpty())
}

func TestAccountOfAnotherOwnerIsObservedAndNotAdopted(t *testing.T) {
	// given
	f := releasedFixture(t, "role", observe)
	f.Expect(f.server.SetTags("coveted", map[string]string{cloud.OwnerTag: "other's"})).To(Succeed())
	before := len(f.writes())
	// when
	f.runUntilReady()
	f.Expect(f.condition(v1beta1.ConditionStorageAccountReady).Message).To(ContainSubstring("managed by another SecureStorage"))
	f.edit(manage)
	message := f.runUntilReason(v1beta1.ReasonAccountNotOwned).Message
	// then the message has the commands that release it
	f.Expect(message).To(ContainSubstring("kubectl fixpoint release securestorage/<name>"))
	f.Expect(message).To(ContainSubstring(`az tag update --operation delete --resource-id ` + f.accountID() + ` --tags 'fixpoint.dev-owner=other'\''s'`))
	f.Expect(f.writes()[before:]).To(BeEmpty())
}

// The manager crashes at any call while it retains an account: the owner tag is removed, and nothing else changes.
func TestRetainRecoversFromCrashAtAnyCall(t *testing.T) {
	for access := range accesses {
		// given
		whole := newFixtureFor(t, access, retain)
		whole.runUntilReady()
		before := len(whole.writes())
		whole.delete()
		for _, crash := range whole.crashesUntil(whole.runUntilDeleted) {
			t.Run(access+"/"+crash.call, func(t *testing.T) {
				// when
				f := crash.restart(t)
				f.runUntilDeleted()
				// then
				account, _ := f.server.Account(f.name())
				f.Expect(account.Tags).NotTo(HaveKey(cloud.OwnerTag))
				f.Expect(f.changes(before)).To(HaveExactElements(HaveField("Method", "PATCH")))
				f.clock.Step(time.Hour)
				f.Expect(f.server.ReadData(f.name())).To(Succeed())
			})
		}
	}
}

func TestRetainDoesNotDependOnCloud(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(*v1beta1.SecureStorageSpec)
		fault func(*fakecloud.Knobs)
	}{
		"unreachable cloud": {fault: func(k *fakecloud.Knobs) { k.ServerErrors = 1 }},
		"missing credentials": {edit: func(s *v1beta1.SecureStorageSpec) {
			s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "absent"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := readyFixture(t, retain)
			if c.edit != nil {
				f.edit(c.edit)
			}
			if c.fault != nil {
				f.server.Turn(c.fault)
			}
			f.delete()
			began := f.clock.Now()
			f.runUntilDeleted()
			f.Expect(f.clock.Since(began)).To(BeNumerically("<=", visibilityTimeout+time.Minute))
			f.Expect(f.eventsWith("Retained", f.name(), "its tag "+cloud.OwnerTag+" may remain")).To(Equal(1))
		})
	}
}

// What differs is said with the message, unless the engine reports it as drift.
func TestDifferencesAreNamed(t *testing.T) {
	ready := func(status metav1.ConditionStatus, generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: v1beta1.ConditionEncryptionReady, Status: status, ObservedGeneration: generation}}
	}
	drifts := []ssa.Drift{{Path: "sku.name", Desired: "Standard_GRS", Actual: "Standard_LRS"}, {Path: "tags.team", Desired: "billing"}, {Path: "tags.old", Actual: "yes"}}
	const with = "update (sku.name is Standard_LRS, desired Standard_GRS; tags.team is not set, desired billing; tags.old is yes, desired not set)"
	for name, c := range map[string]struct {
		edit       func(*v1beta1.SecureStorageSpec)
		conditions []metav1.Condition
		want       string
	}{
		"not decided":              {want: with},
		"ready":                    {conditions: ready(metav1.ConditionTrue, 1), want: "update"},
		"ready for another spec":   {conditions: ready(metav1.ConditionTrue, 2), want: with},
		"not ready":                {conditions: ready(metav1.ConditionFalse, 1), want: with},
		"ready, and only observed": {edit: observe, conditions: ready(metav1.ConditionTrue, 1), want: with},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			if c.edit != nil {
				c.edit(&s.storage.Spec)
			}
			s.storage.Status.Conditions = c.conditions
			NewWithT(t).Expect(s.withFields("update", v1beta1.ConditionEncryptionReady, drifts)).To(Equal(c.want))
		})
	}
}

func TestObservedMessageNamesTheOwner(t *testing.T) {
	const message = "storage account a is observed; spec.managementPolicy is Observe, so nothing is changed in Azure"
	for name, c := range map[string]struct {
		tags map[string]string
		want string
	}{
		"none":    {nil, message},
		"another": {map[string]string{cloud.OwnerTag: "other"}, message + `; it is managed by another SecureStorage, with the UID "other" (tag fixpoint.dev-owner)`},
		"itself":  {map[string]string{cloud.OwnerTag: "uid"}, message + "; the tag fixpoint.dev-owner and the grants of this SecureStorage are kept"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope(observe)
			s.account = &cloud.Account{Name: "a", Tags: c.tags}
			NewWithT(t).Expect(s.observedMessage()).To(Equal(c.want))
		})
	}
}

// The report of drifts stays until all are known again.
func TestReportedDrifts(t *testing.T) {
	old := []v1beta1.Drift{{Field: "location", Desired: "westeurope", Found: "eastus"}}
	child := phases.Summary{Drifts: []phases.ObservedDrift{{Drift: ssa.Drift{Path: "data.x"}, Child: "ConfigMap invoices"}}}
	for name, c := range map[string]struct {
		edit    func(*scope)
		summary phases.Summary
		want    []string
	}{
		"managed":         {edit: func(s *scope) { manage(&s.storage.Spec) }},
		"deleting":        {summary: phases.Summary{Deleting: true}},
		"not known":       {edit: func(s *scope) { s.driftsKnown = false }, want: []string{"  location: westeurope, found eastus"}},
		"known":           {want: []string{"StorageAccount a sku.name: Standard_GRS, found Standard_LRS"}},
		"of the account":  {summary: child, want: []string{"StorageAccount a sku.name: Standard_GRS, found Standard_LRS"}},
		"none, and known": {edit: func(s *scope) { s.drifts = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope(observe, named("a"))
			s.storage.Status.Drifts = old
			s.drifts, s.driftsKnown = []ssa.Drift{{Path: "sku.name", Desired: "Standard_GRS", Actual: "Standard_LRS"}}, true
			if c.edit != nil {
				c.edit(s)
			}
			var found []string
			for _, drift := range s.reportedDrifts(c.summary) {
				found = append(found, fmt.Sprintf("%s %s %s: %s, found %s", drift.Kind, drift.Name, drift.Field, drift.Desired, drift.Found))
			}
			NewWithT(t).Expect(found).To(Equal(c.want))
		})
	}
}

// An observation reports all differences once, or why they are not known, and reads what a reconcile reads, once.
func TestObservesOncePerReconcile(t *testing.T) {
	get := func(resource string, status int, code string) *fakecloud.Fault {
		return &fakecloud.Fault{Method: http.MethodGet, Resource: resource, Status: status, Code: code}
	}
	differs := tagged(map[string]string{"team": "storage"})
	before := []v1beta1.Drift{{Kind: "StorageAccount", Name: "coveted", Field: "location", Desired: "westeurope", Found: "eastus"}}
	for name, c := range map[string]struct {
		edit   func(*v1beta1.SecureStorageSpec)
		change func(*fixture) error
		fault  *fakecloud.Fault
		want   string
		drifts []string
		calls  int
	}{
		"matches":                           {want: v1beta1.ReasonReady, calls: 3},
		"differs":                           {edit: differs, want: v1beta1.ReasonDiffers, drifts: []string{"tags.team: storage, found "}, calls: 3},
		"differs, and the key is disabled":  {edit: differs, change: func(f *fixture) error { return f.server.EnableKey(f.demo.Vault, f.demo.Key, "", false) }, want: v1beta1.ReasonDiffers, drifts: []string{"tags.team: storage, found "}, calls: 3},
		"the key is disabled":               {change: func(f *fixture) error { return f.server.EnableKey(f.demo.Vault, f.demo.Key, "", false) }, want: v1beta1.ReasonKeyDisabled, calls: 3},
		"the account is gone":               {change: func(f *fixture) error { return f.server.DeleteAccount("coveted") }, want: v1beta1.ReasonAccountMissing, calls: 1},
		"the account cannot be read":        {fault: get("/storageaccounts/", http.StatusServiceUnavailable, "ServerTimeout"), want: v1beta1.ReasonCloudUnavailable, drifts: []string{"location: westeurope, found eastus"}, calls: 1},
		"the grant cannot be read":          {fault: get("/roleassignments", http.StatusServiceUnavailable, "ServerTimeout"), want: v1beta1.ReasonCloudUnavailable, drifts: []string{"location: westeurope, found eastus"}, calls: 2},
		"differs, and is not known further": {edit: differs, fault: get("/roleassignments", http.StatusServiceUnavailable, "ServerTimeout"), want: v1beta1.ReasonCloudUnavailable, drifts: []string{"location: westeurope, found eastus"}, calls: 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := observingFixture(t, c.edit, c.change)
			f.storage.Status.Drifts = before
			f.reconcile()
			f.storage.Status.Drifts = before
			if c.fault != nil {
				f.server.Inject(*c.fault)
			}
			f.restart()
			calls := f.calls
			f.reconcile()
			f.Expect(f.ready().Reason).To(Equal(c.want))
			if len(c.drifts) == 0 {
				f.Expect(f.storage.Status.Drifts).To(BeEmpty())
			} else {
				f.Expect(driftedFields(f.storage)).To(Equal(c.drifts))
			}
			f.Expect(f.calls - calls).To(Equal(c.calls))
		})
	}
}

// An error of an observation is not lost, and nothing is reported beside it.
func TestObservationReportsErrors(t *testing.T) {
	for name, edit := range map[string]func(*v1beta1.SecureStorageSpec){"matches": func(*v1beta1.SecureStorageSpec) {}, "differs": tagged(map[string]string{"team": "storage"})} {
		t.Run(name, func(t *testing.T) {
			f := releasedFixture(t, "role", observe, edit)
			f.clock.Step(time.Minute)
			for at := 1; at <= 3; at++ {
				f.Expect(expectRefusalIsAnError(f, at)).To(BeTrue())
				f.Expect(f.condition(v1beta1.ConditionStalled)).To(BeNil())
			}
		})
	}
}

// An account that was managed keeps its grants in the status, as they are now.
func TestObservationShowsTheGrantOfAManagedAccount(t *testing.T) {
	f := readyFixture(t)
	f.edit(observe)
	grant := f.storage.Status.GrantID
	f.Expect(grant).NotTo(BeEmpty())
	f.storage.Status.GrantID = ""
	f.runUntilReady()
	f.Expect(f.storage.Status.GrantID).To(Equal(grant))
}
