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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// operation is a user action on an object, or a change of its children or its cloud resources by another client.
type operation struct {
	description string
	// pause is the delay before the operation.
	pause time.Duration
	run   func(context.Context, *Environment, *simulatedObject) error
	// desired is the desired spec afterwards, or nil if the object is deleted.
	desired *variant
}

// errNotPossible means that the target of a change does not exist at that time.
var errNotPossible = errors.New("skipped: the object does not exist")

// simulatedObject is one object of a simulation with its operations.
type simulatedObject struct {
	ID
	operations []operation

	// The following fields change while the operations are performed.

	// desired is the current desired spec, or nil if the object is deleted.
	desired *variant
	// adopted is the name of the account to adopt, and version the pinned key version.
	adopted, version string
	adoptions        int
	// retained lists the accounts that remain after a deletion.
	retained []string
}

// newSimulatedObject draws the operations of an object. The final spec is one of a few dozen, so that its
// undisturbed state is often known already. The specs before are arbitrary.
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
		s.add(random, "last edit: "+final.String(), &final, edit)
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

// lastPlanned returns the desired spec after all operations so far.
func (s *simulatedObject) lastPlanned() *variant { return s.operations[len(s.operations)-1].desired }

// addRandom adds a random operation.
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
		s.add(random, "delete with foreground propagation", nil, deleteObject(metav1.DeletePropagationForeground))
	case chance < 63:
		next := newVariant(s.Kind, random)
		s.add(random, "delete and create "+next.String(), &next, recreate)
	case chance < 66 && s.Kind != SecureStorage:
		next := newVariant(s.Kind, random)
		s.add(random, "remove the finalizer, delete and create "+next.String(), &next, replace)
	default:
		s.addExternalChange(random)
	}
}

// addExternalChange adds a random change by another client.
func (s *simulatedObject) addExternalChange(random *rand.Rand) {
	now := s.lastPlanned()
	if s.Kind != SecureStorage {
		d := childChanges[random.IntN(len(childChanges))]
		s.add(random, "another client "+d.description, now, d.run)
		return
	}
	m := cloudChanges[random.IntN(len(cloudChanges))]
	if !m.losesAccount || now.choices["loss"] == "Recreate" && !now.isPaused() {
		s.add(random, "another client of the cloud: "+m.description, now, m.run)
	}
}

// perform performs the operations in order and records when.
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

// desiredObject returns the object with the desired spec.
func (s *simulatedObject) desiredObject(env *Environment) (client.Object, error) {
	object := s.desired.object(env, s.Name)
	if storage, ok := object.(*v1beta1.SecureStorage); ok {
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

// create creates the object as soon as the name is free.
func create(ctx context.Context, env *Environment, s *simulatedObject) error {
	if s.desired.choices["account"] == adopted {
		s.adoptions++
		s.adopted = fmt.Sprintf("adopted%s%d", strings.ReplaceAll(s.Name, "-", ""), s.adoptions)
		if err := seedAdoption(ctx, env, s.adopted); err != nil {
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
		return fmt.Errorf("the name was not released: %w", failure)
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

// recordRetained records the account that remains when a SecureStorage is deleted.
func (s *simulatedObject) recordRetained(ctx context.Context, env *Environment) error {
	if s.Kind != SecureStorage {
		return nil
	}
	live := &v1beta1.SecureStorage{}
	if err := env.Cluster.API.Get(ctx, env.Key(s.Name), live); err != nil {
		return err
	}
	if live.Spec.DeletionPolicy != v1beta1.DeletionRetain && live.Spec.ManagementPolicy != v1beta1.ManagementObserve {
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

// replace removes the finalizer first, so that the children still exist when the next object with the name is
// created.
func replace(ctx context.Context, env *Environment, s *simulatedObject) error {
	if err := Edit(ctx, env, user, s.Name, empty(s.Kind), func(live client.Object) { live.SetFinalizers(nil) }); err != nil {
		return err
	}
	return recreate(ctx, env, s)
}
