package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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
)

// election is what a manager has of the election: nothing but an empty one where there is none.
type election struct {
	guard  *lease.Guard
	events *lateEvents
}

// newElection wires the election into a manager's config and options.
//
// Three ways lead to the API server then. The Lease has a connection of its own, so that a renewal
// waits for nothing else. Writes have connections that the guard can cut. Everything else goes as the
// config says.
func (o Options) newElection(cfg *rest.Config, options *ctrl.Options) (*election, error) {
	e := &election{events: &lateEvents{}}
	if !o.LeaderElection || o.Unguarded {
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
	e.guard = guard
	return e, nil
}

func (o Options) newLock(cfg *rest.Config, recorders recorder.Provider) (resourcelock.Interface, error) {
	alone := rest.CopyConfig(cfg)
	if alone.Transport == nil {
		alone.Dial = dialerOf(cfg)
	}
	lock, err := leaderelection.NewResourceLock(alone, recorders, leaderelection.Options{
		LeaderElection:          true,
		LeaderElectionID:        LeaderElectionID,
		LeaderElectionNamespace: o.LeaderElectionNamespace,
		RenewDeadline:           o.RenewDeadline,
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the leader election: %w", err)
	}
	return lock, nil
}

// guardWrites makes the guard the innermost wrapper of a config's transport, around those that are
// there already, which stand for the wire.
func guardWrites(cfg *rest.Config, guard *lease.Guard) error {
	ownWrites, err := writesOf(cfg, guard)
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

// writesOf is a transport like the config's whose connections the guard can cut, without whatever
// wraps it; nil if the config brings a transport that it insists on.
func writesOf(cfg *rest.Config, guard *lease.Guard) (http.RoundTripper, error) {
	if cfg.Transport != nil {
		return nil, nil
	}
	as, err := cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("preparing the transport of writes: %w", err)
	}
	dial := dialerOf(cfg)
	if as.DialHolder != nil {
		dial = as.DialHolder.Dial
	}
	writes, err := transport.New(&transport.Config{
		TLS: as.TLS, Proxy: as.Proxy, DisableCompression: as.DisableCompression,
		DialHolder: &transport.DialHolder{Dial: guard.Dial(dial)},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the transport of writes: %w", err)
	}
	return writes, nil
}

// dialerOf is a dialer of its own, even if it does the same: client-go shares connections among
// configs that have the same one.
func dialerOf(cfg *rest.Config) lease.Dialer {
	if dial := cfg.Dial; dial != nil {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			return dial(ctx, network, address)
		}
	}
	const asClientGo = 30 * time.Second
	return (&net.Dialer{Timeout: asClientGo, KeepAlive: asClientGo}).DialContext
}

// startGuarded runs a manager, and ends it when its Lease is another's.
func startGuarded(ctx context.Context, mgr ctrl.Manager, guard *lease.Guard) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A reconciler that does not end with the manager has nothing to write with.
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
		return errors.Join(errors.New("another replica has the Lease that was ours"), err)
	default:
		return err
	}
}

// stuckAfter is how long after the end of its proof a leader must have noticed.
const stuckAfter = 30 * time.Second

// notStuck is a health check: it fails for a leader that neither renews its Lease nor ends, which
// only a restart helps.
func notStuck(guard *lease.Guard) healthz.Checker {
	return func(*http.Request) error {
		if guard != nil && guard.Overdue() > stuckAfter {
			return fmt.Errorf("the leader has not renewed its Lease for %s after it ran out, and goes on", stuckAfter)
		}
		return nil
	}
}

// lateEvents records Events by a manager that is not there yet when the lock is made.
type lateEvents struct{ recorders recorder.Provider }

// GetEventRecorderFor implements [recorder.Provider].
func (l *lateEvents) GetEventRecorderFor(name string) record.EventRecorder {
	return &lateRecorder{late: l, name: name}
}

// GetEventRecorder implements [recorder.Provider].
func (l *lateEvents) GetEventRecorder(name string) recorder.EventRecorder {
	return l.recorders.GetEventRecorder(name)
}

// lateRecorder looks for its recorder when it has something to record.
type lateRecorder struct {
	late *lateEvents
	name string
}

func (r *lateRecorder) recorder() record.EventRecorder {
	return r.late.recorders.GetEventRecorderFor(r.name) //nolint:staticcheck // client-go's election knows no other API of Events
}

// Event implements [record.EventRecorder].
func (r *lateRecorder) Event(object runtime.Object, kind, reason, message string) {
	r.recorder().Event(object, kind, reason, message)
}

// Eventf implements [record.EventRecorder].
func (r *lateRecorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.recorder().Eventf(object, kind, reason, format, args...)
}

// AnnotatedEventf implements [record.EventRecorder].
func (r *lateRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	r.recorder().AnnotatedEventf(object, annotations, kind, reason, format, args...)
}
