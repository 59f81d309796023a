package phases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Summary is what a reconcile found, for the kind's status.
type Summary struct {
	// ObservedGeneration is the generation of the spec that was reconciled.
	ObservedGeneration int64
	// Conditions are all conditions, complete, with transition times that carry over.
	Conditions []metav1.Condition
	// Drifts are the fields that other field managers had changed, as found by this reconcile.
	Drifts []ObservedDrift
	// Now is the time of the reconcile.
	Now metav1.Time
	// Ready is true if all phases are done, and ReadyReason is the reason of the condition.
	Ready       bool
	ReadyReason string
	// Stalled is true if only a person helps.
	Stalled bool
	// Deleting is true while the object is torn down, and Suspended while reconciliation is suspended.
	Deleting, Suspended bool
}

// ConditionConfigurations turns conditions into apply configurations.
func ConditionConfigurations(conditions []metav1.Condition) []*metav1ac.ConditionApplyConfiguration {
	configurations := make([]*metav1ac.ConditionApplyConfiguration, 0, len(conditions))
	for _, c := range conditions {
		configurations = append(configurations, metav1ac.Condition().
			WithType(c.Type).
			WithStatus(c.Status).
			WithObservedGeneration(c.ObservedGeneration).
			WithLastTransitionTime(c.LastTransitionTime).
			WithReason(c.Reason).
			WithMessage(c.Message))
	}
	return configurations
}

// report writes the status if it differs, and then emits the Events of the transitions. If the object is
// gone meanwhile, there is nothing left to report on. It returns how long a status was put off.
func (e *Engine[O, S]) report(ctx context.Context, live O, w *walk[S], corrected []ObservedDrift) (putOff time.Duration, err error) {
	summary := e.summarize(live, w, corrected)
	if putOff := e.putOff(live, w, summary); putOff > 0 {
		return putOff, nil
	}
	result, err := e.deps.Applier.ApplyStatus(ctx, e.def.Status(w.pass.Scope, summary), live)
	if apierrors.IsNotFound(err) {
		return 0, e.checkGone(ctx, live)
	}
	if err != nil {
		return 0, err
	}
	if result.Action != ssa.ActionNone && result.Live != nil {
		e.recent.Add(result.Live.GetUID(), result.Live.GetResourceVersion(), recentTime)
	}
	e.announce(live, w, summary)
	if e.def.Events != nil {
		for _, event := range e.def.Events(w.pass.Scope, summary) {
			e.event(live, nil, event.Type, event.Reason, event.Action, event.Note)
		}
	}
	return 0, nil
}

// checkGone fails if an object exists whose status was not found: the API server does not say that its kind has none.
func (e *Engine[O, S]) checkGone(ctx context.Context, live O) error {
	fresh, err := get[O](ctx, e.deps.Uncached, client.ObjectKeyFromObject(live))
	if err != nil || isNil(fresh) || fresh.GetUID() != live.GetUID() {
		return err
	}
	return fmt.Errorf("%s has no status subresource: add subresources.status to its CustomResourceDefinition, for instance by the marker +kubebuilder:subresource:status", e.kind.Kind)
}

// due is since when the status of a generation has been put off.
type due struct {
	uid        types.UID
	generation int64
	since      time.Time
}

// BriefInterval is how long a status that is about the generation already may be put off for a wait that usually ends
// within a second ([WaitVerdict.Briefly]): a control plane that is busy takes longer.
const BriefInterval = 10 * time.Second

// putOff says for how much longer a status need not be written that only says that a child is not ready, or not gone,
// yet: most are within that time, which saves a write. Until then the status says by its observedGeneration that it
// is about an earlier generation.
func (e *Engine[O, S]) putOff(live O, w *walk[S], summary Summary) time.Duration {
	key := client.ObjectKeyFromObject(live)
	ready := meta.FindStatusCondition(w.pass.Before, ConditionReady)
	_, gate := w.gate()
	isObserved := ready != nil && ready.ObservedGeneration == live.GetGeneration()
	if e.def.ReportInterval == 0 || len(summary.Drifts) > 0 || !w.waitsForChild() || isObserved && !gate.data().brief {
		e.due.Delete(key)
		return 0
	}
	known, _ := e.due.Load(key)
	this, _ := known.(due)
	if this.uid != live.GetUID() || this.generation != live.GetGeneration() {
		this = due{live.GetUID(), live.GetGeneration(), summary.Now.Time}
		e.due.Store(key, this)
	}
	interval := e.def.ReportInterval
	if isObserved {
		interval = BriefInterval
	}
	return max(0, interval-summary.Now.Sub(this.since))
}

