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
	what string
	// pause is how long the user waits before.
	pause time.Duration
	do    func(context.Context, *World, *subject) error
	// after is what is wished for then; nothing if the object is to be gone.
	after *wish
}

// errNotThen is for what others would do to something that is not there just then.
var errNotThen = errors.New("not there just then")

// subject is one object of a simulation, with all that is to happen to it, in order.
type subject struct {
	ID
	operations []operation

	// What has come of them, for the one that performs them:

	// wish is what the object is to be like now, and nothing if it is to be gone.
	wish *wish
	// adopted is the account that there is to adopt, version the one of the key that was pinned.
	adopted, version string
	adoptions        int
	// retained are accounts that stay after what they were made for.
	retained []string
}

// newSubject draws what happens to an object. The spec that it has in the end is one of a few dozen, by the
// seed, so that it is mostly known already what it leads to; those on the way there are any.
func newSubject(id ID, seed uint64, random *rand.Rand) *subject {
	const (
		fewest = 3
		more   = 4
	)
	s := &subject{ID: id}
	first := newWish(id.Kind, random)
	s.add(random, "create "+first.String(), &first, create)
	for range fewest + random.IntN(more) {
		s.draw(random)
	}
	if last := s.planned(); last != nil {
		final := finalWish(*last, seed, random)
		s.add(random, "edit for the last time: "+final.String(), &final, edit)
		if random.IntN(2) == 0 {
			s.disturb(random)
		}
	}
	return s
}

func (s *subject) add(random *rand.Rand, what string, after *wish, do func(context.Context, *World, *subject) error) {
	const longest = 500
	pause := time.Duration(0)
	if len(s.operations) > 0 && random.IntN(3) > 0 {
		pause = time.Duration(random.IntN(longest)) * time.Millisecond
	}
	s.operations = append(s.operations, operation{what: what, pause: pause, after: after, do: func(ctx context.Context, w *World, s *subject) error {
		s.wish = after
		return do(ctx, w, s)
	}})
}

// planned is what is wished for after all operations so far.
func (s *subject) planned() *wish { return s.operations[len(s.operations)-1].after }

// draw draws one more operation.
func (s *subject) draw(random *rand.Rand) {
	now := s.planned()
	if now == nil {
		next := newWish(s.Kind, random)
		s.add(random, "create "+next.String(), &next, create)
		return
	}
	const all = 100
	switch chance := random.IntN(all); {
	case chance < 40:
		if next, what := now.changed(random); what != "" {
			s.add(random, "edit "+what, &next, edit)
		}
	case chance < 50:
		s.add(random, "delete", nil, deletion(metav1.DeletePropagationBackground))
	case chance < 53:
		s.add(random, "delete, children first", nil, deletion(metav1.DeletePropagationForeground))
	case chance < 63:
		next := newWish(s.Kind, random)
		s.add(random, "delete and create "+next.String(), &next, recreation)
	case chance < 66 && s.Kind != SecureStorage:
		next := newWish(s.Kind, random)
		s.add(random, "take the finalizer off, delete and create "+next.String(), &next, replacement)
	default:
		s.disturb(random)
	}
}

// disturb draws something that others do to the object.
func (s *subject) disturb(random *rand.Rand) {
	now := s.planned()
	if s.Kind != SecureStorage {
		d := drifts[random.IntN(len(drifts))]
		s.add(random, "somebody "+d.what, now, d.do)
		return
	}
	m := meddlings[random.IntN(len(meddlings))]
	if !m.loses || now.choices["loss"] == "Recreate" && !now.isIdle() {
		s.add(random, "in the cloud: "+m.what, now, m.do)
	}
}

// perform does all operations in order, and says of each when it was done.
func (s *subject) perform(ctx context.Context, w *World, began time.Time, tell func(string)) error {
	for _, o := range s.operations {
		select {
		case <-time.After(o.pause):
		case <-ctx.Done():
			return nil
		}
		err := o.do(ctx, w, s)
		text := fmt.Sprintf("%5d ms %s: %s", time.Since(began).Milliseconds(), s.ID, o.what)
		if errors.Is(err, errNotThen) {
			text, err = text+" ("+err.Error()+")", nil
		}
		tell(text)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", s.ID, o.what, err)
		}
	}
	return nil
}

// desired is the object that is wished for.
func (s *subject) desired(w *World) (client.Object, error) {
	object := s.wish.object(w, s.Name)
	if storage, ok := object.(*v1alpha1.SecureStorage); ok {
		if storage.Spec.AccountName != "" {
			storage.Spec.AccountName = s.adopted
		}
		s.version = ""
		if storage.Spec.Key.Version != "" {
			var err error
			if s.version, err = w.Cloud.RotateKey(storage.Spec.Key.Vault.Name, w.Demo.Key); err != nil {
				return nil, err
			}
			storage.Spec.Key.Version = s.version
		}
	}
	return object, nil
}

// create creates the object, as soon as there is no other of its name.
func create(ctx context.Context, w *World, s *subject) error {
	if s.wish.choices["account"] == adopted {
		s.adoptions++
		s.adopted = fmt.Sprintf("adopted%s%d", strings.ReplaceAll(s.Name, "-", ""), s.adoptions)
		if err := w.Cloud.SeedAccount(w.Demo.Subscription, w.Demo.Group, s.adopted, nil); err != nil {
			return err
		}
	}
	object, err := s.desired(w)
	if err != nil {
		return err
	}
	failure := w.Create(ctx, object)
	if apierrors.IsAlreadyExists(failure) && !w.Await(stamina, func() bool {
		if w.Get(s.Kind, s.Name) != nil {
			return false
		}
		object.SetResourceVersion("")
		failure = w.Create(ctx, object)
		return !apierrors.IsAlreadyExists(failure)
	}) {
		return fmt.Errorf("the name was never free: %w", failure)
	}
	return failure
}

func edit(ctx context.Context, w *World, s *subject) error {
	object, err := s.desired(w)
	if err != nil {
		return err
	}
	return Edit(ctx, w, user, s.Name, empty(s.Kind), func(live client.Object) { assign(live, object) })
}

func deletion(propagation metav1.DeletionPropagation) func(context.Context, *World, *subject) error {
	return func(ctx context.Context, w *World, s *subject) error {
		if err := s.noteRetained(ctx, w); err != nil {
			return err
		}
		return w.Delete(ctx, empty(s.Kind), s.Name, client.PropagationPolicy(propagation))
	}
}

// noteRetained notes the account that stays when a SecureStorage goes.
func (s *subject) noteRetained(ctx context.Context, w *World) error {
	if s.Kind != SecureStorage {
		return nil
	}
	live := &v1alpha1.SecureStorage{}
	if err := w.Bench.API.Get(ctx, w.Key(s.Name), live); err != nil {
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

func recreation(ctx context.Context, w *World, s *subject) error {
	if err := deletion(metav1.DeletePropagationBackground)(ctx, w, s); err != nil {
		return err
	}
	return create(ctx, w, s)
}

// replacement takes the finalizer off by hand, so that the children are still there when the next
// object of the name comes.
func replacement(ctx context.Context, w *World, s *subject) error {
	if err := Edit(ctx, w, user, s.Name, empty(s.Kind), func(live client.Object) { live.SetFinalizers(nil) }); err != nil {
		return err
	}
	return recreation(ctx, w, s)
}
