package phases

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// What a step does, beside the actions of [ssa.Applier].
const (
	// ActionEnsure: a step brings about what it observed to be missing.
	ActionEnsure ssa.Action = "Ensure"
	// ActionUndo: a step takes back what it ensured. A plan cannot know whether that has been done
	// already: it says so in any case.
	ActionUndo ssa.Action = "Undo"
)

// Change is one thing that a pass did, or that a plan would do.
type Change struct {
	// Phase it belongs to.
	Phase string
	// Action is what was done: one of [ssa.Action], [ActionEnsure] or [ActionUndo].
	Action ssa.Action
	// Object is its kind and name, or for a step what it set out to do.
	Object string
	// Drifts are the fields that others had changed, if that was why.
	Drifts []ssa.Drift
	// Left is true if the drifts were left as they are.
	Left bool
	// Pending is true if a step has set out to do it, and it takes its time.
	Pending bool
	// Recreated is true if a child was created that had been there before. It is known from the
	// condition that the status has, and only reported.
	Recreated bool
}

// String reads like "Deployment: Correct Deployment web (kubectl-edit changed ...)".
func (c Change) String() string {
	text := fmt.Sprintf("%s: %s %s", c.Phase, c.Action, c.Object)
	for _, drift := range c.Drifts {
		text += " (" + drift.String() + ")"
	}
	return text
}

// slot is a phase in its place in the list, with what construction found out about it.
type slot[S any] struct {
	phase Phase[S]
	name  string
	// condition is the condition type of the phase.
	condition string
	// kind of the phase's child, and of its lists; zero for a step.
	kind, list schema.GroupVersionKind
	// metrics are nil if nothing is counted.
	metrics *phaseMetrics
}

// pass is the state of one walk over the phases.
type pass[S any] struct {
	scope     S
	owner     client.Object
	reference metav1.OwnerReference
	adoption  ssa.AdoptionPolicy
	drift     ssa.DriftPolicy
	applier   Applier
	reader    client.Reader
	uncached  client.Reader
	// readOwner reads the owner past the cache; nil means that it is gone.
	readOwner func(ctx context.Context) (client.Object, error)
	scheme    *runtime.Scheme
	planning  bool
	// confirmed is true once the owner is known, past the cache, to be what the pass goes by.
	confirmed bool
	seen      *sightings
	// before are the conditions that the object had.
	before []metav1.Condition
	// slots are the phases, and current is the one that runs.
	slots   []slot[S]
	current int
	// observed is how many phases have handed their child to the scope.
	observed int
	changes  []Change
}

// note keeps what an apply did.
func (p *pass[S]) note(ctx context.Context, phase string, result ssa.Result) {
	if result.Action == ssa.ActionNone {
		if quiet := log.FromContext(ctx).V(1); quiet.Enabled() {
			quiet.Info("Child is as desired", "phase", phase, "child", klog.KObj(result.Live))
		}
		return
	}
	if !p.planning && result.Action != ssa.ActionReport {
		log.FromContext(ctx).Info("Applied child", "phase", phase, "child", klog.KObj(result.Live), "action", result.Action, "drifts", result.Drifts)
	}
	p.changes = append(p.changes, Change{
		Phase:     phase,
		Action:    result.Action,
		Object:    p.describe(result.Live),
		Drifts:    result.Drifts,
		Left:      result.Left,
		Recreated: result.Action == ssa.ActionCreate && p.wasThere(),
	})
}

// wasThere says whether the status knows the current phase's child.
func (p *pass[S]) wasThere() bool {
	c := meta.FindStatusCondition(p.before, p.slots[p.current].condition)
	switch {
	case c == nil:
		return false
	case c.Reason == ReasonRecreating:
		return true
	default:
		return c.Status == metav1.ConditionTrue && c.Reason != ReasonNotConfigured
	}
}

// wasDone says whether the status says that the current phase was done for the object as it is:
// what is missing now, somebody has taken away.
func (p *pass[S]) wasDone() bool {
	c := meta.FindStatusCondition(p.before, p.slots[p.current].condition)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == p.owner.GetGeneration()
}

// delete deletes a child once: one that is on its way out, or that an earlier step of this pass
// has deleted behind the cache, is only waited for.
func (p *pass[S]) delete(ctx context.Context, phase string, live client.Object) error {
	if live.GetDeletionTimestamp() != nil || p.hasDeleted(phase, p.describe(live)) {
		return nil
	}
	if err := p.confirm(ctx); err != nil {
		return err
	}
	p.changes = append(p.changes, Change{Phase: phase, Action: ssa.ActionDelete, Object: p.describe(live)})
	if err := p.applier.Delete(ctx, live, p.reference, metav1.DeletePropagationForeground); err != nil {
		return err
	}
	if !p.planning {
		log.FromContext(ctx).Info("Deleted child", "phase", phase, "child", klog.KObj(live))
	}
	return nil
}

func (p *pass[S]) hasDeleted(phase, object string) bool {
	return slices.ContainsFunc(p.changes, func(c Change) bool {
		return c.Phase == phase && c.Action == ssa.ActionDelete && c.Object == object
	})
}

// pruneLeftovers deletes children of the phase's kind that no phase names: an earlier version of
// the operator may have named them otherwise. They are found by owner and kind.
func (p *pass[S]) pruneLeftovers(ctx context.Context, phase string) (Verdict, error) {
	leftovers, err := p.owned(ctx)
	if err != nil {
		return Verdict{}, err
	}
	verdict := Done("")
	for _, object := range leftovers {
		if p.isNamed(object.GetName()) {
			continue
		}
		if err := p.delete(ctx, phase, object); err != nil {
			return Verdict{}, err
		}
		verdict = Wait(ReasonPruning, fmt.Sprintf("waiting for %s to be gone, which is no longer wanted", p.describe(object)), 0)
	}
	return verdict, nil
}

// isNamed says whether some phase has a child of this name and of the current phase's kind.
func (p *pass[S]) isNamed(name string) bool {
	for _, slot := range p.slots {
		if slot.kind == p.slots[p.current].kind && slot.phase.childName(p) == name {
			return true
		}
	}
	return false
}

// owned lists what the owner controls of the current phase's kind. Of a kind that the cluster does
// not serve there is nothing.
func (p *pass[S]) owned(ctx context.Context) ([]client.Object, error) {
	kind := p.slots[p.current].list
	fresh, err := p.scheme.New(kind)
	if err != nil {
		return nil, fmt.Errorf("making a %s: %w", kind.Kind, err)
	}
	list, ok := fresh.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("making a %s: %T is not a list of objects", kind.Kind, fresh)
	}
	objects, err := ssa.Owned(ctx, p.reader, p.owner, list)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	return objects, err
}

// describe names a child of the current phase for people: its kind and name.
func (p *pass[S]) describe(child client.Object) string {
	return p.slots[p.current].kind.Kind + " " + child.GetName()
}
