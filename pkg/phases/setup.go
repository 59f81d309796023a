package phases

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// The default bounds of the backoff of a reconcile that fails.
const (
	DefaultRetryMinDelay = 200 * time.Millisecond
	DefaultRetryMaxDelay = 5 * time.Minute
)

// FromManager fills the dependencies of an engine with the clients of a manager and an applier of its
// own. Options.FieldManager is required. Options.Client is by default a client of the manager's cache
// whose reads see its own writes: a reconcile that did not see what the one before it wrote would do it
// again.
//
// Such a read waits for the cache until the context of the reconcile ends. That has no deadline by default: set
// Controller.ReconciliationTimeout in the options of the manager. A cache whose label selector excludes a child
// never shows it, so reads after a write of it wait as long.
func FromManager(mgr ctrl.Manager, options ssa.Options) (Dependencies, error) {
	if options.Client == nil {
		consistent, err := client.New(mgr.GetConfig(), client.Options{
			HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
			Cache: &client.CacheOptions{Reader: mgr.GetCache(), EnableReadYourWritesConsistency: ptr.To(true)},
		})
		if err != nil {
			return Dependencies{}, fmt.Errorf("building a client that reads its own writes: %w", err)
		}
		options.Client = consistent
	}
	if options.Reader == nil {
		options.Reader = mgr.GetAPIReader()
	}
	applier, err := ssa.New(options)
	if err != nil {
		return Dependencies{}, fmt.Errorf("building the applier: %w", err)
	}
	return Dependencies{
		Reader: options.Client, Uncached: options.Reader, Applier: applier, Planner: applier.DryRun(),
		Scheme: mgr.GetScheme(), Recorder: mgr.GetEventRecorder(options.FieldManager),
	}, nil
}

// SetupOptions are what a controller may say about its set-up. The zero value serves.
type SetupOptions struct {
	// MaxConcurrentReconciles is how many objects are reconciled at the same time. Default 1.
	MaxConcurrentReconciles int
	// RetryMinDelay and RetryMaxDelay bound the backoff of a reconcile that fails. Defaults
	// [DefaultRetryMinDelay] and [DefaultRetryMaxDelay].
	RetryMinDelay, RetryMaxDelay time.Duration
	// Sources are what the phases wait for beside their children, such as a Secret that a child refers to.
	Sources []source.Source
	// Updates lets updates of the object itself through to the controller. Optional: by default, those that change
	// the spec or the deletion, or remove a finalizer, are at once, and all others, such as those of the status,
	// labels and annotations, after [ProgressInterval].
	Updates predicate.Predicate
	// WatchChild takes over the watch of a child's kind, such as one that the cluster serves only at
	// times, and says whether it did. Optional.
	WatchChild func(c controller.Controller, watch ChildWatch) (bool, error)
	// Wrap wraps the reconciler, for instance to end it when leadership is lost. Optional.
	Wrap func(reconcile.Reconciler) reconcile.Reconciler
}

// SetupWithManager adds a controller for the engine to a manager, with everything that the list of
// phases needs: indexes, watches, predicates and backoff. Children of a kind that the cluster does not
// serve are not watched. If the kind is installed later, as the CRD of an optional child, reconciles of the owners
// fail until the manager restarts, unless [SetupOptions.WatchChild] watches it.
func (e *Engine[O, S]) SetupWithManager(mgr ctrl.Manager, o SetupOptions) error {
	var reconciler reconcile.Reconciler = e
	if o.Wrap != nil {
		reconciler = o.Wrap(e)
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named(e.def.Controller).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.MaxConcurrentReconciles,
			RateLimiter:             newBackoff(cmp.Or(o.RetryMinDelay, DefaultRetryMinDelay), cmp.Or(o.RetryMaxDelay, DefaultRetryMaxDelay), e.deps.Clock),
		})
	if o.Updates != nil {
		b = b.For(newObject[O](), builder.WithPredicates(o.Updates))
	} else {
		b = b.For(newObject[O](), builder.WithPredicates(atOnce())).Watches(newObject[O](), afterInterval())
	}
	for _, watched := range o.Sources {
		b = b.WatchesRawSource(watched)
	}
	c, err := b.Build(reconciler)
	if err != nil {
		return fmt.Errorf("building the controller %s: %w", e.def.Controller, err)
	}
	for _, watch := range e.watches(mgr.GetRESTMapper()) {
		if err := e.watchChild(mgr, c, watch, o); err != nil {
			return fmt.Errorf("building the controller %s: watching %s: %w", e.def.Controller, kindName(watch.Object), err)
		}
	}
	return nil
}

func (e *Engine[O, S]) watchChild(mgr ctrl.Manager, c controller.Controller, watch ChildWatch, o SetupOptions) error {
	if o.WatchChild != nil {
		if taken, err := o.WatchChild(c, watch); taken || err != nil {
			return err
		}
	}
	mapping, err := mgr.GetRESTMapper().RESTMapping(watch.kind.GroupKind(), watch.kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return nil // a phase that needs it says so
	case err != nil:
		return err
	case watch.ofNamespaced && mapping.Scope.Name() == meta.RESTScopeNameRoot:
		return fmt.Errorf("it is cluster-scoped, and %s is namespaced: a cluster-scoped child needs a cluster-scoped owner", e.kind.Kind)
	}
	if err := watch.Index(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return c.Watch(source.Kind(mgr.GetCache(), watch.Object, watch.Handler))
}

// Index adds the index by which children are found. Engines of one manager share it.
func (w ChildWatch) Index(indexer client.FieldIndexer) error {
	err := ssa.IndexController(context.Background(), indexer, w.Object)
	if err != nil && strings.Contains(err.Error(), "indexer conflict") {
		return nil // client-go has no type for it; the name of the index is that of this library
	}
	return err
}

// Index adds the indexes by which children are found, for an engine that only plans.
// [Engine.SetupWithManager] does it itself.
func (e *Engine[O, S]) Index(indexer client.FieldIndexer) error {
	for i := range e.slots {
		if e.slots[i].Child == nil {
			continue
		}
		if err := (ChildWatch{Object: e.slots[i].Child}).Index(indexer); err != nil {
			return fmt.Errorf("indexing %s: %w", kindName(e.slots[i].Child), err)
		}
	}
	return nil
}
