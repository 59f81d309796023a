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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// chainCounts are the number of chains of each kind and the number of specs in each.
var chainCounts = map[string]struct{ chains, length int }{
	"AppService":    {20, 12},
	"MCPServer":     {20, 12},
	"SecureStorage": {10, 6},
}

// minTransitions is the minimum number of spec changes of all chains. A share of the chains makes as large a share of them.
const minTransitions = 1000

// parallelChains is the number of concurrent chains.
const parallelChains = 16

// rollbackEvery is the number of specs per rollback of a bad spec.
const rollbackEvery = 2

// results counts the transitions of all chains.
type results struct {
	transitions, differentials, rollbacks, refused, redrawn atomic.Int64
}

// TestValidSpecs changes objects from spec to spec. After each change the state must equal that of a new object with
// the same spec. Repeatedly a bad spec is applied and reverted, after which the state must be the previous one. At the
// end a manager with empty caches must not write.
func TestValidSpecs(t *testing.T) {
	env := newEnvironment(t)
	g := NewWithT(t)
	_, err := env.cloud.SeedKey("fixpoint-demo", "other", fakecloud.KeySpec{})
	g.Expect(err).NotTo(HaveOccurred())
	r, began := &results{}, time.Now()
	t.Logf("seed %d; replay with -campaign.seed=%[1]d", *seed)
	var chains sync.WaitGroup
	var mu sync.Mutex
	places := make(chan struct{}, parallelChains)
	var ended []object
	share, taken, all := specs.ReadShare(t), 0, 0
	for k, kind := range kinds {
		for i := range chainCounts[kind.Name].chains * scale(t) {
			all++
			if !share.Has(i) {
				continue
			}
			taken++
			chains.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				c, err := env.newChain(t, kind, r, i, uint64(1000*(k+1)+i)) //nolint:gosec // small numbers
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
	t.Logf("%d transitions (%d rollbacks, %d bad specs refused), %d comparisons with a new object, in %.1fs (%.1f transitions/s); %d specs redrawn",
		r.transitions.Load(), r.rollbacks.Load(), r.refused.Load(), r.differentials.Load(), elapsed.Seconds(), float64(r.transitions.Load())/elapsed.Seconds(), r.redrawn.Load())
	g.Expect(r.transitions.Load()).To(BeNumerically(">=", minTransitions*taken/all))
	env.expectQuietAfterRestart(ended)
	env.expectNoPanics()
}

// chain is an object and its sequence of specs.
type chain struct {
	*environment
	t         *testing.T
	kind      specs.Kind
	generator *specs.Generator
	dryRun    *dryRun
	results   *results
	object
	// fresh is a new object with the same name and spec in another namespace.
	fresh  object
	number int
}

func (env *environment) newChain(t *testing.T, kind specs.Kind, r *results, number int, part uint64) (*chain, error) {
	t.Helper()
	generator, err := specs.NewGenerator(kind, randomOf(part))
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%d", strings.ToLower(kind.Name), number)
	d, err := newDryRun("chain-" + name)
	if err != nil {
		return nil, err
	}
	env.createNamespace("chain-" + name)
	env.createNamespace("fresh-" + name)
	at := func(namespace string) object {
		return object{d.client, env.cache, kind.Name, types.NamespacedName{Namespace: namespace, Name: "app"}}
	}
	return &chain{environment: env, t: t, kind: kind, generator: generator, dryRun: d, results: r, object: at("chain-" + name), fresh: at("fresh-" + name), number: number}, nil
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

// valid draws specs until the API server accepts one.
func (c *chain) valid(ctx context.Context, draw func() map[string]any) (map[string]any, error) {
	const attempts = 200
	var err error
	for range attempts {
		spec := draw()
		if _, err = c.dryRun.send(ctx, byCreate, c.kind.Name, build(c.kind.Name, "campaign", specs.Clone(map[string]any{"spec": spec})), metav1.FieldValidationStrict); err == nil {
			return spec, nil
		}
		c.results.redrawn.Add(1)
	}
	return nil, fmt.Errorf("none of %d specs was valid: %w", attempts, err)
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
	if err := c.converge(ctx, fresh); err != nil {
		return fmt.Errorf("differential: the state differs from that of a new object (+) with the same spec:\n%w\nspec %v", err, spec)
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

// converge sets a spec and waits until the object is Ready.
func converge(ctx context.Context, o object, spec map[string]any) error {
	applied, err := o.apply(ctx, spec)
	if err != nil {
		return fmt.Errorf("setting a spec that the dry run accepted: %w", err)
	}
	return o.waitUntil(ctx, applied.GetGeneration(), isReady)
}

// converge waits until the state of the chain equals another one. Pruning can lag behind Ready. The comparison uses the
// cache first and confirms equality with the API server.
func (c *chain) converge(ctx context.Context, want func(from client.Reader) (state, error)) error {
	difference := ""
	err := wait.PollUntilContextTimeout(ctx, 5*interval, timeout, true, func(ctx context.Context) (bool, error) {
		for _, from := range []client.Reader{c.environment.cache, api} {
			wanted, err := want(from)
			if err != nil {
				return false, err
			}
			got, err := c.stateOf(ctx, from, c.object)
			if err != nil {
				return false, err
			}
			if difference = got.diff(wanted.withoutJobsMissingIn(got)); difference != "" {
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

// rollback applies a bad spec and reverts it.
func (c *chain) rollback(ctx context.Context, spec map[string]any) error {
	before, err := c.stateOf(ctx, api, c.object)
	if err != nil {
		return err
	}
	bad, difference := c.generator.Bad(spec)
	if applied, err := c.apply(ctx, bad); err != nil {
		if !isRefusal(err) || !concerns(err, difference) {
			return fmt.Errorf("rollback: a bad spec with %v: %w", difference, err)
		}
		c.results.refused.Add(1)
	} else if err := c.waitUntil(ctx, applied.GetGeneration(), showsProblem); err != nil {
		return fmt.Errorf("rollback: a bad spec with %v is not reported: %w", difference, err)
	}
	if err := converge(ctx, c.object, spec); err != nil {
		return fmt.Errorf("rollback from %v: %w", difference, err)
	}
	asBefore := func(client.Reader) (state, error) { return before, nil }
	if err := c.converge(ctx, asBefore); err != nil {
		return fmt.Errorf("rollback from %v: the state differs from the previous one (+):\n%w\nspec %v", difference, err, spec)
	}
	c.results.transitions.Add(2) // the bad spec and the reverted one
	c.results.rollbacks.Add(1)
	return nil
}

// concerns reports whether a refusal concerns a field that differs.
func concerns(err error, difference map[string]any) bool {
	for name := range difference {
		if refusalRelates(err, specs.Path{"spec", name}) {
			return true
		}
	}
	return false
}

// showsProblem reports whether the object is not Ready, or whether its rollout has failed while old pods serve.
func showsProblem(live *unstructured.Unstructured) bool {
	return isSettled(live) && (!isReady(live) || conditions(live)["DeploymentReady"].Reason == v1beta1.ReasonRolloutStalled)
}

// expectQuietAfterRestart starts a manager with empty caches, which must not write.
func (env *environment) expectQuietAfterRestart(objects []object) {
	env.t.Helper()
	g := NewWithT(env.t)
	env.stop()
	before := make([]map[string]string, len(objects))
	for i, o := range objects {
		var err error
		before[i], err = versions(context.Background(), o)
		g.Expect(err).NotTo(HaveOccurred())
	}
	reconciled, err := reconciles()
	g.Expect(err).NotTo(HaveOccurred())
	env.startManager()
	g.Eventually(reconciles).Should(BeNumerically(">=", reconciled+float64(len(objects))), "each object is reconciled")
	for i, o := range objects {
		after, err := versions(context.Background(), o)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(after).To(Equal(before[i]), "a manager with empty caches wrote %s or a child", o)
	}
	env.t.Logf("a new manager reconciled %d objects without a write", len(objects))
}
