package securestorage

import (
	"context"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// The tests in this file protect the boundaries between tenants, and data: one missing condition in the
// code would cross them while everything else still works.

// tokensOf issues ServiceAccount tokens, by which the fake cloud knows the ServiceAccount's namespace.
type tokensOf struct{ client.SubResourceClient }

// Create implements [client.SubResourceClient].
func (tokensOf) Create(_ context.Context, account, request client.Object, _ ...client.SubResourceCreateOption) error {
	request.(*authenticationv1.TokenRequest).Status.Token = fakecloud.Token(account.GetNamespace()) //nolint:errcheck // only TokenRequests are created
	return nil
}

func workloadIdentity(storage *v1beta1.SecureStorage) {
	storage.Spec.Provider.WorkloadIdentity = &v1beta1.SecureStorageWorkloadIdentity{TenantID: "tenant", ClientID: "client", ServiceAccountName: "storage"}
}

// Whoever knows the tenant and client ID of another namespace's identity must not get its access.
func TestNamespacesDoNotShareWorkloadIdentity(t *testing.T) {
	f := newFixture(t, fastCloud())
	f.process.access.tokens = tokensOf{}
	for _, namespace := range []string{"billing", "shipping"} {
		// given SecureStorages that differ only in their namespace
		storage := f.storage.DeepCopy()
		storage.Namespace = namespace
		workloadIdentity(storage)
		// when
		s := &scope{storage: storage, access: f.process.access, clock: f.clock}
		f.server.ResetCounts()
		f.Expect(s.connectAndRead(t.Context())).To(Succeed())
		// then
		f.Expect(f.server.Counts("")).To(HaveLen(1))
		f.Expect(f.server.Counts("")).To(HaveKey(namespace), "the token is requested for a ServiceAccount of the object's namespace")
	}
}

// Clients are shared by the name of the credential, so the name has to differ wherever the credential does.
func TestCredentialNamesDiffer(t *testing.T) {
	f := newFixture(t, fastCloud())
	access := f.process.access
	access.tokens = tokensOf{}
	secret := func(namespace, name, uid, resourceVersion string) string {
		f.secrets[namespace+"/"+name] = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: resourceVersion},
			Data:       map[string][]byte{"tenantID": []byte("t"), "clientID": []byte("c"), "clientSecret": []byte("s")},
		}
		credential, err := access.fromSecret(t.Context(), namespace, name)
		f.Expect(err).NotTo(HaveOccurred())
		return credential.Name
	}
	identity := func(namespace, account, tenant, client string) string {
		credential, err := access.fromServiceAccount(namespace, v1beta1.SecureStorageWorkloadIdentity{TenantID: tenant, ClientID: client, ServiceAccountName: account})
		f.Expect(err).NotTo(HaveOccurred())
		return credential.Name
	}
	own, err := access.credential(t.Context(), f.storage)
	f.Expect(err).NotTo(HaveOccurred())
	names := map[string]string{
		"the manager's own":                  own.Name,
		"secret":                             secret("a", "s", "1", "1"),
		"secret of another namespace":        secret("b", "s", "1", "1"),
		"secret of another name":             secret("a", "other", "1", "1"),
		"recreated secret":                   secret("a", "s", "2", "1"),
		"changed secret":                     secret("a", "s", "1", "2"),
		"identity":                           identity("a", "sa", "t", "c"),
		"identity of another namespace":      identity("b", "sa", "t", "c"),
		"identity of another ServiceAccount": identity("a", "other", "t", "c"),
		"identity of another tenant":         identity("a", "sa", "other", "c"),
		"identity of another client":         identity("a", "sa", "t", "other"),
	}
	seen := map[string]string{}
	for what, name := range names {
		f.Expect(seen).NotTo(HaveKey(name), "%s has the name of %s", what, seen[name])
		seen[name] = what
	}
	f.Expect(secret("a", "s", "1", "1")).To(Equal(names["secret"]), "the same credential shares its client")
}

// A subscription that the credential cannot see says nothing about the account: deleting the
// SecureStorage then would leave its data behind.
func TestMissingSubscriptionKeepsFinalizer(t *testing.T) {
	for code, reason := range map[string]string{
		"SubscriptionNotFound": v1beta1.ReasonResourceGroupMissing,
		"AuthorizationFailed":  v1beta1.ReasonPermissionMissing,
	} {
		t.Run(code, func(t *testing.T) {
			// given a credential that lost the access to the subscription
			f := readyFixture(t)
			f.server.Inject(fakecloud.Fault{Method: http.MethodGet, Resource: "/storageaccounts/", Times: 3, Status: http.StatusNotFound, Code: code})
			// when
			f.delete()
			for range 3 {
				after := f.reconcile()
				f.clock.Step(after)
				// then the object waits
				f.Expect(f.deleted).To(BeFalse())
				f.Expect(f.ready().Reason).To(Equal(reason))
			}
			// and its resources are deleted once the access is back
			f.runUntilDeleted()
			f.expectNothingLeft()
		})
	}
}

