package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// operation is something that happens to one object of a simulation: what its user does, or what others
// do to its children and to what it has in the cloud.
type operation struct {
	description string
	// pause is how long the user waits before.
	pause time.Duration
	run   func(context.Context, *Environment, *simulatedObject) error
	// after is what is wished for then; nothing if the object is to be gone.
	desired *variant
}

// errNotThen is for what others would do to something that is not there just then.
var errNotPossible = errors.New("not there just then")

// subject is one object of a simulation, with all that is to happen to it, in order.
type simulatedObject struct {
	ID
	operations []operation

	// What has come of them, for the one that performs them:

	// wish is what the object is to be like now, and nothing if it is to be gone.
	desired *variant
	// adopted is the account that there is to adopt, version the one of the key that was pinned.
	adopted, version string
	adoptions        int
	// retained are accounts that stay after what they were made for.
	retained []string
}

// newSubject draws what happens to an object. The spec that it has in the end is one of a few dozen, by the
// seed, so that it is mostly known already what it leads to; those on the way there are any.
func newSimulatedObject(id ID, seed uint64, random *rand.Rand) *simulatedObject {
	const (
		fewest = 3
		more   = 4
	)
	s := &simulatedObject{ID: id}
	first := newVariant(id.Kind, random)
	s.add(random, "create "+first.String(), &first, create)
	for range fewest + random.IntN(more) {
		s.addRandom(random)
	}
	if last := s.lastPlanned(); last != nil {
		final := finalVariant(*last, seed, random)
		s.add(random, "edit for the last time: "+final.String(), &final, edit)
		if random.IntN(2) == 0 {
			s.addExternalChange(random)
		}
	}
	return s
}

func (s *simulatedObject) add(random *rand.Rand, what string, after *variant, do func(context.Context, *Environment, *simulatedObject) error) {
	const longest = 500
	pause := time.Duration(0)
	if len(s.operations) > 0 && random.IntN(3) > 0 {
		pause = time.Duration(random.IntN(longest)) * time.Millisecond
	}
	s.operations = append(s.operations, operation{description: what, pause: pause, desired: after, run: func(ctx context.Context, env *Environment, s *simulatedObject) error {
		s.desired = after
		return do(ctx, env, s)
	}})
}

// planned is what is wished for after all operations so far.
func (s *simulatedObject) lastPlanned() *variant { return s.operations[len(s.operations)-1].desired }

// draw draws one more operation.
func (s *simulatedObject) addRandom(random *rand.Rand) {
	now := s.lastPlanned()
	if now == nil {
		next := newVariant(s.Kind, random)
		s.add(random, "create "+next.String(), &next, create)
		return
	}
	const all = 100
	switch chance := random.IntN(all); {
	case chance < 40:
		if next, what := now.randomChange(random); what != "" {
			s.add(random, "edit "+what, &next, edit)
		}
	case chance < 50:
		s.add(random, "delete", nil, deleteObject(metav1.DeletePropagationBackground))
	case chance < 53:
		s.add(random, "delete, children first", nil, deleteObject(metav1.DeletePropagationForeground))
	case chance < 63:
		next := newVariant(s.Kind, random)
		s.add(random, "delete and create "+next.String(), &next, recreate)
	case chance < 66 && s.Kind != SecureStorage:
		next := newVariant(s.Kind, random)
		s.add(random, "take the finalizer off, delete and create "+next.String(), &next, replace)
	default:
		s.addExternalChange(random)
	}
}

// disturb draws something that others do to the object.
func (s *simulatedObject) addExternalChange(random *rand.Rand) {
	now := s.lastPlanned()
	if s.Kind != SecureStorage {
		d := childChanges[random.IntN(len(childChanges))]
		s.add(random, "somebody "+d.description, now, d.run)
		return
	}
	m := cloudChanges[random.IntN(len(cloudChanges))]
	if !m.losesAccount || now.choices["loss"] == "Recreate" && !now.isPaused() {
		s.add(random, "in the cloud: "+m.description, now, m.run)
	}
}

