package securestorage

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// cloudAccess holds the clients and credentials with which the phases reach the cloud.
type cloudAccess struct {
	cloud       *cloud.Cloud
	credentials cloud.Credentials
	// ambient are the scopes in which namespaces may use the credential of the manager.
	ambient AmbientScopes
	// manager is the ServiceAccount of the manager, or empty.
	manager types.NamespacedName
	// secrets bypasses the cache, so that no credential is kept in memory. cache has the exported objects; it is nil in a plan.
	secrets client.Reader
	cache   client.Reader
	// protection is nil in a plan.
	protection *secretProtection
	tokens     client.SubResourceClient
	recorder   events.EventRecorder
	// plans is true for an engine that only plans.
	plans bool
}

// credentialError says what is wrong with a credential. It never contains any part of the credential.
type credentialError struct{ reason, message string }

func credentialMissing(format string, args ...any) error {
	return &credentialError{v1beta1.ReasonCredentialsMissing, fmt.Sprintf(format, args...)}
}

func secretMissing(name string) error {
	return credentialMissing("Secret %s (spec.provider.credentialsSecretRef) does not exist; create it", name)
}

func credentialInvalid(format string, args ...any) error {
	return &credentialError{v1beta1.ReasonCredentialsInvalid, fmt.Sprintf(format, args...)}
}

func (e *credentialError) Error() string { return e.message }

// credential returns the credential that the spec selects: of a Secret, of a ServiceAccount, or the manager's own.
func (a *cloudAccess) credential(ctx context.Context, storage *v1beta1.SecureStorage) (cloud.Credential, error) {
	provider := storage.Spec.Provider
	switch {
	case provider.CredentialsSecretRef != nil:
		return a.fromSecret(ctx, storage.Namespace, provider.CredentialsSecretRef.Name)
	case provider.WorkloadIdentity != nil:
		return a.fromServiceAccount(storage.Namespace, *provider.WorkloadIdentity)
	default:
		return a.own(storage)
	}
}

// anywhere are the scopes of a credential that belongs to the namespace: Azure alone limits what it may do.
var anywhere = []cloud.Scope{cloud.Anywhere}

func (a *cloudAccess) fromSecret(ctx context.Context, namespace, name string) (cloud.Credential, error) {
	var secret corev1.Secret
	err := a.secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return cloud.Credential{}, secretMissing(name)
	}
	if err != nil {
		return cloud.Credential{}, fmt.Errorf("reading the credentials in Secret %s: %w", name, err)
	}
	values := make([]string, 0, len(secret.Data))
	for _, key := range []string{v1beta1.CredentialTenantID, v1beta1.CredentialClientID, v1beta1.CredentialClientSecret} {
		value := strings.TrimSpace(string(secret.Data[key])) // a value from a file or a terminal ends with a line break
		if value == "" {
			return cloud.Credential{}, credentialMissing("Secret %s (spec.provider.credentialsSecretRef) has no key %s; add it", name, key)
		}
		values = append(values, value)
	}
	token, err := a.credentials.Secret(values[0], values[1], values[2])
	if err != nil {
		// The SDK's error may quote parts of the credential, so it is dropped.
		return cloud.Credential{}, credentialInvalid("Secret %s (spec.provider.credentialsSecretRef) is not a valid credential; check that tenantID and clientID are UUIDs", name)
	}
	// A changed Secret is a new credential, with clients of its own.
	return cloud.Credential{Name: fmt.Sprintf("secret %s %s %s %s", namespace, name, secret.UID, secret.ResourceVersion), Token: token, Scopes: anywhere}, nil
}

// tokenAudience is the audience that Microsoft Entra ID requires of ServiceAccount tokens. See
// https://learn.microsoft.com/entra/workload-id/workload-identity-federation.
const tokenAudience = "api://AzureADTokenExchange"

func (a *cloudAccess) fromServiceAccount(namespace string, identity v1beta1.SecureStorageWorkloadIdentity) (cloud.Credential, error) {
	name := cmp.Or(identity.ServiceAccountName, "default")
	if (types.NamespacedName{Namespace: namespace, Name: name}) == a.manager {
		return cloud.Credential{}, &credentialError{v1beta1.ReasonCredentialsNotAllowed, fmt.Sprintf("spec.provider.workloadIdentity.serviceAccountName is %s, the ServiceAccount of the manager; set another ServiceAccount", name)}
	}
	token, err := a.credentials.Assertion(identity.TenantID, identity.ClientID, func(ctx context.Context) (string, error) {
		account := &corev1.ServiceAccount{}
		account.Namespace, account.Name = namespace, name
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{tokenAudience}}}
		err := a.tokens.Create(ctx, account, request) //nolint:forbidigo // a TokenRequest is not stored
		if apierrors.IsNotFound(err) {
			return "", &cloud.AssertionError{Message: fmt.Sprintf("ServiceAccount %s (spec.provider.workloadIdentity) does not exist; create it", name)}
		}
		if apierrors.IsForbidden(err) {
			return "", &cloud.AssertionError{Message: fmt.Sprintf(
				"the manager is not allowed to request tokens of ServiceAccount %s (spec.provider.workloadIdentity); "+
					"have an administrator grant it the verb create on serviceaccounts/token: set rbac.workloadIdentity of the chart, "+
					"or apply the component config/workload-identity; see Permissions in docs/operations.md", name)}
		}
		if err != nil {
			// The rest of the error may change with each retry, so it is dropped.
			return "", &cloud.AssertionError{Temporary: true, Message: fmt.Sprintf("the API server issued no token for ServiceAccount %s (spec.provider.workloadIdentity): %s",
				name, cmp.Or(apierrors.ReasonForError(err), "it did not respond"))}
		}
		return request.Status.Token, nil
	})
	if err != nil {
		return cloud.Credential{}, credentialInvalid("spec.provider.workloadIdentity is not a valid credential; check that tenantID and clientID are UUIDs")
	}
	// The namespace is part of the name: namespaces must not share a client, even for the same IDs.
	return cloud.Credential{Name: fmt.Sprintf("identity %s %s %s %s", namespace, name, identity.TenantID, identity.ClientID), Token: token, Scopes: anywhere}, nil
}

// normalEvent and warningEvent emit Events that no condition repeats, such as those of a teardown.
func (a *cloudAccess) normalEvent(storage *v1beta1.SecureStorage, reason, note string) {
	a.event(storage, corev1.EventTypeNormal, reason, note)
}

func (a *cloudAccess) warningEvent(storage *v1beta1.SecureStorage, reason, note string) {
	a.event(storage, corev1.EventTypeWarning, reason, note)
}

func (a *cloudAccess) event(storage *v1beta1.SecureStorage, kind, reason, note string) {
	// The API server refuses notes of more than 1024 bytes.
	const maxNote = 1024
	if a.recorder != nil {
		a.recorder.Eventf(storage, nil, kind, reason, "Delete", "%s", workload.Cut(note, maxNote))
	}
}
