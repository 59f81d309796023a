package ssa_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// defaultCases is how many objects the property test creates; each is edited in several rounds. make test-ssa creates more.
const defaultCases = 650

// TestQuietIfAndOnlyIf: an apply is suppressed if and only if sending it would have left the
// object's resourceVersion as it was; and when it is sent because other field managers changed declared
// fields, each of those changes is reported with its field manager.
//
// Objects of this project's kinds are edited in both versions, and applied to in v1alpha1 as before an upgrade, in
// v1beta1 as after it, and in v1alpha1 again. The first apply in the other version reports and reverts nothing else.
//
// Each run creates other objects, FIXPOINT_CASES of them. FIXPOINT_SEED=n repeats the one case that a failure names.
func TestQuietIfAndOnlyIf(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	environment := property{
		namespaces: []string{
			newNamespace(ctx, g, nil),
			newNamespace(ctx, g, map[string]string{rewriteImages: "yes"}),
			newNamespace(ctx, g, map[string]string{injectSidecar: "yes"}),
			newNamespace(ctx, g, map[string]string{rewriteImages: "yes", injectSidecar: "yes"}),
		},
		owners: map[string]metav1.OwnerReference{},
	}
	for _, namespace := range environment.namespaces {
		environment.owners[namespace] = newOwner(ctx, g, namespace, "owner")
	}
	if text := os.Getenv("FIXPOINT_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		g.Expect(err).NotTo(HaveOccurred(), "FIXPOINT_SEED must be a number")
		g.Expect(environment.run(ctx, seed)).To(Succeed())
		return
	}
	cases := uint64(defaultCases)
	if text := os.Getenv("FIXPOINT_CASES"); text != "" {
		var err error
		cases, err = strconv.ParseUint(text, 10, 32)
		g.Expect(err).NotTo(HaveOccurred(), "FIXPOINT_CASES must be a number")
	}
	base := uint64(time.Now().UnixNano())
	t.Logf("seeds %d to %d", base, base+cases-1)
	seeds := make(chan uint64)
	failures := make(chan error, cases)
	var workers sync.WaitGroup
	for range 6 {
		workers.Go(func() {
			for seed := range seeds {
				if err := environment.run(ctx, seed); err != nil {
					failures <- fmt.Errorf("FIXPOINT_SEED=%d go test ./ssa -run TestQuietIfAndOnlyIf repeats this: %w", seed, err)
				}
			}
		})
	}
	for i := range cases {
		seeds <- base + i
		if len(failures) >= 5 {
			break
		}
	}
	close(seeds)
	workers.Wait()
	close(failures)
	for failure := range failures {
		t.Error(failure)
	}
	t.Logf("%d cases: %d suppressed applies verified, %d applies sent, %d drifts attributed, %d of them to what was written in another version; "+
		"%d of the suppressed ones would have reordered the managed fields, and nothing else; %d moves to another version", cases,
		environment.held.Load(), environment.sent.Load(), environment.attributed.Load(), environment.across.Load(), environment.resorted.Load(), environment.moved.Load())
}

// beforeFirstApply is the manager to which the API server assigns the fields of an object without managed fields.
const beforeFirstApply = "before-first-apply"

type property struct {
	namespaces             []string
	owners                 map[string]metav1.OwnerReference
	held, sent, attributed counter
	// resorted counts applies that would have moved nothing but the order and times of managedFields.
	resorted counter
	// across counts drifts that other managers caused in the other version, and moved the moves of the applier to it.
	across, moved counter
}

// subject is one object of one case.
type subject struct {
	generator
	kind string
	// version is that in which the applier writes one of this project's kinds: v1alpha1 as before an upgrade, or v1beta1.
	version schema.GroupVersion
	// desired is the configuration in v1beta1.
	desired ssa.Configuration
	owner   metav1.OwnerReference
	applier *ssa.Applier
	log     *sent
	live    client.Object
	// body is what was sent for desired, without its preconditions on the live object.
	body  []byte
	story []string
}

func (p *property) run(ctx context.Context, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 0))
	s := &subject{generator: generator{r}}
	names := []string{"Deployment", "Service", "ConfigMap", "HorizontalPodAutoscaler", "AppService", "MCPServer", "SecureStorage"}
	s.kind = pick(s.generator, append(names, "Deployment", "Deployment")...)
	namespace := pick(s.generator, p.namespaces...)
	s.owner = p.owners[namespace]
	s.desired = kinds[s.kind](s.generator, fmt.Sprintf("s%d", seed), namespace)
	s.restart()
	if isVersioned(s.desired) {
		s.version = pick(s.generator, alpha, beta)
	}
	s.tell("%s in namespace %s, applied in version %q", s.kind, namespace, s.version.Version)

	if err := p.settle(ctx, s); err != nil {
		return s.explain(err)
	}
	for range 1 + s.IntN(3) {
		if err := p.round(ctx, s); err != nil {
			return s.explain(err)
		}
	}
	return client.IgnoreNotFound(api.Delete(ctx, s.live))
}

