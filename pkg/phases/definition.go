package phases

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Definition declares how objects of type O are reconciled: the list of phases, and what of O the
// engine has to know.
type Definition[O client.Object, S any] struct {
	// Controller is the controller's name in metrics and logs, such as appservice. Events carry the field manager:
	// [FromManager] builds the recorder from it.
	Controller string
	// Finalizer is added before the first side effect and removed after the last thing is gone.
	Finalizer string
	// Phases in their order. Teardown is the list reversed.
	Phases []Phase[S]
	// Scope creates the scope of one reconcile. The object in it is the reconcile's own copy.
	Scope func(object O) S
	// Conditions reads the conditions that the object has.
	Conditions func(object O) []metav1.Condition
	// Status builds the status from what the reconcile found. It holds every condition of the summary.
	Status func(scope S, summary Summary) ssa.Configuration
	// Events are those about what Status says beside the conditions. It is called after the status has been written, and
	// also if the status did not change: return an Event only for a difference between the status that the object had
	// before and the one that Status returns. If the process ends in between, the Event is lost. Optional.
	Events func(scope S, summary Summary) []Event
	// Suspended says whether reconciliation of the object is suspended. Optional.
	Suspended func(object O) bool
	// Policies are those of the object. Optional: AdoptNever, CorrectDrift.
	Policies func(object O) Policies
	// ReportInterval is how long the first status of a generation, or of a deletion, may be put off while all there is
	// to say is that a child is not ready, or not gone, yet. That saves a write where the child soon is. What is wrong
	// is reported at once. A status that only says [WaitVerdict.Briefly] may be put off later as well, for [BriefInterval].
	// Optional: zero puts nothing off.
	ReportInterval time.Duration
	// Postpone delays a reconcile by the duration that it returns, for instance one that is not urgent while the service
	// that it calls is throttled. Zero delays nothing. Optional.
	Postpone func(ctx context.Context, object O) time.Duration
}

// Event is an Event about the object.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	// Reason and Action are words for programs.
	Reason, Action string
	// Note is for people. It is cut to the 1,024 bytes that the API server accepts.
	Note string
}

// Applier is what the engine needs of [ssa.Applier], which implements it.
type Applier interface {
	Decide(req ssa.Request) (ssa.Decision, error)
	Execute(ctx context.Context, decision ssa.Decision) (ssa.Result, error)
	ApplyStatus(ctx context.Context, desired ssa.Configuration, live client.Object) (ssa.Result, error)
	EnsureFinalizer(ctx context.Context, live client.Object, finalizer string) (client.Object, error)
	RemoveFinalizer(ctx context.Context, live client.Object, finalizer string) error
	Delete(ctx context.Context, live client.Object, owner metav1.OwnerReference, propagation metav1.DeletionPropagation) (gone bool, err error)
}

// Dependencies are what an engine reads and writes through. [FromManager] fills them.
type Dependencies struct {
	// Reader reads from the cache. It has to be one that reads its own writes.
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
	// Clock is for transition times. Optional.
	Clock clock.PassiveClock
}

// Engine reconciles objects of one kind through its phases. It keeps two things from one reconcile to the next, which
// spare requests and decide nothing: which version of an object the API server has just answered with, and since when
// a status is due. It is safe for concurrent use on different objects.
type Engine[O client.Object, S any] struct {
	def   Definition[O, S]
	deps  Dependencies
	kind  schema.GroupVersionKind
	slots []slot[S]
	// recent has the resource version by UID, or that the finalizer was removed.
	recent *cache.LRUExpireCache
	// due has by name since when a status is put off.
	due sync.Map
}

// recentTime is how long an answer of the API server is as good as a read, and recentObjects bounds how many
// are kept.
const (
	recentTime    = 30 * time.Second
	recentObjects = 4096
)

