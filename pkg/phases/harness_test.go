package phases_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// scope is what the phases of a Machine hand each other.
type scope struct {
	machine *Machine
	// seen are the devices that phases have observed.
	seen []string
}

type (
	phase      = phases.Phase[*scope]
	step       = phases.Step[*scope]
	diskPhase  = phases.Child[*scope, *deviceConfiguration, *Disk]
	nicPhase   = phases.Child[*scope, *deviceConfiguration, *Nic]
	disksPhase = phases.Children[*scope, *deviceConfiguration, *Disk]
)

// diskOf is a phase whose child is a Disk of the phase's name, which is ready when it is attached.
func diskOf(name string) diskPhase {
	return diskPhase{
		Name: name,
		Desired: func(s *scope) (*deviceConfiguration, error) {
			return desiredDevice(s, name, disk(strings.ToLower(name))), nil
		},
		ChildName: func(*scope) string { return strings.ToLower(name) },
		Health:    isAttached[*Disk],
		Observed:  func(s *scope, live *Disk) { s.seen = append(s.seen, live.Name) },
	}
}

func nicOf(name string) nicPhase {
	return nicPhase{
		Name: name,
		Desired: func(s *scope) (*deviceConfiguration, error) {
			return desiredDevice(s, name, nic(strings.ToLower(name))), nil
		},
		ChildName: func(*scope) string { return strings.ToLower(name) },
		Health:    isAttached[*Nic],
	}
}

// disksOf is a phase whose children are the Disks that the Machine lists for it, such as "a=fast b=slow":
// a name without a class is fast.
func disksOf(name string) disksPhase {
	return disksPhase{
		Name: name,
		Desired: func(s *scope) ([]*deviceConfiguration, error) {
			var desired []*deviceConfiguration
			for _, member := range strings.Fields(s.machine.Spec[name]) {
				name, class, given := strings.Cut(member, "=")
				if !given {
					class = "fast"
				}
				desired = append(desired, disk(name).with("class", class))
			}
			return desired, nil
		},
		Health: isAttached[*Disk],
		Observed: func(s *scope, live []*Disk) {
			for _, disk := range live {
				s.seen = append(s.seen, disk.Name)
			}
		},
	}
}

// desiredDevice is the device with the class that the Machine asks for, or nil if it asks for none.
func desiredDevice(s *scope, phase string, device *deviceConfiguration) *deviceConfiguration {
	class, configured := s.machine.Spec[phase]
	if !configured {
		return nil
	}
	return device.with("class", class)
}

func isAttached[L device](live L) phases.Verdict {
	if live.device().Attached {
		return phases.Done("attached")
	}
	return phases.Wait("NotAttached", "not attached yet", 5*time.Second)
}

// observes is a step that always observes this.
func observes(name string, observation phases.Observation) step {
	return step{Name: name, Observe: func(context.Context, *scope) (phases.Observation, error) { return observation, nil }}
}

// fails is a step that always fails with this error.
func fails(name string, err error) step {
	return step{Name: name, Observe: func(context.Context, *scope) (phases.Observation, error) { return nil, err }}
}

// ipOf is a step that allocates an IP of the kind that the Machine asks for, and releases it itself if
// the Machine asks for none.
func ipOf(cluster *fakeCluster, name string) step {
	lower := strings.ToLower(name)
	return step{
		Name: name,
		Observe: func(_ context.Context, s *scope) (phases.Observation, error) {
			want, configured := s.machine.Spec[name]
			value, exists, underway, err := cluster.ip(lower)
			switch {
			case err != nil:
				return nil, err
			case !configured && !exists:
				return phases.NotConfigured(), nil
			case !configured || !exists || value != want:
				return phases.Missing("IPMissing", "allocate a "+want+" IP"), nil
			case underway:
				return phases.Wait("IPPending", "the IP is being allocated", 3*time.Second), nil
			}
			return phases.Done("the IP is allocated"), nil
		},
		Ensure: func(_ context.Context, s *scope) (phases.Verdict, error) {
			want, configured := s.machine.Spec[name]
			if !configured {
				return phases.Wait("IPPending", "the IP is being released", 3*time.Second), cluster.release(lower)
			}
			return phases.Wait("IPPending", "the IP is being allocated", 3*time.Second), cluster.allocate(lower, want)
		},
		Undo: func(context.Context, *scope) (phases.Verdict, error) {
			_, exists, _, err := cluster.ip(lower)
			if err != nil || !exists {
				return phases.Done(""), err
			}
			return phases.Wait("IPReleasing", "waiting for the IP to be released", 3*time.Second), cluster.release(lower)
		},
	}
}