// waitsForChild says whether all that keeps the object from being ready, or gone, is that a child takes its time.
func (w *walk[S]) waitsForChild() bool {
	phase, _ := w.gate()
	i := slices.IndexFunc(w.slots, func(s slot[S]) bool { return s.name == phase })
	return i >= 0 && w.slots[i].Child != nil && !w.isWrong()
}

func (e *Engine[O, S]) summarize(live O, w *walk[S], corrected []ObservedDrift) Summary {
	summary := Summary{
		ObservedGeneration: live.GetGeneration(),
		Now:                metav1.NewTime(e.deps.Clock.Now()),
		Drifts:             append(slices.Clip(corrected), w.drifts()...),
		Deleting:           w.deleting,
		Suspended:          w.suspended,
		Conditions:         w.conditions(),
	}
	for i := range summary.Conditions {
		c := &summary.Conditions[i]
		c.ObservedGeneration = summary.ObservedGeneration
		c.LastTransitionTime = summary.Now
		c.Message = bound(c.Message, maxConditionMessage)
		if old := meta.FindStatusCondition(w.pass.Before, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		switch c.Type {
		case ConditionReady:
			summary.Ready, summary.ReadyReason = c.Status == metav1.ConditionTrue, c.Reason
		case ConditionStalled:
			summary.Stalled = true
		}
	}
	return summary
}

// maxConditionMessage is the limit that the API server sets on a condition's message.
const maxConditionMessage = 32768

// checkStatus finds a Status function that loses conditions or is about another kind, and a Conditions function that
// does not read them back, by asking for the status of an empty object. Without its conditions, each reconcile would
// take each of them for a transition, and write the status again.
func checkStatus[O client.Object, S any](def Definition[O, S], kind schema.GroupVersionKind) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("Scope, Status or Conditions panics on an empty object, of which nothing was observed: check for nil: %v", r)
		}
	}()
	probe := Summary{ObservedGeneration: 1, Now: metav1.Unix(1, 0)}
	types := []string{ConditionReady}
	for _, phase := range def.Phases {
		types = append(types, ConditionOf(phase.PhaseName()))
	}
	for _, conditionType := range types {
		c := condition(conditionType, metav1.ConditionTrue, ReasonReady, "")
		c.ObservedGeneration, c.LastTransitionTime = probe.ObservedGeneration, probe.Now
		probe.Conditions = append(probe.Conditions, c)
	}
	raw, err := json.Marshal(def.Status(def.Scope(newObject[O]()), probe))
	if err != nil {
		return fmt.Errorf("serializing the configuration that Status returns: %w", err)
	}
	var written metav1.TypeMeta
	object := newObject[O]()
	if err := errors.Join(json.Unmarshal(raw, &written), json.Unmarshal(raw, object)); err != nil {
		return fmt.Errorf("reading the configuration that Status returns as %T: %w", object, err)
	}
	read := def.Conditions(object)
	for _, c := range probe.Conditions {
		found := meta.FindStatusCondition(read, c.Type)
		if found == nil {
			return errors.New("Status or Conditions loses the condition " + c.Type +
				": put all of Summary.Conditions into status.conditions, and return all of those")
		}
		if found.ObservedGeneration != c.ObservedGeneration || !found.LastTransitionTime.Equal(&c.LastTransitionTime) {
			return errors.New("Status loses the observedGeneration or lastTransitionTime of the condition " + c.Type + ": build the conditions with ConditionConfigurations")
		}
	}
	if written.GroupVersionKind() != kind {
		return fmt.Errorf("Status returns a configuration of %q, and the object is of %q: build it for the kind of the object",
			kindAndVersion(written.GroupVersionKind()), kindAndVersion(kind))
	}
	return nil
}

