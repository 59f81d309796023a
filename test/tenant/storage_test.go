package tenant_test

import (
	"fmt"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// storageAttempts try to reach accounts, key vaults and credentials of others through SecureStorages.
func storageAttempts() []attempt {
	const notAllowed = "`CredentialsNotAllowed`, no request to Azure"
	none := &v1beta1.SecureStorage{}
	return []attempt{
		{"create an account in the resource group of another team, with the credential of the manager", editor, notAllowed, func(a *trial) {
			a.Expect(a.storage("other-group", victim, ofTenant, "", "accountName: intruder")).To(Succeed())
			shows(a, "other-group", none.DeepCopy(), v1beta1.ReasonCredentialsNotAllowed,
				"resource group victim of subscription "+a.demo.Subscription+" (spec.provider) is outside of the scopes in which namespace tenant may use the credential of the manager",
				"set spec.provider.workloadIdentity or spec.provider.credentialsSecretRef, or have an administrator set the flag --ambient-credentials=tenant=")
			a.Expect(a.cloud.Total("/storageaccounts/intruder").Calls()).To(BeZero())
		}},
		{"adopt, encrypt again and delete an account of another team", editor, notAllowed, func(a *trial) {
			a.Expect(a.storage("adopt", victim, ofVictim, "", "accountName: "+victimAccount+", adoptionPolicy: IfUnowned, accountLossPolicy: Recreate, deletionPolicy: Delete")).To(Succeed())
			storage := shows(a, "adopt", none.DeepCopy(), v1beta1.ReasonCredentialsNotAllowed, "(spec.provider) is outside of the scopes")
			a.delete(storage)
			a.untouched(victimAccount)
		}},
		{"name a resource group that starts like an allowed one, or leaves it", editor, "`CredentialsNotAllowed`; other characters are refused: the message names `resourceGroup`", func(a *trial) {
			a.Expect(a.storage("prefix", "tenant2", ofTenant, "", "")).To(Succeed())
			shows(a, "prefix", none.DeepCopy(), v1beta1.ReasonCredentialsNotAllowed, "resource group tenant2")
			for _, group := range []string{"tenant/../victim", "tenant/providers", "tenant%2f..%2fvictim", "..", ""} {
				a.refused(a.storage("leave", group, ofTenant, "", ""), "spec.provider.resourceGroup", "resourceGroup must consist of")
			}
		}},
		{"use a key in the key vault of another team, by name or by ID", editor, notAllowed, func(a *trial) {
			id := fmt.Sprintf("vaultID: /subscriptions/%s/resourceGroups/victim/providers/Microsoft.KeyVault/vaults/victim-vault", a.demo.Subscription)
			for name, vault := range map[string]string{"vault-name": ofVictim, "vault-id": id} {
				a.Expect(a.storage(name, tenant, vault, "", "accountName: "+name[:5]+"keys")).To(Succeed())
				shows(a, name, none.DeepCopy(), v1beta1.ReasonCredentialsNotAllowed, "key vault victim-vault", "(spec.key) is outside of the scopes")
			}
			a.Expect(a.cloud.Total("/storageaccounts/vaultkeys").Calls()).To(BeZero())
		}},
		{"adopt an account without an owner in the own resource group", editor, "`AccountNotOwned`, no write", func(a *trial) {
			a.Expect(a.storage("untagged", tenant, ofTenant, "", "accountName: "+untagged+", adoptionPolicy: IfUnowned, deletionPolicy: Delete")).To(Succeed())
			storage := shows(a, "untagged", none.DeepCopy(), v1beta1.ReasonAccountNotOwned, untagged)
			a.delete(storage)
			a.Expect(a.ledgerOf("/storageaccounts/" + untagged)).To(BeEmpty())
		}},
		{"export the keys of an account of another team, of one without an owner, or of one that is only observed", editor, "`CredentialsNotAllowed` or `AccountNotOwned`, no list of keys; with `managementPolicy: Observe` refused: the message names `export.accountKeys`", func(a *trial) {
			const keys = ", adoptionPolicy: IfUnowned, export: {accountKeys: true}"
			a.Expect(a.storage("export-victim", victim, ofVictim, "", "accountName: "+victimAccount+keys)).To(Succeed())
			a.Expect(a.storage("export-untagged", tenant, ofTenant, "", "accountName: "+untagged+keys)).To(Succeed())
			shows(a, "export-victim", none.DeepCopy(), v1beta1.ReasonCredentialsNotAllowed, "(spec.provider) is outside of the scopes")
			shows(a, "export-untagged", none.DeepCopy(), v1beta1.ReasonAccountNotOwned, untagged)
			a.refused(a.storage("export-observed", tenant, ofTenant, "", "managementPolicy: Observe, accountName: "+untagged+keys), "spec.export.accountKeys", "requires managementPolicy Manage")
			a.untouched(victimAccount)
			a.Expect(a.ledgerOf("/storageaccounts/" + untagged)).To(BeEmpty())
		}},
		{"export keys where the manager may not create Secrets", editor, "`Forbidden`: the message names the permission; no Secret", func(a *trial) {
			a.Expect(a.storage("export-forbidden", tenant, ofTenant, "", "export: {accountKeys: true}")).To(Succeed())
			shows(a, "export-forbidden", none.DeepCopy(), v1beta1.ReasonForbidden, "cannot create resource \"secrets\"", "grant the manager's service account this permission")
			a.Expect(a.read(&corev1.Secret{}, tenant, "export-forbidden")).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		}},
		{"take over a ConfigMap or a Secret by the name of a SecureStorage that exports", edit, "`NotOwned` or `OwnedByAnother`: the message names the object, which is unchanged", func(a *trial) {
			a.mustCreate("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: export-config}\ndata: {accountName: mine}\n")
			a.mustCreate("apiVersion: v1\nkind: Secret\nmetadata: {name: export-secret}\nstringData: {key1: mine}\n")
			a.Expect(a.app("export-app", "config: {A: \"1\"}")).To(Succeed())
			becomesReady(a, "export-app", &v1beta1.AppService{})
			exports := map[string]struct {
				export, reason, message string
				before, after           client.Object
			}{
				"export-config":    {"{}", v1beta1.ReasonNotOwned, "ConfigMap tenant/export-config exists and no controller owns it", &corev1.ConfigMap{}, &corev1.ConfigMap{}},
				"kube-root-ca.crt": {"{}", v1beta1.ReasonNotOwned, "ConfigMap tenant/kube-root-ca.crt exists and no controller owns it", &corev1.ConfigMap{}, &corev1.ConfigMap{}},
				"export-app":       {"{}", v1beta1.ReasonOwnedByAnother, "ConfigMap tenant/export-app", &corev1.ConfigMap{}, &corev1.ConfigMap{}},
				"export-secret":    {"{accountKeys: true}", v1beta1.ReasonNotOwned, "Secret tenant/export-secret exists and no controller owns it", &corev1.Secret{}, &corev1.Secret{}},
			}
			for name, c := range exports {
				a.Eventually(func() error { return a.read(c.before, tenant, name) }).Should(Succeed())
				a.Expect(a.storage(name, tenant, ofTenant, "", "adoptionPolicy: IfUnowned, deletionPolicy: Delete, export: "+c.export)).To(Succeed())
			}
			for name, c := range exports {
				a.delete(shows(a, name, none.DeepCopy(), c.reason, c.message))
				a.Expect(a.read(c.after, tenant, name)).To(Succeed())
				a.Expect(c.after).To(Equal(c.before))
			}
		}},
		{"take the name of the account of another SecureStorage", editor, "`NameTaken`, the account is unchanged", func(a *trial) {
			before, _ := a.cloud.Account(victimLedger)
			a.Expect(a.storage("taken", tenant, ofTenant, "", "accountName: "+victimLedger+", adoptionPolicy: IfUnowned, deletionPolicy: Delete")).To(Succeed())
			storage := shows(a, "taken", none.DeepCopy(), v1beta1.ReasonNameTaken, "spec.accountName")
			a.Expect(a.api.Delete(a.ctx, storage)).To(Succeed())
			// The controller waits in case that the account is its own and not visible yet.
			shows(a, "taken", none.DeepCopy(), v1beta1.ReasonTerminating, "storage account name "+victimLedger+" is still in use")
			after, found := a.cloud.Account(victimLedger)
			a.Expect(found).To(BeTrue())
			a.Expect(after).To(Equal(before))
		}},
		{"forge the tag that says who owns an account", editor, "refused: the message names `tags`", func(a *trial) {
			for _, key := range []string{"fixpoint.dev-owner", "FIXPOINT.DEV-OWNER"} {
				a.refused(a.storage("tag", tenant, ofTenant, "", fmt.Sprintf("tags: {%s: a}", key)), "spec.tags", "rename the key")
			}
		}},
		{"take credentials from the Secret of another namespace", editor, "a name with a namespace is refused: the message names the field; a Secret that only another namespace has: `CredentialsMissing`", func(a *trial) {
			for _, name := range []string{"victim/azure", "../victim/azure", "victim%2fazure", "azure?namespace=victim"} {
				a.refused(a.storage("credentials", tenant, ofTenant, fmt.Sprintf("credentialsSecretRef: {name: %q}", name), ""), "spec.provider.credentialsSecretRef.name", "must be the name of a Secret in this namespace")
			}
			a.Expect(a.storage("credentials", victim, ofVictim, "credentialsSecretRef: {name: azure}", "accountName: "+victimAccount)).To(Succeed())
			shows(a, "credentials", none.DeepCopy(), v1beta1.ReasonCredentialsMissing, "Secret azure (spec.provider.credentialsSecretRef) does not exist; create it")
			a.untouched(victimAccount)
		}},
		{"use the cloud identity of the ServiceAccount of another namespace, or of the manager", editor, "a name with a namespace is refused: the message names the field; a name that only another namespace has: no token", func(a *trial) {
			const identity = "workloadIdentity: {tenantID: 00000000-0000-4000-8000-000000000001, clientID: 00000000-0000-4000-8000-000000000002, serviceAccountName: %q}"
			for _, name := range []string{"victim/deployer", "system:serviceaccount:victim:deployer", "../../victim/serviceaccounts/deployer"} {
				a.refused(a.storage("identity", tenant, ofTenant, fmt.Sprintf(identity, name), ""), "spec.provider.workloadIdentity.serviceAccountName", "must be the name of a ServiceAccount")
			}
			for name, object := range map[string]string{"deployer": "identity-victim", account: "identity-manager"} {
				a.Expect(a.storage(object, victim, ofVictim, fmt.Sprintf(identity, name), "accountName: "+victimAccount)).To(Succeed())
				shows(a, object, none.DeepCopy(), v1beta1.ReasonCredentialsMissing, "ServiceAccount "+name+" (spec.provider.workloadIdentity)")
			}
			a.untouched(victimAccount)
		}},
		{"forge a status that names the account of another team, and delete the object", editor, "the status is dropped; a request to `status` is forbidden", func(a *trial) {
			id := fmt.Sprintf("/subscriptions/%s/resourceGroups/victim/providers/Microsoft.Storage/storageAccounts/%s", a.demo.Subscription, victimAccount)
			forged := fmt.Sprintf("status: {observedGeneration: 1, accountID: %s, accountName: %s, grants: [{vaultID: %s, accessType: RoleAssignment}]}\n", id, victimAccount, "/subscriptions/a")
			text := objectText("SecureStorage", "forged", fmt.Sprintf("provider: {subscriptionID: %s, resourceGroup: victim, location: %s}, key: {%s, name: storage}, deletionPolicy: Delete",
				a.demo.Subscription, a.demo.Location, ofVictim))
			a.mustCreate(text + forged)
			storage := shows(a, "forged", none.DeepCopy(), v1beta1.ReasonCredentialsNotAllowed, "(spec.provider)")
			a.Expect(storage.Status.AccountID).To(BeEmpty())
			a.forbidden(a.patch(none.DeepCopy(), tenant, "forged", forged, "status"))
			a.delete(&v1beta1.SecureStorage{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "forged"}})
			a.untouched(victimAccount)
		}},
		{"poll Azure without a pause, so that the requests of others are throttled", editor, "refused: the message names `pollInterval`", func(a *trial) {
			for _, interval := range []string{"1ms", "0s", "-1h", "9s"} {
				a.refused(a.storage("poll", tenant, ofTenant, "", "pollInterval: "+interval), "spec.pollInterval", "use a value such as")
			}
		}},
	}
}
