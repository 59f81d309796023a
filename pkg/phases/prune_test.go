package phases_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestPruneOrderSaysWhenAChildIsDeleted(t *testing.T) {
	cases := map[string]struct {
		order phases.PruneOrder
		want  []string
	}{
		"in order: when its phase runs": {
			order: phases.PruneInOrder,
			want:  []string{"update Disk boot", "delete Nic console", "status", "update Disk data", "status"},
		},
		"first: before any phase acts": {
			order: phases.PruneFirst,
			want:  []string{"delete Nic console", "update Disk boot", "status", "update Disk data", "status"},
		},
		"last: when all phases are done": {
			order: phases.PruneLast,
			want:  []string{"update Disk boot", "update Disk data", "delete Nic console", "status", "status"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a NIC between two disks, whose deletion takes a tick
			console := nicOf("Console")
			console.Prune = c.order
			h := settled(t, map[string]string{"Boot": "fast", "Console": "fast", "Data": "fast"}, diskOf("Boot"), console, diskOf("Data"))
			h.goneAfter["console"] = 1

			// When it is no longer desired, and the class of the disks changes
			h.editMachine(func(machine *Machine) { machine.Spec = map[string]string{"Boot": "cheap", "Data": "cheap"} })
			planned := h.plan(t)
			h.settle(t)

			// Then it is deleted at that point, once, as the plan said of the first reconcile
			g.Expect(h.writes).To(Equal(c.want))
			g.Expect(changesOf(planned)).To(HaveLen(len(firstReconcile(c.want))))
			g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "BootReady=True/Ready", "DataReady=True/Ready"}))
		})
	}
}

// firstReconcile is what was written before the first status.
func firstReconcile(writes []string) []string {
	for i, write := range writes {
		if write == "status" {
			return writes[:i]
		}
	}
	return writes
}

func TestChildThatIsPrunedLastIsKeptUntilAllPhasesAreDone(t *testing.T) {
	g := NewWithT(t)
	// Given a NIC that is pruned last, and a disk after it that takes a tick to be attached
	console := nicOf("Console")
	console.Prune = phases.PruneLast
	h := settled(t, map[string]string{"Console": "fast", "Data": "fast"}, console, diskOf("Data"))
	h.attachedAfter["data"], h.goneAfter["console"] = 1, 1

	// When the NIC is no longer desired and the class of the disk changes
	h.editMachine(func(machine *Machine) { machine.Spec = map[string]string{"Data": "cheap"} })
	h.mustReconcile(t)

	// Then it gates nothing while the disk changes
	g.Expect(h.states()).To(ContainElements("ConsoleReady=True/Pruning", "DataReady=False/NotAttached"))
	g.Expect(h.condition(t, "ConsoleReady").Message).To(Equal("Nic console will be deleted once unused"))
	g.Expect(h.events.take()).NotTo(ContainElement(ContainSubstring("ConsoleReady")), "it is progress")
	g.Expect(h.device("Nic", "console")).NotTo(BeNil())

	// When the disk is ready, the NIC is deleted, and the Machine is Ready when it is gone
	h.tick()
	h.mustReconcile(t)
	g.Expect(h.states()).To(ContainElements("Ready=False/Pruning", "ConsoleReady=False/Pruning", "DataReady=True/Ready"))
	g.Expect(h.condition(t, "ConsoleReady").Message).To(Equal("waiting for Nic console to be deleted (finalizers: foregroundDeletion); it is no longer desired"))
	h.settle(t)
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "DataReady=True/Ready"}))
}