// announce emits an Event for each transition that people want to know of.
func (e *Engine[O, S]) announce(live O, w *walk[S], summary Summary) {
	for _, c := range summary.Conditions {
		old := meta.FindStatusCondition(w.pass.Before, c.Type)
		if !isTransition(old, c) {
			continue
		}
		transitions.WithLabelValues(e.def.Controller, c.Type, string(c.Status)).Inc()
		if w.isNews(old, c) {
			e.event(live, nil, w.eventType(c), c.Reason, c.Type, c.Type+" is "+string(c.Status)+": "+c.Message)
		}
	}
	for _, over := range []string{ConditionDrifted, ConditionSuspended} {
		was, is := meta.FindStatusCondition(w.pass.Before, over), meta.FindStatusCondition(summary.Conditions, over)
		if was != nil && is == nil && !w.deleting && !w.suspended {
			e.event(live, nil, corev1.EventTypeNormal, over+"Over", over, over+" is no longer True")
		}
	}
}

// isNews says whether a transition is worth an Event: the object became ready, or ceased to be; something is wrong;
// a phase is done and has a reason to say more; or a person suspended it or has to decide about a drift. The rest is progress.
func (o *outcome) isNews(old *metav1.Condition, c metav1.Condition) bool {
	switch _, gate := o.gate(); c.Type {
	case ConditionReady:
		wasReady := old != nil && old.Status == metav1.ConditionTrue
		return !o.suspended && (c.Status == metav1.ConditionTrue || o.isWrong() || wasReady && !o.deleting)
	case ConditionStalled:
		return gate == nil // or else Ready says it
	case ConditionDrifted, ConditionSuspended:
		return true
	default:
		i := slices.IndexFunc(o.phases, func(p phaseOutcome) bool { return p.condition == c.Type })
		return c.Status == metav1.ConditionTrue && c.Reason != ReasonReady && c.Reason != ReasonPruning && o.phases[i].verdict.data().beside == ""
	}
}

// announceCorrections emits one Event for each drift that was reverted.
func (e *Engine[O, S]) announceCorrections(live O, corrected []ObservedDrift) {
	for _, drift := range corrected {
		outcome := "; reverted"
		switch {
		case drift.Deleted:
			outcome = "; recreated"
		case drift.Pending:
			outcome = "; reverting"
		}
		driftsCorrected.WithLabelValues(e.def.Controller).Inc()
		e.event(live, driftedField(live, drift), corev1.EventTypeWarning, "DriftCorrected", "Correct", drift.String()+outcome)
	}
}

// isTransition says whether a condition tells of something that has happened. That a phase which has no
// condition begins to wait for an earlier one does not.
func isTransition(old *metav1.Condition, c metav1.Condition) bool {
	tellsNothing := (old == nil || old.Status == metav1.ConditionUnknown) && c.Status == metav1.ConditionUnknown
	if c.Type == ConditionReconciling || tellsNothing {
		return false
	}
	return old == nil || old.Status != c.Status || old.Reason != c.Reason
}

// isWrong says whether what keeps the object from being ready is more than a matter of time.
func (o *outcome) isWrong() bool {
	_, gate := o.gate()
	return o.err != nil || gate != nil && (gate.IsStalled() || gate.data().warning)
}

func (o *outcome) eventType(c metav1.Condition) string {
	if c.Type == ConditionDrifted || c.Type == ConditionStalled || c.Status == metav1.ConditionFalse && o.isWrong() {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// driftedField is what the Event about a drift relates to. Events about one version of an object that
// differ in nothing but their note are one to the recorder, which keeps the first note.
func driftedField(live client.Object, drift ObservedDrift) *corev1.ObjectReference {
	kind, name, _ := strings.Cut(drift.Child, " ")
	namespace := live.GetNamespace()
	if of, rest, isNamed := strings.Cut(name, "/"); namespace == "" && isNamed {
		namespace, name = of, rest
	}
	return &corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name, FieldPath: drift.Path}
}

func (e *Engine[O, S]) event(live O, related runtime.Object, eventType, reason, action, note string) {
	if e.deps.Recorder == nil {
		return
	}
	// The API server refuses notes of more than 1024 bytes.
	const maxNote = 1024
	e.deps.Recorder.Eventf(live, related, eventType, reason, action, "%s", bound(note, maxNote))
}
