package securestorage

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// The tests in this file are about the credential of the manager, which may reach far more than the users
// who create SecureStorages.

// notAllowed expects the refusal that a user sees, and returns its message.
func (f *fixture) notAllowed() string {
	f.t.Helper()
	f.Expect(f.ready().Status).To(Equal(metav1.ConditionFalse))
	f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonCredentialsNotAllowed))
	stalled := f.condition("Stalled")
	f.Expect(stalled).To(HaveField("Reason", v1beta1.ReasonCredentialsNotAllowed))
	message := stalled.Message
	f.Expect(message).To(ContainSubstring("set spec.provider.workloadIdentity or spec.provider.credentialsSecretRef"))
	return message
}

// restartWith starts a process with other flags --ambient-credentials.
func (f *fixture) restartWith(ambient AmbientScopes) {
	f.ambient = ambient
	f.restart()
}

// A SecureStorage without credentials names an account of another team, adopts it, encrypts
// it with another key, and deletes it with the object.
func TestForeignAccountIsOutOfReach(t *testing.T) {
	demo := fakecloud.New(fakecloud.Options{}).SeedDemo()
	for name, c := range map[string]struct {
		ambient AmbientScopes
		says    string
	}{
		"no namespace is allowed":                 {nil, "spec.provider names no credentials, and namespace billing is not allowed to use the credential of the manager"},
		"another namespace is allowed":            {AmbientScopes{"shipping": {scopeOf(demo.GroupID())}}, "namespace billing is not allowed"},
		"a namespace with the same prefix":        {AmbientScopes{"bill": {scopeOf(demo.GroupID())}}, "namespace billing is not allowed"},
		"another subscription is allowed":         {AmbientScopes{"billing": {scopeOf("/subscriptions/" + otherSubscription)}}, "(spec.provider) is outside of the scopes in which namespace billing may use the credential of the manager"},
		"another group is allowed":                {AmbientScopes{"billing": {scopeOf("/subscriptions/" + demo.Subscription + "/resourceGroups/other")}}, "resource group fixpoint-demo"},
		"a group with the same prefix is allowed": {AmbientScopes{AllNamespaces: {scopeOf(demo.GroupID() + "2")}}, "resource group fixpoint-demo"},
		"another account is allowed":              {AmbientScopes{"billing": {scopeOf(cloud.AccountID(demo.Subscription, demo.Group, "other"))}}, "resource group fixpoint-demo"},
		"only the key vault is allowed":           {AmbientScopes{"billing": {scopeOf(demo.VaultID)}}, "resource group fixpoint-demo"},
		"only the account is allowed":             {AmbientScopes{"billing": {scopeOf(cloud.AccountID(demo.Subscription, demo.Group, "victim"))}}, "key vault fixpoint-demo in resource group fixpoint-demo"},
	} {
		t.Run(name, func(t *testing.T) {
			// given an account without an owner
			f := newFixture(t, fastCloud(), named("victim"), func(s *v1beta1.SecureStorageSpec) { s.AdoptionPolicy = v1beta1.AdoptionIfUnowned })
			f.restartWith(c.ambient)
			f.Expect(f.server.SeedAccount(f.demo.Subscription, f.demo.Group, "victim", map[string]string{"cost": "42"})).To(Succeed())
			before, _ := f.server.Account("victim")

			// when a user names it, changes the spec, and waits
			f.reconcile()
			f.Expect(f.notAllowed()).To(And(ContainSubstring(c.says), ContainSubstring("--ambient-credentials=billing=/subscriptions/"+demo.Subscription)))
			f.edit(tagged(map[string]string{"stolen": "yes"}))
			f.poll()
			f.edit(func(s *v1beta1.SecureStorageSpec) { s.AccountLossPolicy = v1beta1.LossRecreate })
			f.poll()
			f.notAllowed()
			// and deletes it
			f.delete()
			f.runUntilDeleted()

			// then nothing was sent to the cloud, and the account is as it was
			f.Expect(f.calls).To(BeZero())
			after, exists := f.server.Account("victim")
			f.Expect(exists).To(BeTrue())
			f.Expect(after).To(Equal(before))
			f.Expect(f.events).NotTo(ContainElement(ContainSubstring(v1beta1.ReasonRetained)))
		})
	}
}