// perform does all operations in order, and says of each when it was done.
func (s *simulatedObject) perform(ctx context.Context, env *Environment, began time.Time, tell func(string)) error {
	for _, o := range s.operations {
		select {
		case <-time.After(o.pause):
		case <-ctx.Done():
			return nil
		}
		err := o.run(ctx, env, s)
		text := fmt.Sprintf("%5d ms %s: %s", time.Since(began).Milliseconds(), s.ID, o.description)
		if errors.Is(err, errNotPossible) {
			text, err = text+" ("+err.Error()+")", nil
		}
		tell(text)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", s.ID, o.description, err)
		}
	}
	return nil
}

// desired is the object that is wished for.
func (s *simulatedObject) desiredObject(env *Environment) (client.Object, error) {
	object := s.desired.object(env, s.Name)
	if storage, ok := object.(*v1alpha1.SecureStorage); ok {
		if storage.Spec.AccountName != "" {
			storage.Spec.AccountName = s.adopted
		}
		s.version = ""
		if storage.Spec.Key.Version != "" {
			var err error
			if s.version, err = env.Cloud.RotateKey(storage.Spec.Key.Vault.Name, env.Demo.Key); err != nil {
				return nil, err
			}
			storage.Spec.Key.Version = s.version
		}
	}
	return object, nil
}

// create creates the object, as soon as there is no other of its name.
func create(ctx context.Context, env *Environment, s *simulatedObject) error {
	if s.desired.choices["account"] == adopted {
		s.adoptions++
		s.adopted = fmt.Sprintf("adopted%s%d", strings.ReplaceAll(s.Name, "-", ""), s.adoptions)
		if err := env.Cloud.SeedAccount(env.Demo.Subscription, env.Demo.Group, s.adopted, nil); err != nil {
			return err
		}
	}
	object, err := s.desiredObject(env)
	if err != nil {
		return err
	}
	failure := env.Create(ctx, object)
	if apierrors.IsAlreadyExists(failure) && !env.WaitUntil(simulationTimeout, func() bool {
		if env.Get(s.Kind, s.Name) != nil {
			return false
		}
		object.SetResourceVersion("")
		failure = env.Create(ctx, object)
		return !apierrors.IsAlreadyExists(failure)
	}) {
		return fmt.Errorf("the name was never free: %w", failure)
	}
	return failure
}

func edit(ctx context.Context, env *Environment, s *simulatedObject) error {
	object, err := s.desiredObject(env)
	if err != nil {
		return err
	}
	return Edit(ctx, env, user, s.Name, empty(s.Kind), func(live client.Object) { assign(live, object) })
}

func deleteObject(propagation metav1.DeletionPropagation) func(context.Context, *Environment, *simulatedObject) error {
	return func(ctx context.Context, env *Environment, s *simulatedObject) error {
		if err := s.recordRetained(ctx, env); err != nil {
			return err
		}
		return env.Delete(ctx, empty(s.Kind), s.Name, client.PropagationPolicy(propagation))
	}
}

// noteRetained notes the account that stays when a SecureStorage goes.
func (s *simulatedObject) recordRetained(ctx context.Context, env *Environment) error {
	if s.Kind != SecureStorage {
		return nil
	}
	live := &v1alpha1.SecureStorage{}
	if err := env.Cluster.API.Get(ctx, env.Key(s.Name), live); err != nil {
		return err
	}
	if live.Spec.DeletionPolicy != v1alpha1.DeletionRetain {
		return nil
	}
	account := live.Spec.AccountName
	if account == "" {
		account = cloud.AccountName(string(live.UID))
	}
	s.retained = append(s.retained, account)
	return nil
}

func recreate(ctx context.Context, env *Environment, s *simulatedObject) error {
	if err := deleteObject(metav1.DeletePropagationBackground)(ctx, env, s); err != nil {
		return err
	}
	return create(ctx, env, s)
}

// replacement takes the finalizer off by hand, so that the children are still there when the next
// object of the name comes.
func replace(ctx context.Context, env *Environment, s *simulatedObject) error {
	if err := Edit(ctx, env, user, s.Name, empty(s.Kind), func(live client.Object) { live.SetFinalizers(nil) }); err != nil {
		return err
	}
	return recreate(ctx, env, s)
}
