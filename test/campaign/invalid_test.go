package campaign

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// parallelRequests is the number of concurrent dry runs.
const parallelRequests = 8

// trial is a possibly invalid spec and how it is sent.
type trial struct {
	kind   specs.Kind
	seed   string
	method method
	// mutations of the seed: one or two.
	mutations []specs.Mutation
}

func (t trial) String() string {
	var parts []string
	for _, m := range t.mutations {
		parts = append(parts, m.String())
	}
	return fmt.Sprintf("%s of %s %s with %s", t.method, t.kind.Name, t.seed, strings.Join(parts, " and "))
}

func (t trial) tree() map[string]any {
	tree := t.kind.Seeds[t.seed]
	for _, m := range t.mutations {
		tree = m.Apply(t.kind.Schema, tree)
	}
	return tree
}

// tally counts the results of trials.
type tally struct {
	mu sync.Mutex
	// counts holds the number of trials by result and mutation.
	counts   map[string]int
	failures []string
	accepted []trial
}

func (c *tally) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what]++
}

func (c *tally) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, fmt.Sprintf(format, args...))
}

func (c *tally) accept(t trial) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepted = append(c.accepted, t)
}

// singleTrials returns a trial for each mutation of each location, in the first seed that sets it. All are created, and
// a random part is also sent by update or apply. Of mutations with arbitrary text, only a share is taken.
func singleTrials(kind specs.Kind, times int, random *rand.Rand) []trial {
	var trials []trial
	tried := map[string]bool{}
	for _, present := range []bool{true, false} {
		for _, name := range kind.SeedNames() {
			for _, m := range specs.Mutations(kind.Schema, kind.Seeds[name]) {
				id := withoutBrackets(m.String())
				if m.Present != present || tried[id] {
					continue
				}
				tried[id] = true
				if !isSampled(m, times, random) {
					continue
				}
				trials = append(trials, trial{kind, name, byCreate, []specs.Mutation{m}})
				if other := []method{byUpdate, byApply, byCreate}[random.IntN(3)]; other != byCreate && m.Want == specs.Refused {
					trials = append(trials, trial{kind, name, other, []specs.Mutation{m}})
				}
			}
		}
	}
	for _, name := range kind.SeedNames() {
		for _, m := range specs.Changes(kind.Schema, kind.Seeds[name]) {
			trials = append(trials, trial{kind, name, byUpdate, []specs.Mutation{m}})
		}
	}
	return trials
}

var brackets = regexp.MustCompile(`\[[^\[\]]*\]`)

// withoutBrackets removes list indices, so that mutations of different items are equal.
func withoutBrackets(text string) string {
	for brackets.MatchString(text) {
		text = brackets.ReplaceAllString(text, "")
	}
	return text
}

// isSampled selects a share of the mutations with arbitrary text, and a larger one of locations that a seed sets.
func isSampled(m specs.Mutation, times int, random *rand.Rand) bool {
	if m.What != specs.SomeText && m.What != specs.SomeKey {
		return true
	}
	share := 12
	if m.Present {
		share = 3
	}
	return random.IntN(share) < times
}

// pairedTrials draws pairs of independent mutations of one seed. The refusal must name both fields.
func pairedTrials(kind specs.Kind, count int, random *rand.Rand) []trial {
	invalid := map[string][]specs.Mutation{}
	for name, tree := range kind.Seeds {
		invalid[name] = slices.DeleteFunc(specs.Mutations(kind.Schema, tree), func(m specs.Mutation) bool { return m.Want != specs.Refused })
	}
	var trials []trial
	for len(trials) < count {
		name := kind.SeedNames()[random.IntN(len(kind.Seeds))]
		all := invalid[name]
		one, other := all[random.IntN(len(all))], all[random.IntN(len(all))]
		if !one.Path.Covers(other.Path) && !other.Path.Covers(one.Path) {
			trials = append(trials, trial{kind, name, []method{byCreate, byUpdate}[random.IntN(2)], []specs.Mutation{one, other}})
		}
	}
	return trials
}

// shareOf returns the trials that this run takes.
func shareOf(t *testing.T, trials []trial) []trial {
	t.Helper()
	share := specs.ReadShare(t)
	var own []trial
	for i, tr := range trials {
		if share.Has(i) {
			own = append(own, tr)
		}
	}
	return own
}

// runTrial sends one trial as a dry run.
func (c *tally) runTrial(ctx context.Context, d *dryRun, t trial) {
	name := "campaign"
	if t.method == byUpdate {
		name = storedName(t.seed)
	}
	object := build(t.kind.Name, name, t.tree())
	if t.method == byUpdate {
		object.SetResourceVersion(d.versions[name])
	}
	stored, err := d.send(ctx, t.method, t.kind.Name, object, metav1.FieldValidationStrict)
	want := t.mutations[0].Want
	if err == nil {
		if broken := checkDecodable(stored); broken != nil {
			c.fail("%s: the API server accepts an object that the manager cannot decode: %v", t, broken)
			return
		}
	}
	switch {
	case err != nil && !isRefusal(err):
		c.fail("%s: the API server fails without a refusal: %v", t, err)
	case err == nil && want == specs.Undetermined:
		c.count("accepted: " + t.mutations[0].What)
		c.accept(t)
	case err == nil && want == specs.LikeAbsent:
		c.verifyLikeAbsent(ctx, d, t, stored.Object["spec"])
	case err == nil:
		c.fail("%s: the API server accepts it", t)
	case want == specs.Undetermined || want == specs.LikeAbsent:
		c.count("refused: " + t.mutations[0].What)
		if !t.refusalRelates(err) {
			c.fail("%s: the message does not concern the field: %v", t, err)
		}
	default:
		c.count("refused: " + t.mutations[0].What)
		for _, m := range t.mutations {
			if !refusalNames(err, t, m) {
				c.fail("%s: the message does not name %s: %v", t, m.Path, err)
			}
		}
	}
	if want == specs.Pruned {
		c.verifyPruned(ctx, d, t)
	}
}

