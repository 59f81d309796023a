package plan

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

var (
	seed    = flag.Uint64("plan.seed", 1, "`seed` of the random edits")
	edits   = flag.Int("plan.edits", 1000, "`number` of edits")
	onlyRun = flag.Int("plan.run", -1, "only the run of this `number`")
)

const (
	crdDirectory = "../../config/crd/bases"
	// badEvery is the number of edits per edit that the manager cannot carry out.
	badEvery = 10
	// editsPerRun is the number of edits of one object.
	editsPerRun = 10
	// readyRounds and otherRounds are for how many reconciles in a row nothing happens until an object that is Ready or
	// stalled, and any other, counts as converged.
	readyRounds, otherRounds = 2, 20
)

// statistics count what all runs have compared.
type statistics struct{ edits, plans, changes, fields, steps, unknown, estimated atomic.Int64 }

// TestPlansEqualWhatHappens edits objects, their children and the cloud at random. Until the engine has converged, the
// plan before each reconcile must name exactly what the reconcile does, field by field.
func TestPlansEqualWhatHappens(t *testing.T) {
	ctrl.SetLogger(logr.Discard()) // that of plans; the engines have one of the test
	kinds, err := specs.Read(crdDirectory)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var definitions []definition
	for _, kind := range kinds {
		d, err := newDefinition(kind)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		definitions = append(definitions, d)
	}
	counts, began, share, runs := &statistics{}, time.Now(), specs.ReadShare(t), 0
	t.Run("runs", func(t *testing.T) {
		for number := range (*edits + editsPerRun - 1) / editsPerRun {
			if !share.Has(number/len(definitions)) || *onlyRun >= 0 && *onlyRun != number {
				continue
			}
			runs++
			t.Run(fmt.Sprintf("%d", number), func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("replay with -plan.seed=%d -plan.run=%d", *seed, number)
					}
				})
				newRun(t, definitions[number%len(definitions)], uint64(number), counts).run() //nolint:gosec // not negative
			})
		}
	})
	if !t.Failed() {
		NewWithT(t).Expect(counts.edits.Load()).To(BeEquivalentTo(runs * editsPerRun))
	}
	t.Logf("seed %d: %d edits, %d plans equal to the reconcile after them: %d changes with %d fields, %d steps in the cloud; %d phases not known, %d changes without a dry run; %.1fs",
		*seed, counts.edits.Load(), counts.plans.Load(), counts.changes.Load(), counts.fields.Load(), counts.steps.Load(), counts.unknown.Load(), counts.estimated.Load(), time.Since(began).Seconds())
}

// run is the life of one object.
type run struct {
	*environment
	Gomega
	definition definition
	generator  *specs.Generator
	counts     *statistics
	object     client.Object
	// history is what happened, for messages.
	history []string
}

func newRun(t *testing.T, d definition, number uint64, counts *statistics) *run {
	t.Helper()
	random := rand.New(rand.NewPCG(*seed, number)) //nolint:gosec // it must be reproducible
	generator, err := specs.NewGenerator(d.Kind, random)
	if err != nil {
		t.Fatal(err)
	}
	w := newEnvironment(t, d.Name, random)
	r := &run{environment: w, definition: d, generator: generator, counts: counts}
	r.Gomega = NewWithT(reporter{t, r})
	object, err := w.scheme.New(v1beta1.SchemeGroupVersion.WithKind(d.Name))
	r.Expect(err).NotTo(HaveOccurred())
	r.object, _ = object.(client.Object)
	r.object.SetNamespace(namespace)
	r.object.SetName("web")
	return r
}

// reporter adds what happened to every failure.
type reporter struct {
	*testing.T
	run *run
}

// Fatalf implements what gomega needs of a test.
func (r reporter) Fatalf(format string, args ...any) {
	r.Helper()
	const most = 12
	history := r.run.history[max(0, len(r.run.history)-most):]
	r.T.Fatalf(format+"\n--- what happened\n%s", append(args, strings.Join(history, "\n"))...)
}

func (r *run) note(format string, args ...any) {
	r.history = append(r.history, fmt.Sprintf(format, args...))
}

