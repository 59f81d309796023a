package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// simulationTimeout limits the waits of a simulation. It exceeds Timeout because parallel simulations use the
// whole machine.
const simulationTimeout = 4 * time.Minute

// Simulation is a random plan of user actions, external changes and faults on objects of all kinds. The seed
// determines the plan; when each item meets the work of the manager depends on timing.
type Simulation struct {
	Seed     uint64
	subjects []*simulatedObject
	rotation []rotationStep
	faults   []scheduledFault
}

// rotationStep changes the Secret that MCPServers use.
type rotationStep struct {
	pause time.Duration
	// token is the new content. If empty, the Secret is deleted and recreated.
	token string
}

// NewSimulation derives a simulation from a seed, with or without faults.
func NewSimulation(seed uint64, faults bool) *Simulation {
	const (
		operationsStream, faultsStream = 1, 2
		fewest, more                   = 3, 6
	)
	random := rand.New(rand.NewPCG(seed, operationsStream)) //nolint:gosec // it must be reproducible
	s := &Simulation{Seed: seed}
	ids := []ID{{AppService, "sim-app-1"}, {MCPServer, "sim-mcp-1"}, {SecureStorage, "sim-sto-1"}}
	if random.IntN(2) == 0 {
		ids = append(ids, []ID{{AppService, "sim-app-2"}, {MCPServer, "sim-mcp-2"}, {SecureStorage, "sim-sto-2"}}[random.IntN(len(ids))])
	}
	for _, id := range ids {
		s.subjects = append(s.subjects, newSimulatedObject(id, seed, random))
	}
	for range random.IntN(3) {
		step := rotationStep{pause: time.Duration(random.IntN(1500)) * time.Millisecond}
		if random.IntN(4) > 0 {
			step.token = tokens[random.IntN(len(tokens))]
		}
		s.rotation = append(s.rotation, step)
	}
	if faults {
		random = rand.New(rand.NewPCG(seed, faultsStream)) //nolint:gosec // it must be reproducible
		for range fewest + random.IntN(more) {
			s.faults = append(s.faults, newScheduledFault(random))
		}
	}
	return s
}

// String lists the whole plan.
func (s *Simulation) String() string {
	var b strings.Builder
	for _, subject := range s.subjects {
		for _, o := range subject.operations {
			fmt.Fprintf(&b, "%s, after %s: %s\n", subject.ID, o.pause, o.description)
		}
	}
	for _, step := range s.rotation {
		fmt.Fprintf(&b, "Secret, after %s: %q\n", step.pause, step.token)
	}
	for _, m := range s.faults {
		fmt.Fprintln(&b, m)
	}
	return b.String()
}

// SimulationOutcome is the result of a simulation.
type SimulationOutcome struct {
	Seed uint64
	// Failures lists differences from the undisturbed state and violated invariants.
	Failures []string
	// Log lists the actions and faults in order. Report describes the environment if the simulation failed.
	Log    []string
	Report string
	// Operations is the number of user actions and external changes, Calls that of the managers' mutating calls.
	// Faults counts the injected faults by kind.
	Operations, Calls int
	Faults            map[string]int
	// PastFinalizers counts SecureStorages that the API server deleted although they had a finalizer.
	PastFinalizers int
	// Managers is the number of managers, except the final one of VerifyQuiet.
	Managers int
	Took     time.Duration
}

// simulationRun is a running simulation.
type simulationRun struct {
	*Simulation
	env        *Environment
	references *References
	faults     *faultSchedule
	began      time.Time
	manager    *Manager
	token      string
	unmanaged  map[ID]string

	mu  sync.Mutex
	log []string
}

