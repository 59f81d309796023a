package securestorage

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Name is the controller's name in metrics, events, logs and flags.
const Name = "securestorage"

// FieldManager is the name under which everything is applied. It is stable for ever.
const FieldManager = "fixpoint-securestorage"

// Finalizer keeps a SecureStorage until the cloud has nothing left of it that is to go.
const Finalizer = "fixpoint.dev/teardown"

// +kubebuilder:rbac:groups=fixpoint.dev,resources=securestorages,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=fixpoint.dev,resources=securestorages/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",resources=serviceaccounts/token,verbs=create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Backoff of a reconcile that fails: from the first retry to the longest pause.
const (
	firstRetry  = 200 * time.Millisecond
	longestWait = 5 * time.Minute
)

// Options for [Setup].
type Options struct {
	// Concurrency is how many SecureStorages are reconciled at the same time.
	Concurrency int
	// Cloud is where the accounts live, and Credentials how one is known there.
	Cloud       *cloud.Cloud
	Credentials cloud.Credentials
	// Guard ends passes that are refused a write. Optional.
	Guard *lease.Guard
	// Applies and Phases count outcomes. Optional.
	Applies *ssa.Metrics
	Phases  *phases.Metrics
	// Clock is for transition times and deadlines. Optional.
	Clock clock.PassiveClock
}

func (o Options) complete() Options {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// Engine is the engine that reconciles SecureStorages.
type Engine = phases.Engine[*v1alpha1.SecureStorage, *scope]

// Setup adds the controller to a manager.
func Setup(_ context.Context, mgr ctrl.Manager, o Options) error {
	o = o.complete()
	entrance := newDoor(mgr, o)
	engine, err := newEngine(mgr, o, entrance)
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.SecureStorage{}, builder.WithPredicates(worthAPass)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Concurrency,
			RateLimiter:             phases.NewBackoff(firstRetry, longestWait),
		}).
		Complete(o.Guard.Reconciler(&frugal{Engine: engine, reader: mgr.GetClient(), door: entrance, clock: o.Clock}))
	if err != nil {
		return fmt.Errorf("building the controller %s: %w", Name, err)
	}
	return nil
}

func newDoor(mgr ctrl.Manager, o Options) *door {
	return &door{
		cloud:       o.Cloud,
		credentials: o.Credentials,
		secrets:     mgr.GetAPIReader(),
		tokens:      mgr.GetClient().SubResource("token"),
		recorder:    mgr.GetEventRecorder(Name),
	}
}

// NewEngine makes the engine with a manager's clients.
func NewEngine(mgr ctrl.Manager, o Options) (*Engine, error) {
	o = o.complete()
	return newEngine(mgr, o, newDoor(mgr, o))
}

func newEngine(mgr ctrl.Manager, o Options, entrance *door) (*Engine, error) {
	applier, err := ssa.New(ssa.Options{
		Client:         mgr.GetClient(),
		Reader:         mgr.GetAPIReader(),
		FieldManager:   FieldManager,
		TypeConverters: []managedfields.TypeConverter{applyconfiguration.NewTypeConverter(mgr.GetScheme())},
		Metrics:        o.Applies,
	})
	if err != nil {
		return nil, fmt.Errorf("making the applier of %s: %w", Name, err)
	}
	return phases.New(definition(o, entrance), phases.Dependencies{
		Reader:   mgr.GetClient(),
		Uncached: mgr.GetAPIReader(),
		Applier:  applier,
		Planner:  applier.DryRun(),
		Scheme:   mgr.GetScheme(),
		Recorder: entrance.recorder,
		Metrics:  o.Phases,
		Clock:    o.Clock,
	})
}

func definition(o Options, entrance *door) phases.Definition[*v1alpha1.SecureStorage, *scope] {
	return phases.Definition[*v1alpha1.SecureStorage, *scope]{
		Controller: Name,
		Finalizer:  Finalizer,
		Phases:     Phases(),
		Scope: func(storage *v1alpha1.SecureStorage) *scope {
			return &scope{storage: storage, door: entrance, clock: o.Clock}
		},
		Conditions: func(storage *v1alpha1.SecureStorage) []metav1.Condition { return storage.Status.Conditions },
		Status:     func(s *scope, summary phases.Summary) ssa.Configuration { return desiredStatus(s, summary) },
		Suspended:  func(storage *v1alpha1.SecureStorage) bool { return storage.Spec.Suspend },
	}
}