// The manager could let an account of the namespace use a key of another team.
func TestForeignVaultIsOutOfReach(t *testing.T) {
	otherVault := cloud.VaultID(otherSubscription, "keys", "foreign")
	for name, edit := range map[string]func(*v1beta1.SecureStorageSpec){
		"in another group": func(s *v1beta1.SecureStorageSpec) {
			s.Key.Vault = &v1beta1.SecureStorageVault{Name: "foreign", ResourceGroup: "keys"}
		},
		"in another subscription": func(s *v1beta1.SecureStorageSpec) {
			s.Key = v1beta1.SecureStorageKey{VaultID: otherVault, Name: "k"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("from the start", func(t *testing.T) {
				f := newFixture(t, fastCloud(), edit)
				f.restartWith(AmbientScopes{"billing": {scopeOf(f.demo.GroupID())}})
				f.reconcile()
				f.Expect(f.notAllowed()).To(And(ContainSubstring("key vault foreign in resource group keys"), ContainSubstring("(spec.key) is outside")))
				f.Expect(f.calls).To(BeZero(), "no account is created that cannot be encrypted")
			})
			t.Run("by a change of the spec", func(t *testing.T) {
				f := newFixture(t, fastCloud())
				f.restartWith(AmbientScopes{"billing": {scopeOf(f.demo.GroupID())}})
				f.runUntilReady()
				calls := f.calls
				f.edit(edit)
				f.reconcile()
				f.notAllowed()
				f.Expect(f.calls).To(Equal(calls))
			})
		})
	}
}

// Two namespaces may use the same resource group. An account that neither has created belongs to someone
// else, unless its tag says otherwise: only who may change the account in Azure can set that.
func TestManagersCredentialAdoptsOnlyTaggedAccounts(t *testing.T) {
	// given an account without an owner, in a group that is allowed
	f := newFixture(t, fastCloud(), named("victim"), func(s *v1beta1.SecureStorageSpec) { s.AdoptionPolicy = v1beta1.AdoptionIfUnowned })
	f.Expect(f.server.SeedAccount(f.demo.Subscription, f.demo.Group, "victim", map[string]string{"cost": "42"})).To(Succeed())
	before, _ := f.server.Account("victim")
	// when
	message := f.runUntilReason(v1beta1.ReasonAccountNotOwned).Message
	// then it is read, but not changed, and the message says how to adopt it
	f.Expect(message).To(And(ContainSubstring("spec.adoptionPolicy does not apply to the credential of the manager"), ContainSubstring("set its tag fixpoint.dev-owner in Azure to "+string(f.storage.UID))))
	f.Expect(f.server.Total("").Writes).To(BeZero())

	t.Run("deletion keeps it", func(*testing.T) {
		f.delete()
		f.runUntilDeleted()
		after, _ := f.server.Account("victim")
		f.Expect(after).To(Equal(before))
	})
	t.Run("its owner hands it over", func(*testing.T) {
		f.storage.DeletionTimestamp, f.deleted = nil, false
		f.restart() // a UID does not return, but a test may reuse it
		f.Expect(f.server.SetTags("victim", map[string]string{"cost": "42", cloud.OwnerTag: string(f.storage.UID)})).To(Succeed())
		f.runUntilReady()
		account, _ := f.server.Account("victim")
		f.Expect(account.Tags).To(HaveKeyWithValue("cost", "42"))
		f.Expect(account.Encryption.KeySource).To(Equal(cloud.CustomerManaged))
	})
}

// A credential of the namespace is limited by Azure, not by the flag.
func TestCredentialOfNamespaceNeedsNoAllowance(t *testing.T) {
	f := newFixture(t, fastCloud(), func(s *v1beta1.SecureStorageSpec) {
		s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "own"}
	})
	f.restartWith(nil)
	f.runUntilReady()
	f.Expect(f.server.Counts("")).To(And(HaveLen(1), HaveKey("billing")), "the manager's token is not used")
	f.delete()
	f.runUntilDeleted()
	f.expectNothingLeft()
}

