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

// Environment isolates one run: a namespace, a cloud, and managers, of which one is active at a time.
type Environment struct {
	Cluster *Cluster
	// Namespace contains all objects of the environment.
	Namespace string
	// Kinds are the kinds that the managers reconcile.
	Kinds []string
	// Cloud is the fake cloud, and Demo the resources that exist in it from the start. Cloud is nil if Kinds
	// does not include SecureStorage.
	Cloud *fakecloud.Server
	Demo  fakecloud.Demo
	// DiscardEvents keeps Events from the API server. They are more than half of its load.
	DiscardEvents bool

	history     *history
	controllers *kubeControllers
	record      *record

	mu       sync.Mutex
	plan     Plan
	managers []*Manager
	// values are set and read by scenarios.
	values map[string]string
}

// NewEnvironment creates an environment for the kinds. The caller closes it.
func (c *Cluster) NewEnvironment(ctx context.Context, kinds ...string) (*Environment, error) {
	if len(kinds) == 0 {
		return nil, errors.New("creating an environment: at least one kind is required")
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "env-"}}
	err := c.API.Create(ctx, namespace)
	for isServerTimeout(err) { // a namespace that was created nevertheless stays empty
		err = c.API.Create(ctx, namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("creating an environment: %w", err)
	}
	env := &Environment{
		Cluster: c, Namespace: namespace.Name, Kinds: kinds,
		history: newHistory(), record: &record{}, values: map[string]string{},
	}
	if slices.Contains(kinds, SecureStorage) {
		env.Cloud = fakecloud.New(fakecloud.Options{Seed: 1, Knobs: FastCloud()})
		env.Demo = env.Cloud.SeedDemo()
	}
	env.controllers = newKubeControllers(env)
	c.mu.Lock()
	c.environments[env.Namespace] = env
	c.mu.Unlock()
	if err := env.createDependencies(ctx); err != nil {
		return nil, errors.Join(err, env.Close())
	}
	return env, nil
}

// Names of objects that exist in every environment, for specs that refer to them.
const (
	accountName     = "shop"
	pullSecret      = "pull"
	certificateName = "tls"
)

func (env *Environment) createDependencies(ctx context.Context) error {
	return errors.Join(
		env.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: accountName}}),
		env.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: pullSecret}}),
		env.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: certificateName}}),
	)
}

// FastCloud returns the delays of the real cloud, shortened so that few reconciles observe each.
func FastCloud() fakecloud.Knobs {
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
		// Retry-After in seconds is too coarse for these delays.
		MillisecondHints: true,
	}
}

// Close stops the managers. The objects in the namespace remain until [Environment.DeleteAll].
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

// SetPlan sets the plan for all further calls; nil injects no faults.
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

// Get returns the latest observed version of a live object, or nil. Callers must not modify it.
func (env *Environment) Get(kind, name string) *unstructured.Unstructured {
	return env.history.get(ID{Kind: kind, Name: name})
}

// Key returns the key of an object in the namespace.
func (env *Environment) Key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: env.Namespace, Name: name}
}

// Versions returns all versions of all objects so far, in the order of their resource versions.
func (env *Environment) Versions() []Version { return env.history.all() }

// Calls returns the calls of all managers so far, except those that fill caches.
func (env *Environment) Calls() []Call { return env.record.all() }

// WaitUntil waits until check returns true. It calls check after every event and periodically, and
// returns false after the timeout.
func (env *Environment) WaitUntil(timeout time.Duration, check func() bool) bool {
	const now = 100 * time.Millisecond
	deadline := time.NewTimer(timeout)
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
