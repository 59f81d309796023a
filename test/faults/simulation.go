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

// stamina is how long a simulation waits for what is bound to come: longer than a campaign, since a dozen
// of them are all that the machine can do.
const simulationTimeout = 4 * time.Minute

// Simulation is what a user and others do to objects of all three kinds at once, and what goes wrong
// meanwhile. All of it follows from the seed; at which moment of a manager's work it comes is up to the
// moment.
type Simulation struct {
	Seed     uint64
	subjects []*simulatedObject
	rotation []rotationStep
	faults   []scheduledFault
}

// rotationStep is something that happens to the Secret that MCPServers may read.
type rotationStep struct {
	pause time.Duration
	// token is its content; empty deletes it for a moment.
	token string
}

// NewSimulation draws one. Without faults it is a clean one.
func NewSimulation(seed uint64, faults bool) *Simulation {
	const (
		operationsStream, faultsStream = 1, 2
		fewest, more                   = 3, 6
	)
	random := rand.New(rand.NewPCG(seed, operationsStream)) //nolint:gosec // it has to be repeatable
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
		random = rand.New(rand.NewPCG(seed, faultsStream)) //nolint:gosec // it has to be repeatable
		for range fewest + random.IntN(more) {
			s.faults = append(s.faults, newScheduledFault(random))
		}
	}
	return s
}

// String is all that is planned.
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

// SimulationOutcome is what came of one.
type SimulationOutcome struct {
	Seed uint64
	// Failures say in words what is not as it would be undisturbed, or must never be.
	Failures []string
	// Log is what was done and what went wrong, in order, and Report the state of the world if something
	// failed.
	Log    []string
	Report string
	// Operations count what was done, Faults what went wrong, by its sort, and Calls what the managers
	// wrote.
	Operations, Calls int
	Faults            map[string]int
	// PastFinalizers is how many SecureStorages the API server deleted although they had a finalizer.
	PastFinalizers int
	// Managers is how many there were, but the last, which only looks.
	Managers int
	Took     time.Duration
}

// simulating is a simulation under way.
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

// Simulate runs a simulation in a world of its own, and holds its end against what the same wishes lead
// to when nothing disturbs them.
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
	for sort, times := range run.faults.injected {
		o.Faults[string(sort)] = times
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

// tell notes what happens.
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
	r.record(fmt.Sprintf("%5d ms nothing goes wrong any more", time.Since(r.began).Milliseconds()))
	if err := r.converge(ctx); err != nil {
		return err
	}
	if err := env.VerifyQuiet(); err != nil {
		return err
	}
	if differences := r.differences(ctx, false); len(differences) > 0 {
		return fmt.Errorf("it did not stay as it was: %s", strings.Join(differences, "\n  "))
	}
	return r.verifyUnmanaged()
}

// accountOfStranger is an account that is nobody's.
const unmanagedAccount = "strangersaccount"

// furnish makes what is there before: vaults, the Secret, and things of strangers that look as if they
// were ours.
func (r *simulationRun) createFixtures(ctx context.Context) error {
	env := r.env
	if err := errors.Join(seedVaults(env), env.Create(ctx, newSecret(r.token)), env.Cloud.SeedAccount(env.Demo.Subscription, env.Demo.Group, unmanagedAccount, nil)); err != nil {
		return err
	}
	r.unmanaged = map[ID]string{}
	for _, subject := range r.subjects {
		like := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "of-a-stranger-" + subject.Name, Labels: map[string]string{
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
			return fmt.Errorf("%s is a stranger's, and was changed or deleted", id)
		}
	}
	if account, there := r.env.Cloud.Account(unmanagedAccount); !there || len(account.Tags) > 0 {
		return errors.New("the account of a stranger was changed or deleted")
	}
	return nil
}

// act performs all operations, and tends the managers until those are over and the faults too.
func (r *simulationRun) act(ctx context.Context) error {
	const (
		lull   = 300 * time.Millisecond
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
		// What still was to go wrong may have no call left to go wrong at.
		calm := r.faults.allInjected() || r.manager.IdleFor() > lull || time.Since(ended) > enough
		return failure != nil || left == 0 && !r.manager.IsCrashed() && calm
	})
	r.faults.end()
	if !over {
		return fmt.Errorf("what the user and others do does not come to its end within %s", 2*simulationTimeout)
	}
	return failure
}

// tend starts a manager after a crash.
func (r *simulationRun) restartIfCrashed() error {
	if !r.manager.IsCrashed() || r.faults.isDown() {
		return nil
	}
	var err error
	r.manager, err = r.faults.restart()
	return err
}

// rotate is what happens to the Secret.
func (r *simulationRun) rotate(ctx context.Context) error {
	for _, step := range r.rotation {
		select {
		case <-time.After(step.pause):
		case <-ctx.Done():
			return nil
		}
		r.record(fmt.Sprintf("%5d ms the Secret becomes %q", time.Since(r.began).Milliseconds(), step.token))
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

// converge waits until all is as it is undisturbed.
func (r *simulationRun) converge(ctx context.Context) error {
	const doubtful = 20 * time.Second
	differences := []string{"the manager is never at rest"}
	began, doubted := time.Now(), false
	var failure error
	seen, looked := -1, time.Time{}
	if r.env.WaitUntil(simulationTimeout, func() bool {
		if failure = r.restartIfCrashed(); failure != nil {
			return true
		}
		if r.manager.IdleFor() < maxDeferral {
			return false
		}
		const again = 500 * time.Millisecond // the cloud changes without an event
		if count := r.env.history.count(); count == seen && time.Since(looked) < again {
			return false
		}
		seen, looked = r.env.history.count(), time.Now()
		// Should it be what it is held against that is wrong, that is found out anew, once.
		doubt := !doubted && time.Since(began) > doubtful
		doubted = doubted || doubt
		differences = r.differences(ctx, doubt)
		return len(differences) == 0
	}) {
		return failure
	}
	return fmt.Errorf("divergent after %s:\n  %s", simulationTimeout, strings.Join(differences, "\n  "))
}

// differences are those of everything from what it is undisturbed.
func (r *simulationRun) differences(ctx context.Context, again bool) []string {
	var all []string
	wished, retained := map[ID]bool{}, []string{unmanagedAccount}
	for _, s := range r.subjects {
		retained = append(retained, s.retained...)
		if s.desired == nil {
			continue
		}
		wished[s.ID] = true
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
			all = append(all, fmt.Sprintf("%s: its account is encrypted with %s, and version %s is pinned", s.ID, account.Key, s.version))
		}
	}
	return append(all, r.env.leftovers(wished, retained)...)
}

// Sorts of faults, in the order of the alphabet.
func (o SimulationOutcome) FaultKinds() []string { return slices.Sorted(maps.Keys(o.Faults)) }