// A federated credential of the manager trusts its ServiceAccount, which a SecureStorage beside the manager
// could name.
func TestServiceAccountOfManagerIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		manager types.NamespacedName
		allowed bool
	}{
		"the ServiceAccount of the manager":    {manager: types.NamespacedName{Namespace: "billing", Name: "storage"}},
		"another ServiceAccount":               {manager: types.NamespacedName{Namespace: "billing", Name: "manager"}, allowed: true},
		"the same name in another namespace":   {manager: types.NamespacedName{Namespace: "system", Name: "storage"}, allowed: true},
		"a manager without its ServiceAccount": {allowed: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fastCloud())
			workloadIdentity(f.storage)
			f.process.access.tokens, f.process.access.manager = tokensOf{}, c.manager
			f.reconcile()
			if c.allowed {
				f.Expect(f.calls).NotTo(BeZero())
				return
			}
			f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonCredentialsNotAllowed))
			f.Expect(f.condition("Stalled").Message).To(Equal("spec.provider.workloadIdentity.serviceAccountName is storage, the ServiceAccount of the manager; set another ServiceAccount"))
			f.Expect(f.calls).To(BeZero())
		})
	}
}

// Every namespace can be allowed, within scopes.
func TestAllNamespacesMayBeAllowed(t *testing.T) {
	f := newFixture(t, fastCloud())
	f.restartWith(AmbientScopes{AllNamespaces: {scopeOf(f.demo.GroupID())}})
	f.runUntilReady()
}

// lostAllowance returns a fixture that was ready before an upgrade or an administrator took the allowance.
func lostAllowance(t *testing.T, edits ...func(*v1beta1.SecureStorageSpec)) *fixture {
	t.Helper()
	f := readyFixture(t, edits...)
	f.restartWith(nil)
	f.server.ResetCounts()
	f.poll()
	f.notAllowed()
	return f
}

func TestLosingAllowanceLosesNothing(t *testing.T) {
	// given
	f := readyFixture(t)
	before, account := f.storage.Status, f.name()
	inCloud, _ := f.server.Account(account)
	calls := f.calls
	// when
	f.restartWith(nil)
	after := f.reconcile()
	// then the object waits for the user, and remembers its resources
	f.notAllowed()
	f.Expect(after).To(BeZero(), "only a change of the spec or a restart of the manager can help")
	f.Expect(f.calls).To(Equal(calls))
	status := f.storage.Status
	f.Expect(status.Phase).To(Equal(v1beta1.PhaseDegraded))
	status.Phase, status.Conditions, status.WaitingSince = before.Phase, before.Conditions, before.WaitingSince
	f.Expect(status).To(Equal(before))
	f.Expect(f.storage.Finalizers).To(ConsistOf(Finalizer))
	now, _ := f.server.Account(account)
	f.Expect(now).To(Equal(inCloud))
	// and continues without a write once it is allowed again
	f.server.ResetCounts()
	f.restartWith(AmbientScopes{"billing": {scopeOf(f.demo.GroupID())}})
	f.runUntilReady()
	f.Expect(f.server.Total("").Writes).To(BeZero())
	// or with a credential of its own
	f.restartWith(nil)
	f.edit(func(s *v1beta1.SecureStorageSpec) {
		s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "own"}
	})
	f.runUntilReady()
	f.Expect(f.server.Total("").Writes).To(BeZero())
}