func TestChildThatIsPrunedLastHoldsUpNothingWhileItIsBeingDeleted(t *testing.T) {
	g := NewWithT(t)
	// Given a NIC that is pruned last and takes long to be gone, and a disk after it
	console := nicOf("Console")
	console.Prune = phases.PruneLast
	h := settled(t, map[string]string{"Console": "fast", "Data": "fast"}, console, diskOf("Data"))
	h.goneAfter["console"], h.attachedAfter["data"] = 10, 1
	h.editMachine(func(machine *Machine) { machine.Spec = map[string]string{"Data": "fast"} })
	h.mustReconcile(t)
	g.Expect(h.states()).To(ContainElements("Ready=False/Pruning", "ConsoleReady=False/Pruning"))

	// When the class of the disk changes
	h.editMachine(func(machine *Machine) { machine.Spec = map[string]string{"Data": "cheap"} })
	h.mustReconcile(t)

	// Then the disk is updated, and the status goes on to say what the deletion waits for
	g.Expect(h.writes).To(ContainElement("update Disk data"))
	g.Expect(h.states()).To(ContainElements("ConsoleReady=True/Pruning", "DataReady=False/NotAttached"))
	g.Expect(h.condition(t, "ConsoleReady").Message).To(ContainSubstring("waiting for Nic console to be deleted"))
	h.tick()
	h.mustReconcile(t)
	g.Expect(h.states()).To(ContainElements("Ready=False/Pruning", "ConsoleReady=False/Pruning", "DataReady=True/Ready"))
	g.Expect(h.condition(t, "ConsoleReady").Message).To(ContainSubstring("waiting for Nic console to be deleted"))
	h.settle(t)
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "DataReady=True/Ready"}))
}

func TestChildrenThatArePrunedLastAreDeletedInReverse(t *testing.T) {
	g := NewWithT(t)
	// Given two NICs that are pruned last, and take a tick to be gone
	console, monitor := nicOf("Console"), nicOf("Monitor")
	console.Prune, monitor.Prune = phases.PruneLast, phases.PruneLast
	h := settled(t, map[string]string{"Console": "fast", "Monitor": "fast"}, console, monitor)
	h.goneAfter["console"], h.goneAfter["monitor"] = 1, 1

	// When neither is desired
	h.editMachine(func(machine *Machine) { machine.Spec = nil })
	h.mustReconcile(t)

	// Then the first is kept until the second is gone
	g.Expect(h.writes).To(Equal([]string{"delete Nic monitor", "status"}))
}

func TestNothingIsAppliedBeforeAPruneThatComesFirst(t *testing.T) {
	g := NewWithT(t)
	// Given a NIC that is pruned first and cannot be deleted
	console := nicOf("Console")
	console.Prune = phases.PruneFirst
	h := settled(t, map[string]string{"Boot": "fast", "Console": "fast"}, diskOf("Boot"), console)
	h.fail = func(what string) error {
		if what == "delete Nic console" {
			return errDown
		}
		return nil
	}

	// When it is no longer desired, and the disk changes
	h.editMachine(func(machine *Machine) { machine.Spec = map[string]string{"Boot": "cheap"} })
	_, err := h.reconcile(t)

	// Then the disk is left as it is
	g.Expect(err).To(MatchError(errDown))
	g.Expect(h.writes).To(Equal([]string{"status"}))
}

func TestChildThatIsPrunedFirstAndCannotBeComputedIsKept(t *testing.T) {
	g := NewWithT(t)
	console := nicOf("Console")
	console.Prune = phases.PruneFirst
	h := settled(t, map[string]string{"Console": "fast"}, console)
	console.Desired = func(*scope) (*deviceConfiguration, error) { return nil, errors.New("no such console") }
	h.definition.Phases = []phase{console}

	_, err := h.reconcile(t)

	g.Expect(err).To(MatchError("phase Console: no such console"))
	g.Expect(h.writes).To(Equal([]string{"status"}))
	g.Expect(h.device("Nic", "console")).NotTo(BeNil())
}

func TestPruneThatFailsIsReportedByItsPhase(t *testing.T) {
	for name, order := range map[string]phases.PruneOrder{"first": phases.PruneFirst, "in order": phases.PruneInOrder, "last": phases.PruneLast} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a NIC that is no longer desired and cannot be deleted
			console := nicOf("Console")
			console.Prune = order
			h := settled(t, map[string]string{"Boot": "fast", "Console": "fast"}, diskOf("Boot"), console)
			refusal := &ssa.Error{Reason: ssa.ReasonForbidden, Object: "Nic console", Message: "grant the permission"}
			h.fail = func(what string) error {
				if what == "delete Nic console" {
					return refusal
				}
				return nil
			}
			h.editMachine(func(machine *Machine) { delete(machine.Spec, "Console") })

			// When it is reconciled
			_, err := h.reconcile(t)

			// Then it is retried, and the condition of its phase says why
			g.Expect(err).To(MatchError(refusal))
			g.Expect(h.states()).To(ContainElements("Ready=False/Forbidden", "ConsoleReady=False/Forbidden"))
			g.Expect(h.condition(t, "Ready").Message).To(HavePrefix("Console: "))
		})
	}
}