var phaseName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,47}$`)

// New checks the definition and builds an engine. A wrong list fails here, never at run time.
func New[O client.Object, S any](definition Definition[O, S], dependencies Dependencies) (*Engine[O, S], error) {
	e := &Engine[O, S]{def: definition, deps: dependencies}
	problems := e.checkDependencies()
	if len(problems) == 0 {
		problems = e.checkDefinition()
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("building the engine of controller %q: %w", definition.Controller, err)
	}
	if e.deps.Clock == nil {
		e.deps.Clock = clock.RealClock{}
	}
	e.recent = cache.NewLRUExpireCacheWithClock(recentObjects, e.deps.Clock)
	return e, nil
}

func (e *Engine[O, S]) checkDependencies() (problems []error) {
	if e.deps.Reader == nil || e.deps.Uncached == nil {
		problems = append(problems, errors.New("Dependencies.Reader and Uncached are required"))
	}
	if e.deps.Applier == nil {
		problems = append(problems, errors.New("Dependencies.Applier is required"))
	}
	if e.deps.Scheme == nil {
		problems = append(problems, errors.New("Dependencies.Scheme is required"))
	}
	return problems
}

func (e *Engine[O, S]) checkDefinition() (problems []error) {
	if e.def.Controller == "" {
		problems = append(problems, errors.New("Controller is empty: name the controller"))
	}
	if !strings.Contains(e.def.Finalizer, "/") || len(content.IsLabelKey(e.def.Finalizer)) > 0 {
		problems = append(problems, fmt.Errorf("Finalizer %q is not a qualified name such as example.com/teardown", e.def.Finalizer))
	}
	kind, err := kindOf[O](e.deps.Scheme)
	if err != nil {
		problems = append(problems, fmt.Errorf("the object's type: %w", err))
	}
	e.kind = kind
	problems = append(problems, e.checkPhases()...)
	if e.def.Scope == nil || e.def.Conditions == nil || e.def.Status == nil {
		problems = append(problems, errors.New("Scope, Conditions and Status are required"))
	}
	if len(problems) == 0 {
		problems = append(problems, checkStatus(e.def, e.kind))
	}
	return problems
}

func (e *Engine[O, S]) checkPhases() []error {
	if len(e.def.Phases) == 0 {
		return []error{errors.New("the list of phases is empty")}
	}
	var problems []error
	seen := map[string]bool{}
	unnamed := map[schema.GroupKind]string{}
	for i, phase := range e.def.Phases {
		if isNil(phase) {
			problems = append(problems, fmt.Errorf("phase %d is nil", i+1))
			continue
		}
		name := phase.PhaseName()
		if !phaseName.MatchString(name) {
			problems = append(problems, fmt.Errorf("phase %d: the name %q is not usable as a condition type: it must begin with a capital letter and have only letters and digits, at most 48", i+1, name))
		}
		if seen[name] {
			problems = append(problems, fmt.Errorf("phase %d: the name %q is used twice", i+1, name))
		}
		seen[name] = true
		added, err := e.slotFor(phase)
		if err != nil {
			problems = append(problems, fmt.Errorf("phase %s: %w", name, err))
			continue
		}
		e.slots = append(e.slots, added)
		if !added.HasOwnersName {
			continue
		}
		if other, ok := unnamed[added.kind.GroupKind()]; ok {
			problems = append(problems, fmt.Errorf("phase %s: its child is the same %s as that of phase %s: give one of them a ChildName", name, added.kind.Kind, other))
		}
		unnamed[added.kind.GroupKind()] = name
	}
	return problems
}

func (e *Engine[O, S]) slotFor(phase Phase[S]) (slot[S], error) {
	d, err := phase.Declare(e.deps.Scheme)
	if err != nil {
		return slot[S]{}, err
	}
	s := slot[S]{Declaration: d, name: phase.PhaseName(), condition: ConditionOf(phase.PhaseName()), metrics: metricsOf(e.def.Controller, phase.PhaseName())}
	switch {
	case d.Next == nil:
		return s, errors.New("Declaration.Next is required")
	case d.Child == nil:
		return s, nil
	case d.Names == nil:
		return s, errors.New("Declaration.Names is required beside Child")
	case d.Namespace == nil:
		s.Namespace = func(p Reconcile[S]) string { return p.Owner.GetNamespace() }
	}
	s.kind, err = kindOfObject(d.Child, e.deps.Scheme)
	return s, err
}