func (r *run) run() {
	spec := r.create()
	r.converge()
	for range editsPerRun {
		if r.random.IntN(5) < 3 || !r.drift() {
			spec = r.editSpec(spec)
		}
		r.counts.edits.Add(1)
		r.converge()
	}
	r.note("delete")
	r.Expect(r.server.Delete(r.ctx, r.object)).To(Succeed())
	r.converge()
	r.Expect(r.read()).To(BeFalse(), "it is not deleted")
}

// create creates the object with a random spec.
func (r *run) create() map[string]any {
	spec := r.draw(nil, r.generator.First)
	r.note("create %v", spec)
	r.must(runtime.DefaultUnstructuredConverter.FromUnstructured(r.tree(spec), r.object))
	r.Expect(r.server.Create(r.ctx, r.object, client.FieldOwner("user"))).To(Succeed())
	return spec
}

// draw generates specs until the API server would accept one.
func (r *run) draw(before map[string]any, generate func() map[string]any) map[string]any {
	const attempts = 300
	var err error
	for range attempts {
		spec := generate()
		if r.definition.Name == "MCPServer" {
			spec["protocol"] = map[string]any{"disabled": true} // there are no servers, and plans make no handshakes
			delete(spec, "httpRoute")                           // the Gateway API is not served
		}
		if err = r.definition.accept(r.ctx, r.tree(spec), before); err == nil {
			return spec
		}
	}
	r.Expect(err).NotTo(HaveOccurred(), "no spec is valid")
	return nil
}

// tree is the object with a spec, with the defaults of the schema.
func (r *run) tree(spec map[string]any) map[string]any {
	object := map[string]any{
		"apiVersion": v1beta1.SchemeGroupVersion.String(), "kind": r.definition.Name,
		"metadata": map[string]any{"namespace": namespace, "name": "web"},
		"spec":     runtime.DeepCopyJSON(spec),
	}
	_ = r.definition.accept(r.ctx, object, nil) // it sets the defaults; draw asks for the result
	return object
}

// editSpec changes the spec as a user does.
func (r *run) editSpec(before map[string]any) map[string]any {
	old := r.tree(before)
	spec := r.draw(old, func() map[string]any {
		next := r.generator.Next(before)
		if r.random.IntN(badEvery) == 0 {
			next, _ = r.generator.Bad(next) // what the schema does not refuse, the manager reports
		}
		return next
	})
	r.note("edit %v", spec)
	r.Expect(r.read()).To(BeTrue())
	edited, err := r.scheme.New(v1beta1.SchemeGroupVersion.WithKind(r.definition.Name))
	r.Expect(err).NotTo(HaveOccurred())
	r.must(runtime.DefaultUnstructuredConverter.FromUnstructured(r.tree(spec), edited))
	switch live := r.object.(type) {
	case *v1beta1.AppService:
		live.Spec = edited.(*v1beta1.AppService).Spec //nolint:errcheck,forcetypeassert // of the same kind
	case *v1beta1.MCPServer:
		live.Spec = edited.(*v1beta1.MCPServer).Spec //nolint:errcheck,forcetypeassert // of the same kind
	case *v1beta1.SecureStorage:
		live.Spec = edited.(*v1beta1.SecureStorage).Spec //nolint:errcheck,forcetypeassert // of the same kind
	}
	r.Expect(r.server.Update(r.ctx, r.object, client.FieldOwner("user"))).To(Succeed())
	return spec
}

// read reads the object, and returns false if it does not exist.
func (r *run) read() bool {
	err := r.server.Get(r.ctx, client.ObjectKeyFromObject(r.object), r.object)
	r.Expect(client.IgnoreNotFound(err)).To(Succeed())
	return !apierrors.IsNotFound(err)
}

// converge reconciles until nothing happens any more, and compares each reconcile with the plan before it.
func (r *run) converge() {
	const most = 200
	quiet := 0
	for range most {
		if !r.read() {
			return
		}
		wrote, after := r.compareOnce()
		moved := r.settleChildren()
		if wrote || moved {
			quiet = 0
			continue
		}
		quiet++
		if quiet >= otherRounds || quiet >= readyRounds && r.isSettled() {
			return
		}
		r.clock.Step(min(max(after, time.Second), time.Hour)) // session keys change every week
	}
	r.Expect(most).To(BeZero(), "it does not converge")
}

