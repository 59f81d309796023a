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

// FieldManager is the field manager of every apply. It must never change.
const FieldManager = "fixpoint-securestorage"

// Finalizer keeps a SecureStorage until its resources in the cloud are deleted.
const Finalizer = "fixpoint.dev/teardown"

// +kubebuilder:rbac:groups=fixpoint.dev,resources=securestorages,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=fixpoint.dev,resources=securestorages/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",resources=serviceaccounts/token,verbs=create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Backoff of failed reconciles: the first and the longest delay.
const (
	firstRetry  = 200 * time.Millisecond
	longestWait = 5 * time.Minute
)

// Options for [Setup].
type Options struct {
	// Concurrency is how many SecureStorages are reconciled at the same time.
	Concurrency int
	// Cloud is the cloud that holds the accounts, and Credentials creates the tokens for it.
	Cloud       *cloud.Cloud
	Credentials cloud.Credentials
	// Guard ends reconciles whose writes are refused because this replica is not the leader. Optional.
	Guard *lease.Guard
	// Applies and Phases count outcomes. Optional.
	Applies *ssa.Metrics
	Phases  *phases.Metrics
	// Clock is used for transition times and deadlines. Optional.
	Clock clock.PassiveClock
}

func (o Options) complete() Options {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// Engine reconciles SecureStorages.
type Engine = phases.Engine[*v1alpha1.SecureStorage, *scope]

// Setup adds the controller to a manager.
func Setup(_ context.Context, mgr ctrl.Manager, o Options) error {
	o = o.complete()
	access := newCloudAccess(mgr, o)
	engine, err := newEngine(mgr, o, access)
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.SecureStorage{}, builder.WithPredicates(needsReconcile)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Concurrency,
			RateLimiter:             phases.NewBackoff(firstRetry, longestWait),
		}).
		Complete(o.Guard.Pass(&reconciler{Engine: engine, reader: mgr.GetClient(), access: access, clock: o.Clock}))
	if err != nil {
		return fmt.Errorf("building the controller %s: %w", Name, err)
	}
	return nil
}

func newCloudAccess(mgr ctrl.Manager, o Options) *cloudAccess {
	return &cloudAccess{
		cloud:       o.Cloud,
		credentials: o.Credentials,
		secrets:     mgr.GetAPIReader(),
		tokens:      mgr.GetClient().SubResource("token"),
		recorder:    mgr.GetEventRecorder(Name),
	}
}

// NewEngine returns an engine that uses the clients of a manager.
func NewEngine(mgr ctrl.Manager, o Options) (*Engine, error) {
	o = o.complete()
	return newEngine(mgr, o, newCloudAccess(mgr, o))
}

func newEngine(mgr ctrl.Manager, o Options, access *cloudAccess) (*Engine, error) {
	applier, err := ssa.New(ssa.Options{
		Client:         mgr.GetClient(),
		Reader:         mgr.GetAPIReader(),
		FieldManager:   FieldManager,
		TypeConverters: []managedfields.TypeConverter{applyconfiguration.NewTypeConverter(mgr.GetScheme())},
		Metrics:        o.Applies,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the applier of %s: %w", Name, err)
	}
	return phases.New(definition(o, access), phases.Dependencies{
		Reader:   mgr.GetClient(),
		Uncached: mgr.GetAPIReader(),
		Applier:  applier,
		Planner:  applier.DryRun(),
		Scheme:   mgr.GetScheme(),
		Recorder: access.recorder,
		Metrics:  o.Phases,
		Clock:    o.Clock,
	})
}

func definition(o Options, access *cloudAccess) phases.Definition[*v1alpha1.SecureStorage, *scope] {
	return phases.Definition[*v1alpha1.SecureStorage, *scope]{
		Controller: Name,
		Finalizer:  Finalizer,
		Phases:     Phases(),
		Scope: func(storage *v1alpha1.SecureStorage) *scope {
			return &scope{storage: storage, access: access, clock: o.Clock}
		},
		Conditions: func(storage *v1alpha1.SecureStorage) []metav1.Condition { return storage.Status.Conditions },
		Status:     func(s *scope, summary phases.Summary) ssa.Configuration { return desiredStatus(s, summary) },
		Suspended:  func(storage *v1alpha1.SecureStorage) bool { return storage.Spec.Suspend },
	}
}
