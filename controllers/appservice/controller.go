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

// Name is the name of the controller in metrics, Events, logs and flags.
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

// Options for [Setup].
type Options struct {
	// NoClusterRights is for a manager with permissions in some namespaces only: the controller assumes
	// that the IngressClass of an Ingress exists.
	NoClusterRights bool
	// Concurrency is the maximum number of concurrent reconciles.
	Concurrency int
	// RetryMinDelay and RetryMaxDelay bound the exponential backoff of failed reconciles.
	RetryMinDelay, RetryMaxDelay time.Duration
	// Indexer indexes the cache. The default is the indexer of the manager.
	Indexer client.FieldIndexer
	// Guard ends reconciles whose writes it refuses. Optional.
	Guard *lease.Guard
	// Applies and Phases are the metrics of applies and phases. Optional.
	Applies *ssa.Metrics
	Phases  *phases.Metrics
	// Clock is for transition times and timeouts. Optional.
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
		// Changes of the status are reconciled too, with a delay: a reconcile of an AppService that is
		// up to date takes microseconds and sends nothing, and it reverts manual edits of the status.
		For(&v1alpha1.AppService{}, builder.WithPredicates(phases.AtOnce())).
		Watches(&v1alpha1.AppService{}, phases.InAWhile()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Concurrency,
			RateLimiter:             phases.NewBackoff(o.RetryMinDelay, o.RetryMaxDelay),
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
	if err := b.Complete(o.Guard.Pass(engine)); err != nil {
		return fmt.Errorf("building the controller %s: %w", Name, err)
	}
	return nil
}

// NewEngine creates the engine with the clients of a manager.
func NewEngine(mgr ctrl.Manager, o Options) (*Engine, error) {
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

// withIngress lists the AppServices with an Ingress, which a change of an IngressClass may affect.
func withIngress(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []reconcile.Request {
		var apps v1alpha1.AppServiceList
		if err := reader.List(ctx, &apps); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to list AppServices for an IngressClass")
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
