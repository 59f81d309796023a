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
		return phases.Stalled(credential.reason, credential.message).LookAgainAfter(jitter(pauseCredentials)), nil
	}
	failure, ok := cloud.AsError(err)
	if !ok {
		return phases.Verdict{}, err
	}
	if verdict, ok := s.passing(failure); ok {
		return verdict, nil
	}
	return s.lasting(failure), nil
}

// passing is trouble that time mends.
func (s *scope) passing(failure *cloud.Error) (phases.Verdict, bool) {
	switch failure.Kind {
	case cloud.Throttled:
		return phases.Wait(v1alpha1.ReasonThrottled, "the cloud takes no more requests for this subscription at the moment", later(failure.RetryAfter)), true
	case cloud.InProgress:
		return phases.Wait(v1alpha1.ReasonOperationInProgress, failure.Error()+"; waiting for it to end", pauseOr(failure.RetryAfter, pauseProgress)), true
	case cloud.NotFound:
		return phases.Wait(v1alpha1.ReasonOperationInProgress, failure.Error()+"; it was there a moment ago, and is looked at again", pauseOr(failure.RetryAfter, pauseProgress)), true
	case cloud.Propagating:
		return phases.Wait(v1alpha1.ReasonPropagating, failure.Error()+"; it takes minutes to be known everywhere", pauseOr(failure.RetryAfter, pauseProgress)), true
	case cloud.Unreachable:
		return phases.Wait(v1alpha1.ReasonCloudUnavailable, failure.Error()+"; it is tried again", pauseOr(failure.RetryAfter, pauseUnreachable)), true
	default:
		return phases.Verdict{}, false
	}
}

// lasting is trouble that takes a person.
func (s *scope) lasting(failure *cloud.Error) phases.Verdict {
	switch failure.Kind {
	case cloud.GroupMissing:
		return s.blocked(v1alpha1.ReasonResourceGroupMissing, fmt.Sprintf(
			"%s; create resource group %s in subscription %s, or see that the credential is one for that subscription", failure.Error(), s.group(), s.storage.Spec.Provider.SubscriptionID))
	case cloud.NameTaken:
		return s.blocked(v1alpha1.ReasonNameTaken, fmt.Sprintf(
			"the name %s is taken in the cloud, by somebody else or by an account that was deleted and can be recovered (%s); choose another spec.accountName in a new SecureStorage, or leave it out", accountName(s.storage), failure.Code))
	case cloud.Locked, cloud.Disallowed:
		return s.forbidden(failure)
	case cloud.Denied:
		return s.blocked(v1alpha1.ReasonPermissionMissing, failure.Error()+"; "+s.remedyFor(failure.Target))
	case cloud.NoAssertion:
		return phases.Stalled(v1alpha1.ReasonCredentialsMissing, failure.Message).LookAgainAfter(jitter(pauseCredentials))
	case cloud.BadCredentials:
		return phases.Stalled(v1alpha1.ReasonCredentialsInvalid, failure.Error()+"; renew the credential, and see that it is one of the tenant of the subscription").LookAgainAfter(jitter(pauseCredentials))
	default:
		return s.blocked(v1alpha1.ReasonInvalidRequest, failure.Error()+"; correct the spec")
	}
}

// forbidden is what a lock or a policy forbids, whatever the credential may do.
func (s *scope) forbidden(failure *cloud.Error) phases.Verdict {
	switch {
	case s.storage.DeletionTimestamp != nil:
		return phases.Stalled(v1alpha1.ReasonDeletionBlocked, failure.Error()+"; remove what forbids it, or annotate the SecureStorage with "+v1alpha1.AnnotationAbandon+"=true to leave behind what is there").LookAgainAfter(jitter(pauseCredentials))
	case failure.Kind == cloud.Locked:
		return s.blocked(v1alpha1.ReasonPermissionMissing, failure.Error()+"; remove the lock")
	default:
		return s.blocked(v1alpha1.ReasonInvalidRequest, failure.Error()+"; correct the spec, or have the policy changed")
	}
}

// remedyFor names the role that is missing. The cloud's message names the action and the scope.
func (s *scope) remedyFor(target cloud.Target) string {
	at := vaultOf(s.storage)
	switch target {
	case cloud.OnRoles:
		return "give the identity of the credential the role Role Based Access Control Administrator on key vault " + at.name
	case cloud.OnVault:
		return "give the identity of the credential the role Key Vault Reader on key vault " + at.name + ", or Key Vault Contributor where spec.access.type is AccessPolicy"
	default:
		return "give the identity of the credential the role Storage Account Contributor on resource group " + s.group()
	}
}

// later keeps to what the cloud asked for, and a little longer: never earlier.
func later(asked time.Duration) time.Duration {
	return asked + upTo(min(max(asked/jitterShare, 10*time.Millisecond), time.Second))
}

func pauseOr(asked, otherwise time.Duration) time.Duration {
	if asked > 0 {
		return later(asked)
	}
	return jitter(otherwise)
}
