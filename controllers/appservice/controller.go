package appservice

import (
	"context"
	"fmt"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Name is the controller's name in metrics, events, logs and flags.
const Name = "appservice"

// +kubebuilder:rbac:groups=fixpoint.dev,resources=appservices,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=fixpoint.dev,resources=appservices/status,verbs=patch
// +kubebuilder:rbac:groups=fixpoint.dev,resources=appservices/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=configmaps;services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=autoscaling,resources=horizontalpodautoscalers,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingressclasses,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Backoff of a reconcile that fails: from the first retry to the longest pause.
const (
	firstRetry  = 200 * time.Millisecond
	longestWait = 5 * time.Minute
)

// Options for [Setup].
type Options struct {
	// NoClusterRights is for a manager that has rights in some namespaces alone: the class of an Ingress
	// is taken to be there.
	NoClusterRights bool
	// Concurrency is how many AppServices are reconciled at the same time.
	Concurrency int
	// Indexer indexes the cache. The manager's own indexer, without one.
	Indexer client.FieldIndexer
	// Guard ends passes that are refused a write. Optional.
	Guard *lease.Guard
	// Applies and Phases count outcomes. Optional.
	Applies *ssa.Metrics
	Phases  *phases.Metrics
	// Clock is for transition times and patience. Optional.
	Clock clock.PassiveClock
}

// Engine is the engine that reconciles AppServices.
type Engine = phases.Engine[*v1alpha1.AppService, *scope]

// Setup adds the controller to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if o.Indexer == nil {
		o.Indexer = mgr.GetFieldIndexer()
	}
	engine, err := NewEngine(mgr, o)
	if err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		// Everything about an AppService is looked at, if in a while its status too: a pass over one
		// that is as it should be costs microseconds and sends nothing, and a status edited by hand
		// is put right.
		For(&v1alpha1.AppService{}, builder.WithPredicates(phases.AtOnce())).
		Watches(&v1alpha1.AppService{}, phases.InAWhile()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Concurrency,
			RateLimiter:             phases.NewBackoff(firstRetry, longestWait),
		})
	if !o.NoClusterRights {
		b = b.Watches(&networkingv1.IngressClass{}, handler.EnqueueRequestsFromMapFunc(withIngress(mgr.GetClient())))
	}
	for _, watch := range engine.Watches(mgr.GetRESTMapper()) {
		if err := ssa.IndexController(ctx, o.Indexer, watch.Object); err != nil {
			return fmt.Errorf("indexing %T: %w", watch.Object, err)
		}
		b = b.Watches(watch.Object, watch.Handler)
	}
	if err := b.Complete(o.Guard.Reconciler(engine)); err != nil {
		return fmt.Errorf("building the controller %s: %w", Name, err)
	}
	return nil
}

// NewEngine makes the engine with a manager's clients.
func NewEngine(mgr ctrl.Manager, o Options) (*Engine, error) {
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
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	var ingressClasses workload.IngressClasses
	if !o.NoClusterRights {
		ingressClasses.Reader = mgr.GetClient()
	}
	return phases.New(phases.Definition[*v1alpha1.AppService, *scope]{
		Controller: Name,
		Finalizer:  Finalizer,
		Phases:     Phases(),
		Scope: func(app *v1alpha1.AppService) *scope {
			return &scope{app: app, reader: mgr.GetClient(), uncached: mgr.GetAPIReader(), ingressClasses: ingressClasses, clock: o.Clock}
		},
		Conditions: func(app *v1alpha1.AppService) []metav1.Condition { return app.Status.Conditions },
		Status: func(s *scope, summary phases.Summary) ssa.Configuration {
			return desiredStatus(s, summary)
		},
		Suspended: func(app *v1alpha1.AppService) bool { return app.Spec.Suspend },
		Policies: func(app *v1alpha1.AppService) (ssa.AdoptionPolicy, ssa.DriftPolicy) {
			return ssa.AdoptionPolicy(app.Spec.AdoptionPolicy), ssa.DriftPolicy(app.Spec.DriftPolicy)
		},
	}, phases.Dependencies{
		Reader:   mgr.GetClient(),
		Uncached: mgr.GetAPIReader(),
		Applier:  applier,
		Planner:  applier.DryRun(),
		Scheme:   mgr.GetScheme(),
		Recorder: mgr.GetEventRecorder(Name),
		Metrics:  o.Phases,
		Clock:    o.Clock,
	})
}

// withIngress lists the AppServices that an ingress class may matter to.
func withIngress(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []reconcile.Request {
		var apps v1alpha1.AppServiceList
		if err := reader.List(ctx, &apps); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing AppServices for an ingress class")
			return nil
		}
		var requests []reconcile.Request
		for i := range apps.Items {
			if apps.Items[i].Spec.Ingress != nil {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&apps.Items[i])})
			}
		}
		return requests
	}
}
