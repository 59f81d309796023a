package phases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// rounds bounds how often one reconcile begins again because its object has changed, and staleRetry is
// how soon the next one follows then.
const (
	rounds     = 3
	staleRetry = 50 * time.Millisecond
)

// Reconcile implements [reconcile.Reconciler].
func (e *Engine[O, S]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object, err := get[O](ctx, e.deps.Reader, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if isNil(object) {
		e.due.Delete(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if e.def.Postpone != nil {
		if wait := e.def.Postpone(ctx, object); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	return e.ReconcileObject(ctx, object)
}

// ReconcileObject reconciles an object, which belongs to the engine from then on. If the object turns
// out to have changed since it was read, it begins again with the object as it is now.
func (e *Engine[O, S]) ReconcileObject(ctx context.Context, object O) (reconcile.Result, error) {
	var corrected []ObservedDrift
	for round := range rounds {
		// What a later round goes by has just been read past the cache.
		w, live := e.walk(ctx, object, executor{applier: e.deps.Applier, recent: e.recent, confirmed: round > 0, log: log.FromContext(ctx)})
		// What was reverted was reverted, whether or not a status can say so.
		e.announceCorrections(live, w.corrected())
		if w.gone {
			e.due.Delete(client.ObjectKeyFromObject(live))
			return reconcile.Result{}, nil
		}
		if ssa.IsStale(w.err) {
			break // a child keeps changing
		}
		if !isSuperseded(w.err) {
			putOff, err := e.report(ctx, live, w, corrected)
			if err == nil {
				return w.result(putOff)
			}
			if !ssa.IsStale(err) {
				return reconcile.Result{}, errors.Join(w.retryable(), fmt.Errorf("writing the status: %w", err))
			}
		}
		corrected = append(corrected, w.corrected()...)
		fresh, err := e.reread(ctx, live, w.err)
		if isNil(fresh) {
			return reconcile.Result{}, err
		}
		if fresh.GetUID() != live.GetUID() {
			break
		}
		object = fresh
	}
	log.FromContext(ctx).V(1).Info("Something keeps changing while it is reconciled; reading it again")
	return reconcile.Result{RequeueAfter: staleRetry}, nil
}

// reread returns the object as it is now; nil without an error means that it is gone.
func (e *Engine[O, S]) reread(ctx context.Context, object O, err error) (O, error) {
	if newer, ok := errors.AsType[*superseded](err); ok {
		fresh, _ := newer.by.(O)
		return fresh, nil
	}
	return get[O](ctx, e.deps.Uncached, client.ObjectKeyFromObject(object))
}

// Plan says what [Engine.ReconcileObject] would do to the object now. It is the same walk with an
// executor that sends dry runs. An object that does not exist yet needs a made-up UID.
func (e *Engine[O, S]) Plan(ctx context.Context, object O) (Plan, error) {
	if e.deps.Planner == nil {
		return Plan{}, errors.New("planning: Dependencies.Planner is nil: give it the applier's DryRun")
	}
	w, _ := e.walk(ctx, object, executor{applier: e.deps.Planner, recent: e.recent, plans: true, confirmed: true})
	return w.plan(), nil
}

// walk is one walk over the phases, and what it came to.
type walk[S any] struct {
	outcome
	pass     Reconcile[S]
	cluster  Cluster
	slots    []slot[S]
	executor executor
	clock    clock.PassiveClock
}

// slot is a phase in its place in the list, with what construction found out about it.
type slot[S any] struct {
	Declaration[S]
	// name of the phase, and the type of its condition.
	name, condition string
	kind            schema.GroupVersionKind // of the phase's children
	metrics         phaseMetrics
}

// walk runs the phases of an object, or undoes them, and returns the object as the finalizer's apply
// left it.
func (e *Engine[O, S]) walk(ctx context.Context, object O, x executor) (*walk[S], O) {
	x.owner = object
	deleting, suspended := e.isOff(object)
	if !deleting && !suspended && !slices.Contains(object.GetFinalizers(), e.def.Finalizer) {
		if err := x.finalize(ctx, e.def.Finalizer); err != nil {
			w := e.newWalk(object, x)
			w.observeFrom(ctx, 0)
			w.fail("adding the finalizer", err)
			w.changes = w.executor.changes
			return w, object
		}
		// The cache may have shown neither the finalizer, nor the deletion, nor the suspension.
		object, _ = x.owner.(O)
		deleting, suspended = e.isOff(object)
	}
	w := e.newWalk(object, x)
	w.deleting, w.suspended = deleting, suspended
	if deleting || suspended {
		w.pass.Policies.Drift = ssa.CorrectDrift // and no drift is reported
	}
	switch {
	case deleting:
		w.remove(ctx, e.def.Finalizer)
	case suspended:
		w.observeFrom(ctx, 0)
	default:
		w.advance(ctx)
	}
	w.changes = w.executor.changes
	return w, object
}

// isOff says why the phases of an object do not run.
func (e *Engine[O, S]) isOff(object O) (deleting, suspended bool) {
	deleting = object.GetDeletionTimestamp() != nil
	return deleting, !deleting && e.def.Suspended != nil && e.def.Suspended(object)
}

func (e *Engine[O, S]) newWalk(object O, x executor) *walk[S] {
	w := &walk[S]{
		slots: e.slots, executor: x, clock: e.deps.Clock,
		cluster: Cluster{Cached: e.deps.Reader, Uncached: e.deps.Uncached, applier: x.applier},
		pass: Reconcile[S]{
			Scope: e.def.Scope(object), Owner: object, Reference: *metav1.NewControllerRef(object, e.kind),
			Before:   e.def.Conditions(object),
			Policies: Policies{Drift: ssa.CorrectDrift},
			slots:    e.slots,
		},
	}
	w.executor.cluster, w.executor.reference = &w.cluster, w.pass.Reference
	w.pass.Cluster = &w.cluster
	if e.def.Policies != nil {
		w.pass.Policies = e.def.Policies(object)
	}
	w.phases = make([]phaseOutcome, len(e.slots))
	for i := range w.phases {
		w.phases[i] = phaseOutcome{name: e.slots[i].name, condition: e.slots[i].condition, configured: true}
	}
	return w
}

// maxRepeats bounds how many actions of one phase may concern an object that an earlier one has concerned: a phase whose
// actions lead nowhere is a bug. A set may have any number of members.
const maxRepeats = 1000

// settle asks a phase what is next and performs it, until the answer is a verdict or there is none. An
// object that is not what the cache showed is decided about again, a few times.
func (w *walk[S]) settle(ctx context.Context, i int, ask Question[S]) (Verdict, error) {
	stale, repeats := 0, 0
	for repeats < maxRepeats {
		next, err := ask(ctx, w.pass)
		if err != nil || isNil(next) {
			return nil, err
		}
		if verdict, ok := next.(Verdict); ok {
			return verdict, nil
		}
		known := len(w.cluster.answered)
		verdict, err := w.executor.perform(ctx, w.slots[i].name, next)
		if _, applies := next.(Apply); applies && ssa.IsStale(err) && stale < rounds-1 {
			stale++
			continue
		}
		if err != nil {
			return nil, err
		}
		if verdict != nil {
			return verdict, nil
		}
		if len(w.cluster.answered) == known {
			repeats++
		}
	}
	return bug(fmt.Sprintf("phase %s has repeated %d actions and is not done", w.slots[i].name, maxRepeats)), nil
}

// conclude settles a phase and keeps its verdict.
func (w *walk[S]) conclude(ctx context.Context, i int, ask Question[S], doing string) Verdict {
	start := w.clock.Now()
	verdict, err := w.settle(ctx, i, ask)
	verdict = given(verdict, w.slots[i].name)    // which has no effect beside an error
	if !isSuperseded(err) && !w.executor.plans { // what is superseded runs again
		w.slots[i].metrics.observe(verdict, err, w.clock.Since(start))
	}
	w.keep(i, verdict, err, doing)
	return w.phases[i].verdict
}

func (w *walk[S]) keep(i int, verdict Verdict, err error, doing string) {
	if err != nil {
		w.err = fmt.Errorf("%sphase %s: %w", doing, w.slots[i].name, err)
		verdict = verdictOf(err)
	}
	isNotAdopted := verdict.data().kind == kindStalled && verdict.Reason() == string(ssa.ReasonNotOwned)
	if !w.slots[i].HasOwnersName && verdict.After() == 0 && (isNotAdopted || isHeld(err)) {
		verdict = verdict.data().recheckAfter(heldInterval)
	}
	w.phases[i].verdict = acceptable(verdict)
	w.phases[i].configured = verdict.data().kind != kindNotConfigured
}

// heldInterval is how often an object is read again that the owner does not control, and whose name is not that of
// the owner: nothing tells the owner that such an object was deleted or released.
const heldInterval = time.Minute

// isHeld says whether an existing object is the reason of an error, and only a person helps.
func isHeld(err error) bool {
	refused, ok := errors.AsType[*ssa.Error](err)
	return ok && refused.Permanent() && refused.Reason != ssa.ReasonInvalid
}

// advance runs the phases in order until one gates.
func (w *walk[S]) advance(ctx context.Context) {
	for i := len(w.slots) - 1; i >= 0; i-- {
		if first := w.slots[i].First; first != nil {
			if _, err := w.settle(ctx, i, first); err != nil {
				w.observeFrom(ctx, 0)
				w.keep(i, nil, err, "pruning ")
				return
			}
		}
	}
	for i := range w.slots {
		if !w.conclude(ctx, i, w.slots[i].Next, "").IsDone() {
			next := i + 1
			if w.err != nil {
				next = i
			}
			w.observeFrom(ctx, next)
			return
		}
	}
	for i := len(w.slots) - 1; i >= 0; i-- {
		last := w.slots[i].Last
		if last == nil {
			continue
		}
		verdict, err := w.settle(ctx, i, last)
		if err != nil || verdict != nil && !verdict.IsDone() {
			w.keep(i, verdict, err, "pruning ")
			return
		}
	}
}

// observeFrom observes the phases that do not run, so that the status is true of them: what exists, what
// the object asks for, and, where drift is only reported, the drift.
func (w *walk[S]) observeFrom(ctx context.Context, first int) {
	for i := first; i < len(w.slots); i++ {
		if w.slots[i].Observe == nil {
			continue
		}
		verdict, err := w.settle(ctx, i, w.slots[i].Observe)
		if err != nil {
			log.FromContext(ctx).V(1).Info("Could not observe a phase that does not run", "phase", w.slots[i].name, "error", err.Error())
		}
		if verdict != nil && w.phases[i].verdict == nil {
			w.phases[i].configured = verdict.data().kind != kindNotConfigured
		}
	}
}

// remove tears an object down, and removes the finalizer when nothing of it is left. It goes by the
// newest spec and status, so it confirms the owner even if it has nothing to write.
func (w *walk[S]) remove(ctx context.Context, finalizer string) {
	if !slices.Contains(w.pass.Owner.GetFinalizers(), finalizer) {
		w.gone = true
		return
	}
	if err := w.executor.confirm(ctx); err != nil {
		w.fail("confirming the deletion", err)
		return
	}
	w.observeFrom(ctx, 0)
	if !w.tearDown(ctx) {
		return
	}
	if err := w.executor.release(ctx, finalizer); err != nil {
		w.fail("removing the finalizer", err)
		return
	}
	w.gone = true
}

// tearDown undoes the phases in reverse until one is not gone yet.
func (w *walk[S]) tearDown(ctx context.Context) (gone bool) {
	if slices.Contains(w.pass.Owner.GetFinalizers(), metav1.FinalizerOrphanDependents) {
		// The user asked to keep the children: the garbage collector removes the owner reference from them,
		// and then its finalizer from the object. Until then the engine would delete them.
		w.failure = Wait(ReasonTerminating, "waiting for the garbage collector to orphan the children, as the deletion asks (finalizers: "+metav1.FinalizerOrphanDependents+")", 0)
		return false
	}
	var deleted []int // phases whose children have been deleted and may be left
	for i := len(w.slots) - 1; i >= 0; i-- {
		if s := &w.slots[i]; s.Child == nil && s.Undo != nil {
			if !w.areGone(ctx, deleted) {
				return false
			}
			deleted = nil
		}
		if !w.undo(ctx, i, w.slots[i].Undo) {
			return false
		}
		if w.slots[i].Gone != nil { // or else what Undo has said is the last word
			deleted = append(deleted, i)
		}
	}
	return w.areGone(ctx, deleted)
}

func (w *walk[S]) areGone(ctx context.Context, deleted []int) bool {
	return !slices.ContainsFunc(deleted, func(i int) bool { return !w.undo(ctx, i, w.slots[i].Gone) })
}

// undo asks a phase what is next to undo it, until that is done.
func (w *walk[S]) undo(ctx context.Context, i int, ask Question[S]) (done bool) {
	configured, verdict := w.phases[i].configured, Verdict(Done("deleted"))
	if ask != nil {
		verdict = w.conclude(ctx, i, ask, "undoing ")
	}
	switch {
	case !verdict.IsDone():
		w.phases[i].verdict = removable(verdict)
		return false
	case verdict.Reason() != ReasonTerminating:
		verdict = DoneBecause(ReasonTerminating, "deleted")
	}
	w.phases[i].configured, w.phases[i].verdict = configured, verdict
	return true
}

// removable rechecks what stalls a teardown: nobody edits the spec of an object that is being deleted,
// and what has to change need not be watched.
func removable(v Verdict) Verdict {
	if v.After() == 0 { // a wait always has a time
		return v.data().recheckAfter(SafetyNet)
	}
	return v
}

// conditionReasoner is an error that knows the reason for a condition; [ssa.Error] is one.
type conditionReasoner interface {
	error
	ConditionReason() string
	Permanent() bool
}

// isPermanent says whether retrying does not help. controller-runtime does not retry a terminal error.
func isPermanent(err error) bool {
	if err == nil { // or else each reconcile allocates
		return false
	}
	reasoner, ok := errors.AsType[conditionReasoner](err)
	return ok && reasoner.Permanent() || errors.Is(err, reconcile.TerminalError(nil))
}

// verdictOf makes a verdict of an error, so that the rest of the engine knows only verdicts.
func verdictOf(err error) Verdict {
	reason, message := ReasonFailed, withoutVolatile(strings.Replace(err.Error(), "terminal error: ", "", 1))
	if reasoner, ok := errors.AsType[conditionReasoner](err); ok {
		reason, message = reasoner.ConditionReason(), reasoner.Error()
	}
	if isPermanent(err) {
		return Stalled(reason, message)
	}
	return Wait(reason, message, 0)
}

// acceptable sees to it that the API server accepts the condition that is made of a verdict.
func acceptable(v Verdict) Verdict {
	if isReason(v.Reason()) {
		return v
	}
	data := v.data()
	data.message = strings.TrimSpace(data.reason + " " + data.message)
	data.reason = ReasonFailed
	if data.IsDone() {
		data.reason = ReasonReady
	}
	return data
}
