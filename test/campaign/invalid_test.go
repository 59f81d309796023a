package campaign

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
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

// atOnce is how many requests are under way at the door. The API server works for each.
const atOnce = 8

// trial is a spec that may be invalid, and what has to become of it.
type trial struct {
	kind specs.Kind
	seed string
	how  way
	// mutations of the seed: one, or a pair.
	mutations []specs.Mutation
}

func (t trial) String() string {
	var parts []string
	for _, m := range t.mutations {
		parts = append(parts, m.String())
	}
	return fmt.Sprintf("%s of %s %s with %s", t.how, t.kind.Name, t.seed, strings.Join(parts, " and "))
}

func (t trial) tree() map[string]any {
	tree := t.kind.Seeds[t.seed]
	for _, m := range t.mutations {
		tree = m.Apply(t.kind.Schema, tree)
	}
	return tree
}

// tally counts what became of trials.
type tally struct {
	mu sync.Mutex
	// counts by what was done, such as "of type string".
	counts map[string]int
	faults []string
	letIn  []trial
}

func (c *tally) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what]++
}

func (c *tally) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *tally) admit(t trial) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.letIn = append(c.letIn, t)
}

// singles lists a trial for each mutation of each place, in the first seed that has the place. All are
// created; some are also brought in another way, which chance says. Of what may stand for any text
// there is so much that chance chooses a share.
func singles(kind specs.Kind, times int, random *rand.Rand) []trial {
	var trials []trial
	tried := map[string]bool{}
	for _, present := range []bool{true, false} {
		for _, name := range kind.SeedNames() {
			for _, m := range specs.Mutations(kind.Schema, kind.Seeds[name]) {
				id := flat(m.String())
				if m.Present != present || tried[id] {
					continue
				}
				tried[id] = true
				if !chosen(m, times, random) {
					continue
				}
				trials = append(trials, trial{kind, name, byCreate, []specs.Mutation{m}})
				if other := []way{byUpdate, byApply, byCreate}[random.IntN(3)]; other != byCreate && m.Want == specs.Refused {
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

// chosen: CI takes one text of many, and places that a seed sets more often than others.
func chosen(m specs.Mutation, times int, random *rand.Rand) bool {
	if m.What != specs.SomeText && m.What != specs.SomeKey {
		return true
	}
	share := 12
	if m.Present {
		share = 3
	}
	return random.IntN(share) < times
}

// pairs draws two faults of one seed that do not touch each other: both have to be named.
func pairs(kind specs.Kind, count int, random *rand.Rand) []trial {
	faults := map[string][]specs.Mutation{}
	for name, tree := range kind.Seeds {
		faults[name] = slices.DeleteFunc(specs.Mutations(kind.Schema, tree), func(m specs.Mutation) bool { return m.Want != specs.Refused })
	}
	var trials []trial
	for len(trials) < count {
		name := kind.SeedNames()[random.IntN(len(kind.Seeds))]
		all := faults[name]
		one, other := all[random.IntN(len(all))], all[random.IntN(len(all))]
		if !one.Path.Covers(other.Path) && !other.Path.Covers(one.Path) {
			trials = append(trials, trial{kind, name, []way{byCreate, byUpdate}[random.IntN(2)], []specs.Mutation{one, other}})
		}
	}
	return trials
}

// judge tries one spec at the door.
func (c *tally) judge(ctx context.Context, d *door, t trial) {
	name := "campaign"
	if t.how == byUpdate {
		name = existing(t.seed)
	}
	object := build(t.kind.Name, name, t.tree())
	if t.how == byUpdate {
		object.SetResourceVersion(d.versions[name])
	}
	stored, err := d.try(ctx, t.how, t.kind.Name, object, metav1.FieldValidationStrict)
	want := t.mutations[0].Want
	if err == nil {
		if broken := isReadable(stored); broken != nil {
			c.fault("%s: the API server takes it, and no manager can read it: %v", t, broken)
			return
		}
	}
	switch {
	case err != nil && !isRefusal(err):
		c.fault("%s: the API server does not judge: %v", t, err)
	case err == nil && want == specs.Judged:
		c.count("let in: " + t.mutations[0].What)
		c.admit(t)
	case err == nil && want == specs.LikeAbsent:
		c.likeAbsent(ctx, d, t, stored.Object["spec"])
	case err == nil:
		c.fault("%s: the API server takes it", t)
	case want == specs.Judged || want == specs.LikeAbsent:
		c.count("refused: " + t.mutations[0].What)
		if !namesSome(err) {
			c.fault("%s: the message names no field: %v", t, err)
		}
	default:
		c.count("refused: " + t.mutations[0].What)
		for _, m := range t.mutations {
			if !names(err, m.Path) {
				c.fault("%s: the message does not name %s: %v", t, m.Path, err)
			}
		}
	}
	if want == specs.Pruned {
		c.pruned(ctx, d, t)
	}
}

// likeAbsent holds a null against the field left out.
func (c *tally) likeAbsent(ctx context.Context, d *door, t trial, got any) {
	tree := specs.Clone(t.kind.Seeds[t.seed])
	specs.Furnish(t.kind.Schema, tree, t.mutations[0].Path)
	specs.Remove(tree, t.mutations[0].Path)
	without, err := d.try(ctx, byCreate, t.kind.Name, build(t.kind.Name, "campaign", tree), metav1.FieldValidationStrict)
	if err != nil {
		c.fault("%s: it is taken, and without the field it is not: %v", t, err)
		return
	}
	c.count("as if left out: null")
	if !equality.Semantic.DeepEqual(got, without.Object["spec"]) {
		c.fault("%s: it is stored as\n%v\nand without the field as\n%v", t, got, without.Object["spec"])
	}
}

// pruned brings an unknown field in where clients do not ask for strictness.
func (c *tally) pruned(ctx context.Context, d *door, t trial) {
	stored, err := d.try(ctx, byCreate, t.kind.Name, build(t.kind.Name, "campaign", t.tree()), metav1.FieldValidationIgnore)
	if err != nil {
		// What was made to hold the field is not enough by itself.
		if !isRefusal(err) || !namesSome(err) {
			c.fault("%s without strictness: %v", t, err)
		}
		return
	}
	c.count("dropped: an unknown field")
	if _, there := specs.Get(stored.Object, t.mutations[0].Path); there {
		c.fault("%s: the API server stores it", t)
	}
}

// run tries all, several at once.
func (c *tally) run(ctx context.Context, d *door, trials []trial) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(trials); i = next.Add(1) - 1 {
				c.judge(ctx, d, trials[i])
			}
		})
	}
	workers.Wait()
}

// atTheDoor tries invalid specs on the API server, and returns those that it lets in.
func atTheDoor(t *testing.T, kind specs.Kind, pairCount int) ([]trial, map[string]int) {
	t.Helper()
	g := NewWithT(t)
	random := chance(t, uint64(len(kind.Name)))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "door-" + strings.ToLower(kind.Name)}}
	g.Expect(api.Create(t.Context(), namespace)).To(Succeed())
	d, err := newDoor(namespace.Name)
	g.Expect(err).NotTo(HaveOccurred())
	for name, tree := range kind.Seeds {
		stored, err := d.objects(kind.Name).Create(t.Context(), build(kind.Name, existing(name), specs.Clone(tree)), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		g.Expect(err).NotTo(HaveOccurred(), "the seed %s", name)
		d.versions[stored.GetName()] = stored.GetResourceVersion()
	}

	began := time.Now()
	c := &tally{counts: map[string]int{}}
	trials := append(singles(kind, scale(t), random), pairs(kind, pairCount, random)...)
	c.run(t.Context(), d, trials)

	elapsed := time.Since(began)
	for name := range kind.Seeds {
		g.Expect(d.objects(kind.Name).Delete(t.Context(), existing(name), metav1.DeleteOptions{})).To(Succeed())
	}
	t.Logf("%s: %d specs tried at the door in %.1fs (%.0f/s), %d let in, %d faults",
		kind.Name, len(trials), elapsed.Seconds(), float64(len(trials))/elapsed.Seconds(), len(c.letIn), len(c.faults))
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		t.Logf("  %6d %s", c.counts[what], what)
	}
	for _, fault := range c.faults[:min(len(c.faults), maxFaults)] {
		t.Error(fault)
	}
	if len(c.faults) > maxFaults {
		t.Errorf("and %d more faults", len(c.faults)-maxFaults)
	}
	return c.letIn, c.counts
}

