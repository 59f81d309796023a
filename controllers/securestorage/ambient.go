package securestorage

import (
	"fmt"
	"slices"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// A SecureStorage without credentials uses the credential of the manager, which may reach far more than
// the user who creates the SecureStorage. So it is refused unless the installation allows it for the
// namespace, and it reaches only the scopes that the installation allows. See docs/adr/0031.

// AllNamespaces is the key of [AmbientScopes] for all namespaces.
const AllNamespaces = "*"

// AmbientScopes are the scopes in which SecureStorages may use the credential of the manager, by
// namespace. The zero value allows nothing.
type AmbientScopes map[string][]cloud.Scope

// in returns the scopes of a namespace.
func (a AmbientScopes) in(namespace string) []cloud.Scope {
	return slices.Concat(a[namespace], a[AllNamespaces])
}

// isAmbient says whether the spec selects the credential of the manager.
func isAmbient(storage *v1beta1.SecureStorage) bool {
	return storage.Spec.Provider.CredentialsSecretRef == nil && storage.Spec.Provider.WorkloadIdentity == nil
}

// own returns the credential of the manager, limited to the scopes of the namespace.
func (a *cloudAccess) own(storage *v1beta1.SecureStorage) (cloud.Credential, error) {
	scopes := a.ambient.in(storage.Namespace)
	if refusal := refuseAmbient(storage, scopes); refusal != nil {
		return cloud.Credential{}, refusal
	}
	token, err := a.credentials.Own()
	if err != nil {
		return cloud.Credential{}, credentialMissing("the manager has no credential of its own; set spec.provider.credentialsSecretRef or spec.provider.workloadIdentity, or configure a credential for the manager")
	}
	return cloud.Credential{Name: "own", Token: token, Scopes: scopes}, nil
}

// refuseAmbient says why the credential of the manager may not be used for a SecureStorage, or returns
// nil. It refuses before the first request, so that no account is created whose key is out of reach.
func refuseAmbient(storage *v1beta1.SecureStorage, scopes []cloud.Scope) error {
	provider, vault := storage.Spec.Provider, vaultOf(storage)
	account := cloud.AccountID(provider.SubscriptionID, provider.ResourceGroup, accountName(storage))
	switch {
	case len(scopes) == 0:
		return credentialNotAllowed(storage, fmt.Sprintf("spec.provider names no credentials, and namespace %s is not allowed to use the credential of the manager", storage.Namespace),
			cloud.GroupID(provider.SubscriptionID, provider.ResourceGroup))
	case !cloud.ContainedIn(scopes, account):
		return credentialNotAllowed(storage, fmt.Sprintf("resource group %s of subscription %s (spec.provider) is outside of the scopes in which namespace %s may use the credential of the manager", provider.ResourceGroup, provider.SubscriptionID, storage.Namespace),
			cloud.GroupID(provider.SubscriptionID, provider.ResourceGroup))
	case !cloud.ContainedIn(scopes, vault.id()):
		return credentialNotAllowed(storage, fmt.Sprintf("key vault %s in resource group %s of subscription %s (spec.key) is outside of the scopes in which namespace %s may use the credential of the manager", vault.name, vault.group, vault.subscription, storage.Namespace),
			vault.id())
	default:
		return nil
	}
}

// credentialNotAllowed names the remedies.
func credentialNotAllowed(storage *v1beta1.SecureStorage, problem, scope string) error {
	return &credentialError{v1beta1.ReasonCredentialsNotAllowed, problem + "; set spec.provider.workloadIdentity or spec.provider.credentialsSecretRef, or have an administrator set the flag --ambient-credentials=" + storage.Namespace + "=" + scope + " of the manager"}
}

// hasNothingInCloud says whether an error refuses the credential of the manager for a SecureStorage that
// has never been connected with it: it has created nothing, so that there is nothing to delete. The status
// records a grant in the reconcile that creates the account.
func (s *scope) hasNothingInCloud(err error) bool {
	return isNotAllowed(err) && hasNoRecord(s.storage)
}

// hasNoRecord says whether the status records no resource in Azure.
func hasNoRecord(storage *v1beta1.SecureStorage) bool {
	status := storage.Status
	return status.AccountID == "" && status.PrincipalID == "" && len(status.Grants) == 0
}