// The teardown goes by the conditions: without that of the phase it would not look for the child.
func TestConditionOfAChildStaysUntilTheChildIsGoneAlsoIfTheCacheLags(t *testing.T) {
	for name, forget := range map[string]func(*Machine){
		"that the status knows": func(*Machine) {},
		// The manager ended after it had created the child.
		"that no status knows": func(machine *Machine) { machine.Status = MachineStatus{} },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a disk that the cache of a manager that has just started does not show
			gates := false
			gate := &phases.Step[*scope]{Name: "Gate", Observe: func(context.Context, *scope) (phases.Observation, error) {
				if gates {
					return phases.Wait("Closed", "it is closed", time.Second), nil
				}
				return phases.Done(""), nil
			}}
			h := settled(t, map[string]string{"Boot": "fast"}, gate, diskOf("Boot"))
			h.lags = true
			delete(h.cache, ref{"Disk", "boot"})

			// When it is no longer desired, and a phase before it waits
			gates = true
			h.editMachine(func(machine *Machine) {
				forget(machine)
				delete(machine.Spec, "Boot")
			})
			h.syncKind("Machine")
			h.mustReconcile(t)

			// Then the status says that something may be left
			g.Expect(h.states()).To(ContainElement(HavePrefix("BootReady=")))

			// When the phase before it is done
			gates = false
			h.syncKind("Machine")
			h.mustReconcile(t)

			// Then it is deleted
			g.Expect(h.writes).To(ContainElement("delete Disk boot"))
			g.Expect(h.device("Disk", "boot")).To(BeNil())
		})
	}
}

func TestChildThatIsPrunedFirstAndCannotBeComputedBlocksNoEarlierPhase(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	console := nicOf("Console")
	console.Prune = phases.PruneFirst
	console.Desired = func(*scope) (*deviceConfiguration, error) { return nil, errors.New("no such console") }
	h := newHarness(cluster, diskOf("Boot"), console)
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	_, err := h.reconcile(t)

	g.Expect(err).To(MatchError("phase Console: no such console"))
	g.Expect(h.states()).To(ContainElements("BootReady=True/Ready", "ConsoleReady=False/Failed"))
}

func TestRequirementsThatCannotBeCheckedAreAnError(t *testing.T) {
	for name, verdict := range map[string]phases.Verdict{"alone": nil, "beside a verdict": phases.Done("")} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := newFakeCluster()
			boot := diskOf("Boot")
			boot.Requires = func(context.Context, *scope) (phases.Verdict, error) { return verdict, errDown }
			h := newHarness(cluster, boot)
			cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

			_, err := h.reconcile(t)

			g.Expect(err).To(MatchError(errDown))
			g.Expect(h.writes).To(Equal([]string{"finalize", "status"}))
			g.Expect(h.states()).To(ContainElement("BootReady=False/Failed"))
		})
	}
}

func TestRequirementsGateBeforeTheChildIsApplied(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that requires a pool, which does not exist
	cluster := newFakeCluster()
	var pool phases.Verdict = phases.Stalled("PoolMissing", "create the pool")
	boot := diskOf("Boot")
	boot.Requires = func(context.Context, *scope) (phases.Verdict, error) { return pool, nil }
	h := newHarness(cluster, boot)
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	// When it is reconciled, nothing is applied and the status says why
	h.mustReconcile(t)
	g.Expect(cluster.writes).To(Equal([]string{"finalize", "status"}))
	g.Expect(h.states()).To(ContainElement("BootReady=False/PoolMissing"))

	// When the pool exists, it is
	pool = phases.Done("")
	h.settle(t)
	g.Expect(cluster.writes).To(ContainElement("create Disk boot"))

	// When the disk is no longer desired, the pool is not asked for
	pool = phases.Stalled("PoolMissing", "create the pool")
	cluster.editMachine(func(machine *Machine) { delete(machine.Spec, "Boot") })
	h.settle(t)
	g.Expect(h.states()).To(ContainElement("Ready=True/Ready"))
}