// Simulate runs a simulation in an environment of its own. It compares the final state with the state that the
// same specs reach without disturbance.
func (c *Cluster) Simulate(ctx context.Context, s *Simulation, references *References) SimulationOutcome {
	began := time.Now()
	o := SimulationOutcome{Seed: s.Seed, Faults: map[string]int{}}
	env, err := c.NewEnvironment(ctx, AppService, MCPServer, SecureStorage)
	if err != nil {
		o.Failures = []string{err.Error()}
		return o
	}
	env.DiscardEvents = true
	run := &simulationRun{Simulation: s, env: env, references: references, began: began, token: tokens[0]}
	run.faults = &faultSchedule{env: env, began: began, record: run.record, pending: slices.Clone(s.faults), injected: map[faultKind]int{}}
	if err := run.run(ctx); err != nil {
		o.Failures = append(o.Failures, err.Error())
	}
	o.Failures = append(o.Failures, env.Violations()...)
	for kind, times := range run.faults.injected {
		o.Faults[string(kind)] = times
	}
	for _, subject := range s.subjects {
		o.Operations += len(subject.operations)
	}
	o.Operations += len(s.rotation)
	o.Managers, o.PastFinalizers, o.Log = len(env.managers)-1, len(env.deletedPastFinalizer()), run.log
	for _, call := range env.Calls() {
		if call.Number > 0 {
			o.Calls++
		}
	}
	if len(o.Failures) > 0 {
		o.Report = env.Report()
	}
	if err := errors.Join(env.Close(), env.DeleteAll(ctx)); err != nil {
		o.Failures = append(o.Failures, err.Error())
	}
	o.Took = time.Since(began)
	return o
}

// record appends to the log.
func (r *simulationRun) record(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, text)
}

func (r *simulationRun) run(ctx context.Context) error {
	env := r.env
	if err := r.createFixtures(ctx); err != nil {
		return err
	}
	var err error
	if r.manager, err = env.Start(); err != nil {
		return err
	}
	env.SetPlan(r.faults)
	if err := r.act(ctx); err != nil {
		return err
	}
	r.record(fmt.Sprintf("%5d ms the faults end", time.Since(r.began).Milliseconds()))
	if err := r.converge(ctx); err != nil {
		return err
	}
	if err := env.VerifyQuiet(); err != nil {
		return err
	}
	if differences := r.differences(ctx, false); len(differences) > 0 {
		return fmt.Errorf("the state changed after convergence: %s", strings.Join(differences, "\n  "))
	}
	return r.verifyUnmanaged()
}

// unmanagedAccount has no SecureStorage.
const unmanagedAccount = "unmanagedaccount"

// createFixtures creates vaults, the Secret, and unmanaged objects with the labels of children.
func (r *simulationRun) createFixtures(ctx context.Context) error {
	env := r.env
	if err := errors.Join(seedVaults(env), env.Create(ctx, newSecret(r.token)), env.Cloud.SeedAccount(env.Demo.Subscription, env.Demo.Group, unmanagedAccount, nil)); err != nil {
		return err
	}
	r.unmanaged = map[ID]string{}
	for _, subject := range r.subjects {
		like := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "unmanaged-" + subject.Name, Labels: map[string]string{
				workload.LabelManagedBy: workload.ManagedBy, workload.LabelName: subject.Name, "app.kubernetes.io/instance": subject.Name,
			}},
			Data: map[string]string{"mine": "yes"},
		}
		if err := env.Create(ctx, like); err != nil {
			return err
		}
		r.unmanaged[ID{"ConfigMap", like.Name}] = like.ResourceVersion
	}
	return nil
}

func (r *simulationRun) verifyUnmanaged() error {
	for id, version := range r.unmanaged {
		live := r.env.Get(id.Kind, id.Name)
		if live == nil || live.GetResourceVersion() != version {
			return fmt.Errorf("the unmanaged %s was changed or deleted", id)
		}
	}
	if account, there := r.env.Cloud.Account(unmanagedAccount); !there || len(account.Tags) > 0 {
		return errors.New("the unmanaged account was changed or deleted")
	}
	return nil
}

// act performs all operations and restarts crashed managers until the operations and the faults are over.
func (r *simulationRun) act(ctx context.Context) error {
	const (
		idle   = 300 * time.Millisecond
		enough = 2500 * time.Millisecond
	)
	acting, stop := context.WithCancel(ctx)
	defer stop()
	results := make(chan error, len(r.subjects)+1)
	for _, subject := range r.subjects {
		go func() { results <- subject.perform(acting, r.env, r.began, r.record) }()
	}
	go func() { results <- r.rotate(acting) }()
	left, ended := len(r.subjects)+1, time.Time{}
	var failure error
	over := r.env.WaitUntil(2*simulationTimeout, func() bool {
		for more := true; more; {
			select {
			case err := <-results:
				left--
				failure = errors.Join(failure, err)
				ended = time.Now()
			default:
				more = false
			}
		}
		if err := r.restartIfCrashed(); err != nil {
			failure = errors.Join(failure, err)
		}
		// The remaining faults may have no call left to occur at.
		faultsOver := r.faults.allInjected() || r.manager.IdleFor() > idle || time.Since(ended) > enough
		return failure != nil || left == 0 && !r.manager.IsCrashed() && faultsOver
	})
	r.faults.end()
	if !over {
		return fmt.Errorf("the operations did not end within %s", 2*simulationTimeout)
	}
	return failure
}

