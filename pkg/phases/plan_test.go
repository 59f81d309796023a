package phases_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// The plan of a situation is what the next reconcile then does.
func TestPlanIsWhatTheNextReconcileDoes(t *testing.T) {
	spec := map[string]string{"Boot": "fast", "Address": "static", "Uplink": "cheap"}
	cases := map[string]struct {
		situation func(*harness)
		policy    ssa.DriftPolicy
		plan      []string
		writes    []string
	}{
		"at the fixed point": {
			situation: func(*harness) {},
		},
		"create": {
			situation: func(h *harness) { h.editMachine(func(machine *Machine) { machine.Spec["Backup"] = "tiny" }) },
			plan:      []string{"Backup: Create Nic backup"},
			writes:    []string{"create Nic backup"},
		},
		"create, behind a phase that has something to do": {
			situation: func(h *harness) {
				h.editMachine(func(machine *Machine) { machine.Spec["Backup"], machine.Spec["Address"] = "tiny", "dynamic" })
			},
			plan:   []string{"Address: Ensure allocate a dynamic IP"},
			writes: []string{"allocate ip address"},
		},
		"update, and its successors wait": {
			situation: func(h *harness) {
				h.attachedAfter["boot"] = 1
				h.editMachine(func(machine *Machine) { machine.Spec["Boot"], machine.Spec["Uplink"] = "slow", "slow" })
			},
			plan:   []string{"Boot: Update Disk boot"},
			writes: []string{"update Disk boot"},
		},
		"prune": {
			situation: func(h *harness) {
				h.goneAfter["uplink"] = 1
				h.editMachine(func(machine *Machine) { delete(machine.Spec, "Uplink") })
			},
			plan:   []string{"Uplink: Delete Nic uplink"},
			writes: []string{"delete Nic uplink"},
		},
		"prune a child that no phase names": {
			situation: func(h *harness) {
				h.goneAfter["old-uplink"] = 1
				h.store(&Nic{ObjectMeta: metav1.ObjectMeta{Name: "old-uplink", Namespace: machineNamespace,
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(h.machine(), machineGroup.WithKind("Machine"))}}})
			},
			plan:   []string{"Uplink: Delete Nic old-uplink"},
			writes: []string{"delete Nic old-uplink"},
		},
		"correct drift": {
			situation: func(h *harness) {
				h.attachedAfter["boot"] = 1
				h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
			},
			plan:   []string{"Boot: Correct Disk boot (kubectl-edit changed .spec.class from fast to slow)"},
			writes: []string{"correct Disk boot"},
		},
		"report drift": {
			situation: func(h *harness) {
				h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
			},
			policy: ssa.ReportDrift,
			plan:   []string{"Boot: Report Disk boot (kubectl-edit changed .spec.class from fast to slow)"},
		},
		"blocked": {
			situation: func(h *harness) {
				h.editMachine(func(machine *Machine) { machine.Spec["Backup"] = "tiny" })
				h.modify("Disk", "boot", func(d device) { d.device().Attached = false })
			},
		},
		"blocked, where drift is only reported": {
			situation: func(h *harness) {
				h.editMachine(func(machine *Machine) { machine.Spec["Backup"] = "tiny" })
				h.modify("Disk", "boot", func(d device) { d.device().Attached = false })
			},
			policy: ssa.ReportDrift,
		},
		"suspended": {
			situation: func(h *harness) {
				h.editMachine(func(machine *Machine) { machine.Suspend, machine.Spec["Backup"] = true, "tiny" })
			},
		},
		"teardown": {
			situation: func(h *harness) {
				h.goneAfter["uplink"] = 1
				h.deleteMachine()
			},
			plan:   []string{"Uplink: Delete Nic uplink"},
			writes: []string{"delete Nic uplink"},
		},
		"teardown of a step": {
			situation: func(h *harness) {
				h.goneAfter["address"] = 1
				delete(h.objects, ref{"Nic", "uplink"})
				h.sync()
				h.deleteMachine()
			},
			plan:   []string{"Address: Undo Address"},
			writes: []string{"release ip address"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a settled Machine, to which something happens
			cluster := newFakeCluster()
			h := newHarness(cluster, diskOf("Boot"), ipOf(cluster, "Address"), nicOf("Uplink"), nicOf("Backup"))
			h.definition.Policies = func(*Machine) phases.Policies { return phases.Policies{Adoption: ssa.AdoptNever, Drift: c.policy} }
			cluster.createMachine(&Machine{Spec: maps.Clone(spec)})
			h.settle(t)
			c.situation(h)
			h.writes = nil
			h.events.take()

			// When it is planned
			plan := h.plan(t)

			// Then the plan says what would be done, and nothing is
			g.Expect(changesOf(plan)).To(Equal(c.plan))
			g.Expect(h.writes).To(BeEmpty())
			g.Expect(h.events.take()).To(BeEmpty())

			// When it is reconciled, just that is done
			h.mustReconcile(t)
			var done []string
			for _, write := range h.writes {
				if write != "status" {
					done = append(done, write)
				}
			}
			g.Expect(done).To(Equal(c.writes))
		})
	}
}

