// Package phasestest tests controllers that are built on package phases, without a cluster.
//
// An [Env] is an engine over an in-memory API server, [ssatest.Server], with the real applier:
//
//	env := phasestest.New(t, definition, phasestest.Options{Scheme: scheme})
//	env.Create(&v1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blog"}})
//	env.Settle("default/blog")
//	env.ExpectChanges("update Website blog", "create Deployment blog", "update Website blog/status")
//
// What other controllers and users do, a test does through [Env.Server], or in [Options.Between]: it
// makes a Deployment available, edits a Service, deletes a ConfigMap. [Env.Cache] is what the engine's
// cached reader shows; freeze it to test a watch that lags.
//
// [Env.StopAt] ends the process at any of its requests, and [SurvivesCrashes] does so at each request of a
// scenario in turn: whatever the instant, a fresh engine must reach the same state.
package phasestest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// TB is what an [Env] needs of a test: a *testing.T, or the T of a library for property tests.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// Options configure an [Env].
type Options struct {
	// Scheme knows the Go types of the object and of all children. Required.
	Scheme *runtime.Scheme
	// FieldManager of the applier, as in [ssa.Options]. Default: the definition's Controller.
	FieldManager string
	// TypeConverters are those of [ssa.Options], for the applier and the server. [ssatest.CustomKinds] is always added, so
	// a test does not find a converter that is missing in the operator, which [ssa.ReportDrift] needs.
	TypeConverters []func(*runtime.Scheme) managedfields.TypeConverter
	// GarbageCollection is that of [ssatest.Options]: it completes deletions in the foreground.
	GarbageCollection bool
	// Between is called after each reconcile of [Env.Settle], to do what other controllers would: it may use
	// the server, and advance the clock. Optional.
	Between func()
	// Intercept is that of [ssatest.Options]: an error before a request fails it, and one after it loses the
	// answer. Optional.
	Intercept func(call ssatest.Call) error
}

// ErrStopped is the error of a reconcile that [Env.StopAt] has ended.
var ErrStopped = errors.New("the process was stopped")

// Env is an engine over an API server in memory. It is for one goroutine.
type Env[O client.Object, S any] struct {
	// Server is the API server. It is a client.Client for what users and other controllers do.
	Server *ssatest.Server
	// Cache is what the engine's cached reader shows. It follows the server unless it is frozen.
	Cache *ssatest.Cache
	// Clock is that of the engine and of the server. It stands still until it is set.
	Clock *clocktesting.FakePassiveClock

	t          TB
	definition phases.Definition[O, S]
	options    Options
	engine     *phases.Engine[O, S]
	events     recorder
	// reconciling is true while the requests are those of the engine, which requests counts.
	reconciling bool
	requests    int
	// stopAt is the request at which the engine is stopped; zero is none.
	stopAt   int
	stopDone bool
	// seen are the objects that were asked for.
	seen map[identity]bool
	// written are the engine's writes.
	written []string
}

type identity struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
}

// New builds an engine over an empty server. It fails the test if the definition is wrong.
func New[O client.Object, S any](t TB, definition phases.Definition[O, S], options Options) *Env[O, S] {
	t.Helper()
	if options.FieldManager == "" {
		options.FieldManager = definition.Controller
	}
	e := &Env[O, S]{t: t, definition: definition, options: options, seen: map[identity]bool{}}
	e.Clock = clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
	e.Server = ssatest.NewServer(options.Scheme, ssatest.Options{
		TypeConverters: options.TypeConverters, Clock: e.Clock, GarbageCollection: options.GarbageCollection, Intercept: e.intercept,
	})
	e.Cache = e.Server.Cache()
	e.Restart()
	if err := e.engine.Index(e.Server); err != nil {
		t.Fatal(err)
	}
	return e
}

