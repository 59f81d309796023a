package securestorage

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1alpha1/applyconfiguration/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Each reconcile costs requests to the cloud, which limits them per subscription. So updates that
// this controller wrote itself trigger no reconcile, and routine reconciles wait for the rate limiter.

// needsReconcile ignores updates that change nothing a reconcile depends on, such as the status and the
// finalizer that this controller writes. See docs/adr/0018.
var needsReconcile = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return before.GetResourceVersion() == after.GetResourceVersion() || // a resync
		before.GetGeneration() != after.GetGeneration() ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
		slices.Contains(before.GetFinalizers(), Finalizer) && !slices.Contains(after.GetFinalizers(), Finalizer)
}}

// postpone returns how long to put off a routine reconcile, which no user waits for: until the next poll if
// Azure shows that nothing changed since the last reconcile found nothing to do, or until the request budget of
// the subscription allows it. The status stays as it is until then.
func (s *scope) postpone(ctx context.Context) time.Duration {
	isNew := s.storage.Status.ObservedGeneration != s.storage.Generation
	if isNew || s.storage.DeletionTimestamp != nil || s.storage.Spec.Suspend {
		return 0
	}
	if poll := s.currentPoll(); s.isUnchanged(ctx, poll) {
		return poll.Began.Add(s.pollInterval()).Sub(s.clock.Now())
	}
	if !s.access.cloud.IsBusy() {
		return 0
	}
	// Other errors are reported by the reconcile itself.
	if failure, ok := cloud.AsError(s.connect(ctx)); ok && failure.Kind == cloud.Throttled {
		return atLeast(failure.RetryAfter)
	}
	return 0
}

// isUnchanged says whether Azure shows what the last reconcile of this version of the object saw. It is only a reason to
// do nothing: every reconcile reads the resources themselves. Errors are reported by the reconcile. See
// docs/adr/0036.
func (s *scope) isUnchanged(ctx context.Context, poll cloud.Poll) bool {
	if s.readCredential(ctx) != nil {
		return false
	}
	return s.access.cloud.Unchanged(ctx, string(s.storage.UID), s.storage.ResourceVersion, *s.credential, poll)
}

// currentPoll returns the poll of the object's resource group at this time. The accounts of a resource group are in the
// same lists, so their polls begin together; those of different resource groups do not.
func (s *scope) currentPoll() cloud.Poll {
	interval := s.specifiedPoll()
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(strings.ToLower(cloud.GroupID(s.storage.Spec.Provider.SubscriptionID, s.group())))) // never fails
	offset := time.Duration(hash.Sum64() % uint64(interval))                                                     //nolint:gosec // the interval is positive
	return cloud.Poll{Interval: interval, Began: s.clock.Now().Add(-offset).Truncate(interval).Add(offset)}
}

// rememberIfSettled records what this reconcile saw, if it found nothing to do: the object is ready, and its status
// is current.
func (s *scope) rememberIfSettled(summary phases.Summary, desired *fixpointac.SecureStorageApplyConfiguration) {
	if summary.Ready && !summary.Deleting && !summary.Suspended && isCurrent(&s.storage.Status, desired) {
		s.access.cloud.Remember(string(s.storage.UID), s.storage.ResourceVersion, *s.credential, &s.seen)
	}
}

// isCurrent says whether a status is as desired.
func isCurrent(status *v1alpha1.SecureStorageStatus, desired *fixpointac.SecureStorageApplyConfiguration) bool {
	encoded, err := json.Marshal(desired.Status)
	var applied v1alpha1.SecureStorageStatus
	return err == nil && json.Unmarshal(encoded, &applied) == nil && equality.Semantic.DeepEqual(*status, applied)
}