// optionalIPOf is ipOf, released by the engine if the Machine asks for none.
func optionalIPOf(cluster *fakeCluster, name string) step {
	ip := ipOf(cluster, name)
	ip.Configured = func(s *scope) bool {
		_, configured := s.machine.Spec[name]
		return configured
	}
	return ip
}

// harness is an engine over a cluster, as a test wants it.
type harness struct {
	*fakeCluster
	definition   phases.Definition[*Machine, *scope]
	dependencies phases.Dependencies
	events       *recorder
}

func newHarness(cluster *fakeCluster, list ...phase) *harness {
	events := &recorder{}
	return &harness{
		fakeCluster: cluster,
		events:      events,
		definition: phases.Definition[*Machine, *scope]{
			Controller: "machine",
			Finalizer:  machineFinalizer,
			Phases:     list,
			Scope:      func(machine *Machine) *scope { return &scope{machine: machine} },
			Conditions: func(machine *Machine) []metav1.Condition { return machine.Status.Conditions },
			Status: func(s *scope, summary phases.Summary) ssa.Configuration {
				return machineStatus(s.machine.Name, summary)
			},
			Suspended: func(machine *Machine) bool { return machine.Suspend },
		},
		dependencies: phases.Dependencies{
			Reader:   reader{fakeCluster: cluster, cached: true},
			Uncached: reader{fakeCluster: cluster},
			Applier:  applier{fakeCluster: cluster},
			Planner:  applier{fakeCluster: cluster, dryRun: true},
			Scheme:   machineScheme(),
			Recorder: events,
			Clock:    cluster.clock,
		},
	}
}

// settled is a harness with a Machine at the fixed point, and nothing written since.
func settled(t *testing.T, spec map[string]string, list ...phase) *harness {
	t.Helper()
	cluster := newFakeCluster()
	h := newHarness(cluster, list...)
	cluster.createMachine(&Machine{Spec: spec})
	h.settle(t)
	cluster.writes = nil
	h.events.take()
	return h
}

// engine is a fresh one each time, as after a restart.
func (h *harness) engine() (*phases.Engine[*Machine, *scope], error) {
	return phases.New(h.definition, h.dependencies)
}

var machineRequest = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: machineNamespace, Name: machineName}}

// reconcile reconciles with a fresh engine.
func (h *harness) reconcile(t testing.TB) (reconcile.Result, error) {
	t.Helper()
	engine, err := h.engine()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return engine.Reconcile(t.Context(), machineRequest)
}

// mustReconcile reconciles, which has to succeed.
func (h *harness) mustReconcile(t testing.TB) reconcile.Result {
	t.Helper()
	result, err := h.reconcile(t)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(h.violations).To(BeEmpty())
	return result
}

// settle reconciles, and lets time pass between, until nothing happens any more.
func (h *harness) settle(t testing.TB) {
	t.Helper()
	for range 50 {
		writes := len(h.writes)
		h.mustReconcile(t)
		if len(h.writes) == writes && len(h.due) == 0 {
			return
		}
		h.tick()
	}
	t.Fatalf("no fixed point in 50 reconciles: %v", h.writes)
}

// plan plans with a fresh engine.
func (h *harness) plan(t testing.TB) phases.Plan {
	t.Helper()
	engine, err := h.engine()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	plan, err := engine.Plan(t.Context(), h.machine())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return plan
}

// condition is a condition of the Machine, as it was written.
func (h *harness) condition(t testing.TB, conditionType string) metav1.Condition {
	t.Helper()
	c := meta.FindStatusCondition(h.machine().Status.Conditions, conditionType)
	NewWithT(t).Expect(c).NotTo(BeNil(), "no condition %s in %v", conditionType, h.machine().Status.Conditions)
	return *c
}

// states is a short form of all conditions: "Ready=False/NotAttached".
func (h *harness) states() []string {
	var states []string
	for _, c := range h.machine().Status.Conditions {
		states = append(states, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	return states
}