// Restart replaces the engine and its applier by fresh ones, as a restart of the manager does.
func (e *Env[O, S]) Restart() {
	e.t.Helper()
	applier, err := ssa.New(ssa.Options{Client: e.Server, FieldManager: e.options.FieldManager, TypeConverters: append(slices.Clip(e.options.TypeConverters), ssatest.CustomKinds)})
	if err != nil {
		e.t.Fatal(err)
	}
	e.engine, err = phases.New(e.definition, phases.Dependencies{
		Reader: e.Cache, Uncached: e.Server, Applier: applier, Planner: applier.DryRun(),
		Scheme: e.options.Scheme, Recorder: &e.events, Clock: e.Clock,
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// intercept counts the engine's requests, and stops it at one.
func (e *Env[O, S]) intercept(call ssatest.Call) error {
	if call.Key.Name != "" {
		e.seen[identity{call.Kind, call.Key}] = true
	}
	if e.reconciling {
		if !call.Done {
			e.requests++
		}
		if e.requests == e.stopAt && call.Done == e.stopDone {
			e.stopAt = 0
			panic(ErrStopped)
		}
	}
	if e.options.Intercept == nil {
		return nil
	}
	return e.options.Intercept(call)
}

// Create creates an object, as a user does.
func (e *Env[O, S]) Create(object client.Object) {
	e.t.Helper()
	if err := e.Server.Create(context.Background(), object); err != nil {
		e.t.Fatal(err)
	}
}

// Edit reads the object, changes it and writes it back, as a user does. It is for the engine's own kind and
// for children; an edit of a status must be made with the server's Status().
func (e *Env[O, S]) Edit(object client.Object, edit func()) {
	e.t.Helper()
	ctx := context.Background()
	err := e.Server.Get(ctx, client.ObjectKeyFromObject(object), object)
	if err == nil {
		edit()
		err = e.Server.Update(ctx, object, client.FieldOwner("user"))
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// Delete deletes an object, as a user does.
func (e *Env[O, S]) Delete(object client.Object, options ...client.DeleteOption) {
	e.t.Helper()
	if err := e.Server.Delete(context.Background(), object, options...); err != nil {
		e.t.Fatal(err)
	}
}

// Exists says whether an object exists, and reads it.
func (e *Env[O, S]) Exists(object client.Object) bool {
	e.t.Helper()
	err := e.Server.Get(context.Background(), client.ObjectKeyFromObject(object), object)
	if client.IgnoreNotFound(err) != nil {
		e.t.Fatal(err)
	}
	return err == nil
}

// StopAt stops the process at the given request of the engine, counted from one: before the request is
// carried out, or after it was, with the answer lost. The reconcile then fails with [ErrStopped], and a
// fresh engine goes on.
func (e *Env[O, S]) StopAt(request int, carriedOut bool) {
	e.requests, e.stopAt, e.stopDone = 0, request, carriedOut
}

// Requests is how many requests the engine has sent, reads from the cache included.
func (e *Env[O, S]) Requests() int { return e.requests }

// Reconcile reconciles an object once. The key is "namespace/name", or the name of a cluster-scoped object.
func (e *Env[O, S]) Reconcile(key string) (result reconcile.Result, err error) {
	e.t.Helper()
	e.Server.Writes() // those of the test
	defer func() {
		e.reconciling = false
		e.written = append(e.written, e.Server.Writes()...)
		switch stopped := recover(); stopped {
		case nil:
		case ErrStopped:
			e.Restart()
			result, err = reconcile.Result{}, ErrStopped
		default:
			panic(stopped)
		}
	}()
	e.reconciling = true
	return e.engine.Reconcile(context.Background(), requestFor(key))
}

func requestFor(key string) reconcile.Request {
	namespace, name, isNamespaced := strings.Cut(key, "/")
	if !isNamespaced {
		namespace, name = "", key
	}
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// Settle reconciles an object, with [Options.Between] after each time, until neither changes anything and
// the reconcile does not fail. It returns the result of the last one, and fails the test if it never comes
// to that.
func (e *Env[O, S]) Settle(key string) reconcile.Result {
	e.t.Helper()
	const reconciles = 100
	for range reconciles {
		before := len(e.Changes())
		result, err := e.Reconcile(key)
		if e.options.Between != nil {
			e.options.Between()
		}
		if err == nil && len(e.Changes()) == before && len(changes(e.Server.Writes())) == 0 {
			return result
		}
	}
	e.t.Fatalf("no fixed point in %d reconciles; changes: %v\n%s", reconciles, e.Changes(), e.State())
	return reconcile.Result{}
}

// Changes are the engine's writes since [Env.Forget] that have changed something, such as
// "create Deployment web", "update Website web/status" or "delete ConfigMap web".
func (e *Env[O, S]) Changes() []string { return changes(e.written) }

func changes(writes []string) []string {
	return slices.DeleteFunc(slices.Clone(writes), func(write string) bool { return strings.HasPrefix(write, "unchanged ") })
}

// Forget forgets the writes and Events so far.
func (e *Env[O, S]) Forget() { e.written, e.events.events = nil, nil }

// Events are the Events since [Env.Forget], such as "Warning Drifted (Drifted): ...".
func (e *Env[O, S]) Events() []string { return e.events.events }

// ExpectChanges fails the test unless the changes since [Env.Forget] are these, and forgets them.
func (e *Env[O, S]) ExpectChanges(want ...string) {
	e.t.Helper()
	if got := e.Changes(); !slices.Equal(got, want) {
		e.t.Errorf("the engine wrote\n%q\nand not\n%q", got, want)
	}
	e.Forget()
}

// ExpectQuiet fails the test if a reconcile sends any write, by the present engine or by a fresh one.
func (e *Env[O, S]) ExpectQuiet(key string) {
	e.t.Helper()
	for range 2 {
		before := len(e.written)
		if _, err := e.Reconcile(key); err != nil {
			e.t.Errorf("at the fixed point, the reconcile fails: %v", err)
		}
		if sent := e.written[before:]; len(sent) > 0 {
			e.t.Errorf("at the fixed point, the engine sends %q", sent)
		}
		e.Restart()
	}
}

// Plan is what the engine would do with an object.
func (e *Env[O, S]) Plan(object O) phases.Plan {
	e.t.Helper()
	plan, err := e.engine.Plan(context.Background(), object)
	if err != nil {
		e.t.Fatal(err)
	}
	return plan
}

// State is all that exists, without what depends on when and how often it was written. Two runs that end
// in the same state are equal in it.
func (e *Env[O, S]) State() string {
	e.t.Helper()
	var lines []string
	for seen := range maps.Clone(e.seen) {
		created, err := e.options.Scheme.New(seen.kind)
		if err != nil {
			e.t.Fatal(err)
		}
		object, ok := created.(client.Object)
		if !ok {
			continue
		}
		object.SetNamespace(seen.key.Namespace)
		object.SetName(seen.key.Name)
		if !e.Exists(object) {
			continue
		}
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			e.t.Fatal(err)
		}
		document, err := json.MarshalIndent(timeless(tree), "", "  ")
		if err != nil {
			e.t.Fatal(err)
		}
		lines = append(lines, seen.kind.Kind+" "+string(document))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// timeless removes what tells when an object was written, and by how many requests.
func timeless(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "lastTransitionTime"} {
			delete(value, key)
		}
		for key := range value {
			value[key] = timeless(value[key])
		}
	case []any:
		for i := range value {
			value[i] = timeless(value[i])
		}
	}
	return value
}

// SurvivesCrashes plays a scenario once for each request that its engine sends, stops it there, before the
// request is carried out and after, and fails unless all end in the state in which the scenario ends that
// is not disturbed. The scenario must reconcile by [Env.Settle], or expect [ErrStopped].
func SurvivesCrashes[O client.Object, S any](t *testing.T, newEnv func(t *testing.T) *Env[O, S], scenario func(t *testing.T, env *Env[O, S])) {
	t.Helper()
	undisturbed := newEnv(t)
	scenario(t, undisturbed)
	want := undisturbed.State()
	for request := range undisturbed.Requests() {
		for _, carriedOut := range []bool{false, true} {
			t.Run(fmt.Sprintf("stopped at request %d, carried out %t", request+1, carriedOut), func(t *testing.T) {
				env := newEnv(t)
				env.StopAt(request+1, carriedOut)
				scenario(t, env)
				if got := env.State(); got != want {
					t.Errorf("it ends in\n%s\nand undisturbed in\n%s", got, want)
				}
			})
		}
	}
}

// recorder keeps Events as text.
type recorder struct{ events []string }

// Eventf implements events.EventRecorder.
func (r *recorder) Eventf(_, _ runtime.Object, eventType, reason, action, note string, args ...any) {
	r.events = append(r.events, fmt.Sprintf("%s %s (%s): %s", eventType, reason, action, fmt.Sprintf(note, args...)))
}