// A missing resource group cannot contain the account, so it does not block the deletion.
func TestDeletedResourceGroupReleasesFinalizer(t *testing.T) {
	withoutGroup := func(f *fixture) {
		f.server.Inject(fakecloud.Fault{Method: http.MethodGet, Resource: "/storageaccounts/", Times: 1000, Status: http.StatusNotFound, Code: "ResourceGroupNotFound"})
	}
	t.Run("of a deleted account", func(t *testing.T) {
		f := readyFixture(t)
		f.Expect(f.server.DeleteAccount(f.name())).To(Succeed())
		withoutGroup(f)
		f.delete()
		f.runUntilDeleted()
		f.Expect(f.server.Orphans()).To(BeEmpty())
	})
	// Asking for the name needs requests of a small budget, which other objects need.
	t.Run("without a request for the name of an account that never existed", func(t *testing.T) {
		f := newFixture(t, fastCloud())
		withoutGroup(f)
		f.runUntilReason(v1beta1.ReasonResourceGroupMissing)
		f.delete()
		before := f.calls
		f.runUntilDeleted()
		f.Expect(f.calls - before).To(BeNumerically("<=", 2))
	})
}

// Only the controller's own grant shows that the key vault passed the checks.
func TestRoleAssignmentOfUserDoesNotReplaceVaultChecks(t *testing.T) {
	t.Run("during the creation", func(t *testing.T) {
		// given a key vault without purge protection
		f := newFixture(t, fastCloud(), inVault("unsafe"))
		f.addVault("unsafe", fakecloud.VaultSpec{})
		f.runUntilReason(v1beta1.ReasonVaultNotProtected)
		// when a user assigns the role
		f.grantByHand("unsafe")
		// then the account is still not encrypted with its key
		f.expectVaultStaysRejected()
	})
	t.Run("after a change of the key vault", func(t *testing.T) {
		f := readyFixture(t)
		f.addVault("unsafe", fakecloud.VaultSpec{})
		f.grantByHand("unsafe")
		f.edit(inVault("unsafe"))
		f.runUntilReason(v1beta1.ReasonVaultNotProtected)
		f.expectVaultStaysRejected()
	})
}

func (f *fixture) expectVaultStaysRejected() {
	f.t.Helper()
	before, _ := f.server.Account(f.name())
	f.clock.Step(time.Minute)
	for range 3 {
		f.poll()
		f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonVaultNotProtected))
	}
	account, _ := f.server.Account(f.name())
	f.Expect(account.Encryption).To(Equal(before.Encryption))
}

// The account is handed over to another owner between the read and the deletion.
func TestDoesNotDeleteAccountHandedOverConcurrently(t *testing.T) {
	// given a teardown that has read the account
	f := readyFixture(t)
	f.delete()
	s := &scope{storage: f.storage, access: f.process.access, clock: f.clock}
	f.Expect(s.connectAndRead(t.Context())).To(Succeed())
	// when
	f.Expect(f.server.SetTags(f.name(), map[string]string{cloud.OwnerTag: "another"})).To(Succeed())
	f.clock.Step(time.Minute) // the change is no operation in progress any more
	verdict, err := undoEncryption(t.Context(), s)
	// then
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(verdict.Reason()).To(Equal(v1beta1.ReasonOperationInProgress))
	f.runUntilDeleted()
	_, exists := f.server.Account(f.name())
	f.Expect(exists).To(BeTrue())
	f.Expect(f.server.ReadData(f.name())).To(Succeed())
}

func TestGrantsNothingBeforePrincipalExists(t *testing.T) {
	// given an identity whose principal takes long to exist
	knobs := fastCloud()
	knobs.PrincipalDelay = fakecloud.Fixed(10 * time.Minute)
	f := newFixture(t, knobs)
	// when
	f.Expect(f.runUntilReason(v1beta1.ReasonWaitingForPrincipal).Message).To(ContainSubstring("waiting for the principal ID"))
	// then no grant is requested before it exists
	f.Expect(f.condition(v1beta1.ConditionKeyAccessReady).Status).To(Equal(metav1.ConditionUnknown))
	f.runUntilReady()
	f.Expect(f.grants()).To(Equal([]string{f.demo.Vault}))
	for _, entry := range f.server.Ledger() {
		f.Expect(entry.Code).NotTo(Equal("PrincipalNotFound"))
	}
}
