package appservice

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
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
type Options = setup.Options

// Engine is the engine that reconciles AppServices.
type Engine = phases.Engine[*v1beta1.AppService, *scope]

// Setup adds the controller to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	r := newReferences(mgr)
	engine, err := newEngineWith(mgr, o, r)
	if err != nil {
		return err
	}
	if err := references.Index(ctx, mgr.GetFieldIndexer(), &v1beta1.AppService{}, watchedReferencesOf); err != nil {
		return err
	}
	options := o.ForEngine(mgr, &v1beta1.AppServiceList{})
	options.Sources = append(options.Sources, source.Kind[client.Object](mgr.GetCache(), &batchv1.Job{},
		handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1beta1.AppService{}, handler.OnlyControllerOwner())))
	options.Sources = append(options.Sources, r.Sources(mgr.GetCache(), references.Referrers{Reader: mgr.GetClient(), List: &v1beta1.AppServiceList{}},
		references.Secret, references.ConfigMap, references.ServiceAccount)...)
	if !o.NoClusterRights {
		options.Sources = append(options.Sources,
			source.Kind[client.Object](mgr.GetCache(), &networkingv1.IngressClass{},
				handler.EnqueueRequestsFromMapFunc(setup.Enqueue(mgr.GetClient(), &v1beta1.AppServiceList{}, hasIngress))))
	}
	return engine.SetupWithManager(mgr, options)
}

// NewEngine creates the engine with the clients of a manager.
func NewEngine(mgr ctrl.Manager, o Options) (*Engine, error) {
	return newEngineWith(mgr, o, newReferences(mgr))
}

func newReferences(mgr ctrl.Manager) *references.Reader {
	return &references.Reader{Metadata: mgr.GetClient(), Data: mgr.GetAPIReader()}
}

func newEngineWith(mgr ctrl.Manager, o Options, r *references.Reader) (*Engine, error) {
	dependencies, err := o.Dependencies(mgr, Name, FieldManager, applyconfiguration.NewTypeConverter)
	if err != nil {
		return nil, err
	}
	return newEngine(dependencies, o, r)
}

// NewPlanner creates an engine that only plans.
func NewPlanner(p setup.Planning, o Options) (*Engine, error) {
	dependencies, err := p.Dependencies(FieldManager, applyconfiguration.NewTypeConverter)
	if err != nil {
		return nil, err
	}
	return newEngine(dependencies, o, &references.Reader{Metadata: p.Reader, Data: p.Reader, Unreadable: p.Unreadable})
}

func newEngine(dependencies phases.Dependencies, o Options, r *references.Reader) (*Engine, error) {
	return phases.New(definition(dependencies, o, r), dependencies)
}

func definition(dependencies phases.Dependencies, o Options, r *references.Reader) phases.Definition[*v1beta1.AppService, *scope] {
	var ingressClasses workload.IngressClasses
	if !o.NoClusterRights {
		ingressClasses.Reader = dependencies.Reader
	}
	return phases.Definition[*v1beta1.AppService, *scope]{
		Controller: Name,
		Finalizer:  Finalizer,
		Phases:     Phases(),
		Scope: func(app *v1beta1.AppService) *scope {
			return &scope{
				app: app, references: r, uncached: dependencies.Uncached, ingressClasses: ingressClasses,
				clock: dependencies.Clock, managerAccount: o.ManagerAccount,
			}
		},
		Conditions: func(app *v1beta1.AppService) []metav1.Condition { return app.Status.Conditions },
		Status: func(s *scope, summary phases.Summary) ssa.Configuration {
			return desiredStatus(s, summary)
		},
		Suspended: func(app *v1beta1.AppService) bool { return app.Spec.Suspend },
		Policies: func(app *v1beta1.AppService) phases.Policies {
			return workload.Policies(app, app.Spec.AdoptionPolicy, app.Spec.DriftPolicy)
		},
		ReportInterval: workload.ReportInterval,
	}
}

// hasIngress selects the AppServices that a change of an IngressClass may affect.
func hasIngress(app *v1beta1.AppService) bool {
	return app.Spec.Ingress != nil
}