// isSettled is true if the object is Ready, or if only a change can make it Ready.
func (r *run) isSettled() bool {
	conditions := conditionsOf(r.object)
	return meta.IsStatusConditionTrue(conditions, v1beta1.ConditionReady) || meta.IsStatusConditionTrue(conditions, v1beta1.ConditionStalled)
}

func conditionsOf(object client.Object) []metav1.Condition {
	switch live := object.(type) {
	case *v1beta1.AppService:
		return live.Status.Conditions
	case *v1beta1.MCPServer:
		return live.Status.Conditions
	case *v1beta1.SecureStorage:
		return live.Status.Conditions
	default:
		return nil
	}
}

// compareOnce plans, reconciles, and compares.
func (r *run) compareOnce() (wrote bool, after time.Duration) {
	planned, err := r.planner.Plan(r.ctx, copyOf(r.object))
	r.Expect(err).NotTo(HaveOccurred())
	r.counts.plans.Add(1)
	before, ledger := r.snapshot(), len(r.cloud.Ledger())
	r.done = nil
	r.server.Writes()
	result, err := r.reconcile(context.WithoutCancel(r.ctx), copyOf(r.object))
	r.note("reconcile: %v (error: %v, again after %s)", r.done, err, result.RequeueAfter)
	r.compare(planned, changesBetween(r, before, r.snapshot()), r.cloud.Ledger()[ledger:])
	for _, write := range r.server.Writes() {
		wrote = wrote || !strings.HasPrefix(write, "unchanged ")
	}
	if err != nil {
		return wrote, time.Second
	}
	return wrote, result.RequeueAfter
}

func copyOf(object client.Object) client.Object {
	copied, _ := object.DeepCopyObject().(client.Object)
	return copied
}

// isEnsured says whether the plan has a step that changes the cloud.
func isEnsured(steps []string) bool {
	return len(steps) > 0 && strings.HasPrefix(steps[0], string(phases.ActionEnsure))
}

// anyKey is a line about an access key of an account, or about a session key.
var anyKey = regexp.MustCompile(`\n[+~-] data\.(key[12]|\d{8}T\d{6}Z): [^\n]*`)

// withoutKeys removes the keys of accounts, which a plan does not read: it does not know that they were regenerated. It
// also removes session keys, which a plan does not create. It returns the updates of nothing else.
func withoutKeys(changes map[string]string) (updates []action) {
	for object, text := range changes {
		if strings.HasPrefix(object, "Secret/") {
			changes[object] = anyKey.ReplaceAllString(text, "")
		}
		if changes[object] == "change" {
			delete(changes, object)
			_, name, _ := strings.Cut(object, "/")
			updates = append(updates, action{string(ssa.ActionUpdate), name})
		}
	}
	return updates
}