// maxFaults is how many are shown: one mistake often shows in many places.
const maxFaults = 60

// Counts of CI. Most specs of the campaign follow from the schemas and have no count.
const (
	// wantInvalid is how many specs at least have to be refused, or shown in a condition.
	wantInvalid = 10000
	// wantLetIn is how many of those that the door lets in go to the manager, of each kind.
	wantLetIn = 120
)

// pairCounts are chosen by what a kind costs the API server.
var pairCounts = map[string]int{"AppService": 1500, "MCPServer": 500, "SecureStorage": 1500}

func TestInvalidSpecs(t *testing.T) {
	invalid := 0
	letIn := map[string][]trial{}
	for _, kind := range kinds {
		t.Run("door/"+kind.Name, func(t *testing.T) {
			admitted, counts := atTheDoor(t, kind, pairCounts[kind.Name]*scale(t))
			letIn[kind.Name] = admitted
			for what, count := range counts {
				if strings.HasPrefix(what, "refused: ") {
					invalid += count
				}
			}
		})
	}
	// Only now, because it would change what updates are tried on.
	w := newWorld(t)
	for _, kind := range kinds {
		t.Run("let in/"+kind.Name, func(t *testing.T) { invalid += w.liveWith(t, kind, letIn[kind.Name]) })
	}
	w.expectNoPanics()
	t.Logf("%d invalid specs refused or shown in a condition", invalid)
	if invalid < wantInvalid {
		t.Errorf("%d invalid specs: they have to be %d at least", invalid, wantInvalid)
	}
}
