package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// References know what wishes lead to when they are simply created and nothing disturbs them. What they
// have found out once they keep; the worlds in which they find it out are their own.
type References struct {
	bench *Bench

	mu    sync.Mutex
	known map[string]*reference
	// sites are the worlds in use, by the content of the Secret there.
	sites map[string]*site
}

// reference is one of them, that is known when it is done.
type reference struct {
	done  chan struct{}
	state Snapshot
	err   error
}

// site is a world in which references are found out. It is given up after a while, since a world keeps
// all that was ever there.
type site struct {
	world   *World
	manager *Manager
	made    int
	using   sync.WaitGroup
}

// NewReferences know nothing yet. Whoever makes them closes them.
func NewReferences(b *Bench) *References {
	return &References{bench: b, known: map[string]*reference{}, sites: map[string]*site{}}
}

// Close ends the worlds.
func (r *References) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, s := range r.sites {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

func (s *site) close() error {
	s.using.Wait()
	return errors.Join(s.world.Close(), s.world.Sweep(context.Background()))
}

// Count is how many are known.
func (r *References) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.known)
}

// of is the undisturbed state of a wish, with a Secret of that content. Again finds it out anew.
func (r *References) of(ctx context.Context, w wish, token string, again bool) (Snapshot, error) {
	key := w.String()
	if w.choices["secret"] != "read" {
		token = tokens[0]
	}
	key += " " + token
	r.mu.Lock()
	known := r.known[key]
	if known != nil && (!again || !isClosed(known.done)) {
		r.mu.Unlock()
		<-known.done
		return known.state, known.err
	}
	known = &reference{done: make(chan struct{})}
	r.known[key] = known
	r.mu.Unlock()
	defer close(known.done)
	s, number, err := r.site(ctx, token)
	if err != nil {
		known.err = err
		return Snapshot{}, err
	}
	defer s.using.Done()
	known.state, known.err = s.find(ctx, w, fmt.Sprintf("ref-%s-%d", strings.ToLower(w.kind[:3]), number))
	return known.state, known.err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// site is a world for one more reference.
func (r *References) site(ctx context.Context, token string) (*site, int, error) {
	const many = 60
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sites[token]
	if s != nil && s.made >= many {
		delete(r.sites, token)
		go func(old *site) { _ = old.close() }(s) // what comes of it concerns nobody any more
		s = nil
	}
	if s == nil {
		var err error
		if s, err = r.open(ctx, token); err != nil {
			return nil, 0, err
		}
		r.sites[token] = s
	}
	s.made++
	s.using.Add(1)
	return s, s.made, nil
}

func (r *References) open(ctx context.Context, token string) (*site, error) {
	w, err := r.bench.NewWorld(ctx, AppService, MCPServer, SecureStorage)
	if err != nil {
		return nil, err
	}
	w.Mute = true
	if err := errors.Join(furnished(w), w.Create(ctx, newSecret(token))); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	m, err := w.Start()
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &site{world: w, manager: m}, nil
}

// tokens are the contents that the Secret of a simulation has, one after the other.
var tokens = []string{"one", "two"}

func newSecret(token string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, StringData: map[string]string{"token": token}}
}

// find creates the object, waits until nothing happens about it any more, and deletes it.
func (s *site) find(ctx context.Context, w wish, name string) (Snapshot, error) {
	subject := &subject{ID: ID{w.kind, name}, wish: &w}
	if err := create(ctx, s.world, subject); err != nil {
		return Snapshot{}, fmt.Errorf("a reference: %w", err)
	}
	if !s.world.Await(stamina, func() bool {
		return s.world.isComplete(w.kind, name) && s.world.around.isIdle() && s.world.isStill(name)
	}) {
		return Snapshot{}, fmt.Errorf("a reference, %s, is never Ready: %s", w, field(s.world.Get(w.kind, name), "status", "conditions"))
	}
	state := s.world.stateOf(w.kind, name)
	return state, s.world.Delete(ctx, empty(w.kind), name)
}

// isComplete says whether an object is Ready for its spec, and has all that tells so.
func (w *World) isComplete(kind, name string) bool {
	if !w.ReadyWith(kind, name, 1) {
		return false
	}
	live := w.Get(kind, name)
	if kind != SecureStorage && w.Get(endpointSlice, name) == nil {
		return false
	}
	if kind != MCPServer {
		return true
	}
	status, _, _ := condition(live, "DeploymentReady")
	asked := field(live, "spec", "protocol", "disabled") != "true"
	return status == "True" && (!asked || field(live, "status", "server", "tools") == "1")
}

// isStill says whether nothing has happened about the objects of a name for longer than a manager puts
// anything off.
func (w *World) isStill(name string) bool {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	for i := len(w.history.versions) - 1; i >= 0; i-- {
		v := w.history.versions[i]
		if time.Since(v.At) > putOff {
			return true
		}
		if v.Object.GetName() == name {
			return false
		}
	}
	return true
}

// Sweep deletes all that is in a world that was closed, so that an API server can bear thousands of them.
func (w *World) Sweep(ctx context.Context) error {
	var errs []error
	used := map[schema.GroupVersionKind]bool{}
	for _, o := range w.history.filter(func(*unstructured.Unstructured) bool { return true }) {
		used[o.GroupVersionKind()] = true
		if len(o.GetFinalizers()) > 0 {
			err := Edit(ctx, w, user, o.GetName(), o.DeepCopy(), func(live *unstructured.Unstructured) { live.SetFinalizers(nil) })
			errs = append(errs, client.IgnoreNotFound(err))
		}
	}
	for kind := range used {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		err := w.Bench.API.DeleteAllOf(ctx, object, client.InNamespace(w.Namespace), client.PropagationPolicy(metav1.DeletePropagationBackground))
		if !isLate(err) { // what it leaves is only in the way
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
