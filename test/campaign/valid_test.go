package campaign

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// Counts of CI: how many chains there are of each kind, and how many specs follow one another in one.
var chainCounts = map[string]struct{ chains, length int }{
	"AppService":    {20, 12},
	"MCPServer":     {20, 12},
	"SecureStorage": {10, 6},
}

// wantTransitions is how many changes of a spec at least have to lead to the right state.
const wantTransitions = 1000

// chainsAtATime is how many are under way. More would only wait for each other.
const chainsAtATime = 16

// rollbackEvery is after how many specs of a chain a bad one is tried and taken back.
const rollbackEvery = 2

// results count what chains have come to.
type results struct {
	transitions, differentials, rollbacks, refused, redrawn atomic.Int64
}

// TestValidSpecs lets objects go from spec to spec, and holds the state after each against that of a
// new object with the same spec: so every state is a function of the spec alone. Now and then a bad
// spec comes between, and when it is taken back the state has to be what it was. In the end a manager
// that knows nothing finds nothing to do.
func TestValidSpecs(t *testing.T) {
	w := newWorld(t)
	g := NewWithT(t)
	_, err := w.cloud.SeedKey("fixpoint-demo", "other", fakecloud.KeySpec{})
	g.Expect(err).NotTo(HaveOccurred())
	r, began := &results{}, time.Now()
	t.Logf("seed %d: -campaign.seed=%[1]d runs the same again", *seed)
	var chains sync.WaitGroup
	var mu sync.Mutex
	places := make(chan struct{}, chainsAtATime)
	var ended []object
	for k, kind := range kinds {
		for i := range chainCounts[kind.Name].chains * scale(t) {
			chains.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				c, err := w.newChain(t, kind, r, i, uint64(1000*(k+1)+i)) //nolint:gosec // small numbers
				if err == nil {
					err = c.run(t.Context(), chainCounts[kind.Name].length)
				}
				if err != nil {
					t.Errorf("chain %d of %s: %v", i, kind.Name, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, c.object)
			})
		}
	}
	chains.Wait()
	elapsed := time.Since(began)
	t.Logf("%d transitions (%d of them rolled back, %d refused at the door), %d held against a new object, in %.1fs (%.1f transitions/s); %d specs drawn again",
		r.transitions.Load(), r.rollbacks.Load(), r.refused.Load(), r.differentials.Load(), elapsed.Seconds(), float64(r.transitions.Load())/elapsed.Seconds(), r.redrawn.Load())
	g.Expect(r.transitions.Load()).To(BeNumerically(">=", wantTransitions))
	w.expectQuietAfterRestart(ended)
	w.expectNoPanics()
}

// chain is an object that goes from spec to spec.
type chain struct {
	*world
	t         *testing.T
	kind      specs.Kind
	generator *specs.Generator
	door      *door
	results   *results
	object
	// fresh is where new objects with the same spec are made, under the same name.
	fresh  object
	number int
}

func (w *world) newChain(t *testing.T, kind specs.Kind, r *results, number int, part uint64) (*chain, error) {
	t.Helper()
	generator, err := specs.NewGenerator(kind, chanceOf(part))
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%d", strings.ToLower(kind.Name), number)
	d, err := newDoor("chain-" + name)
	if err != nil {
		return nil, err
	}
	w.namespace("chain-" + name)
	w.namespace("fresh-" + name)
	at := func(namespace string) object {
		return object{d.client, w.seen, kind.Name, types.NamespacedName{Namespace: namespace, Name: "app"}}
	}
	return &chain{world: w, t: t, kind: kind, generator: generator, door: d, results: r, object: at("chain-" + name), fresh: at("fresh-" + name), number: number}, nil
}

func (c *chain) run(ctx context.Context, length int) error {
	spec, err := c.valid(ctx, func() map[string]any { return c.generator.First() })
	if err != nil {
		return err
	}
	for i := range length {
		if i > 0 {
			last := spec
			if spec, err = c.valid(ctx, func() map[string]any { return c.generator.Next(last) }); err != nil {
				return err
			}
		}
		if err := c.step(ctx, spec, i); err != nil {
			return fmt.Errorf("spec %d: %w", i, err)
		}
	}
	return nil
}

// valid draws until the door takes a spec.
func (c *chain) valid(ctx context.Context, draw func() map[string]any) (map[string]any, error) {
	const tries = 200
	var err error
	for range tries {
		spec := draw()
		if _, err = c.door.try(ctx, byCreate, c.kind.Name, build(c.kind.Name, "campaign", specs.Clone(map[string]any{"spec": spec})), metav1.FieldValidationStrict); err == nil {
			return spec, nil
		}
		c.results.redrawn.Add(1)
	}
	return nil, fmt.Errorf("none of %d specs was valid: %w", tries, err)
}

