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
func racing(s Scenario) Scenario {
	s.Races = true
	return s
}

// user is the field manager of the person whose objects these are.
const user = "user"

// objectName is that of the one object of a scenario.
const objectName = "web"

// As is a client that writes under a field manager of that name.
func (w *World) As(manager string) client.Client { return client.WithFieldOwner(w.Bench.API, manager) }

// Create makes an object of the user's, into the world.
func (w *World) Create(ctx context.Context, object client.Object) error {
	object.SetNamespace(w.Namespace)
	return w.As(user).Create(ctx, object)
}

// Edit changes an object that is there, in the name of a field manager, until nobody has written in
// between. It has to change the same if the API server was too late to say that it has.
func Edit[T client.Object](ctx context.Context, w *World, manager, name string, object T, change func(T)) error {
	for {
		if err := w.Bench.API.Get(ctx, w.Key(name), object); err != nil {
			return err
		}
		change(object)
		if err := w.As(manager).Update(ctx, object); !apierrors.IsConflict(err) && !isLate(err) {
			return err
		}
	}
}

// isLate says of a call's error that an API server with too much to do has given up on it: what was asked
// may be done or not.
func isLate(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}

// Delete deletes an object.
func (w *World) Delete(ctx context.Context, object client.Object, name string, options ...client.DeleteOption) error {
	object.SetName(name)
	object.SetNamespace(w.Namespace)
	err := w.Bench.API.Delete(ctx, object, options...)
	for isLate(err) {
		err = client.IgnoreNotFound(w.Bench.API.Delete(ctx, object, options...))
	}
	return err
}

// ReadyWith says whether an object is Ready for the spec that it has, at a generation or later.
func (w *World) ReadyWith(kind, name string, generation int64) bool {
	object := w.Get(kind, name)
	return object != nil && object.GetDeletionTimestamp() == nil && object.GetGeneration() >= generation && saysReady(object)
}

// Reason is that of a condition of an object; empty if there is none.
func (w *World) Reason(kind, name, conditionType string) string {
	_, reason, _ := condition(w.Get(kind, name), conditionType)
	return reason
}

// Gone says whether an object was there and is not any more.
func (w *World) Gone(kind, name string) bool {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	id := ID{Kind: kind, Name: name}
	return w.history.live[id] == nil && w.history.deleted[id] > 0
}

// Times is how often an object was created.
func (w *World) Times(kind, name string) int {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	return w.history.created[ID{Kind: kind, Name: name}]
}

// during acts once, at the first call that matches.
func during(once string, match func(Call) bool, act func(context.Context, *World) error) func(*World, Call) Fault {
	return func(w *World, call Call) Fault {
		if !match(call) || !w.note(once) {
			return Fault{}
		}
		return Fault{Before: func() {
			if err := act(context.Background(), w); err != nil {
				panic(fmt.Sprintf("%s: %v", once, err)) // a user whom the API server refuses is a mistake here
			}
		}}
	}
}

// note says whether something is noted for the first time.
func (w *World) note(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.notes[what]; known {
		return false
	}
	w.notes[what] = what
	return true
}

// callOf matches the calls of a sort for a resource, such as "apply deployments".
func callOf(class string) func(Call) bool { return func(c Call) bool { return c.Class() == class } }

// driftsMayBeUntold: what others had changed is told once, by the manager that put it back, in the status
// that it writes next, and in an Event. If it crashes in between, if it is not told that its write has
// landed, or if that status cannot be written, nobody knows any more: the API server keeps no account of
// what was there before, and the manager remembers nothing from pass to pass. So such a call may cost the
// line in status.drifts, and nothing else.
func driftsMayBeUntold(difference string, crashes []Call) bool {
	return len(crashes) > 0 && strings.Contains(difference, "drifts")
}