func TestDeletionWithoutAllowance(t *testing.T) {
	waits := func(f *fixture) {
		f.t.Helper()
		f.delete()
		f.reconcile()
		f.Expect(f.deleted).To(BeFalse())
		f.Expect(f.notAllowed()).To(ContainSubstring("set spec.deletionPolicy to Retain, or the annotation fixpoint.dev/abandon=true"))
		f.Expect(f.server.Total("").Calls()).To(BeZero())
	}
	expectKept := func(f *fixture) {
		f.t.Helper()
		_, exists := f.server.Account(f.name())
		f.Expect(exists).To(BeTrue())
		f.Expect(f.server.ReadData(f.name())).To(Succeed())
		f.Expect(f.server.Total("").Calls()).To(BeZero())
	}
	t.Run("Retain needs no credential", func(t *testing.T) {
		f := lostAllowance(t, retain)
		f.delete()
		f.runUntilDeleted()
		expectKept(f)
		f.Expect(f.eventsWith("Normal "+v1beta1.ReasonRetained, f.name())).To(Equal(1))
	})
	t.Run("Delete waits for the allowance", func(t *testing.T) {
		f := lostAllowance(t)
		waits(f)
		f.restartWith(AmbientScopes{"billing": {scopeOf(f.demo.GroupID())}})
		f.runUntilDeleted()
		f.expectNothingLeft()
	})
	t.Run("Delete waits for a credential", func(t *testing.T) {
		f := lostAllowance(t)
		waits(f)
		f.edit(func(s *v1beta1.SecureStorageSpec) {
			s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "own"}
		})
		f.runUntilDeleted()
		f.expectNothingLeft()
	})
	t.Run("Delete waits for Retain", func(t *testing.T) {
		f := lostAllowance(t)
		waits(f)
		f.edit(retain)
		f.runUntilDeleted()
		expectKept(f)
	})
	t.Run("Delete waits for the annotation", func(t *testing.T) {
		f := lostAllowance(t)
		waits(f)
		f.storage.Annotations = map[string]string{v1beta1.AnnotationAbandon: "true"}
		f.runUntilDeleted()
		expectKept(f)
		f.Expect(f.eventsWith("Warning "+v1beta1.ReasonAbandoned, f.name(), f.demo.Vault)).To(Equal(1))
	})
	t.Run("nothing was ever created", func(t *testing.T) {
		for _, edit := range []func(*v1beta1.SecureStorageSpec){retain, func(*v1beta1.SecureStorageSpec) {}} {
			f := newFixture(t, fastCloud(), edit)
			f.restartWith(nil)
			f.reconcile()
			f.notAllowed()
			f.delete()
			f.runUntilDeleted()
			f.Expect(f.calls).To(BeZero())
			f.Expect(f.eventsWith(v1beta1.ReasonRetained)).To(BeZero(), "nothing remains in Azure")
			f.Expect(f.eventsWith(v1beta1.ReasonAbandoned)).To(BeZero())
		}
	})
	t.Run("the creation was in progress", func(t *testing.T) {
		// given an account that was requested and is not provisioned yet
		knobs := fastCloud()
		knobs.AccountCreation = fakecloud.Fixed(time.Hour)
		f := newFixture(t, knobs)
		f.reconcile()
		f.Expect(f.storage.Status.AccountID).To(BeEmpty())
		f.restartWith(nil)
		f.server.ResetCounts()
		f.poll()
		// then the deletion does not forget it
		waits(f)
	})
}

// A former grant is in a key vault that is no longer allowed: it is kept and reported.
func TestFormerGrantOutsideOfScopesIsNotRevoked(t *testing.T) {
	// given an account that changes from a key vault to another one
	f := readyFixture(t)
	f.addVault("second", fakecloud.VaultSpec{PurgeProtection: true})
	account := scopeOf(cloud.AccountID(f.demo.Subscription, f.demo.Group, f.name()))
	second := scopeOf(cloud.VaultID(f.demo.Subscription, f.demo.Group, "second"))
	// when the first one is no longer allowed
	f.restartWith(AmbientScopes{"billing": {account, second}})
	f.edit(inVault("second"))
	f.runUntil("encrypted with the second key vault", func() bool {
		c := f.condition(v1beta1.ConditionEncryptionReady)
		return f.isReady() && c.Reason == v1beta1.ReasonGrantNotRevoked
	})
	// then
	f.Expect(f.condition(v1beta1.ConditionEncryptionReady).Message).To(And(ContainSubstring(f.demo.Vault), ContainSubstring("outside of the scopes")))
	f.Expect(f.grants()).To(ConsistOf(f.demo.Vault, "second"))
}

func TestAmbientScopesOfNamespace(t *testing.T) {
	g := NewWithT(t)
	scopes := AmbientScopes{"a": {"/1"}, AllNamespaces: {"/2"}}
	g.Expect(scopes.in("a")).To(ConsistOf(cloud.Scope("/1"), cloud.Scope("/2")))
	g.Expect(scopes.in("b")).To(ConsistOf(cloud.Scope("/2")))
	g.Expect(AmbientScopes(nil).in("a")).To(BeEmpty())
	g.Expect(AmbientScopes{"a": {"/1"}}.in("*")).To(BeEmpty())
}
