// Package setup holds what the set-up of every controller has in common.
package setup

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/internal/kubeschema"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Options are those of every controller. The zero value serves.
type Options struct {
	// Concurrency is the maximum number of concurrent reconciles. Default 1.
	Concurrency int
	// RetryMinDelay and RetryMaxDelay bound the exponential backoff of failed reconciles. The defaults are
	// those of [phases.SetupOptions].
	RetryMinDelay, RetryMaxDelay time.Duration
	// NoClusterRights is for a manager with permissions in some namespaces only: cluster-scoped resources
	// are assumed to exist.
	NoClusterRights bool
	// ManagerAccount is the ServiceAccount of the manager, which pods must not use; empty if it has none.
	ManagerAccount types.NamespacedName
	// Guard ends reconciles whose writes it refuses. Optional.
	Guard *lease.Guard
	// Clock is for transition times and timeouts. Optional.
	Clock clock.PassiveClock
}

// ClockOrReal is the clock, or the real one.
func (o Options) ClockOrReal() clock.PassiveClock {
	if o.Clock == nil {
		return clock.RealClock{}
	}
	return o.Clock
}

// Dependencies are those of an engine with the clients of a manager. The name is that of the controller, and the
// converters are those of [ssa.Options].
func (o Options) Dependencies(mgr ctrl.Manager, name, fieldManager string, converters ...func(*runtime.Scheme) managedfields.TypeConverter) (phases.Dependencies, error) {
	dependencies, err := phases.FromManager(mgr, ssa.Options{Client: mgr.GetClient(), FieldManager: fieldManager, TypeConverters: withKubernetes(converters)})
	if err != nil {
		return dependencies, fmt.Errorf("setting up the controller %s: %w", name, err)
	}
	dependencies.Recorder = mgr.GetEventRecorder(name)
	dependencies.Clock = o.ClockOrReal()
	return dependencies, nil
}

// withKubernetes adds the schemas of the kinds of Kubernetes that the controllers apply.
func withKubernetes(converters []func(*runtime.Scheme) managedfields.TypeConverter) []func(*runtime.Scheme) managedfields.TypeConverter {
	return append([]func(*runtime.Scheme) managedfields.TypeConverter{kubeschema.NewTypeConverter}, converters...)
}

// ForEngine are the options with which an engine is added to the manager. The list is that of its kind.
func (o Options) ForEngine(mgr ctrl.Manager, list client.ObjectList) phases.SetupOptions {
	options := phases.SetupOptions{
		MaxConcurrentReconciles: o.Concurrency,
		RetryMinDelay:           o.RetryMinDelay,
		RetryMaxDelay:           o.RetryMaxDelay,
		Wrap:                    o.Guard.Reconciler,
	}
	if o.Guard.RequiresClaims() {
		options.Sources = append(options.Sources, claimed(o.Guard, mgr, list))
	}
	return options
}

// Direct returns a client without a cache and an applier that writes with it, for objects of which the cache must not hold
// the data: with the client of the manager, the first write would start a cache of the kind.
func Direct(mgr ctrl.Manager, fieldManager string) (client.Client, *ssa.Applier, error) {
	direct, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, nil, fmt.Errorf("building a client without a cache: %w", err)
	}
	applier, err := ssa.New(ssa.Options{Client: direct, FieldManager: fieldManager})
	if err != nil {
		return nil, nil, fmt.Errorf("building an applier without a cache: %w", err)
	}
	return direct, applier, nil
}
