package securestorage

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Delays before a retry if the cloud does not suggest one.
const (
	retryInProgress  = 5 * time.Second
	maxInProgress    = time.Minute
	retryUnreachable = 15 * time.Second
	retryCredentials = time.Minute
)

// classifyError turns the error of a call into a verdict. Errors that are not about the cloud or the
// credential are returned, to be retried with backoff.
func (s *scope) classifyError(err error) (phases.Verdict, error) {
	var credential *credentialError
	if errors.As(err, &credential) {
		// Only a change of the spec, of the Secret or of the manager's flags can help, and each triggers a reconcile.
		return phases.Stalled(credential.reason, credential.message), nil
	}
	failure, ok := cloud.AsError(err)
	if !ok {
		return nil, err
	}
	if verdict, ok := s.transientVerdict(failure); ok {
		return verdict, nil
	}
	return s.permanentVerdict(failure), nil
}

// isNotAllowed says whether the credential of the manager was refused.
func isNotAllowed(err error) bool {
	var credential *credentialError
	return errors.As(err, &credential) && credential.reason == v1beta1.ReasonCredentialsNotAllowed
}

// transientVerdict handles errors that a retry can resolve.
func (s *scope) transientVerdict(failure *cloud.Error) (phases.Verdict, bool) {
	switch failure.Kind {
	case cloud.Throttled:
		return phases.Wait(v1beta1.ReasonThrottled, "throttled by Azure; retrying", s.atLeast(failure.RetryAfter)), true
	case cloud.InProgress:
		return phases.Wait(v1beta1.ReasonOperationInProgress, failure.Error()+"; waiting for the operation in progress to finish", s.retryAfterOr(failure.RetryAfter, s.backoffInProgress())), true
	case cloud.NotFound:
		return phases.Wait(v1beta1.ReasonOperationInProgress, failure.Error()+"; the resource was deleted or moved during the reconcile; retrying", s.retryAfterOr(failure.RetryAfter, retryInProgress)), true
	case cloud.Propagating:
		return phases.Wait(v1beta1.ReasonPropagating, failure.Error()+"; waiting for the change to propagate in Azure, which takes several minutes", s.retryAfterOr(failure.RetryAfter, retryInProgress)), true
	case cloud.Unreachable:
		return phases.Wait(v1beta1.ReasonCloudUnavailable, failure.Error()+"; retrying", s.retryAfterOr(failure.RetryAfter, retryUnreachable)), true
	default:
		return nil, false
	}
}

// backoffInProgress grows with the time that the phase has been waiting: Azure also refuses with HTTP status 409 what no time
// changes.
func (s *scope) backoffInProgress() time.Duration {
	return s.backoffSince(ptr.Deref(s.storage.Status.WaitingSince, metav1.Time{}).Time, retryInProgress, maxInProgress)
}

// permanentVerdict handles errors that a user has to resolve.
func (s *scope) permanentVerdict(failure *cloud.Error) phases.Verdict {
	switch failure.Kind {
	case cloud.GroupMissing:
		at := vaultLocation{subscription: s.storage.Spec.Provider.SubscriptionID, group: s.group()}.parse(failure.Resource)
		return s.stalledUntilPoll(v1beta1.ReasonResourceGroupMissing, fmt.Sprintf(
			"%s; create resource group %s in subscription %s, or use a credential that has access to this subscription", failure.Error(), at.group, at.subscription))
	case cloud.NameTaken:
		return s.stalledUntilPoll(v1beta1.ReasonNameTaken, fmt.Sprintf(
			"storage account name %s is already taken in Azure, or reserved by a deleted account that can be restored (%s); create a SecureStorage with another spec.accountName, or without one", accountName(s.storage), failure.Code))
	case cloud.Locked, cloud.Disallowed:
		return s.forbiddenVerdict(failure)
	case cloud.OutOfScope:
		return phases.Stalled(v1beta1.ReasonCredentialsNotAllowed, failure.Error()+"; set spec.provider.workloadIdentity or spec.provider.credentialsSecretRef, or have an administrator extend the flag --ambient-credentials of the manager")
	case cloud.Denied:
		return s.stalledUntilPoll(v1beta1.ReasonPermissionMissing, failure.Error()+"; "+s.missingRole(failure))
	case cloud.NoAssertion:
		return phases.Stalled(v1beta1.ReasonCredentialsMissing, failure.Message).RecheckAfter(s.jitter(retryCredentials))
	case cloud.BadCredentials:
		return phases.Stalled(v1beta1.ReasonCredentialsInvalid, failure.Error()+"; "+s.credentialRemedy()+
			", and check that it belongs to the tenant of the subscription").RecheckAfter(s.jitter(retryCredentials))
	default:
		return s.stalledUntilPoll(v1beta1.ReasonInvalidRequest, failure.Error()+"; "+remedyOf(failure.Code))
	}
}

