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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// References determine and cache the states that specs reach without disturbance, in environments of their own.
type References struct {
	cluster *Cluster

	mu        sync.Mutex
	byVariant map[string]*reference
	// environments holds the environments in use by the content of their Secret.
	environments map[string]*referenceEnvironment
}

// reference is one state. It is valid once done is closed.
type reference struct {
	done  chan struct{}
	state Snapshot
	err   error
}

// referenceEnvironment determines references. It is replaced after a number of uses, because its history grows.
type referenceEnvironment struct {
	env     *Environment
	manager *Manager
	used    int
	inUse   sync.WaitGroup
}

// NewReferences returns an empty cache. The caller closes it.
func NewReferences(c *Cluster) *References {
	return &References{cluster: c, byVariant: map[string]*reference{}, environments: map[string]*referenceEnvironment{}}
}

// Close closes the environments and keeps the references.
func (r *References) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, s := range r.environments {
		errs = append(errs, s.close())
	}
	clear(r.environments)
	return errors.Join(errs...)
}

func (s *referenceEnvironment) close() error {
	s.inUse.Wait()
	return errors.Join(s.env.Close(), s.env.DeleteAll(context.Background()))
}

// Count returns the number of cached references.
func (r *References) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byVariant)
}

// of returns the undisturbed state of a variant with the given content of the Secret. If again is true, it
// determines the state again.
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

// environment returns an environment for one more reference.
func (r *References) environment(ctx context.Context, token string) (*referenceEnvironment, int, error) {
	const many = 60
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.environments[token]
	if s != nil && s.used >= many {
		delete(r.environments, token)
		go func(old *referenceEnvironment) { _ = old.close() }(s) // an error has no effect on later references
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
	env, err := r.cluster.NewEnvironment(ctx, AppService, MCPServer, SecureStorage)
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

// tokens are the contents of the Secret.
var tokens = []string{"one", "two"}

func newSecret(token string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, StringData: map[string]string{"token": token}}
}

// record creates the object, waits until it no longer changes, and deletes it.
func (s *referenceEnvironment) record(ctx context.Context, v variant, name string) (Snapshot, error) {
	subject := &simulatedObject{ID: ID{v.kind, name}, desired: &v}
	if err := create(ctx, s.env, subject); err != nil {
		return Snapshot{}, fmt.Errorf("creating a reference: %w", err)
	}
	if !s.env.WaitUntil(simulationTimeout, func() bool {
		return s.env.isComplete(v.kind, name) && s.env.controllers.isIdle() && s.env.isUnchanged(name)
	}) {
		return Snapshot{}, fmt.Errorf("reference %s did not become Ready: %s", v, field(s.env.Get(v.kind, name), "status", "conditions"))
	}
	state := s.env.stateOf(v.kind, name)
	return state, s.env.Delete(ctx, empty(v.kind), name)
}

// isComplete reports whether an object is Ready and its status is complete.
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
	if status, _, _ := condition(live, "DeploymentReady"); status != "True" {
		return false
	}
	if field(live, "spec", "protocol", "probe") == string(v1beta1.ProbeDisabled) {
		return true
	}
	// The contract is known once each pod was listed, which can be after the server is Ready.
	observed := field(live, "spec", "contract", "policy") != string(v1beta1.ContractDisabled)
	return field(live, "status", "server", "tools") == "1" && (!observed || env.Get("ConfigMap", name+v1beta1.ContractSuffix) != nil)
}

// isUnchanged reports whether no object with the name has changed for longer than a manager defers writes.
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

// DeleteAll deletes all objects of a closed environment, which keeps the API server small.
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
		if !isServerTimeout(err) { // remaining objects only use memory
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