func (c *chain) step(ctx context.Context, spec map[string]any, i int) error {
	if err := converge(ctx, c.object, spec); err != nil {
		return err
	}
	c.results.transitions.Add(1)
	if err := converge(ctx, c.fresh, spec); err != nil {
		return fmt.Errorf("a new object: %w", err)
	}
	fresh := func(from client.Reader) (state, error) { return c.stateOf(ctx, from, c.fresh) }
	if err := c.comesTo(ctx, fresh); err != nil {
		return fmt.Errorf("differential: the state is not that of a new object (+) with the same spec:\n%w\nspec %v", err, spec)
	}
	c.results.differentials.Add(1)
	if err := c.fresh.remove(ctx); err != nil {
		return err
	}
	if i%rollbackEvery == 0 {
		return c.rollback(ctx, spec)
	}
	return nil
}

// converge puts a spec there and waits until all is as it declares.
func converge(ctx context.Context, o object, spec map[string]any) error {
	put, err := o.put(ctx, spec)
	if err != nil {
		return fmt.Errorf("putting a spec that the door took: %w", err)
	}
	return o.until(ctx, put.GetGeneration(), isReady)
}

// comesTo waits until the state of the chain is a certain one. The last thing that a pass does is to
// tidy up, and a state may be read before that. What it is held against may not have been done either.
// A cache tells when it seems so, and then the API server tells whether it is.
func (c *chain) comesTo(ctx context.Context, want func(from client.Reader) (state, error)) error {
	difference := ""
	err := wait.PollUntilContextTimeout(ctx, 5*interval, patience, true, func(ctx context.Context) (bool, error) {
		for _, from := range []client.Reader{c.world.seen, api} {
			wanted, err := want(from)
			if err != nil {
				return false, err
			}
			got, err := c.stateOf(ctx, from, c.object)
			if err != nil {
				return false, err
			}
			if difference = got.differs(wanted); difference != "" {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil && difference != "" {
		return fmt.Errorf("%s", difference)
	}
	return err
}

// rollback tries a bad spec and takes it back.
func (c *chain) rollback(ctx context.Context, spec map[string]any) error {
	before, err := c.stateOf(ctx, api, c.object)
	if err != nil {
		return err
	}
	bad, difference := c.generator.Bad(spec)
	if put, err := c.put(ctx, bad); err != nil {
		if !isRefusal(err) || !namesSome(err) {
			return fmt.Errorf("rollback: a bad spec with %v: %w", difference, err)
		}
		c.results.refused.Add(1)
	} else if err := c.until(ctx, put.GetGeneration(), shows); err != nil {
		return fmt.Errorf("rollback: a bad spec with %v does not show: %w", difference, err)
	}
	if err := converge(ctx, c.object, spec); err != nil {
		return fmt.Errorf("rollback from %v: %w", difference, err)
	}
	asBefore := func(client.Reader) (state, error) { return before, nil }
	if err := c.comesTo(ctx, asBefore); err != nil {
		return fmt.Errorf("rollback from %v: the state is not what it was (+):\n%w\nspec %v", difference, err, spec)
	}
	c.results.transitions.Add(2) // there and back
	c.results.rollbacks.Add(1)
	return nil
}

// shows says whether something is wrong, or is not as the spec declares although old pods still serve.
func shows(live *unstructured.Unstructured) bool {
	return isSettled(live) && (!isReady(live) || conditions(live)["DeploymentReady"].Reason == v1alpha1.ReasonRolloutStalled)
}

// expectQuietAfterRestart starts a manager that knows nothing: over objects that are as they should
// be, it writes nothing.
func (w *world) expectQuietAfterRestart(objects []object) {
	w.t.Helper()
	g := NewWithT(w.t)
	w.stop()
	before := make([]map[string]string, len(objects))
	for i, o := range objects {
		var err error
		before[i], err = versions(context.Background(), o)
		g.Expect(err).NotTo(HaveOccurred())
	}
	passes, err := reconciles()
	g.Expect(err).NotTo(HaveOccurred())
	w.startManager()
	g.Eventually(reconciles).Should(BeNumerically(">=", passes+float64(len(objects))), "each object is looked at")
	for i, o := range objects {
		after, err := versions(context.Background(), o)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(after).To(Equal(before[i]), "a manager that knew nothing wrote something about %s", o)
	}
	w.t.Logf("a new manager looked at %d objects and wrote nothing", len(objects))
}
