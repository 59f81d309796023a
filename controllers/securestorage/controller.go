package securestorage

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
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
// +kubebuilder:rbac:groups=fixpoint.dev,resources=securestorages/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Options for [Setup].
type Options struct {
	setup.Options
	// Cloud is the cloud that holds the accounts, and Credentials creates the tokens for it.
	Cloud       *cloud.Cloud
	Credentials cloud.Credentials
	// AmbientScopes are the scopes in which namespaces may use the credential of the manager.
	AmbientScopes AmbientScopes
}

// Engine reconciles SecureStorages.
type Engine = phases.Engine[*v1beta1.SecureStorage, *scope]

// Setup adds the controller to a manager.
func Setup(mgr ctrl.Manager, o Options) error {
	direct, applier, err := setup.Direct(mgr, FieldManager)
	if err != nil {
		return err
	}
	protection := &secretProtection{cached: mgr.GetClient(), uncached: direct, finalizers: applier}
	engine, err := newEngine(mgr, o, protection)
	if err != nil {
		return err
	}
	options := o.ForEngine(mgr, &v1beta1.SecureStorageList{})
	options.Updates = needsReconcile
	guarded := options.Wrap
	options.Wrap = func(inner reconcile.Reconciler) reconcile.Reconciler { return guarded(protection.wrap(inner)) }
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	options.Sources = append(options.Sources, source.Kind(mgr.GetCache(), client.Object(metadata), handler.EnqueueRequestsFromMapFunc(storagesWith(mgr.GetClient()))))
	return engine.SetupWithManager(mgr, options)
}

// storagesWith maps a Secret to the SecureStorages whose credentials it has, and to the one whose Secret would have its name.
// A Secret that is protected although no SecureStorage names it is mapped to its own name: the reconcile of any name removes
// the finalizer.
func storagesWith(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, secret client.Object) []reconcile.Request {
		var storages v1beta1.SecureStorageList
		err := reader.List(ctx, &storages, client.InNamespace(secret.GetNamespace()), client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to list SecureStorages with the credentials of a Secret", "secret", klog.KObj(secret))
			return nil
		}
		var requests []reconcile.Request
		for i := range storages.Items {
			storage := &storages.Items[i]
			ref := storage.Spec.Provider.CredentialsSecretRef
			isNamesake := exportsKeys(storage) && storage.Name == secret.GetName()
			if isNamesake || ref != nil && ref.Name == secret.GetName() {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(storage)})
			}
		}
		if len(requests) == 0 && slices.Contains(secret.GetFinalizers(), SecretFinalizer) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(secret)})
		}
		return requests
	}
}

// NewEngine returns an engine that uses the clients of a manager, and does not protect Secrets.
func NewEngine(mgr ctrl.Manager, o Options) (*Engine, error) {
	return newEngine(mgr, o, nil)
}

func newEngine(mgr ctrl.Manager, o Options, protection *secretProtection) (*Engine, error) {
	dependencies, err := o.Dependencies(mgr, Name, FieldManager, applyconfiguration.NewTypeConverter)
	if err != nil {
		return nil, err
	}
	dependencies.Applier = setup.PermissionHint{Applier: dependencies.Applier, Hint: accountKeysHint}
	return phases.New(definition(dependencies.Clock, &cloudAccess{
		cloud:       o.Cloud,
		credentials: o.Credentials,
		ambient:     o.AmbientScopes,
		manager:     o.ManagerAccount,
		secrets:     mgr.GetAPIReader(),
		cache:       mgr.GetClient(),
		protection:  protection,
		tokens:      mgr.GetClient().SubResource("token"),
		recorder:    dependencies.Recorder,
	}), dependencies)
}

// NewPlanner returns an engine that only plans. It requests no tokens for ServiceAccounts: the credentials must not
// use the assertion that they are given.
func NewPlanner(p setup.Planning, o Options) (*Engine, error) {
	dependencies, err := p.Dependencies(FieldManager, applyconfiguration.NewTypeConverter)
	if err != nil {
		return nil, err
	}
	return phases.New(definition(dependencies.Clock, &cloudAccess{
		cloud:       o.Cloud,
		credentials: o.Credentials,
		ambient:     o.AmbientScopes,
		manager:     o.ManagerAccount,
		secrets:     p.Reader,
		plans:       true,
	}), dependencies)
}

func definition(now clock.PassiveClock, access *cloudAccess) phases.Definition[*v1beta1.SecureStorage, *scope] {
	newScope := func(storage *v1beta1.SecureStorage) *scope {
		return &scope{storage: storage, access: access, clock: now}
	}
	return phases.Definition[*v1beta1.SecureStorage, *scope]{
		Controller: Name,
		Finalizer:  Finalizer,
		Phases:     Phases(),
		Scope:      newScope,
		Conditions: func(storage *v1beta1.SecureStorage) []metav1.Condition { return storage.Status.Conditions },
		Status: func(s *scope, summary phases.Summary) ssa.Configuration {
			desired := desiredStatus(s, summary)
			s.rememberIfSettled(summary, desired)
			return desired
		},
		Policies: func(storage *v1beta1.SecureStorage) phases.Policies {
			return workload.Policies(storage, v1beta1.AdoptionNever, v1beta1.DriftCorrect)
		},
		Suspended: func(storage *v1beta1.SecureStorage) bool { return storage.Spec.Suspend },
		Postpone: func(ctx context.Context, storage *v1beta1.SecureStorage) time.Duration {
			return newScope(storage).postpone(ctx)
		},
	}
}