// verifyLikeAbsent checks that null has the same effect as an absent field.
func (c *tally) verifyLikeAbsent(ctx context.Context, d *dryRun, t trial, got any) {
	tree := specs.Clone(t.kind.Seeds[t.seed])
	specs.CreateParents(t.kind.Schema, tree, t.mutations[0].Path)
	specs.Remove(tree, t.mutations[0].Path)
	without, err := d.send(ctx, byCreate, t.kind.Name, build(t.kind.Name, "campaign", tree), metav1.FieldValidationStrict)
	if err != nil {
		c.fail("%s: accepted, but refused without the field: %v", t, err)
		return
	}
	c.count("same as absent: null")
	if !equality.Semantic.DeepEqual(got, without.Object["spec"]) {
		c.fail("%s: stored as\n%v\nbut without the field as\n%v", t, got, without.Object["spec"])
	}
}

// verifyPruned checks that an unknown field is dropped without strict field validation.
func (c *tally) verifyPruned(ctx context.Context, d *dryRun, t trial) {
	stored, err := d.send(ctx, byCreate, t.kind.Name, build(t.kind.Name, "campaign", t.tree()), metav1.FieldValidationIgnore)
	if err != nil {
		// The parents that were created for the field can be incomplete.
		if !isRefusal(err) || !t.refusalRelates(err) {
			c.fail("%s without strict validation: %v", t, err)
		}
		return
	}
	c.count("dropped: an unknown field")
	if _, there := specs.Get(stored.Object, t.mutations[0].Path); there {
		c.fail("%s: the API server stores it", t)
	}
}

// forEach runs trials concurrently.
func forEach(trials []trial, run func(t trial)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range parallelRequests {
		workers.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(trials); i = next.Add(1) - 1 {
				run(trials[i])
			}
		})
	}
	workers.Wait()
}

// dryRunTrials sends invalid specs to the API server and returns those that it accepts.
func dryRunTrials(t *testing.T, kind specs.Kind, pairCount int) ([]trial, map[string]int) {
	t.Helper()
	g := NewWithT(t)
	random := newRandom(t, uint64(len(kind.Name)))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "refused-" + strings.ToLower(kind.Name)}}
	g.Expect(api.Create(t.Context(), namespace)).To(Succeed())
	d, err := newDryRun(namespace.Name)
	g.Expect(err).NotTo(HaveOccurred())
	for name, tree := range kind.Seeds {
		stored, err := d.objects(kind.Name).Create(t.Context(), build(kind.Name, storedName(name), specs.Clone(tree)), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		g.Expect(err).NotTo(HaveOccurred(), "seed %s", name)
		d.versions[stored.GetName()] = stored.GetResourceVersion()
	}

	began := time.Now()
	c := &tally{counts: map[string]int{}}
	trials := append(singleTrials(kind, scale(t), random), pairedTrials(kind, pairCount, random)...)
	forEach(trials, func(tr trial) { c.runTrial(t.Context(), d, tr) })

	elapsed := time.Since(began)
	for name := range kind.Seeds {
		g.Expect(d.objects(kind.Name).Delete(t.Context(), storedName(name), metav1.DeleteOptions{})).To(Succeed())
	}
	t.Logf("%s: %d dry runs in %.1fs (%.0f/s), %d accepted, %d failures",
		kind.Name, len(trials), elapsed.Seconds(), float64(len(trials))/elapsed.Seconds(), len(c.accepted), len(c.failures))
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		t.Logf("  %6d %s", c.counts[what], what)
	}
	for _, fault := range c.failures[:min(len(c.failures), maxFailures)] {
		t.Error(fault)
	}
	if len(c.failures) > maxFailures {
		t.Errorf("and %d more failures", len(c.failures)-maxFailures)
	}
	return c.accepted, c.counts
}

// maxFailures limits the reported failures: one mistake often affects many locations.
const maxFailures = 60

// The number of trials follows from the schemas. These are its bounds.
const (
	// minInvalid is the minimum number of specs that are refused or reported in a condition.
	minInvalid = 10000
	// acceptedCount is the number of accepted specs of each kind that are reconciled.
	acceptedCount = 120
)

// pairCounts depend on the validation cost of each kind.
var pairCounts = map[string]int{"AppService": 1500, "MCPServer": 500, "SecureStorage": 1500}

func TestInvalidSpecs(t *testing.T) {
	invalid := 0
	accepted := map[string][]trial{}
	for _, kind := range kinds {
		t.Run("refused/"+kind.Name, func(t *testing.T) {
			admitted, counts := dryRunTrials(t, kind, pairCounts[kind.Name]*scale(t))
			accepted[kind.Name] = admitted
			for what, count := range counts {
				if strings.HasPrefix(what, "refused: ") {
					invalid += count
				}
			}
		})
	}
	// This would change the stored objects that dry runs update.
	env := newEnvironment(t)
	for _, kind := range kinds {
		t.Run("accepted/"+kind.Name, func(t *testing.T) { invalid += env.reconcileAccepted(t, kind, accepted[kind.Name]) })
	}
	env.expectNoPanics()
	t.Logf("%d invalid specs refused or reported in a condition", invalid)
	if invalid < minInvalid {
		t.Errorf("%d invalid specs, want at least %d", invalid, minInvalid)
	}
}
