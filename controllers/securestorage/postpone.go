package securestorage

import (
	"context"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fixpoint-dev/fixpoint/internal/cloud"
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
		return s.atLeast(failure.RetryAfter)
	}
	return 0
}
