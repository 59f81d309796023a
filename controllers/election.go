package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/transport"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/releases"
)

// election holds what a manager needs for leader election; guard is nil without leader election.
type election struct {
	guard  *lease.Guard
	lock   resourcelock.Interface
	events *lazyRecorders
}

// newElection adds leader election to a manager's config and options.
//
// Requests to the API server then use three sets of connections. The Lease has a connection of its
// own, so that a renewal never queues behind other requests. Writes have connections that the guard
// can close. All other requests use the connections that the config describes.
func (o Options) newElection(cfg *rest.Config, options *ctrl.Options) (*election, error) {
	e := &election{events: &lazyRecorders{}}
	if !o.isGuarded() {
		return e, nil
	}
	counts, err := lease.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return nil, err
	}
	guard := lease.New(o.LeaseDuration, counts)
	lock, err := o.newLock(cfg, e.events)
	if err != nil {
		return nil, err
	}
	options.LeaderElectionResourceLockInterface = guard.Lock(lock)
	if err := guardWrites(cfg, guard); err != nil {
		return nil, err
	}
	guard.RequireClaims(releaseOf(lock), o.claimsNamespace())
	e.guard, e.lock = guard, lock
	return e, nil
}

// isGuarded reports whether the manager writes only while it verifiably holds its Lease.
func (o Options) isGuarded() bool { return o.LeaderElection && !o.Unguarded }

// releaseOf returns the namespace of the Lease, by which other releases know this one.
func releaseOf(lock resourcelock.Interface) string {
	namespace, _, _ := strings.Cut(lock.Describe(), "/")
	return namespace
}

func (o Options) claimsNamespace() string { return cmp.Or(o.ClaimsNamespace, releases.LeaseNamespace) }

// addReleases adds the controller that claims the namespaces of this release.
func (o Options) addReleases(mgr ctrl.Manager, e *election) error {
	if e.guard == nil {
		return nil
	}
	return releases.Setup(mgr, releases.Options{
		Guard: e.guard, Claims: o.claimsNamespace(), Release: releaseOf(e.lock), LeaseName: LeaderElectionID, Leader: e.lock.Identity(), Pods: o.PodNamespace,
		Namespaces: o.Namespaces, Selector: o.NamespaceSelector, Duration: o.ClaimDuration, Clock: o.Clock,
	})
}

func (o Options) newLock(cfg *rest.Config, recorders recorder.Provider) (resourcelock.Interface, error) {
	leaseConfig := rest.CopyConfig(cfg)
	leaseConfig.Dial = dialerOf(cfg) // without effect beside a transport
	lock, err := leaderelection.NewResourceLock(leaseConfig, recorders, leaderelection.Options{
		LeaderElection:          true,
		LeaderElectionID:        LeaderElectionID,
		LeaderElectionNamespace: o.LeaderElectionNamespace,
		RenewDeadline:           o.RenewDeadline,
	})
	if err != nil {
		return nil, fmt.Errorf("preparing leader election: %w", err)
	}
	return lock, nil
}

// guardWrites wraps a config's transport in the guard. Wrappers that the config already has stay
// inside, between the guard and the network.
func guardWrites(cfg *rest.Config, guard *lease.Guard) error {
	ownWrites, err := writeTransport(cfg, guard)
	if err != nil {
		return err
	}
	wire := cfg.WrapTransport
	if wire == nil {
		wire = func(rt http.RoundTripper) http.RoundTripper { return rt }
	}
	cfg.WrapTransport = func(reads http.RoundTripper) http.RoundTripper {
		writes := ownWrites
		if writes == nil {
			writes = reads
		}
		return guard.RoundTripper(wire(reads), wire(writes), lease.IsKubernetesWrite)
	}
	return nil
}

// writeTransport is a transport like the config's, without its wrappers, whose connections the guard can
// close. It is nil if the config has a custom transport.
func writeTransport(cfg *rest.Config, guard *lease.Guard) (http.RoundTripper, error) {
	if cfg.Transport != nil {
		return nil, nil
	}
	base, err := cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("preparing the transport for writes: %w", err)
	}
	dial := dialerOf(cfg)
	if base.DialHolder != nil {
		dial = base.DialHolder.Dial
	}
	writes, err := transport.New(&transport.Config{
		TLS: base.TLS, Proxy: base.Proxy, DisableCompression: base.DisableCompression,
		DialHolder: &transport.DialHolder{Dial: guard.Dial(dial)},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the transport for writes: %w", err)
	}
	return writes, nil
}

// dialerOf returns a new dialer that behaves like the config's. It must be a new one, because
// client-go shares connections among configs with the same dialer.
func dialerOf(cfg *rest.Config) lease.Dialer {
	if dial := cfg.Dial; dial != nil {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			return dial(ctx, network, address)
		}
	}
	const clientGoDefault = 30 * time.Second
	return (&net.Dialer{Timeout: clientGoDefault, KeepAlive: clientGoDefault}).DialContext
}

// startGuarded runs a manager, and stops it when another replica acquires its Lease.
func startGuarded(ctx context.Context, mgr ctrl.Manager, guard *lease.Guard) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A reconcile that is still running after the manager has stopped cannot write.
	defer guard.Close()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-guard.Lost():
			cancel()
		case <-ended:
		}
	}()
	err := mgr.Start(ctx)
	select {
	case <-guard.Lost():
		return errors.Join(errors.New("another replica has acquired the Lease"), err)
	default:
		return err
	}
}

// unhealthyAfter is how long after its Lease has expired a leader may keep running.
const unhealthyAfter = 30 * time.Second

// leaseNotOverdue is a health check. It fails for a leader that neither renews its Lease nor exits,
// so that the kubelet restarts it.
func leaseNotOverdue(guard *lease.Guard) healthz.Checker {
	return func(*http.Request) error {
		if guard != nil && guard.Overdue() > unhealthyAfter {
			return fmt.Errorf("the Lease expired more than %s ago, and the leader has neither renewed it nor exited", unhealthyAfter)
		}
		return nil
	}
}

// lazyRecorders provides Event recorders of a manager that is created after the lock.
type lazyRecorders struct{ recorders recorder.Provider }

// GetEventRecorderFor implements [recorder.Provider].
func (l *lazyRecorders) GetEventRecorderFor(name string) record.EventRecorder {
	return &lazyRecorder{lazy: l, name: name}
}

// GetEventRecorder implements [recorder.Provider].
func (l *lazyRecorders) GetEventRecorder(name string) recorder.EventRecorder {
	return l.recorders.GetEventRecorder(name)
}

// lazyRecorder looks up its recorder when it records the first Event.
type lazyRecorder struct {
	lazy *lazyRecorders
	name string
}

func (r *lazyRecorder) recorder() record.EventRecorder {
	return r.lazy.recorders.GetEventRecorderFor(r.name) //nolint:staticcheck // client-go's leader election supports no other Events API
}

// Event implements [record.EventRecorder].
func (r *lazyRecorder) Event(object runtime.Object, kind, reason, message string) {
	r.recorder().Event(object, kind, reason, message)
}

// Eventf implements [record.EventRecorder].
func (r *lazyRecorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.recorder().Eventf(object, kind, reason, format, args...)
}

// AnnotatedEventf implements [record.EventRecorder].
func (r *lazyRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	r.recorder().AnnotatedEventf(object, annotations, kind, reason, format, args...)
}
