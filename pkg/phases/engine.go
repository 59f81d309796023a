package phases

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// staleRetry is how soon a pass is repeated whose object changed under it.
const staleRetry = 50 * time.Millisecond

// Definition declares how objects of type O are reconciled: the list of phases, and what of O the
// engine has to know.
type Definition[O client.Object, S any] struct {
	// Controller is the controller's name in metrics and events, such as appservice.
	Controller string
	// Finalizer is put on before the first side effect and taken off after the last thing is gone.
	Finalizer string
	// Phases in their order. Teardown is the list reversed.
	Phases []Phase[S]
	// Scope makes the scope of one reconcile. The object in it is the reconcile's own copy.
	Scope func(object O) S
	// Conditions reads the conditions that the object has now. They are read to tell transitions
	// from repetitions, and for nothing else.
	Conditions func(object O) []metav1.Condition
	// Status builds the status from what the pass found out. It holds every condition of the summary.
	Status func(scope S, summary Summary) ssa.Configuration
	// Suspended says whether the object is to be left alone. Optional.
	Suspended func(object O) bool
	// Policies says what to do about strangers and about drift. Optional: AdoptNever, CorrectDrift.
	Policies func(object O) (ssa.AdoptionPolicy, ssa.DriftPolicy)
}

// Dependencies are the doors through which an engine reaches the world.
type Dependencies struct {
	// Reader reads from the cache. It should be one that reads its own writes, as
	// controller-runtime's does with EnableReadYourWritesConsistency.
	Reader client.Reader
	// Uncached reads past the cache, where an observation must be certain.
	Uncached client.Reader
	// Applier writes.
	Applier Applier
	// Planner decides as Applier does and writes nothing. Optional: without it there are no plans.
	Planner Applier
	// Scheme knows the Go types of the object and of all children.
	Scheme *runtime.Scheme
	// Recorder takes Events. Optional.
	Recorder events.EventRecorder
	// Metrics count outcomes. Optional.
	Metrics *Metrics
	// Clock is for transition times. Optional.
	Clock clock.PassiveClock
}

// Engine reconciles objects of one kind through its phases. It keeps nothing from one pass to the next
// but which versions of objects the API server has just told of, which saves reads and decides nothing. It
// is safe for concurrent use on different objects.
type Engine[O client.Object, S any] struct {
	def   Definition[O, S]
	deps  Dependencies
	kind  schema.GroupVersionKind
	slots []slot[S]
	seen  *sightings
}

