package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scenarios are those that every campaign goes through, of all three kinds.
func Scenarios() []Scenario {
	return slices.Concat(appServiceScenarios(), mcpServerScenarios(), secureStorageScenarios())
}

// racing makes a scenario one of moments.
func raceScenario(s Scenario) Scenario {
	s.Races = true
	return s
}

// user is the field manager of the person whose objects these are.
const user = "user"

// objectName is that of the one object of a scenario.
const objectName = "web"

// As is a client that writes under a field manager of that name.
func (env *Environment) As(manager string) client.Client {
	return client.WithFieldOwner(env.Cluster.API, manager)
}

// Create makes an object of the user's, into the world.
func (env *Environment) Create(ctx context.Context, object client.Object) error {
	object.SetNamespace(env.Namespace)
	return env.As(user).Create(ctx, object)
}

// Edit changes an object that is there, in the name of a field manager, until nobody has written in
// between. It has to change the same if the API server was too late to say that it has.
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

// isLate says of a call's error that an API server with too much to do has given up on it: what was asked
// may be done or not.
func isServerTimeout(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}

// Delete deletes an object.
func (env *Environment) Delete(ctx context.Context, object client.Object, name string, options ...client.DeleteOption) error {
	object.SetName(name)
	object.SetNamespace(env.Namespace)
	err := env.Cluster.API.Delete(ctx, object, options...)
	for isServerTimeout(err) {
		err = client.IgnoreNotFound(env.Cluster.API.Delete(ctx, object, options...))
	}
	return err
}

// ReadyWith says whether an object is Ready for the spec that it has, at a generation or later.
func (env *Environment) ReadyWith(kind, name string, generation int64) bool {
	object := env.Get(kind, name)
	return object != nil && object.GetDeletionTimestamp() == nil && object.GetGeneration() >= generation && saysReady(object)
}

// Reason is that of a condition of an object; empty if there is none.
func (env *Environment) Reason(kind, name, conditionType string) string {
	_, reason, _ := condition(env.Get(kind, name), conditionType)
	return reason
}

// Gone says whether an object was there and is not any more.
func (env *Environment) Deleted(kind, name string) bool {
	env.history.mu.Lock()
	defer env.history.mu.Unlock()
	id := ID{Kind: kind, Name: name}
	return env.history.live[id] == nil && env.history.deleted[id] > 0
}

// Times is how often an object was created.
func (env *Environment) Created(kind, name string) int {
	env.history.mu.Lock()
	defer env.history.mu.Unlock()
	return env.history.created[ID{Kind: kind, Name: name}]
}

// during acts once, at the first call that matches.
func injectOnce(once string, match func(Call) bool, act func(context.Context, *Environment) error) func(*Environment, Call) Fault {
	return func(env *Environment, call Call) Fault {
		if !match(call) || !env.setOnce(once) {
			return Fault{}
		}
		return Fault{Before: func() {
			if err := act(context.Background(), env); err != nil {
				panic(fmt.Sprintf("%s: %v", once, err)) // a user whom the API server refuses is a mistake here
			}
		}}
	}
}

// note says whether something is noted for the first time.
func (env *Environment) setOnce(what string) bool {
	env.mu.Lock()
	defer env.mu.Unlock()
	if _, known := env.values[what]; known {
		return false
	}
	env.values[what] = what
	return true
}

// callOf matches the calls of a sort for a resource, such as "apply deployments".
func hasClass(class string) func(Call) bool { return func(c Call) bool { return c.Class() == class } }

// driftsMayBeUntold: what others had changed is told once, by the manager that put it back, in the status
// that it writes next, and in an Event. If it crashes in between, if it is not told that its write has
// landed, or if that status cannot be written, nobody knows any more: the API server keeps no account of
// what was there before, and the manager remembers nothing from pass to pass. So such a call may cost the
// line in status.drifts, and nothing else.
func reportedDriftMayBeLost(difference string, crashes []Call) bool {
	return len(crashes) > 0 && strings.Contains(difference, "drifts")
}