// The status of the kind is computed from what the scope has observed, and must be true of children
// whose phases did not run, or failed.
func TestChildrenAreObservedWhateverGates(t *testing.T) {
	refuseBoot := func(h *harness) {
		h.fail = func(what string) error {
			if what == "apply Disk boot" {
				return &ssa.Error{Reason: ssa.ReasonQuotaExceeded, Object: "Disk boot", Message: "no room"}
			}
			return nil
		}
		h.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "cheap" })
	}
	gate := func(h *harness) {
		h.definition.Phases = append([]phase{observes("Address", phases.Wait("Pending", "", 0))}, h.definition.Phases...)
	}
	owned := func(h *harness, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: machineNamespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(h.machine(), machineGroup.WithKind("Machine"))}}
	}
	cases := map[string]func(*harness){
		"nothing":                           func(*harness) {},
		"the apply of the child is refused": refuseBoot,
		"the child is being deleted": func(h *harness) {
			h.remove(ref{"Disk", "boot"}, metav1.FinalizerDeleteDependents)
		},
		"a child that no phase names is being deleted": func(h *harness) {
			h.store(&Disk{ObjectMeta: owned(h, "old")})
			h.goneAfter["old"] = 1
		},
		"a requirement of the child": func(h *harness) {
			boot := diskOf("Boot")
			boot.Requires = func(context.Context, *scope) (phases.Verdict, error) { return phases.Wait("Pending", "", 0), nil }
			h.definition.Phases[0] = boot
		},
		"the child cannot be computed": func(h *harness) {
			boot := diskOf("Boot")
			boot.Desired = func(*scope) (*deviceConfiguration, error) { return nil, errors.New("no such class") }
			h.definition.Phases[0] = boot
		},
		"a deletion that is refused": func(h *harness) {
			h.editMachine(func(machine *Machine) { delete(machine.Spec, "Boot") })
			h.fail = func(what string) error {
				if what == "delete Disk boot" {
					return errors.New("no")
				}
				return nil
			}
		},
		"the child is not ready": func(h *harness) {
			h.modify("Disk", "boot", func(d device) { d.device().Attached = false })
		},
		"an earlier phase": gate,
		"an earlier phase, beside a drift that is only reported": func(h *harness) {
			reportsDrift(h)
			h.modify("Disk", "data", func(d device) { d.device().Spec["class"] = "slow" })
			gate(h)
		},
		"an earlier phase, beside a child that no phase names": func(h *harness) {
			h.store(&Disk{ObjectMeta: owned(h, "a-former-one")})
			gate(h)
		},
		"a prune before all phases that is refused": func(h *harness) {
			console := nicOf("Console")
			console.Prune = phases.PruneFirst
			h.definition.Phases = append(h.definition.Phases, console)
			h.store(&Nic{ObjectMeta: owned(h, "console")})
			h.fail = func(what string) error {
				if what == "delete Nic console" {
					return errDown
				}
				return nil
			}
		},
		"suspension": func(h *harness) { h.editMachine(func(machine *Machine) { machine.Suspend = true }) },
		"the teardown": func(h *harness) {
			h.goneAfter["data"] = 1
			h.deleteMachine()
		},
	}
	for name, situation := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given two disks, and a situation
			h := settled(t, map[string]string{"Boot": "fast", "Data": "fast"}, diskOf("Boot"), diskOf("Data"))
			situation(h)
			var seen []string
			status := h.definition.Status
			h.definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
				seen = s.seen
				return status(s, summary)
			}

			// When it is reconciled
			_, _ = h.reconcile(t)

			// Then both have been observed, each once
			g.Expect(seen).To(Equal([]string{"boot", "data"}))
		})
	}
}

func TestKindsThatMayHaveDependentsAreDeletedInTheForeground(t *testing.T) {
	for kind, want := range map[schema.GroupVersionKind]metav1.DeletionPropagation{
		{Group: "apps", Version: "v1", Kind: "Deployment"}:                     metav1.DeletePropagationForeground,
		{Group: "batch", Version: "v1", Kind: "CronJob"}:                       metav1.DeletePropagationForeground,
		{Version: "v1", Kind: "ReplicationController"}:                         metav1.DeletePropagationForeground,
		{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}:         metav1.DeletePropagationForeground,
		{Version: "v1", Kind: "ConfigMap"}:                                     metav1.DeletePropagationBackground,
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}:          metav1.DeletePropagationBackground,
		{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}:           metav1.DeletePropagationBackground,
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}: metav1.DeletePropagationBackground,
	} {
		t.Run(kind.Kind, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(phases.DefaultPropagation(kind)).To(Equal(want))
		})
	}
}