// round edits the object up to three times, at times changes the configuration or the version too, and applies.
func (p *property) round(ctx context.Context, s *subject) error {
	touched := map[string]change{}
	wiped := false
	for range s.IntN(4) {
		changes, err := s.edit(ctx, pick(s.generator, "kubectl-edit", "robot", "argo"))
		if err != nil {
			return err
		}
		for _, c := range changes {
			touched[c.path] = c
			wiped = wiped || c.path == ".metadata.managedFields"
		}
		if err := s.read(ctx); err != nil {
			return err
		}
	}
	moved := isVersioned(s.desired) && s.chance(30)
	if moved {
		if err := s.move(ctx); err != nil {
			return err
		}
		p.moved.Add(1)
	}
	restarted, changed := s.chance(20), s.chance(20)
	if restarted {
		s.tell("restart")
		s.restart()
	}
	if changed {
		s.tell("we want something else")
		s.desired = kinds[s.kind](s.generator, s.live.GetName(), s.live.GetNamespace())
	}
	generation := s.live.GetGeneration()
	drifts, err := p.check(ctx, s)
	if err != nil {
		return err
	}
	if len(touched) == 0 && !changed && s.live.GetGeneration() != generation {
		return fmt.Errorf("nothing was changed, and the apply moved the generation from %d to %d", generation, s.live.GetGeneration())
	}
	if wiped || changed {
		// After a wipe it is unknown who changed what; and what of a drift counts when we want
		// something else has tests of its own.
		return nil
	}
	if moved {
		// What was applied in the other version is known by the names of that version. So a field that has another
		// name in this one is reverted without being reported.
		maps.DeleteFunc(touched, func(_ string, c change) bool { return c.alpha != "" })
	}
	return p.attribution(s, drifts, touched)
}

// edit does one random edit that the object has fields for, in either version of its kind.
func (s *subject) edit(ctx context.Context, who string) ([]change, error) {
	through, version := client.Client(api), s.version
	if isVersioned(s.desired) {
		if version = pick(s.generator, alpha, beta); version == alpha {
			through = inAlpha(api)
		}
	}
	for {
		e := pick(s.generator, edits...)
		name := who
		if e.as != "" {
			name = e.as
		}
		before := as[client.Object](s.live.DeepCopyObject())
		if s.version == alpha {
			var err error
			if before, err = in(ctx, beta, before); err != nil {
				return nil, err
			}
		}
		changes, did, err := e.do(ctx, through, s.generator, before, name)
		if err != nil {
			return nil, fmt.Errorf("edit %q: %w", e.name, err)
		}
		if did {
			s.tell("%s: %s %s", name, e.name, version.Version)
			for i := range changes {
				changes[i].by, changes[i].version = name, version
			}
			return changes, nil
		}
	}
}

// move replaces the applier by one that writes in the other version, as an upgrade of a manager or the return from one
// does.
func (s *subject) move(ctx context.Context) (err error) {
	if s.version == alpha {
		s.version = beta
	} else {
		s.version = alpha
	}
	s.tell("move to %s", s.version.Version)
	s.restart()
	s.live, err = in(ctx, s.version, s.live)
	return err
}

// configuration is what the applier is given, as a controller builds it again in every reconcile.
func (s *subject) configuration() (ssa.Configuration, error) {
	if s.version == alpha {
		return alphaConfigurationOf(s.desired)
	}
	return clone(s.desired), nil
}

// apply applies what is desired to a live object, or to none.
func (s *subject) apply(ctx context.Context, live client.Object) (ssa.Result, error) {
	desired, err := s.configuration()
	if err != nil {
		return ssa.Result{}, err
	}
	return s.applier.Apply(ctx, ssa.Request{Desired: desired, Owner: &s.owner, Live: live, RemoveFields: refusedBeside(s.desired)})
}

