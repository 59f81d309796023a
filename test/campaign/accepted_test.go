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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// liveWith brings specs that the door let in before the manager, for real: each has to end ready, or
// in a condition that says what is wrong with it, and has to go when it is deleted. It returns how
// many were invalid.
func (w *world) liveWith(t *testing.T, kind specs.Kind, letIn []trial) int {
	t.Helper()
	g := NewWithT(t)
	d, err := newDoor("")
	g.Expect(err).NotTo(HaveOccurred())
	random := chance(t, 100+uint64(len(kind.Name)))
	// The requests of the door come in any order.
	slices.SortFunc(letIn, func(a, b trial) int { return strings.Compare(a.String(), b.String()) })
	random.Shuffle(len(letIn), func(i, j int) { letIn[i], letIn[j] = letIn[j], letIn[i] })
	chosen := letIn[:min(len(letIn), wantLetIn*scale(t))]
	namespace := "letin-" + strings.ToLower(kind.Name)
	w.namespace(namespace)
	w.seedsBecomeReady(t, kind, namespace)

	began := time.Now()
	c := &tally{counts: map[string]int{}}
	var next atomic.Int64
	var workers sync.WaitGroup
	const atATime = 16
	for range atATime {
		workers.Go(func() {
			for i := int(next.Add(1) - 1); i < len(chosen); i = int(next.Add(1) - 1) {
				o := object{d.client, w.seen, kind.Name, types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("letin-%d", i)}}
				w.judge(t.Context(), c, chosen[i], o)
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
	t.Logf("%s: %d specs that were let in brought before the manager in %.1fs (%.0f/s), %d of them invalid, %d faults",
		kind.Name, len(chosen), elapsed.Seconds(), float64(len(chosen))/elapsed.Seconds(), invalid, len(c.faults))
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		t.Logf("  %6d %s", c.counts[what], what)
	}
	for _, fault := range c.faults[:min(len(c.faults), maxFaults)] {
		t.Error(fault)
	}
	return invalid
}

// seedsBecomeReady: what is wrong with a seed would hide what is wrong with a mutation of it.
func (w *world) seedsBecomeReady(t *testing.T, kind specs.Kind, namespace string) {
	t.Helper()
	g := NewWithT(t)
	d, err := newDoor("")
	g.Expect(err).NotTo(HaveOccurred())
	for _, seed := range kind.SeedNames() {
		o := object{d.client, w.seen, kind.Name, types.NamespacedName{Namespace: namespace, Name: "seed-" + seed}}
		tree := specs.Clone(kind.Seeds[seed])
		if o.kind == "SecureStorage" {
			besides(tree, specs.Path{"metadata"}, o)
		}
		spec, _ := tree["spec"].(map[string]any)
		g.Expect(converge(t.Context(), o, spec)).To(Succeed(), "the seed %s", seed)
		g.Expect(o.remove(t.Context())).To(Succeed())
	}
}

// harmless is what the manager makes of a spec that is unusual and not wrong.
const harmless = "Ready: harmless"

func (w *world) judge(ctx context.Context, c *tally, t trial, o object) {
	tree := t.tree()
	path := t.mutations[0].Path
	if o.kind == "SecureStorage" {
		besides(tree, path, o)
	}
	put, err := o.put(ctx, tree["spec"])
	if err != nil {
		c.fault("%s: putting it: %v", t, err)
		return
	}
	live, err := o.settles(ctx, put.GetGeneration())
	if err != nil {
		c.fault("%s: %v", t, err)
	} else if ready := conditions(live)["Ready"]; ready.Status == metav1.ConditionTrue {
		c.count(harmless)
	} else {
		c.count(ready.Reason)
		if !tells(live, path) {
			c.fault("%s: %s does not tell of %s: %s", t, ready.Reason, path, ready.Message)
		}
	}
	if err := o.remove(ctx); err != nil {
		c.fault("%s: %v", t, err)
	}
}

// besides mends what a seed of a SecureStorage cannot know, unless that is what is tried.
func besides(tree map[string]any, path specs.Path, o object) {
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

// elsewhere are the names that fields have in what is made of them.
var elsewhere = map[string][]string{
	"replicas":   {"replicas"},
	"image":      {"image"},
	"envFrom":    {"env"},
	"secretRef":  {"Secret"},
	"configMap":  {"ConfigMap"},
	"caRef":      {"ConfigMap", "Secret"},
	"parentRefs": {"Gateway"},

	"configMapKeyRef": {"ConfigMap"},
	"secretKeyRef":    {"Secret"},
}

// tells says whether the condition that gates names the field: by its path, or that of the field that
// was made of it, which has the same name at its end.
func tells(live *unstructured.Unstructured, path specs.Path) bool {
	ready := conditions(live)["Ready"]
	for i := len(path) - 1; i > 0; i-- {
		name, isName := path[i].(string)
		if !isName {
			continue
		}
		for _, word := range append(elsewhere[name], name) {
			if strings.Contains(strings.ToLower(ready.Message), strings.ToLower(word)) {
				return true
			}
		}
	}
	return false
}