// credentialRemedy says what to do about a credential that Azure does not accept. A workload identity has none that could be
// renewed.
func (s *scope) credentialRemedy() string {
	provider := s.storage.Spec.Provider
	switch {
	case provider.CredentialsSecretRef != nil:
		return "renew the credential in Secret " + provider.CredentialsSecretRef.Name + " (spec.provider.credentialsSecretRef)"
	case provider.WorkloadIdentity != nil:
		return "correct spec.provider.workloadIdentity, or the issuer, the subject and the audience of the federated credential"
	default:
		return "have an administrator renew the credential of the manager"
	}
}

// remedyOf says what to do about a request that Azure rejects. Some it rejects whatever the spec says.
func remedyOf(code string) string {
	switch code {
	case "ReadOnlyDisabledSubscription":
		return "enable the subscription"
	case "SubscriptionNotRegistered", "MissingSubscriptionRegistration":
		return "register the resource provider in the subscription with 'az provider register'"
	case "MaxStorageAccountsCountPerSubscriptionExceeded", "StorageAccountCountExceedsLimitPerRegion", "RoleAssignmentLimitExceeded":
		return "have the limit raised, or delete what is not needed in the subscription"
	case "LocationNotAvailableForResourceType": // the field is immutable
		return "create a SecureStorage with another spec.provider.location"
	default:
		return "correct the spec"
	}
}

// forbiddenVerdict handles requests that a lock, a deny assignment or an Azure policy forbids.
func (s *scope) forbiddenVerdict(failure *cloud.Error) phases.Verdict {
	switch {
	case s.storage.DeletionTimestamp != nil:
		return phases.Stalled(v1beta1.ReasonDeletionBlocked, failure.Error()+"; remove the lock, deny assignment or policy").RecheckAfter(s.jitter(retryCredentials))
	case failure.Kind == cloud.Locked:
		return s.stalledUntilPoll(v1beta1.ReasonPermissionMissing, failure.Error()+"; remove the lock or deny assignment")
	default:
		return s.stalledUntilPoll(v1beta1.ReasonInvalidRequest, failure.Error()+"; correct the spec, or change the Azure policy")
	}
}

// missingRole says which role to assign. Azure's message names the action and the scope. The key vault may be a former one.
func (s *scope) missingRole(failure *cloud.Error) string {
	at := vaultOf(s.storage).parse(failure.Resource)
	switch {
	case s.observes() && failure.Target == cloud.OnAccount:
		return "assign the role Reader on resource group " + s.group() + " to the identity of the credential"
	case s.observes(): // this role also permits reading the role assignments
		return "assign the role Key Vault Reader on key vault " + at.name + " to the identity of the credential"
	case failure.Target == cloud.OnRoles:
		return "assign the role Role Based Access Control Administrator on key vault " + at.name + " to the identity of the credential"
	case failure.Target == cloud.OnVault:
		return "assign the role Key Vault Reader on key vault " + at.name + " to the identity of the credential (Key Vault Contributor if spec.access.type is AccessPolicy)"
	default:
		return "assign the role Storage Account Contributor on resource group " + s.group() + " to the identity of the credential"
	}
}

// atLeast adds jitter to a delay that Azure asked for, and never shortens it.
func (s *scope) atLeast(asked time.Duration) time.Duration {
	return asked + s.upTo(min(max(asked/jitterShare, 10*time.Millisecond), time.Second))
}

func (s *scope) retryAfterOr(asked, otherwise time.Duration) time.Duration {
	if asked > 0 {
		return s.atLeast(asked)
	}
	return s.jitter(otherwise)
}