var phaseName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,47}$`)

// New checks the definition and makes an engine. A wrong list fails here, never at run time.
func New[O client.Object, S any](definition Definition[O, S], dependencies Dependencies) (*Engine[O, S], error) {
	e := &Engine[O, S]{def: definition, deps: dependencies}
	if err := e.checkDependencies(); err != nil {
		return nil, fmt.Errorf("making the engine of %q: %w", definition.Controller, err)
	}
	if err := e.checkDefinition(); err != nil {
		return nil, fmt.Errorf("making the engine of %q: %w", definition.Controller, err)
	}
	if e.deps.Clock == nil {
		e.deps.Clock = clock.RealClock{}
	}
	e.slots = e.makeSlots()
	e.seen = newSightings(e.deps.Clock.Now)
	return e, nil
}

func (e *Engine[O, S]) checkDependencies() error {
	var problems []error
	if e.deps.Reader == nil || e.deps.Uncached == nil {
		problems = append(problems, errors.New("Reader and Uncached are needed"))
	}
	if e.deps.Applier == nil {
		problems = append(problems, errors.New("the Applier is missing"))
	}
	if e.deps.Scheme == nil {
		problems = append(problems, errors.New("the Scheme is missing"))
	}
	return errors.Join(problems...)
}

func (e *Engine[O, S]) checkDefinition() error {
	var problems []error
	if e.def.Controller == "" {
		problems = append(problems, errors.New("the controller has no name"))
	}
	if !strings.Contains(e.def.Finalizer, "/") || len(content.IsLabelKey(e.def.Finalizer)) > 0 {
		problems = append(problems, fmt.Errorf("the finalizer %q is not a qualified name such as example.com/teardown", e.def.Finalizer))
	}
	if e.def.Scope == nil || e.def.Conditions == nil || e.def.Status == nil {
		problems = append(problems, errors.New("Scope, Conditions and Status are needed"))
	}
	kind, err := kindOf[O](e.deps.Scheme)
	if err != nil {
		problems = append(problems, fmt.Errorf("the object's type: %w", err))
	}
	e.kind = kind
	return errors.Join(append(problems, e.checkPhases()...)...)
}

func (e *Engine[O, S]) checkPhases() []error {
	if len(e.def.Phases) == 0 {
		return []error{errors.New("the list of phases is empty")}
	}
	var problems []error
	seen := map[string]bool{}
	unnamed := map[schema.GroupVersionKind]string{}
	for i, phase := range e.def.Phases {
		if isNil(phase) {
			problems = append(problems, fmt.Errorf("phase %d is nil", i+1))
			continue
		}
		name := phase.PhaseName()
		if !phaseName.MatchString(name) {
			problems = append(problems, fmt.Errorf("phase %d: the name %q makes no condition type: it must begin with a capital letter and hold only letters and digits, at most 48", i+1, name))
		}
		if seen[name] {
			problems = append(problems, fmt.Errorf("phase %d: the name %q is there twice", i+1, name))
		}
		seen[name] = true
		if err := phase.validate(e.deps.Scheme); err != nil {
			problems = append(problems, fmt.Errorf("phase %s: %w", name, err))
			continue
		}
		if !phase.takesOwnersName() {
			continue
		}
		kind := phase.childKind(e.deps.Scheme)
		if other, ok := unnamed[kind]; ok {
			problems = append(problems, fmt.Errorf("phase %s: its child is the same %s as that of phase %s: give one of them a ChildName", name, kind.Kind, other))
		}
		unnamed[kind] = name
	}
	return problems
}

// makeSlots finds out once what every pass needs to know of a phase.
func (e *Engine[O, S]) makeSlots() []slot[S] {
	slots := make([]slot[S], 0, len(e.def.Phases))
	for _, phase := range e.def.Phases {
		name, kind := phase.PhaseName(), phase.childKind(e.deps.Scheme)
		slots = append(slots, slot[S]{
			phase:     phase,
			name:      name,
			condition: ConditionOf(name),
			kind:      kind,
			list:      listOf(kind),
			metrics:   e.deps.Metrics.ofPhase(e.def.Controller, name),
		})
	}
	return slots
}

// Reconcile implements [reconcile.Reconciler].
func (e *Engine[O, S]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object, err := get[O](ctx, e.deps.Reader, request.NamespacedName)
	if err != nil || isNil(object) {
		return reconcile.Result{}, err
	}
	return e.ReconcileObject(ctx, object)
}

// ReconcileObject makes one pass over the phases of an object, which belongs to the engine from then on.
func (e *Engine[O, S]) ReconcileObject(ctx context.Context, object O) (reconcile.Result, error) {
	return e.reconcile(ctx, object, false, nil)
}

// reconcile makes a pass, whose status tells of what was put back before, too. Over an object that has just
// been read anew, it is not made anew at once, should that have changed again: it comes back soon.
func (e *Engine[O, S]) reconcile(ctx context.Context, object O, anew bool, putBack []ObservedDrift) (reconcile.Result, error) {
	live, outcome := e.walk(ctx, object, e.deps.Applier, false)
	outcome.putBack = putBack
	// What was put back was put back, whether or not a status can say so.
	e.announceCorrections(live, outcome)
	if outcome.gone {
		return reconcile.Result{}, nil
	}
	var newer *newerOwner
	if errors.As(outcome.err, &newer) {
		if fresh, ok := newer.fresh.(O); ok && !anew {
			return e.reconcile(ctx, fresh, true, append(slices.Clip(putBack), outcome.corrected()...))
		}
		return readAgain(ctx)
	}
	if ssa.IsStale(outcome.err) || errors.Is(outcome.err, errOwnerChanged) {
		return readAgain(ctx)
	}
	err := e.report(ctx, live, outcome)
	if corrected := outcome.corrected(); ssa.IsStale(err) && len(corrected) > 0 && len(putBack) == 0 {
		return e.reconcileAnew(ctx, live, corrected)
	}
	if ssa.IsStale(err) {
		return readAgain(ctx)
	}
	if err != nil {
		return reconcile.Result{}, errors.Join(outcome.retryable(), fmt.Errorf("writing the status: %w", err))
	}
	return outcome.result()
}

// reconcileAnew makes another pass at once, over the object as it is now, if it is still about the same
// spec: no later one would find any more what this one has put back. The status that could not be written is
// not written over the newer one, since it knows nothing of what that one remembers.
func (e *Engine[O, S]) reconcileAnew(ctx context.Context, live O, putBack []ObservedDrift) (reconcile.Result, error) {
	fresh, err := e.readAnew(ctx, live)
	if err != nil || isNil(fresh) {
		return reconcile.Result{}, err
	}
	if fresh.GetUID() != live.GetUID() || fresh.GetGeneration() != live.GetGeneration() {
		return readAgain(ctx)
	}
	e.seen.add(fresh)
	return e.reconcile(ctx, fresh, true, putBack)
}

// readAnew reads an object past the cache; nil means that it is gone.
func (e *Engine[O, S]) readAnew(ctx context.Context, object O) (O, error) {
	fresh, err := get[O](ctx, e.deps.Uncached, client.ObjectKeyFromObject(object))
	if err != nil {
		return fresh, fmt.Errorf("past the cache: %w", err)
	}
	return fresh, nil
}

// asObject makes no interface of a nil pointer.
func asObject[O client.Object](object O, err error) (client.Object, error) {
	if isNil(object) {
		return nil, err
	}
	return object, err
}

// readAgain is the quiet answer to an object that changed under the pass: nothing is wrong.
func readAgain(ctx context.Context) (reconcile.Result, error) {
	log.FromContext(ctx).V(1).Info("Something changed while it was reconciled; reading it again")
	return reconcile.Result{RequeueAfter: staleRetry}, nil
}

// Plan says what [Engine.ReconcileObject] would do to the object now, by the same code with an
// applier that writes nothing.
func (e *Engine[O, S]) Plan(ctx context.Context, object O) (Plan, error) {
	if e.deps.Planner == nil {
		return Plan{}, errors.New("planning: the engine has no Planner; give it the applier's DryRun")
	}
	_, outcome := e.walk(ctx, object, e.deps.Planner, true)
	return outcome.plan(), nil
}

// walk runs the phases, or undoes them, and returns the object as the finalizer's apply left it.
func (e *Engine[O, S]) walk(ctx context.Context, object O, applier Applier, planning bool) (O, *outcome[S]) {
	if object.GetDeletionTimestamp() != nil {
		return object, e.remove(ctx, e.newPass(object, applier, planning))
	}
	if e.def.Suspended != nil && e.def.Suspended(object) {
		p := e.newPass(object, applier, planning)
		e.observeFrom(ctx, p, 0)
		return object, &outcome[S]{pass: p, suspended: true}
	}
	fresh := false
	if !planning && !e.isFinalized(object) {
		finalized, err := e.finalize(ctx, object)
		if err != nil {
			p := e.newPass(object, applier, planning)
			e.lookFrom(ctx, p, 0)
			return object, failed(p, 0, "adding the finalizer", err)
		}
		object, fresh = finalized, true
		e.seen.add(object)
		if object.GetDeletionTimestamp() != nil {
			// The finalizer was there, and the deletion too: the cache had seen neither.
			return object, e.remove(ctx, e.newPass(object, applier, planning))
		}
	}
	p := e.newPass(object, applier, planning)
	p.confirmed = fresh
	return object, e.advance(ctx, p)
}

func (e *Engine[O, S]) isFinalized(object client.Object) bool {
	return slices.Contains(object.GetFinalizers(), e.def.Finalizer)
}

func (e *Engine[O, S]) finalize(ctx context.Context, object O) (O, error) {
	ensured, err := e.deps.Applier.EnsureFinalizer(ctx, object, e.def.Finalizer)
	if err != nil {
		return object, err
	}
	typed, ok := ensured.(O)
	if !ok {
		return object, fmt.Errorf("the answer is a %T", ensured)
	}
	return typed, nil
}

// remove tears an object down, and lets it go when nothing is left of it.
func (e *Engine[O, S]) remove(ctx context.Context, p *pass[S]) *outcome[S] {
	if !e.isFinalized(p.owner) {
		return &outcome[S]{pass: p, deleting: true, gone: true}
	}
	gone, err := p.confirmTeardown(ctx)
	if gone {
		return &outcome[S]{pass: p, deleting: true, gone: true}
	}
	if err != nil {
		o := failed(p, 0, "looking whether anything has changed", err)
		o.deleting = true
		return o
	}
	e.observeFrom(ctx, p, 0)
	o := e.tearDown(ctx, p)
	if !o.gone || p.planning {
		return o
	}
	err = p.applier.RemoveFinalizer(ctx, p.owner, e.def.Finalizer)
	if client.IgnoreNotFound(err) != nil {
		o = failed(p, 0, "removing the finalizer", err)
		o.deleting = true
	}
	return o
}

// failed is the outcome of a pass that failed at a phase before any ran. What concerns the object
// itself fails at the first: before it begins, and after it is undone.
func failed[S any](p *pass[S], at int, doing string, err error) *outcome[S] {
	verdicts := make([]Verdict, at+1)
	verdicts[at] = settle(p.slots[at].name, Verdict{}, err)
	verdicts[at].message = doing + ": " + verdicts[at].message
	return &outcome[S]{pass: p, verdicts: verdicts, err: fmt.Errorf("%s: %w", doing, err)}
}

func (e *Engine[O, S]) newPass(object O, applier Applier, planning bool) *pass[S] {
	p := &pass[S]{
		scope:     e.def.Scope(object),
		owner:     object,
		reference: ssa.ControllerReference(object, e.kind),
		adoption:  ssa.AdoptNever,
		drift:     ssa.CorrectDrift,
		applier:   applier,
		reader:    e.deps.Reader,
		uncached:  e.deps.Uncached,
		readOwner: func(ctx context.Context) (client.Object, error) { return asObject(e.readAnew(ctx, object)) },
		scheme:    e.deps.Scheme,
		planning:  planning,
		seen:      e.seen,
		before:    e.def.Conditions(object),
		slots:     e.slots,
	}
	if e.def.Policies != nil {
		p.adoption, p.drift = e.def.Policies(object)
	}
	return p
}

// advance runs the phases in order until one gates.
func (e *Engine[O, S]) advance(ctx context.Context, p *pass[S]) *outcome[S] {
	o := &outcome[S]{pass: p, verdicts: make([]Verdict, 0, len(e.slots))}
	if at, err := e.retireFirst(ctx, p); err != nil {
		e.lookFrom(ctx, p, 0)
		return failed(p, at, "pruning what is no longer wanted", err)
	}
	watch := e.startWatch(p)
	for i := range e.slots {
		slot := &e.slots[i]
		p.current = i
		verdict, err := slot.phase.run(ctx, p)
		verdict = settle(slot.name, verdict, err)
		watch.observe(slot.metrics, verdict, err)
		o.verdicts = append(o.verdicts, verdict)
		if err != nil {
			o.err = fmt.Errorf("phase %s: %w", slot.name, err)
		}
		if !verdict.IsDone() {
			e.lookFrom(ctx, p, max(i, p.observed))
			return o
		}
	}
	e.retireLast(ctx, p, o)
	return o
}

// retireFirst deletes what would act against the phases, last phase first, and says at which it failed.
func (e *Engine[O, S]) retireFirst(ctx context.Context, p *pass[S]) (int, error) {
	for i := len(e.slots) - 1; i >= 0; i-- {
		p.current = i
		if _, err := e.slots[i].phase.retire(ctx, p, PruneFirst); err != nil {
			return i, fmt.Errorf("phase %s: %w", e.slots[i].name, err)
		}
	}
	return 0, nil
}

// retireLast deletes what was kept for as long as other phases used it, last phase first.
func (e *Engine[O, S]) retireLast(ctx context.Context, p *pass[S], o *outcome[S]) {
	for i := len(e.slots) - 1; i >= 0; i-- {
		p.current = i
		verdict, err := e.slots[i].phase.retire(ctx, p, PruneLast)
		if err != nil {
			o.err = fmt.Errorf("phase %s: pruning what is no longer wanted: %w", e.slots[i].name, err)
		}
		if verdict = settle(e.slots[i].name, verdict, err); !verdict.IsDone() {
			o.verdicts[i] = verdict
			return
		}
	}
}

// lookFrom looks at the phases that a pass does not get to. Where drift is reported and not
// corrected, what stands of it there goes on to be reported.
func (e *Engine[O, S]) lookFrom(ctx context.Context, p *pass[S], first int) {
	e.observeFrom(ctx, p, first)
	if p.drift != ssa.ReportDrift || p.planning {
		return
	}
	for i := first; i < len(e.slots); i++ {
		p.current = i
		if err := e.slots[i].phase.findDrift(ctx, p); err != nil {
			log.FromContext(ctx).V(1).Info("Could not look for drift in a phase that does not run", "phase", e.slots[i].name, "problem", err.Error())
		}
	}
}

// observeFrom looks at the children of phases that do not run, so that the status is true of them.
func (e *Engine[O, S]) observeFrom(ctx context.Context, p *pass[S], first int) {
	for i := first; i < len(e.slots); i++ {
		p.current = i
		if err := e.slots[i].phase.observe(ctx, p); err != nil {
			log.FromContext(ctx).V(1).Info("Could not observe a phase that does not run", "phase", e.slots[i].name, "problem", err.Error())
		}
	}
}

// tearDown undoes the phases in reverse until one is not gone yet.
func (e *Engine[O, S]) tearDown(ctx context.Context, p *pass[S]) *outcome[S] {
	o := &outcome[S]{pass: p, deleting: true, verdicts: make([]Verdict, len(e.slots))}
	if slices.Contains(p.owner.GetFinalizers(), metav1.FinalizerOrphanDependents) {
		// The user asked to keep the children: the garbage collector takes our owner reference
		// off them, and then its finalizer off the object. Until then they are still ours to delete.
		o.verdicts[len(e.slots)-1] = Wait(ReasonTerminating, "waiting for the garbage collector to orphan the children, as the deletion asks", 0)
		return o
	}
	watch := e.startWatch(p)
	for i := len(e.slots) - 1; i >= 0; i-- {
		slot := &e.slots[i]
		p.current = i
		verdict, err := slot.phase.undo(ctx, p)
		verdict = settle(slot.name, verdict, err)
		watch.observe(slot.metrics, verdict, err)
		if err != nil {
			o.err = fmt.Errorf("undoing phase %s: %w", slot.name, err)
		}
		if !verdict.IsDone() {
			o.verdicts[i] = removable(verdict)
			return o
		}
		o.verdicts[i] = DoneBecause(ReasonTerminating, "gone")
	}
	o.gone = true
	return o
}

// removable makes a stall of the teardown be looked at again: nobody edits the spec of an object
// that is going, and the world that has to change need not be watched.
func removable(verdict Verdict) Verdict {
	if verdict.IsStalled() && verdict.after == 0 {
		return verdict.LookAgainAfter(SafetyNet)
	}
	return verdict
}

// stopwatch times one phase after the other, with one look at the clock for each. The zero value
// does not run.
type stopwatch struct {
	clock clock.PassiveClock
	last  time.Time
}

// startWatch: a plan is not counted, since it does nothing.
func (e *Engine[O, S]) startWatch(p *pass[S]) stopwatch {
	if e.deps.Metrics == nil || p.planning {
		return stopwatch{}
	}
	return stopwatch{clock: e.deps.Clock, last: e.deps.Clock.Now()}
}

func (w *stopwatch) observe(m *phaseMetrics, verdict Verdict, err error) {
	if w.clock == nil {
		return
	}
	now := w.clock.Now()
	m.observe(verdict, err, now.Sub(w.last))
	w.last = now
}

// conditionReasoner is an error that knows the reason for a condition; [ssa.Error] is one.
type conditionReasoner interface {
	error
	ConditionReason() string
	Permanent() bool
}

// settle makes a verdict of an error, so that the rest of the engine knows only verdicts, and sees
// to it that the API server takes the condition that is made of it.
func settle(phase string, verdict Verdict, err error) Verdict {
	if err != nil {
		verdict = verdictOf(err)
	}
	if verdict.kind == verdictNone || verdict.kind == verdictMissing {
		return Stalled(ReasonFailed, fmt.Sprintf("phase %s gave no verdict: this is a bug in the operator", phase))
	}
	if !isReason(verdict.reason) {
		verdict.message = strings.TrimSpace(verdict.reason + " " + verdict.message)
		verdict.reason = ReasonFailed
		if verdict.IsDone() {
			verdict.reason = ReasonReady
		}
	}
	return verdict
}

func verdictOf(err error) Verdict {
	var reasoner conditionReasoner
	if !errors.As(err, &reasoner) {
		return Verdict{kind: verdictWait, reason: ReasonFailed, message: steady(err.Error())}
	}
	if reasoner.Permanent() {
		return Stalled(reasoner.ConditionReason(), reasoner.Error())
	}
	return Verdict{kind: verdictWait, reason: reasoner.ConditionReason(), message: reasoner.Error()}
}

// kindOf finds the kind of a Go type.
func kindOf[L client.Object](scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	if reflect.TypeFor[L]().Kind() != reflect.Pointer {
		return schema.GroupVersionKind{}, fmt.Errorf("%v is not a pointer to a Go type of one kind", reflect.TypeFor[L]())
	}
	gvk, err := apiutil.GVKForObject(newObject[L](), scheme)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("%v is not in the scheme: %w", reflect.TypeFor[L](), err)
	}
	return gvk, nil
}

// listOf is the kind of a kind's lists.
func listOf(kind schema.GroupVersionKind) schema.GroupVersionKind {
	return kind.GroupVersion().WithKind(kind.Kind + "List")
}