func changesOf(plan phases.Plan) []string {
	var changes []string
	for _, change := range plan.Changes() {
		changes = append(changes, change.String())
	}
	return changes
}

func TestPlanOfANewlyCreatedObjectAddsNoFinalizer(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	cluster.attachedAfter["uplink"] = 1
	h := newHarness(cluster, diskOf("Backup"), nicOf("Uplink"), ipOf(cluster, "Address"))
	h.createMachine(&Machine{Spec: map[string]string{"Uplink": "cheap", "Address": "static"}})

	plan := h.plan(t)

	g.Expect(h.writes).To(BeEmpty(), "not even the finalizer")
	g.Expect(plan.String()).To(Equal(strings.Join([]string{
		"Backup: not configured",
		"Uplink: wait (NotAttached: not attached yet)",
		"  Uplink: Create Nic uplink",
		"Address: not reached",
		"",
	}, "\n")))
}

func TestPlanOfTheEndOfATeardownKeepsTheFinalizer(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, nil, diskOf("Boot"))
	h.deleteMachine()

	plan := h.plan(t)

	g.Expect(plan.Changes()).To(BeEmpty())
	g.Expect(h.writes).To(BeEmpty())
	g.Expect(h.machine().Finalizers).To(ContainElement(machineFinalizer))
}

func TestPlanSaysWhatWouldFail(t *testing.T) {
	down := errors.New("the cloud is down")
	cases := map[string]func(*harness){
		"a phase": func(h *harness) {
			h.definition.Phases = []phase{diskOf("Boot"), fails("Address", down), diskOf("Data")}
		},
		"a teardown": func(h *harness) {
			h.deleteMachine()
			h.fail = func(string) error { return down }
			h.definition.Phases = []phase{observes("Backup", phases.Done("")), nicOf("Uplink"), observes("Address", phases.Done(""))}
		},
	}
	for name, situation := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := settled(t, map[string]string{"Boot": "fast", "Uplink": "cheap"}, diskOf("Boot"), nicOf("Uplink"))
			situation(h)

			plan := h.plan(t)

			g.Expect(plan.Phases).To(HaveLen(3))
			g.Expect(plan.Phases[0].Err).NotTo(HaveOccurred())
			g.Expect(plan.Phases[1].Err).To(MatchError(down))
			g.Expect(plan.Phases[2].Err).NotTo(HaveOccurred())
		})
	}
}

func TestPlanRequiresAPlanner(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(newFakeCluster(), diskOf("Boot"))
	h.dependencies.Planner = nil
	engine, err := h.engine()
	g.Expect(err).NotTo(HaveOccurred())

	_, err = engine.Plan(t.Context(), &Machine{})

	g.Expect(err).To(MatchError(ContainSubstring("Dependencies.Planner is nil")))
}

func TestPlanGoesOnAfterStepThatIsPlanned(t *testing.T) {
	g := NewWithT(t)
	// Given two steps that have something to do, the second only if the first is done
	allocated := false
	ensure := func(context.Context, *scope) (phases.Verdict, error) { return nil, errors.New("a plan writes nothing") }
	h := newHarness(newFakeCluster(), step{
		Name: "Address",
		Observe: func(context.Context, *scope) (phases.Observation, error) {
			return phases.Missing("Allocating", "allocate"), nil
		},
		Ensure:  ensure,
		Planned: func(*scope) phases.Verdict { allocated = true; return phases.Done("") },
	}, step{
		Name: "Route",
		Observe: func(context.Context, *scope) (phases.Observation, error) {
			if !allocated {
				return phases.Done(""), nil
			}
			return phases.Missing("Routing", "route"), nil
		},
		Ensure: ensure,
	}, diskOf("Boot"))
	h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	plan := h.plan(t)

	g.Expect(changesOf(plan)).To(Equal([]string{"Address: Ensure allocate", "Route: Ensure route"}))
	g.Expect(plan.Phases[0].Verdict.IsDone()).To(BeTrue())
	g.Expect(plan.Phases[1].Verdict.Reason()).To(Equal("Routing"))
	g.Expect(plan.Phases[2].Verdict).To(BeNil(), "a step that is not planned ends the plan")
}