// attribution: each declared field that was changed is reported, with its manager and new value,
// and no other. Its manager is unknown where it wrote the field by another name, in another version.
func (p *property) attribution(s *subject, drifts []ssa.Drift, edits map[string]change) error {
	desired, err := s.configuration()
	if err != nil {
		return err
	}
	fields, err := ownFields(desired)
	if err != nil {
		return err
	}
	touched := map[string]change{}
	for _, c := range edits {
		touched[c.in(s.version)] = c
	}
	for path, c := range touched {
		holder := c.by
		if c.in(c.version) != path {
			holder = ""
		}
		if !fields.claims(path) || isQuantityMetric(s.desired, path) || isBelowRemoved(touched, path) {
			continue
		}
		i := slices.IndexFunc(drifts, func(d ssa.Drift) bool { return d.Path == path })
		if i < 0 {
			return fmt.Errorf("%s changed %s, and no drift says so: %v", c.by, path, drifts)
		}
		drift := drifts[i]
		if c.removed && (drift.Actual != "" || drift.Manager != "") {
			return fmt.Errorf("%s was removed, and the drift says %+v", path, drift)
		}
		if holder == "" && drift.Manager == beforeFirstApply {
			holder = beforeFirstApply // what is left of its claim to the struct looks like a claim to the field
		}
		if !c.removed && (drift.Manager != holder || drift.Actual == "" || drift.Desired == "" || drift.Actual == drift.Desired) {
			return fmt.Errorf("%s changed %s, and the drift says %+v", c.by, path, drift)
		}
		p.attributed.Add(1)
		if c.version != s.version {
			p.across.Add(1)
		}
	}
	for _, drift := range drifts {
		if _, ok := touched[drift.Path]; !ok && !isQuantityMetric(s.desired, drift.Path) {
			return fmt.Errorf("no edit changed %s, and a drift says %+v (touched: %v)", drift.Path, drift, touched)
		}
	}
	return nil
}

// isBelowRemoved: what was changed within an item that was removed afterwards is gone with it.
func isBelowRemoved(touched map[string]change, path string) bool {
	for other, c := range touched {
		if c.removed && other != path && strings.HasPrefix(path, other) {
			return true
		}
	}
	return false
}

// check applies, and compares what that did with what the server does with the same bytes.
func (p *property) check(ctx context.Context, s *subject) ([]ssa.Drift, error) {
	before := s.live
	already := len(s.log.bodies)
	result, err := s.apply(ctx, before)
	if err != nil {
		return nil, fmt.Errorf("applying: %w", err)
	}
	if len(s.log.bodies) > already {
		if result.Live.GetResourceVersion() == before.GetResourceVersion() {
			return nil, fmt.Errorf("an apply was sent (%s), and it left the object at resourceVersion %s", result.Action, before.GetResourceVersion())
		}
		p.sent.Add(1)
		s.body = s.log.lastApply()
		s.tell("applier: %s %v", result.Action, result.Drifts)
	} else {
		p.held.Add(1)
	}
	s.live = result.Live
	return result.Drifts, p.settle(ctx, s)
}

// settle applies until nothing is sent, which must be at once, and then sends the same bytes past
// the applier: they must change nothing.
func (p *property) settle(ctx context.Context, s *subject) error {
	if s.live == nil {
		result, err := s.apply(ctx, nil)
		if err != nil {
			return fmt.Errorf("creating: %w", err)
		}
		s.live = result.Live
		s.body = s.log.lastApply()
	}
	already := len(s.log.bodies)
	result, err := s.apply(ctx, s.live)
	if err != nil {
		return fmt.Errorf("applying again: %w", err)
	}
	if result.Action != ssa.ActionNone || len(s.log.bodies) != already {
		return fmt.Errorf("the second apply did %s", result.Action)
	}
	after, err := s.sendPastTheApplier(ctx)
	if err != nil {
		return err
	}
	if after.GetResourceVersion() != s.live.GetResourceVersion() {
		// An apply whose values the server normalises (1000m, a fieldRef without apiVersion) gives
		// the applier's entry a new time. Where another entry is younger, the applier's entry moves behind it in
		// the list, and the server, which compares the list in order, does not see that nothing else has changed.
		if what := difference(s.live, after); what != "" {
			return fmt.Errorf("an apply was suppressed that would have changed the object:\n%s", what)
		}
		p.resorted.Add(1)
		s.live = after
	}
	p.held.Add(1)
	return nil
}

func (s *subject) sendPastTheApplier(ctx context.Context) (client.Object, error) {
	target := as[client.Object](s.live.DeepCopyObject())
	document := map[string]any{}
	if err := yaml.Unmarshal(s.body, &document); err != nil {
		return nil, err
	}
	metadata := as[map[string]any](document["metadata"])
	delete(metadata, "resourceVersion")
	metadata["uid"] = string(s.live.GetUID())
	raw, err := yaml.Marshal(document)
	if err != nil {
		return nil, err
	}
	err = api.Patch(ctx, target, client.RawPatch(types.ApplyPatchType, raw), client.FieldOwner(manager), client.ForceOwnership)
	return target, err
}

func (s *subject) restart() { s.applier, s.log = newApplier(api) }

func (s *subject) read(ctx context.Context) error {
	return api.Get(ctx, client.ObjectKeyFromObject(s.live), s.live)
}

func (s *subject) tell(format string, args ...any) {
	s.story = append(s.story, fmt.Sprintf(format, args...))
}

func (s *subject) explain(err error) error {
	raw, _ := yaml.Marshal(s.live)
	return fmt.Errorf("%w\nwhat happened:\n  %s\nthe object:\n%s\nwhat is sent:\n%s", err, strings.Join(s.story, "\n  "), raw, s.body)
}