// restartIfCrashed starts the next manager after a crash.
func (r *simulationRun) restartIfCrashed() error {
	if !r.manager.IsCrashed() || r.faults.isDown() {
		return nil
	}
	var err error
	r.manager, err = r.faults.restart()
	return err
}

// rotate performs the changes of the Secret.
func (r *simulationRun) rotate(ctx context.Context) error {
	for _, step := range r.rotation {
		select {
		case <-time.After(step.pause):
		case <-ctx.Done():
			return nil
		}
		r.record(fmt.Sprintf("%5d ms the content of the Secret becomes %q", time.Since(r.began).Milliseconds(), step.token))
		if step.token == "" {
			if err := r.env.Delete(ctx, &corev1.Secret{}, secretName); err != nil {
				return err
			}
			if err := r.env.Create(ctx, newSecret(r.token)); err != nil {
				return err
			}
			continue
		}
		r.token = step.token
		err := Edit(ctx, r.env, "rotator", secretName, &corev1.Secret{}, func(s *corev1.Secret) { s.Data["token"] = []byte(step.token) })
		if err != nil {
			return err
		}
	}
	return nil
}

// converge waits until the environment has no differences from the desired state.
func (r *simulationRun) converge(ctx context.Context) error {
	const recheckAfter = 20 * time.Second
	differences := []string{"the manager was never idle"}
	began, rechecked := time.Now(), false
	var failure error
	seen, compared := -1, time.Time{}
	if r.env.WaitUntil(simulationTimeout, func() bool {
		if failure = r.restartIfCrashed(); failure != nil {
			return true
		}
		if !r.env.reconciledBy(r.manager) || r.manager.IdleFor() < maxDeferral {
			return false
		}
		const again = 500 * time.Millisecond // the cloud changes without events
		if count := r.env.history.count(); count == seen && time.Since(compared) < again {
			return false
		}
		seen, compared = r.env.history.count(), time.Now()
		// The reference itself can be wrong, so it is determined a second time, once.
		recheck := !rechecked && time.Since(began) > recheckAfter
		rechecked = rechecked || recheck
		differences = r.differences(ctx, recheck)
		return len(differences) == 0
	}) {
		return failure
	}
	return fmt.Errorf("not converged after %s:\n  %s", simulationTimeout, strings.Join(differences, "\n  "))
}

// differences lists all differences from the undisturbed states of the desired specs.
func (r *simulationRun) differences(ctx context.Context, again bool) []string {
	var all []string
	desired, retained := map[ID]bool{}, []string{unmanagedAccount}
	for _, s := range r.subjects {
		retained = append(retained, s.retained...)
		if s.desired == nil {
			continue
		}
		desired[s.ID] = true
		want, err := r.references.of(ctx, *s.desired, r.token, again)
		if err != nil {
			return []string{err.Error()}
		}
		for _, difference := range r.env.stateOf(s.Kind, s.Name).Diff(want) {
			all = append(all, s.String()+": "+difference)
		}
		if live := r.env.Get(s.Kind, s.Name); live != nil {
			all = append(all, r.env.replicasOutOfBounds(live)...)
		}
		if account, there := r.env.Cloud.Account(r.env.Account(s.Name)); s.version != "" && there && !strings.HasSuffix(account.Key, s.version) {
			all = append(all, fmt.Sprintf("%s: the account is encrypted with %s, want version %s", s.ID, account.Key, s.version))
		}
	}
	return append(all, r.env.leftovers(desired, retained)...)
}

// FaultKinds returns the kinds of the injected faults, sorted.
func (o SimulationOutcome) FaultKinds() []string { return slices.Sorted(maps.Keys(o.Faults)) }
