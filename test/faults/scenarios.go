package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scenarios returns the scenarios of all kinds.
func Scenarios() []Scenario {
	return slices.Concat(appServiceScenarios(), mcpServerScenarios(), secureStorageScenarios())
}

// raceScenario marks a scenario whose counts depend on timing.
func raceScenario(s Scenario) Scenario {
	s.Races = true
	return s
}

// user is the field manager of the simulated user.
const user = "user"

// objectName is the name of the object of a scenario.
const objectName = "web"

// As returns a client with the given field manager.
func (env *Environment) As(manager string) client.Client {
	return client.WithFieldOwner(env.Cluster.API, manager)
}

// Create creates an object in the environment's namespace, as the user, and retries server timeouts.
func (env *Environment) Create(ctx context.Context, object client.Object) error {
	object.SetNamespace(env.Namespace)
	err, isRetry := env.As(user).Create(ctx, object), false
	for isServerTimeout(err) {
		err, isRetry = env.As(user).Create(ctx, object), true
	}
	if !isRetry || !apierrors.IsAlreadyExists(err) {
		return err
	}
	// A call that timed out has created it, unless an object of that name is still being deleted.
	live, ok := object.DeepCopyObject().(client.Object)
	if !ok || env.Cluster.API.Get(ctx, env.Key(object.GetName()), live) != nil || live.GetDeletionTimestamp() != nil {
		return err
	}
	return env.Cluster.API.Get(ctx, env.Key(object.GetName()), object)
}

// Edit updates an object under a field manager and retries conflicts and server timeouts. The change must
// be idempotent, because an update that timed out may have succeeded.
func Edit[T client.Object](ctx context.Context, env *Environment, manager, name string, object T, change func(T)) error {
	for {
		if err := env.Cluster.API.Get(ctx, env.Key(name), object); err != nil {
			return err
		}
		change(object)
		if err := env.As(manager).Update(ctx, object); !apierrors.IsConflict(err) && !isServerTimeout(err) {
			return err
		}
	}
}

// isServerTimeout reports whether an overloaded API server gave up on a call, which may have succeeded.
func isServerTimeout(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}

// Delete deletes an object and retries server timeouts.
func (env *Environment) Delete(ctx context.Context, object client.Object, name string, options ...client.DeleteOption) error {
	object.SetName(name)
	object.SetNamespace(env.Namespace)
	err := env.Cluster.API.Delete(ctx, object, options...)
	for isServerTimeout(err) {
		err = client.IgnoreNotFound(env.Cluster.API.Delete(ctx, object, options...))
	}
	return err
}

// ReadyWith reports whether an object is Ready for its current generation, which must be at least the
// given one.
func (env *Environment) ReadyWith(kind, name string, generation int64) bool {
	object := env.Get(kind, name)
	return object != nil && object.GetDeletionTimestamp() == nil && object.GetGeneration() >= generation && saysReady(object)
}

// HasReason reports whether any condition of an object has the reason.
func (env *Environment) HasReason(kind, name, reason string) bool {
	for _, c := range conditionsOf(env.Get(kind, name)) {
		if c["reason"] == reason {
			return true
		}
	}
	return false
}

// Children returns the live children of an object, sorted by kind.
func (env *Environment) Children(kind, name string) []*unstructured.Unstructured {
	owner := env.Get(kind, name)
	if owner == nil {
		return nil
	}
	return env.history.filter(func(o *unstructured.Unstructured) bool { return metav1.IsControlledBy(o, owner) })
}

// Deleted reports whether an object existed and was deleted.
func (env *Environment) Deleted(kind, name string) bool {
	env.history.mu.Lock()
	defer env.history.mu.Unlock()
	id := ID{Kind: kind, Name: name}
	return env.history.live[id] == nil && env.history.deleted[id] > 0
}

// Created returns how often an object was created.
func (env *Environment) Created(kind, name string) int {
	env.history.mu.Lock()
	defer env.history.mu.Unlock()
	return env.history.created[ID{Kind: kind, Name: name}]
}

// injectOnce acts once, at the first call that matches.
func injectOnce(once string, match func(Call) bool, act func(context.Context, *Environment) error) func(*Environment, Call) Fault {
	return func(env *Environment, call Call) Fault {
		if !match(call) || !env.setOnce(once) {
			return Fault{}
		}
		return Fault{Before: func() {
			if err := act(context.Background(), env); err != nil {
				panic(fmt.Sprintf("%s: %v", once, err)) // the action itself must be valid
			}
		}}
	}
}

// setOnce returns true on its first call with the key.
func (env *Environment) setOnce(what string) bool {
	env.mu.Lock()
	defer env.mu.Unlock()
	if _, known := env.values[what]; known {
		return false
	}
	env.values[what] = what
	return true
}

// hasClass matches the calls of a class, such as "apply deployments".
func hasClass(class string) func(Call) bool { return func(c Call) bool { return c.Class() == class } }

// reportedDriftMayBeLost tolerates a missing entry in status.drifts. The manager that reverts a drift
// reports it in its next status write and in an Event. If it crashes in between, or if one of those writes
// fails, the information is lost: the API server does not keep the previous values, and the manager keeps
// no state between reconciles.
func reportedDriftMayBeLost(difference string, crashes []Call) bool {
	return len(crashes) > 0 && (strings.Contains(difference, ".status.drifts") || strings.Contains(difference, ".f:status.f:drifts"))
}
