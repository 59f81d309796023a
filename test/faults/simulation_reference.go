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
	bench *Cluster

	mu        sync.Mutex
	byVariant map[string]*reference
	// sites are the worlds in use, by the content of the Secret there.
	environments map[string]*referenceEnvironment
}

// reference is one of them, that is known when it is done.
type reference struct {
	done  chan struct{}
	state Snapshot
	err   error
}

// site is a world in which references are found out. It is given up after a while, since a world keeps
// all that was ever there.
type referenceEnvironment struct {
	env     *Environment
	manager *Manager
	used    int
	inUse   sync.WaitGroup
}

// NewReferences know nothing yet. Whoever makes them closes them.
func NewReferences(c *Cluster) *References {
	return &References{bench: c, byVariant: map[string]*reference{}, environments: map[string]*referenceEnvironment{}}
}

// Close ends the worlds.
func (r *References) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, s := range r.environments {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

func (s *referenceEnvironment) close() error {
	s.inUse.Wait()
	return errors.Join(s.env.Close(), s.env.DeleteAll(context.Background()))
}

// Count is how many are known.
func (r *References) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byVariant)
}

// of is the undisturbed state of a wish, with a Secret of that content. Again finds it out anew.
func (r *References) of(ctx context.Context, v variant, token string, again bool) (Snapshot, error) {
	key := v.String()
	if v.choices["secret"] != "read" {
		token = tokens[0]
	}
	key += " " + token
	r.mu.Lock()
	known := r.byVariant[key]
	if known != nil && (!again || !isClosed(known.done)) {
		r.mu.Unlock()
		<-known.done
		return known.state, known.err
	}
	known = &reference{done: make(chan struct{})}
	r.byVariant[key] = known
	r.mu.Unlock()
	defer close(known.done)
	s, number, err := r.environment(ctx, token)
	if err != nil {
		known.err = err
		return Snapshot{}, err
	}
	defer s.inUse.Done()
	known.state, known.err = s.record(ctx, v, fmt.Sprintf("ref-%s-%d", strings.ToLower(v.kind[:3]), number))
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
func (r *References) environment(ctx context.Context, token string) (*referenceEnvironment, int, error) {
	const many = 60
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.environments[token]
	if s != nil && s.used >= many {
		delete(r.environments, token)
		go func(old *referenceEnvironment) { _ = old.close() }(s) // what comes of it concerns nobody any more
		s = nil
	}
	if s == nil {
		var err error
		if s, err = r.newEnvironment(ctx, token); err != nil {
			return nil, 0, err
		}
		r.environments[token] = s
	}
	s.used++
	s.inUse.Add(1)
	return s, s.used, nil
}

func (r *References) newEnvironment(ctx context.Context, token string) (*referenceEnvironment, error) {
	env, err := r.bench.NewEnvironment(ctx, AppService, MCPServer, SecureStorage)
	if err != nil {
		return nil, err
	}
	env.DiscardEvents = true
	if err := errors.Join(seedVaults(env), env.Create(ctx, newSecret(token))); err != nil {
		return nil, errors.Join(err, env.Close())
	}
	m, err := env.Start()
	if err != nil {
		return nil, errors.Join(err, env.Close())
	}
	return &referenceEnvironment{env: env, manager: m}, nil
}

// tokens are the contents that the Secret of a simulation has, one after the other.
var tokens = []string{"one", "two"}

func newSecret(token string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, StringData: map[string]string{"token": token}}
}

// find creates the object, waits until nothing happens about it any more, and deletes it.
func (s *referenceEnvironment) record(ctx context.Context, v variant, name string) (Snapshot, error) {
	subject := &simulatedObject{ID: ID{v.kind, name}, desired: &v}
	if err := create(ctx, s.env, subject); err != nil {
		return Snapshot{}, fmt.Errorf("a reference: %w", err)
	}
	if !s.env.WaitUntil(simulationTimeout, func() bool {
		return s.env.isComplete(v.kind, name) && s.env.controllers.isIdle() && s.env.isUnchanged(name)
	}) {
		return Snapshot{}, fmt.Errorf("a reference, %s, is never Ready: %s", v, field(s.env.Get(v.kind, name), "status", "conditions"))
	}
	state := s.env.stateOf(v.kind, name)
	return state, s.env.Delete(ctx, empty(v.kind), name)
}

// isComplete says whether an object is Ready for its spec, and has all that tells so.
func (env *Environment) isComplete(kind, name string) bool {
	if !env.ReadyWith(kind, name, 1) {
		return false
	}
	live := env.Get(kind, name)
	if kind != SecureStorage && env.Get(endpointSlice, name) == nil {
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
func (env *Environment) isUnchanged(name string) bool {
	env.history.mu.Lock()
	defer env.history.mu.Unlock()
	for i := len(env.history.versions) - 1; i >= 0; i-- {
		v := env.history.versions[i]
		if time.Since(v.ObservedAt) > maxDeferral {
			return true
		}
		if v.Object.GetName() == name {
			return false
		}
	}
	return true
}

// Sweep deletes all that is in a world that was closed, so that an API server can bear thousands of them.
func (env *Environment) DeleteAll(ctx context.Context) error {
	var errs []error
	used := map[schema.GroupVersionKind]bool{}
	for _, o := range env.history.filter(func(*unstructured.Unstructured) bool { return true }) {
		used[o.GroupVersionKind()] = true
		if len(o.GetFinalizers()) > 0 {
			err := Edit(ctx, env, user, o.GetName(), o.DeepCopy(), func(live *unstructured.Unstructured) { live.SetFinalizers(nil) })
			errs = append(errs, client.IgnoreNotFound(err))
		}
	}
	for kind := range used {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		err := env.Cluster.API.DeleteAllOf(ctx, object, client.InNamespace(env.Namespace), client.PropagationPolicy(metav1.DeletePropagationBackground))
		if !isServerTimeout(err) { // what it leaves is only in the way
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
