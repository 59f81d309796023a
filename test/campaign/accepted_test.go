package campaign

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// reconcileAccepted creates objects with specs that the API server accepted. Each must become Ready or have a condition
// that names the field, and must be deletable. It returns the number of invalid specs.
func (env *environment) reconcileAccepted(t *testing.T, kind specs.Kind, accepted []trial) int {
	t.Helper()
	g := NewWithT(t)
	d, err := newDryRun("")
	g.Expect(err).NotTo(HaveOccurred())
	random := newRandom(t, 100+uint64(len(kind.Name)))
	// Dry runs finish in any order.
	slices.SortFunc(accepted, func(a, b trial) int { return strings.Compare(a.String(), b.String()) })
	random.Shuffle(len(accepted), func(i, j int) { accepted[i], accepted[j] = accepted[j], accepted[i] })
	chosen := shareOf(t, accepted[:min(len(accepted), acceptedCount*scale(t))])
	namespace := "accepted-" + strings.ToLower(kind.Name)
	env.createNamespace(namespace)
	env.verifySeeds(t, kind, namespace)

	began := time.Now()
	c := &tally{counts: map[string]int{}}
	var next atomic.Int64
	var workers sync.WaitGroup
	const atATime = 16
	for range atATime {
		workers.Go(func() {
			for i := int(next.Add(1) - 1); i < len(chosen); i = int(next.Add(1) - 1) {
				o := object{d.client, env.cache, kind.Name, types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("accepted-%d", i)}}
				env.reconcileTrial(t.Context(), c, chosen[i], o)
			}
		})
	}
	workers.Wait()

	elapsed := time.Since(began)
	invalid := 0
	for what, count := range c.counts {
		if what != harmless {
			invalid += count
		}
	}
	t.Logf("%s: %d accepted specs reconciled in %.1fs (%.0f/s), %d of them invalid, %d failures",
		kind.Name, len(chosen), elapsed.Seconds(), float64(len(chosen))/elapsed.Seconds(), invalid, len(c.failures))
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		t.Logf("  %6d %s", c.counts[what], what)
	}
	for _, fault := range c.failures[:min(len(c.failures), maxFailures)] {
		t.Error(fault)
	}
	return invalid
}

// verifySeeds checks that every seed becomes Ready: an invalid seed would hide the effect of a mutation.
func (env *environment) verifySeeds(t *testing.T, kind specs.Kind, namespace string) {
	t.Helper()
	g := NewWithT(t)
	d, err := newDryRun("")
	g.Expect(err).NotTo(HaveOccurred())
	for _, seed := range kind.SeedNames() {
		o := object{d.client, env.cache, kind.Name, types.NamespacedName{Namespace: namespace, Name: "seed-" + seed}}
		tree := specs.Clone(kind.Seeds[seed])
		if o.kind == "SecureStorage" {
			adaptStorage(tree, specs.Path{"metadata"}, o)
		}
		spec, _ := tree["spec"].(map[string]any)
		g.Expect(converge(t.Context(), o, spec)).To(Succeed(), "seed %s", seed)
		g.Expect(o.remove(t.Context())).To(Succeed())
	}
}

// harmless counts specs that are unusual but valid.
const harmless = "Ready: harmless"

func (env *environment) reconcileTrial(ctx context.Context, c *tally, t trial, o object) {
	tree := t.tree()
	path := t.mutations[0].Path
	if o.kind == "SecureStorage" {
		adaptStorage(tree, path, o)
	}
	applied, err := o.apply(ctx, tree["spec"])
	if err != nil {
		c.fail("%s: creating the object: %v", t, err)
		return
	}
	live, err := o.waitSettled(ctx, applied.GetGeneration())
	if err != nil {
		c.fail("%s: %v", t, err)
	} else if ready := conditions(live)["Ready"]; ready.Status == metav1.ConditionTrue {
		c.count(harmless)
	} else {
		c.count(ready.Reason)
		if !conditionNames(live, t) {
			c.fail("%s: the message of %s does not name %s: %s", t, ready.Reason, path, ready.Message)
		}
	}
	if err := o.remove(ctx); err != nil {
		c.fail("%s: %v", t, err)
	}
}

// adaptStorage sets fields of a SecureStorage that depend on the object, unless the mutation concerns them.
func adaptStorage(tree map[string]any, path specs.Path, o object) {
	for _, field := range []struct {
		path  specs.Path
		value any
	}{
		{specs.Path{"spec", "accountName"}, strings.ReplaceAll(o.Name, "-", "")},
		{specs.Path{"spec", "key", "version"}, nil},
		{specs.Path{"spec", "provider", "workloadIdentity"}, nil},
		{specs.Path{"spec", "deletionPolicy"}, "Delete"},
	} {
		switch _, there := specs.Get(tree, field.path); {
		case !there || field.path.Covers(path) || path.Covers(field.path):
		case field.value == nil:
			specs.Remove(tree, field.path)
		default:
			specs.Set(tree, field.path, field.value)
		}
	}
}
