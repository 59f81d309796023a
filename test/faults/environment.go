package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// World is what one run has to itself: a namespace, a cloud, and the managers that it starts, of which
// one works at a time.
type Environment struct {
	Cluster *Cluster
	// Namespace of everything in it.
	Namespace string
	// Kinds that its managers reconcile.
	Kinds []string
	// Cloud is where its SecureStorages live, and Demo what there is in it.
	Cloud *fakecloud.Server
	Demo  fakecloud.Demo
	// Mute keeps the Events of managers from the API server, which they are more than half of the work of.
	DiscardEvents bool

	history     *history
	controllers *kubeControllers
	record      *record

	mu       sync.Mutex
	plan     Plan
	managers []*Manager
	// notes are what a scenario has found out on its way.
	values map[string]string
}

// NewWorld makes a world for some of the kinds. Whoever makes it closes it.
func (c *Cluster) NewEnvironment(ctx context.Context, kinds ...string) (*Environment, error) {
	if len(kinds) == 0 {
		return nil, errors.New("making a world: name the kinds that are in it")
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "w-"}}
	if err := c.API.Create(ctx, namespace); err != nil {
		return nil, fmt.Errorf("making a world: %w", err)
	}
	env := &Environment{
		Cluster: c, Namespace: namespace.Name, Kinds: kinds,
		history: newHistory(), record: &record{}, values: map[string]string{},
	}
	if slices.Contains(kinds, SecureStorage) {
		env.Cloud = fakecloud.New(fakecloud.Options{Seed: 1, Knobs: Brisk()})
		env.Demo = env.Cloud.SeedDemo()
	}
	env.controllers = newKubeControllers(env)
	c.mu.Lock()
	c.environments[env.Namespace] = env
	c.mu.Unlock()
	return env, nil
}

// Brisk is a cloud with all the delays of the real one, so short that a pass or two see each.
func Brisk() fakecloud.Knobs {
	const moment = 150 * time.Millisecond
	return fakecloud.Knobs{
		AccountCreation: fakecloud.Fixed(2 * moment),
		AccountUpdate:   fakecloud.Fixed(moment / 3),
		AccountDeletion: fakecloud.Fixed(moment),
		NameHold:        fakecloud.Fixed(moment),
		ReadAfterWrite:  fakecloud.Fixed(moment / 3),
		PrincipalDelay:  fakecloud.Fixed(moment / 3),
		DirectoryDelay:  fakecloud.Fixed(moment),
		GrantDelay:      fakecloud.Fixed(2 * moment),
		PolicyDelay:     fakecloud.Fixed(2 * moment),
		RevokeDelay:     fakecloud.Fixed(moment),
		PollInterval:    fakecloud.Fixed(moment),
		KeyLookup:       fakecloud.Period(24 * time.Hour),
		// Seconds are too coarse a hint for such a cloud.
		MillisecondHints: true,
	}
}

// Close ends the world's managers and forgets the world. What is in its namespace stays until the
// API server goes.
func (env *Environment) Close() error {
	env.mu.Lock()
	managers := slices.Clone(env.managers)
	env.mu.Unlock()
	var errs []error
	for _, m := range managers {
		m.Crash()
		errs = append(errs, m.waitStopped())
	}
	env.Cluster.mu.Lock()
	delete(env.Cluster.environments, env.Namespace)
	env.Cluster.mu.Unlock()
	env.controllers.close()
	return errors.Join(errs...)
}

func (env *Environment) recordVersion(event watch.EventType, object *unstructured.Unstructured) {
	env.history.observe(event, object)
}

// SetPlan says what happens to the calls of the world's managers from now on; nil lets all pass.
func (env *Environment) SetPlan(plan Plan) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.plan = plan
}

func (env *Environment) decide(call Call) Fault {
	env.mu.Lock()
	plan := env.plan
	env.mu.Unlock()
	if plan == nil {
		return Fault{}
	}
	return plan.Decide(call)
}

// Get is the live object of the kind and name, as the API server last told of it, or nil. It is only
// read.
func (env *Environment) Get(kind, name string) *unstructured.Unstructured {
	return env.history.get(ID{Kind: kind, Name: name})
}

// Key is of an object in the world.
func (env *Environment) Key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: env.Namespace, Name: name}
}

// Versions are those of all objects so far, in the order in which they came about.
func (env *Environment) Versions() []Version { return env.history.all() }

// Calls are those that the managers made so far, but reads of caches and Events.
func (env *Environment) Calls() []Call { return env.record.all() }

// Await waits until the check holds, which is asked at every event and every now and then. It gives
// up after so long.
func (env *Environment) WaitUntil(patience time.Duration, check func() bool) bool {
	const now = 100 * time.Millisecond
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(now)
	defer tick.Stop()
	for {
		changed := env.history.change()
		if check() {
			return true
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-deadline.C:
			return check()
		}
	}
}
