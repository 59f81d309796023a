package securestorage

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// door is how the phases reach the cloud, and who they are there.
type door struct {
	cloud       *cloud.Cloud
	credentials cloud.Credentials
	// secrets reads past the cache: no Secret is kept in memory.
	secrets  client.Reader
	tokens   client.SubResourceClient
	recorder events.EventRecorder
}

// credentialError says what the credential lacks. It never holds anything of the credential.
type credentialError struct{ reason, message string }

func credentialMissing(format string, args ...any) error {
	return &credentialError{v1alpha1.ReasonCredentialsMissing, fmt.Sprintf(format, args...)}
}

func credentialInvalid(format string, args ...any) error {
	return &credentialError{v1alpha1.ReasonCredentialsInvalid, fmt.Sprintf(format, args...)}
}

// Error implements error.
func (e *credentialError) Error() string { return e.message }

// credential is the one that the object asks for: a Secret's, a ServiceAccount's, or the manager's own.
func (d *door) credential(ctx context.Context, storage *v1alpha1.SecureStorage) (cloud.Credential, error) {
	provider := storage.Spec.Provider
	switch {
	case provider.CredentialsRef != nil:
		return d.fromSecret(ctx, storage.Namespace, provider.CredentialsRef.Name)
	case provider.WorkloadIdentity != nil:
		return d.fromServiceAccount(storage.Namespace, *provider.WorkloadIdentity)
	default:
		token, err := d.credentials.Own()
		if err != nil {
			return cloud.Credential{}, credentialMissing("the manager has no credential of its own: give it one, or set spec.provider.credentialsRef or workloadIdentity")
		}
		return cloud.Credential{Name: "own", Token: token}, nil
	}
}

func (d *door) fromSecret(ctx context.Context, namespace, name string) (cloud.Credential, error) {
	var secret corev1.Secret
	err := d.secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return cloud.Credential{}, credentialMissing("Secret %s, which spec.provider.credentialsRef names, does not exist; create it", name)
	}
	if err != nil {
		return cloud.Credential{}, fmt.Errorf("reading the credentials in Secret %s: %w", name, err)
	}
	values := make([]string, 0, len(secret.Data))
	for _, key := range []string{v1alpha1.CredentialTenantID, v1alpha1.CredentialClientID, v1alpha1.CredentialClientSecret} {
		if len(secret.Data[key]) == 0 {
			return cloud.Credential{}, credentialMissing("Secret %s, which spec.provider.credentialsRef names, has no key %s; add it", name, key)
		}
		values = append(values, string(secret.Data[key]))
	}
	token, err := d.credentials.Secret(values[0], values[1], values[2])
	if err != nil {
		// The SDK's error may quote what it was given.
		return cloud.Credential{}, credentialInvalid("Secret %s, which spec.provider.credentialsRef names, holds no usable credential: see that tenantID and clientID are UUIDs", name)
	}
	// A Secret that has changed is another credential, with connections of its own.
	return cloud.Credential{Name: fmt.Sprintf("secret %s %s %s %s", namespace, name, secret.UID, secret.ResourceVersion), Token: token}, nil
}

// tokenAudience is whom Azure's directory wants tokens to be made out to. See
// https://learn.microsoft.com/entra/workload-id/workload-identity-federation.
const tokenAudience = "api://AzureADTokenExchange"

func (d *door) fromServiceAccount(namespace string, identity v1alpha1.SecureStorageWorkloadIdentity) (cloud.Credential, error) {
	name := identity.ServiceAccountName
	if name == "" {
		name = "default"
	}
	token, err := d.credentials.Assertion(identity.TenantID, identity.ClientID, func(ctx context.Context) (string, error) {
		account := &corev1.ServiceAccount{}
		account.Namespace, account.Name = namespace, name
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{tokenAudience}}}
		err := d.tokens.Create(ctx, account, request) //nolint:forbidigo // a TokenRequest is answered, and stored nowhere
		if apierrors.IsNotFound(err) {
			return "", &cloud.AssertionError{Message: fmt.Sprintf("ServiceAccount %s, whose token spec.provider.workloadIdentity asks for, does not exist; create it", name)}
		}
		if err != nil {
			return "", fmt.Errorf("asking for a token of ServiceAccount %s: %w", name, err)
		}
		return request.Status.Token, nil
	})
	if err != nil {
		return cloud.Credential{}, credentialInvalid("spec.provider.workloadIdentity makes no usable credential: see that tenantID and clientID are UUIDs")
	}
	return cloud.Credential{Name: fmt.Sprintf("identity %s %s %s %s", namespace, name, identity.TenantID, identity.ClientID), Token: token}, nil
}

// note and warn emit an Event about something that no condition will show, since it is about to go.
func (d *door) note(storage *v1alpha1.SecureStorage, reason, note string) {
	d.tell(storage, corev1.EventTypeNormal, reason, note)
}

func (d *door) warn(storage *v1alpha1.SecureStorage, reason, note string) {
	d.tell(storage, corev1.EventTypeWarning, reason, note)
}

func (d *door) tell(storage *v1alpha1.SecureStorage, kind, reason, note string) {
	if d.recorder != nil {
		d.recorder.Eventf(storage, nil, kind, reason, "Delete", "%s", note)
	}
}
