package phases_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

var errDown = errors.New("the API server is down")

// flakyReads are the reads of a reconcile, through the cache and past it, of which one may fail.
type flakyReads struct {
	reads, fails int
}

// flakyReader reads unless it is the turn of the read that fails.
type flakyReader struct {
	client.Reader

	counted *flakyReads
}

func (r flakyReader) fail() error {
	if r.counted.reads++; r.counted.reads == r.counted.fails {
		return errDown
	}
	return nil
}

func (r flakyReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := r.fail(); err != nil {
		return err
	}
	return r.Reader.Get(ctx, key, into, options...)
}

func (r flakyReader) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if err := r.fail(); err != nil {
		return err
	}
	return r.Reader.List(ctx, into, options...)
}

// TestNoReadThatFailsIsTakenForAnAbsence fails each read of a reconcile: it is retried, and nothing is deleted, created or
// released in the belief that what cannot be read does not exist.
func TestNoReadThatFailsIsTakenForAnAbsence(t *testing.T) {
	spec := map[string]string{"Boot": "fast", "Scaler": "fast", "Uplink": "cheap", "Volumes": "a b"}
	scenarios := map[string]struct {
		change func(*harness)
		// observes is true if a read that only observes may fail unnoticed.
		observes bool
	}{
		"nothing has changed":     {change: func(*harness) {}},
		"a child has drifted":     {change: func(h *harness) { h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" }) }},
		"a child was deleted":     {change: func(h *harness) { h.remove(ref{"Disk", "boot"}, "") }, observes: true},
		"a child is edited":       {change: func(h *harness) { h.editMachine(func(m *Machine) { m.Spec["Boot"] = "slow" }) }},
		"a child is not desired":  {change: func(h *harness) { h.editMachine(func(m *Machine) { delete(m.Spec, "Boot") }) }},
		"pruned first":            {change: func(h *harness) { h.editMachine(func(m *Machine) { delete(m.Spec, "Scaler") }) }},
		"pruned last":             {change: func(h *harness) { h.editMachine(func(m *Machine) { delete(m.Spec, "Uplink") }) }},
		"a member is not desired": {change: func(h *harness) { h.editMachine(func(m *Machine) { m.Spec["Volumes"] = "b" }) }},
		"a reported drift": {change: func(h *harness) {
			h.modify("Nic", "uplink", func(d device) { d.device().Spec["class"] = "slow" })
			reportsDrift(h)
		}},
		"it is being deleted":       {change: func(h *harness) { h.deleteMachine() }, observes: true},
		"deleted, without children": {change: func(h *harness) { h.remove(ref{"Disk", "boot"}, ""); h.deleteMachine() }, observes: true},
	}
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			prepare := func(fails int) (*harness, *flakyReads) {
				first, last, members := nicOf("Scaler"), nicOf("Uplink"), disksOf("Volumes")
				first.Prune, last.Prune = phases.PruneFirst, phases.PruneLast
				h := settled(t, spec, diskOf("Boot"), first, last, members)
				scenario.change(h)
				h.sync()
				counted := &flakyReads{fails: fails}
				h.dependencies.Reader = flakyReader{h.dependencies.Reader, counted}
				h.dependencies.Uncached = flakyReader{h.dependencies.Uncached, counted}
				return h, counted
			}
			undisturbed, counted := prepare(0)
			_, err := undisturbed.reconcile(t)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			undisturbed.settle(t)
			for read := 1; read <= counted.reads; read++ {
				g := NewWithT(t)
				h, _ := prepare(read)
				noticed := false
				for range 20 { // the read may be one of a later reconcile
					if _, err = h.reconcile(t); err != nil {
						g.Expect(err).To(MatchError(errDown))
						noticed = true
						break
					}
					h.tick()
				}
				if !scenario.observes {
					g.Expect(noticed).To(BeTrue(), "read %d is needed", read)
				}
				if h.machine() == nil {
					g.Expect(h.left()).To(BeEmpty(), "released after read %d failed", read)
				}
				h.settle(t)
				g.Expect(h.left()).To(Equal(undisturbed.left()), "after read %d failed", read)
				g.Expect(h.violations).To(BeEmpty())
			}
		})
	}
}

func reportsDrift(h *harness) {
	h.definition.Policies = func(*Machine) phases.Policies { return phases.Policies{Drift: ssa.ReportDrift} }
}

func TestObjectThatCannotBeReadIsAnError(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.dependencies.Reader = flakyReader{h.dependencies.Reader, &flakyReads{fails: 1}}
	_, err := h.reconcile(t)
	g.Expect(err).To(MatchError(errDown))
	g.Expect(h.writes).To(BeEmpty())
}

