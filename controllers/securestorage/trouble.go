package securestorage

import (
	"errors"
	"fmt"
	"time"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Pauses where the cloud does not suggest one.
const (
	pauseProgress    = 5 * time.Second
	pauseUnreachable = 15 * time.Second
	pauseCredentials = time.Minute
)

// trouble sorts a failed call into what the phase says about it. Only errors that are no answer of
// the cloud are passed on, to be tried again with backoff.
func (s *scope) trouble(err error) (phases.Verdict, error) {
	var credential *credentialError
	if errors.As(err, &credential) {
		return phases.Wait(v1alpha1.ReasonCredentialsMissing, credential.message, jitter(pauseCredentials)), nil
	}
	var failure *cloud.Error
	if !errors.As(err, &failure) {
		return phases.Verdict{}, err
	}
	switch failure.Kind {
	case cloud.Throttled:
		return phases.Wait(v1alpha1.ReasonThrottled, "the cloud takes no more requests for this subscription at the moment", later(failure.RetryAfter)), nil
	case cloud.InProgress:
		return phases.Wait(v1alpha1.ReasonOperationInProgress, failure.Error()+"; waiting for it to end", pauseOr(failure.RetryAfter, pauseProgress)), nil
	case cloud.Propagating:
		return phases.Wait(v1alpha1.ReasonPropagating, failure.Error()+"; it takes minutes to be known everywhere", pauseOr(failure.RetryAfter, pauseProgress)), nil
	case cloud.GroupMissing:
		return s.blocked(v1alpha1.ReasonResourceGroupMissing, fmt.Sprintf(
			"%s; create resource group %s in subscription %s, or correct spec.provider in a new SecureStorage", failure.Error(), s.group(), s.storage.Spec.Provider.SubscriptionID)), nil
	case cloud.NameTaken:
		return s.blocked(v1alpha1.ReasonNameTaken, fmt.Sprintf(
			"the name %s is taken in the cloud, by somebody else or by an account that was deleted and can be recovered (%s); choose another spec.accountName in a new SecureStorage, or leave it out", accountName(s.storage), failure.Code)), nil
	case cloud.Locked:
		return phases.Wait(v1alpha1.ReasonDeletionBlocked, failure.Error()+"; remove the lock, or annotate the SecureStorage with "+v1alpha1.AnnotationAbandon+`="true" to leave the account behind`, jitter(pauseCredentials)), nil
	case cloud.Denied:
		return s.blocked(v1alpha1.ReasonPermissionMissing, failure.Error()+"; "+s.remedyFor(failure.Target)), nil
	case cloud.BadCredentials:
		return phases.Stalled(v1alpha1.ReasonCredentialsInvalid, failure.Error()+"; renew the credential, and see that it is one of the tenant of the subscription").LookAgainAfter(jitter(pauseCredentials)), nil
	case cloud.Invalid:
		return s.blocked(v1alpha1.ReasonInvalidRequest, failure.Error()+"; correct the spec"), nil
	default:
		return phases.Wait(v1alpha1.ReasonCloudUnavailable, failure.Error()+"; it is tried again", pauseOr(failure.RetryAfter, pauseUnreachable)), nil
	}
}

// remedyFor names the role that is missing. The cloud's message names the action and the scope.
func (s *scope) remedyFor(target cloud.Target) string {
	at := vaultOf(s.storage)
	switch target {
	case cloud.OnRoles:
		return "give the identity that the manager uses the role Role Based Access Control Administrator on key vault " + at.name
	case cloud.OnVault:
		return "give the identity that the manager uses the role Key Vault Contributor on key vault " + at.name
	default:
		return "give the identity that the manager uses the role Storage Account Contributor on resource group " + s.group()
	}
}

// later keeps to what the cloud asked for, and a little longer: never earlier.
func later(asked time.Duration) time.Duration {
	return asked + jitter(max(asked/10, 100*time.Millisecond))
}

func pauseOr(asked, otherwise time.Duration) time.Duration {
	if asked > 0 {
		return later(asked)
	}
	return jitter(otherwise)
}