// compare fails unless the plan is what happened.
func (r *run) compare(planned plugin.ObjectPlan, happened map[string]string, ledger []fakecloud.Entry) {
	r.t.Helper()
	changes, actions, plannedSteps := map[string]string{}, []action{}, []string{}
	for _, phase := range planned.Phases {
		if phase.Unknown != "" {
			r.counts.unknown.Add(1)
		}
		for _, change := range phase.Changes {
			_, name, _ := strings.Cut(change.Object, "/")
			switch change.Action {
			case phases.ActionEnsure, phases.ActionUndo:
				r.counts.steps.Add(1)
				plannedSteps = append(plannedSteps, string(change.Action)+" "+change.Object)
				continue
			case ssa.ActionCreate, ssa.ActionUpdate, ssa.ActionCorrect, ssa.ActionAdopt, ssa.ActionDelete, ssa.ActionReport, ssa.ActionNone:
			}
			if change.Estimated {
				r.counts.estimated.Add(1)
			}
			if _, isDone := happened[change.Object]; !isDone && isEnsured(plannedSteps) {
				continue // a child that follows a step which still waits
			}
			r.counts.changes.Add(1)
			r.counts.fields.Add(int64(len(change.Fields)))
			actions = append(actions, action{string(change.Action), name})
			if text := textOf(change.Action, change.Fields); text != "" {
				changes[change.Object] = text
			}
		}
	}
	updates := withoutKeys(happened)
	r.Expect(happened).To(Equal(changes), "the changes, and those of the plan:\n%s", describe(planned))
	done, steps := []action{}, []string{}
	for _, one := range r.done {
		if one.verb == string(phases.ActionEnsure) {
			steps = append(steps, one.verb+" "+one.object)
			continue
		}
		done = append(done, one)
	}
	r.Expect(done).To(ConsistOf(slices.Concat(actions, updates)), "the actions, and those of the plan:\n%s", describe(planned))
	writes := slices.DeleteFunc(slices.Clone(ledger), func(e fakecloud.Entry) bool {
		isListOfKeys := e.Method == "POST" && strings.HasSuffix(e.Resource, "/listKeys") // it changes nothing
		return e.Who != manager || e.Method == "GET" || e.Method == "HEAD" || isListOfKeys
	})
	if len(plannedSteps) == 0 {
		r.Expect(steps).To(BeEmpty(), "the plan has no step:\n%s", describe(planned))
		r.Expect(writes).To(BeEmpty(), "the plan has no step:\n%s", describe(planned))
		return
	}
	// The plan assumes that each step succeeds at once; the reconcile ends where it has to wait.
	if isEnsured(plannedSteps) {
		r.Expect(steps).NotTo(BeEmpty(), "the plan has the step %s", plannedSteps[0])
		r.Expect(len(steps)).To(BeNumerically("<=", len(plannedSteps)), "the steps %q, and those of the plan:\n%s", steps, describe(planned))
		r.Expect(steps).To(Equal(plannedSteps[:len(steps)]))
		return
	}
	r.Expect(plannedSteps).To(HaveLen(1))
	// Whether a step is undone already is not known, which the plan says.
	r.Expect(steps).To(BeEmpty())
	r.Expect(r.planner.Notes()).To(ContainElement(ContainSubstring("may be undone already")))
}

// textOf is a change with its fields, in an order of its own.
func textOf(verb ssa.Action, fields []plugin.FieldChange) string {
	lines := make([]string, 0, len(fields))
	for _, field := range fields {
		lines = append(lines, field.String())
	}
	slices.Sort(lines)
	switch {
	case verb == ssa.ActionCreate:
		return "create\n" + strings.Join(lines, "\n")
	case verb == ssa.ActionDelete:
		return "delete"
	case len(lines) == 0:
		return ""
	default:
		return "change\n" + strings.Join(lines, "\n")
	}
}

func describe(planned plugin.ObjectPlan) string {
	var b strings.Builder
	for _, phase := range planned.Phases {
		fmt.Fprintf(&b, "%s: %s %s %s\n", phase.Phase, phase.Verdict, phase.Message, phase.Unknown)
		for _, change := range phase.Changes {
			fmt.Fprintf(&b, "  %s %s %v %v\n", change.Action, change.Object, change.Drifts, change.Fields)
		}
	}
	return b.String()
}

// changesBetween are what differs between two snapshots, by object.
func changesBetween(r *run, before, after map[string]client.Object) map[string]string {
	changes := map[string]string{}
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for key := range keys {
		one, other := before[key], after[key]
		isGone := other == nil || one != nil && one.GetDeletionTimestamp() == nil && other.GetDeletionTimestamp() != nil
		verb := ssa.ActionUpdate
		switch {
		case one == nil:
			verb = ssa.ActionCreate
		case isGone:
			verb = ssa.ActionDelete
		case one.GetResourceVersion() == other.GetResourceVersion():
			continue
		}
		var fields []plugin.FieldChange
		if verb != ssa.ActionDelete {
			var err error
			fields, err = plugin.DiffFields(one, other)
			r.Expect(err).NotTo(HaveOccurred())
		}
		if text := textOf(verb, fields); text != "" {
			changes[key] = text
		}
	}
	return changes
}