func TestReconcileIsPostponedAsTheDefinitionSays(t *testing.T) {
	for wait, written := range map[time.Duration]bool{0: true, time.Minute: false} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			g := NewWithT(t)
			cluster := newFakeCluster()
			h := newHarness(cluster, observes("Address", phases.Done("")))
			cluster.createMachine(&Machine{})
			h.definition.Postpone = func(context.Context, *Machine) time.Duration { return wait }
			g.Expect(h.mustReconcile(t).RequeueAfter).To(Equal(wait))
			g.Expect(len(h.writes) > 0).To(Equal(written))
		})
	}
}

func TestObjectThatIsDeletedWithoutTheFinalizerGetsNone(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"))
	cluster.createMachine(&Machine{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"other.example.com/hold"}}, Spec: map[string]string{"Boot": "fast"}})
	h.deleteMachine()
	h.sync()
	h.mustReconcile(t)
	g.Expect(h.writes).To(BeEmpty())
}

// requests keeps what is asked of the applier.
type requests struct {
	phases.Applier

	asked *[]ssa.Request
}

func (r requests) Decide(request ssa.Request) (ssa.Decision, error) {
	*r.asked = append(*r.asked, request)
	return r.Applier.Decide(request)
}

func TestFieldsOfAPhaseAreThoseOfItsRequests(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	boot := diskOf("Boot")
	boot.HandOver, boot.RemoveFields, boot.UniqueFields = []string{"spec.a"}, []string{"spec.b"}, []string{"spec.c"}
	h := newHarness(cluster, boot)
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	var asked []ssa.Request
	h.dependencies.Applier = requests{h.dependencies.Applier, &asked}
	h.settle(t)
	g.Expect(asked).NotTo(BeEmpty())
	for _, request := range asked {
		g.Expect(request.Drift).To(Equal(ssa.CorrectDrift), "without policies")
		g.Expect(request.HandOver).To(Equal([]string{"spec.a"}))
		g.Expect(request.RemoveFields).To(Equal([]string{"spec.b"}))
		g.Expect(request.UniqueFields).To(Equal([]string{"spec.c"}))
	}
}

func TestPolicyAdoptsNothingOfAPhaseThatDecidesItself(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	boot := diskOf("Boot")
	boot.Adopt = func(*scope, *Disk) phases.Verdict { return phases.Done("") }
	h := newHarness(cluster, boot)
	h.definition.Policies = func(*Machine) phases.Policies { return phases.Policies{Adoption: ssa.AdoptIfUnowned} }
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	var asked []ssa.Request
	h.dependencies.Applier = requests{h.dependencies.Applier, &asked}
	h.settle(t)
	g.Expect(asked).NotTo(BeEmpty())
	g.Expect(asked).To(HaveEach(HaveField("Adoption", ssa.AdoptionPolicy(""))), "a message names no policy that would not adopt")
}

// logged reconciles with a fresh engine and returns what it logs.
func (h *harness) logged(t *testing.T) []string {
	t.Helper()
	engine, err := h.engine()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var lines []string
	logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{Verbosity: 1})
	_, err = engine.Reconcile(log.IntoContext(t.Context(), logger), machineRequest)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return lines
}

func TestActionsAreLogged(t *testing.T) {
	h := newHarness(newFakeCluster(), diskOf("Boot"))
	h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	NewWithT(t).Expect(h.logged(t)).To(ContainElement(ContainSubstring(`"msg"="Applied child"`)))
}

// undecided is an applier that decides nothing.
type undecided struct{ phases.Applier }

func (undecided) Decide(ssa.Request) (ssa.Decision, error) { return ssa.Decision{}, errDown }

func TestObservationThatFailsIsLogged(t *testing.T) {
	for name, fail := range map[string]func(*harness){
		"children cannot be listed": func(h *harness) { h.dependencies.Reader = failingReader{h.dependencies.Reader, errDown} },
		"they cannot be computed": func(h *harness) {
			boot := diskOf("Boot")
			boot.Desired = func(*scope) (*deviceConfiguration, error) { return nil, errDown }
			h.definition.Phases[1] = boot
		},
		"drift cannot be decided on": func(h *harness) {
			reportsDrift(h)
			h.dependencies.Applier = undecided{h.dependencies.Applier}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
			h.definition.Phases = []phase{observes("Address", phases.Wait("Pending", "", 0)), diskOf("Boot")}
			fail(h)

			NewWithT(t).Expect(h.logged(t)).To(ContainElement(And(
				ContainSubstring("Could not observe a phase that does not run"), ContainSubstring(`"phase"="Boot"`), ContainSubstring(errDown.Error()))))
		})
	}
}
