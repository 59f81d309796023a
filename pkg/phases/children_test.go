package phases_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestAllMembersAreAppliedBeforeOneThatIsNotReadyGates(t *testing.T) {
	g := NewWithT(t)
	// Given a set of three disks, of which the second takes a tick to be attached
	cluster := newFakeCluster()
	cluster.attachedAfter["b"] = 1
	h := newHarness(cluster, disksOf("Volumes"), nicOf("Uplink"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Volumes": "c b a", "Uplink": "cheap"}})

	// When it is reconciled for the first time
	result := h.mustReconcile(t)

	// Then all are created in their order, and the phase has the verdict of the second
	g.Expect(cluster.writes).To(Equal([]string{"finalize", "create Disk c", "create Disk b", "create Disk a", "status"}))
	g.Expect(result.RequeueAfter).To(Equal(5 * time.Second))
	g.Expect(h.states()).To(Equal([]string{
		"Ready=False/NotAttached", "VolumesReady=False/NotAttached", "UplinkReady=Unknown/Blocked", "Reconciling=True/NotAttached",
	}))

	// When it is attached, the next phase runs
	h.settle(t)
	g.Expect(cluster.writes[5:]).To(Equal([]string{"create Nic uplink", "status"}))
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "VolumesReady=True/Ready", "UplinkReady=True/Ready"}))
}

func TestMembersFollowTheSpec(t *testing.T) {
	cases := map[string]struct {
		from, to string
		writes   []string
		// disks are the classes of what exists in the end.
		disks map[string]string
	}{
		"nothing changes": {
			from: "a b", to: "a b",
			disks: map[string]string{"a": "fast", "b": "fast"},
		},
		"one is added": {
			from: "a b", to: "a b c",
			writes: []string{"create Disk c", "status"},
			disks:  map[string]string{"a": "fast", "b": "fast", "c": "fast"},
		},
		"one is removed": {
			from: "a b c", to: "a c",
			writes: []string{"delete Disk b", "status", "status"},
			disks:  map[string]string{"a": "fast", "c": "fast"},
		},
		"one is renamed: the new one is created before the old one is deleted": {
			from: "a b", to: "a c",
			writes: []string{"create Disk c", "delete Disk b", "status", "status"},
			disks:  map[string]string{"a": "fast", "c": "fast"},
		},
		"one changes": {
			from: "a b", to: "a b=slow",
			writes: []string{"update Disk b", "status"},
			disks:  map[string]string{"a": "fast", "b": "slow"},
		},
		"they change their order": {
			from: "a b", to: "b a",
			writes: []string{"status"}, // of the generation
			disks:  map[string]string{"a": "fast", "b": "fast"},
		},
		"all are replaced": {
			from: "a b", to: "c d",
			writes: []string{"create Disk c", "create Disk d", "delete Disk a", "delete Disk b", "status", "status"},
			disks:  map[string]string{"c": "fast", "d": "fast"},
		},
		"all are removed": {
			from: "a b", to: "",
			writes: []string{"delete Disk a", "delete Disk b", "status", "status"},
			disks:  map[string]string{},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a set of disks, whose deletion takes a tick
			h := settled(t, map[string]string{"Volumes": c.from}, disksOf("Volumes"))
			for _, disk := range []string{"a", "b", "c"} {
				h.goneAfter[disk] = 1
			}

			// When the spec asks for another set
			if c.from != c.to {
				h.editMachine(func(machine *Machine) { machine.Spec["Volumes"] = c.to })
			}
			h.settle(t)

			// Then just what differs is written
			g.Expect(h.writes).To(Equal(c.writes))
			g.Expect(disksIn(h)).To(Equal(c.disks))
			if len(c.disks) > 0 {
				g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "VolumesReady=True/Ready"}))
			} else {
				g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready"}), "a set without members is not configured")
			}
		})
	}
}

// disksIn are the classes of the disks that exist.
func disksIn(h *harness) map[string]string {
	classes := map[string]string{}
	for r, object := range h.objects {
		if disk, ok := object.(*Disk); ok {
			classes[r.name] = disk.Spec["class"]
		}
	}
	return classes
}

func TestMemberThatIsPrunedLastIsKeptUntilAllPhasesAreDone(t *testing.T) {
	g := NewWithT(t)
	// Given a set of disks that is pruned last, of which the NIC uses b until it has changed
	volumes := disksOf("Volumes")
	volumes.Prune = phases.PruneLast
	h := settled(t, map[string]string{"Volumes": "a b", "Uplink": "fast"}, volumes, nicOf("Uplink"))
	h.goneAfter["b"], h.attachedAfter["uplink"] = 1, 1

	// When b is no longer desired and the class of the NIC changes
	h.editMachine(func(machine *Machine) { machine.Spec = map[string]string{"Volumes": "a", "Uplink": "cheap"} })
	h.mustReconcile(t)

	// Then b gates nothing while the NIC changes
	g.Expect(h.writes).To(Equal([]string{"update Nic uplink", "status"}))
	g.Expect(h.states()).To(ContainElements("VolumesReady=True/Ready", "UplinkReady=False/NotAttached"))

	// When the NIC is ready, b is deleted, and the Machine is Ready when it is gone
	h.tick()
	h.mustReconcile(t)
	g.Expect(h.writes).To(ContainElement("delete Disk b"))
	g.Expect(h.states()).To(ContainElements("Ready=False/Pruning", "VolumesReady=False/Pruning", "UplinkReady=True/Ready"))
	h.settle(t)
	g.Expect(disksIn(h)).To(Equal(map[string]string{"a": "fast"}))
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "VolumesReady=True/Ready", "UplinkReady=True/Ready"}))
}

func TestMemberThatIsBeingDeletedGates(t *testing.T) {
	g := NewWithT(t)
	// Given a set of disks, of which one is no longer desired and is deleted slowly
	h := settled(t, map[string]string{"Volumes": "a b c", "Uplink": "cheap"}, disksOf("Volumes"), nicOf("Uplink"))
	h.goneAfter["b"] = 2
	h.editMachine(func(machine *Machine) { machine.Spec["Volumes"] = "a c"; machine.Spec["Uplink"] = "tiny" })

	// When it is reconciled repeatedly
	h.mustReconcile(t)
	h.tick()
	h.mustReconcile(t)

	// Then it is deleted once, and the next phase waits
	g.Expect(h.writes).To(Equal([]string{"delete Disk b", "status"}))
	g.Expect(h.condition(t, "VolumesReady").Message).To(Equal("waiting for Disk b to be deleted (finalizers: foregroundDeletion); it is no longer desired"))
	g.Expect(h.states()).To(ContainElements("VolumesReady=False/Pruning", "UplinkReady=Unknown/Blocked"))

	// When it is desired again meanwhile, it is recreated when it is gone
	h.editMachine(func(machine *Machine) { machine.Spec["Volumes"] = "a b c" })
	h.mustReconcile(t)
	g.Expect(h.condition(t, "VolumesReady").Message).To(Equal("Disk b is being deleted (finalizers: foregroundDeletion); it will be recreated"))
	h.settle(t)
	g.Expect(h.states()).To(ContainElement("Ready=True/Ready"))
	g.Expect(disksIn(h)).To(HaveKey("b"))
}

func TestSetWithoutHealthSaysThatAllMembersAreApplied(t *testing.T) {
	g := NewWithT(t)
	volumes := disksOf("Volumes")
	volumes.Health, volumes.Ready = nil, nil

	h := settled(t, map[string]string{"Volumes": "a b"}, volumes)

	g.Expect(h.condition(t, "VolumesReady").Message).To(Equal("all Disk objects applied"))
}

func TestMembersOfOneNameAreRefused(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	h := newHarness(cluster, disksOf("Volumes"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Volumes": "a b a=slow"}})

	h.mustReconcile(t)

	g.Expect(cluster.writes).To(Equal([]string{"finalize", "status"}))
	g.Expect(h.states()).To(ContainElement("Stalled=True/Failed"))
	g.Expect(h.condition(t, "VolumesReady").Message).To(Equal(`Desired returns two members with the name "a": this is a bug in the operator`))
}

func TestMembersOfAnotherKindOrNamespaceAreRefused(t *testing.T) {
	for want, member := range map[string]*deviceConfiguration{
		"Desired returns a configuration of lab.example.com/v1 Nic, and the child's Go type is of lab.example.com/v1 Disk: this is a bug in the operator": nic("b"),
		`Desired returns a configuration in the namespace "elsewhere", and the owner is in "lab" ` +
			"(a cluster-scoped child needs a cluster-scoped owner): this is a bug in the operator": inNamespace(disk("b"), "elsewhere"),
	} {
		g := NewWithT(t)
		cluster := newFakeCluster()
		volumes := disksOf("Volumes")
		volumes.Desired = func(*scope) ([]*deviceConfiguration, error) {
			return []*deviceConfiguration{disk("a"), member}, nil
		}
		h := newHarness(cluster, volumes)
		cluster.createMachine(&Machine{})

		h.mustReconcile(t)

		g.Expect(cluster.writes).To(Equal([]string{"finalize", "status"}))
		g.Expect(h.condition(t, "VolumesReady").Message).To(Equal(want))
	}
}

func TestConfigurationsOfNoKindAreRefused(t *testing.T) {
	for want, member := range map[string]*deviceConfiguration{
		"Desired returns a member that is nil: this is a bug in the operator": nil,
		"Desired returns a *phases_test.deviceConfiguration without a kind (its constructor sets it): this is a bug in the operator": {
			ObjectMetaApplyConfiguration: disk("b").ObjectMetaApplyConfiguration,
		},
	} {
		t.Run(want, func(t *testing.T) {
			g := NewWithT(t)
			cluster := newFakeCluster()
			volumes := disksOf("Volumes")
			volumes.Desired = func(*scope) ([]*deviceConfiguration, error) {
				return []*deviceConfiguration{disk("a"), member}, nil
			}
			h := newHarness(cluster, volumes)
			cluster.createMachine(&Machine{})

			h.mustReconcile(t)

			g.Expect(cluster.writes).To(Equal([]string{"finalize", "status"}))
			g.Expect(h.states()).To(ContainElement("Stalled=True/Failed"))
			g.Expect(h.condition(t, "VolumesReady").Message).To(Equal(want))

			// When the Machine is deleted, the bug does not block it
			cluster.deleteMachine()
			h.settle(t)
			g.Expect(cluster.machine()).To(BeNil())
		})
	}
}

func TestSetsAndChildrenOfOneKindLeaveEachOtherAlone(t *testing.T) {
	g := NewWithT(t)
	// Given a disk and two sets of disks, and a NIC between
	var seen []string
	boot := diskOf("Boot")
	boot.Observed = nil
	volumes := disksOf("Volumes")
	volumes.Observed = func(_ *scope, live []*Disk) {
		seen = nil
		for _, disk := range live {
			seen = append(seen, disk.Name)
		}
	}
	spec := map[string]string{"Boot": "fast", "Uplink": "cheap", "Volumes": "a b", "Snapshots": "s"}
	h := settled(t, spec, boot, nicOf("Uplink"), volumes, disksOf("Snapshots"))
	g.Expect(disksIn(h)).To(HaveLen(4))
	g.Expect(seen).To(Equal([]string{"a", "b"}))

	// When one set is turned off, the others stay
	h.editMachine(func(machine *Machine) { delete(machine.Spec, "Snapshots") })
	h.settle(t)
	g.Expect(disksIn(h)).To(And(HaveLen(3), Not(HaveKey("s"))))

	// When the set does not run, it observes its own members, and has a condition only for them
	h.definition.Phases = append([]phase{observes("Address", phases.Wait("Pending", "", 0))}, h.definition.Phases...)
	h.mustReconcile(t)
	g.Expect(seen).To(Equal([]string{"a", "b"}))
	h.editMachine(func(machine *Machine) { delete(machine.Spec, "Volumes") })
	h.mustReconcile(t)
	g.Expect(h.states()).To(ContainElement("VolumesReady=Unknown/Blocked"))
	g.Expect(seen).To(Equal([]string{"a", "b"}), "what exists, desired or not")
	h.definition.Phases = h.definition.Phases[1:]
	h.settle(t)
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "BootReady=True/Ready", "UplinkReady=True/Ready"}))

	// When the Machine is deleted, each is deleted in the order of the list reversed
	h.editMachine(func(machine *Machine) { machine.Spec = spec })
	h.settle(t)
	h.goneAfter["s"], h.goneAfter["a"] = 1, 1
	h.deleteMachine()
	h.writes = nil
	h.settle(t)
	g.Expect(h.writes).To(Equal([]string{
		"delete Disk s", "status", "delete Disk a", "delete Disk b", "status", "delete Nic uplink", "delete Disk boot", "unfinalize",
	}))
}

func TestSetThatCannotBeComputedDeletesNothing(t *testing.T) {
	g := NewWithT(t)
	// Given a set of disks beside a disk, of which the set cannot be computed any more
	h := settled(t, map[string]string{"Boot": "fast", "Volumes": "a b"}, diskOf("Boot"), disksOf("Volumes"))
	volumes := disksOf("Volumes")
	volumes.Desired = func(*scope) ([]*deviceConfiguration, error) { return nil, errors.New("no such class") }
	h.definition.Phases[1] = volumes

	// When it is reconciled
	_, err := h.reconcile(t)

	// Then neither its own phase nor the other one deletes its members
	g.Expect(err).To(MatchError("phase Volumes: no such class"))
	g.Expect(h.writes).To(Equal([]string{"status"}))
	g.Expect(disksIn(h)).To(HaveLen(3))

	// When it is deleted, everything is
	h.deleteMachine()
	h.settle(t)
	g.Expect(h.machine()).To(BeNil())
	g.Expect(h.left()).To(BeEmpty())
}

func TestSetThatCannotBeComputedDoesNotChangeTheOrderOfATeardown(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that a NIC uses, another one, and a set of which the spec does not say any more what is in it
	list := []phase{diskOf("Boot"), nicOf("Uplink"), disksOf("Volumes"), diskOf("Data")}
	h := settled(t, map[string]string{"Boot": "fast", "Uplink": "cheap", "Volumes": "a", "Data": "slow"}, list...)
	volumes := disksOf("Volumes")
	volumes.Desired = func(*scope) ([]*deviceConfiguration, error) { return nil, errors.New("no such class") }
	list[2] = volumes

	// When the Machine is deleted
	h.deleteMachine()
	h.settle(t)

	// Then the disk that the NIC uses is deleted after the NIC
	g.Expect(h.writes[len(h.writes)-3:]).To(Equal([]string{"delete Nic uplink", "delete Disk boot", "unfinalize"}))
	g.Expect(h.left()).To(BeEmpty())
}

func TestTeardownOfASetDoesNotBelieveALaggingCache(t *testing.T) {
	for name, show := range map[string]func(*harness){
		"that shows no member":    func(*harness) {},
		"that shows some members": func(h *harness) { h.cache[ref{"Disk", "a"}] = h.objects[ref{"Disk", "a"}] },
		"that shows the disk of another phase": func(h *harness) {
			h.cache[ref{"Disk", "boot"}] = h.objects[ref{"Disk", "boot"}]
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given members that the last reconcile has created, and a cache
			cluster := newFakeCluster()
			cluster.lags = true
			h := newHarness(cluster, diskOf("Boot"), nicOf("Uplink"), disksOf("Volumes"))
			cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast", "Uplink": "cheap", "Volumes": "a b"}})
			cluster.syncKind("Machine")
			h.mustReconcile(t)
			g.Expect(disksIn(h)).To(HaveLen(3))
			cluster.deleteMachine()
			cluster.syncKind("Machine")
			cluster.goneAfter["a"] = 1
			cluster.writes = nil
			show(h)

			// When the Machine is torn down, and the cache catches up
			h.mustReconcile(t)
			g.Expect(cluster.device("Disk", "boot")).NotTo(BeNil())
			g.Expect(cluster.device("Nic", "uplink")).NotTo(BeNil())
			cluster.lags = false
			cluster.sync()
			h.settle(t)

			// Then all members are deleted first
			g.Expect(cluster.machine()).To(BeNil())
			g.Expect(cluster.left()).To(BeEmpty())
			g.Expect(firsts(cluster.writes, "delete")).To(Equal([]string{"a", "b", "uplink", "boot"}))
		})
	}
}

func TestTeardownLeavesUnmanagedObjectsOfTheKindAlone(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, map[string]string{"Volumes": "a"}, disksOf("Volumes"))
	another := *metav1.NewControllerRef(&Machine{ObjectMeta: metav1.ObjectMeta{Name: machineName, UID: "another"}}, machineGroup.WithKind("Machine"))
	h.store(&Disk{ObjectMeta: metav1.ObjectMeta{Name: "unmanaged", Namespace: machineNamespace}})
	h.store(&Disk{ObjectMeta: metav1.ObjectMeta{Name: "anothers", Namespace: machineNamespace, OwnerReferences: []metav1.OwnerReference{another}}})

	h.mustReconcile(t)
	h.deleteMachine()
	h.settle(t)

	g.Expect(h.machine()).To(BeNil())
	g.Expect(disksIn(h)).To(And(HaveLen(2), HaveKey("unmanaged"), HaveKey("anothers")))
}

func TestDriftOfMembersIsReportedAndNotReverted(t *testing.T) {
	g := NewWithT(t)
	// Given a set of which two members have drifted, under the policy Report
	h := settled(t, map[string]string{"Volumes": "a b c"}, disksOf("Volumes"))
	h.definition.Policies = func(*Machine) phases.Policies {
		return phases.Policies{Adoption: ssa.AdoptNever, Drift: ssa.ReportDrift}
	}
	for _, name := range []string{"a", "c"} {
		h.modify("Disk", name, func(d device) { d.device().Spec["class"] = "slow" })
	}
	drifts := []string{
		"Disk a: kubectl-edit changed .spec.class from fast to slow",
		"Disk c: kubectl-edit changed .spec.class from fast to slow",
	}
	const message = "Disk a: kubectl-edit changed .spec.class from fast to slow, and 1 more fields; not reverted because the drift policy is Report"

	// When it is reconciled repeatedly
	h.mustReconcile(t)
	h.mustReconcile(t)

	// Then both are reported, and nothing is reverted
	g.Expect(h.writes).To(Equal([]string{"status"}))
	g.Expect(h.machine().Status.Drifts).To(Equal(drifts))
	g.Expect(h.condition(t, "Drifted").Message).To(Equal(message))
	g.Expect(h.states()).To(ContainElements("Ready=True/Ready", "VolumesReady=True/Ready"))

	// When an earlier phase gates, both are still reported, once
	h.definition.Phases = append([]phase{observes("Address", phases.Wait("Pending", "", 0))}, h.definition.Phases...)
	h.mustReconcile(t)
	g.Expect(h.machine().Status.Drifts).To(Equal(drifts))

	// When reconciliation is suspended, none is
	h.editMachine(func(machine *Machine) { machine.Suspend = true })
	h.mustReconcile(t)
	g.Expect(h.machine().Status.Drifts).To(BeEmpty())

	// When the policy is to correct, both are reverted
	h.editMachine(func(machine *Machine) { machine.Suspend = false })
	h.definition.Phases, h.definition.Policies = h.definition.Phases[1:], nil
	h.writes = nil
	h.mustReconcile(t)
	g.Expect(h.writes).To(Equal([]string{"correct Disk a", "correct Disk c", "status"}))
	g.Expect(disksIn(h)).To(Equal(map[string]string{"a": "fast", "b": "fast", "c": "fast"}))
}

func TestMemberIsReportedAsDeletedOnlyIfItExistedForTheSameGeneration(t *testing.T) {
	deleted := ContainElement("Warning DriftCorrected (Correct): Disk b was deleted; recreated")

	t.Run("a member that a user deletes", func(t *testing.T) {
		g := NewWithT(t)
		h := settled(t, map[string]string{"Volumes": "a b"}, disksOf("Volumes"))
		h.remove(ref{"Disk", "b"}, "")

		h.mustReconcile(t)

		g.Expect(h.writes).To(Equal([]string{"create Disk b", "status"}))
		g.Expect(h.events.take()).To(deleted)
		g.Expect(h.machine().Status.Drifts).To(Equal([]string{"Disk b was deleted"}))
	})
	t.Run("a member that a user deletes, slowly", func(t *testing.T) {
		g := NewWithT(t)
		h := settled(t, map[string]string{"Volumes": "a b"}, disksOf("Volumes"))
		h.goneAfter["b"] = 1
		h.remove(ref{"Disk", "b"}, metav1.FinalizerDeleteDependents)
		h.schedule("vanish", "Disk b", "b", h.goneAfter)

		h.settle(t)

		g.Expect(h.events.take()).To(deleted)
	})
	t.Run("a member that is added", func(t *testing.T) {
		g := NewWithT(t)
		h := settled(t, map[string]string{"Volumes": "a"}, disksOf("Volumes"))
		h.editMachine(func(machine *Machine) { machine.Spec["Volumes"] = "a b" })

		h.settle(t)

		g.Expect(h.writes).To(ContainElement("create Disk b"))
		g.Expect(h.events.take()).NotTo(ContainElement(ContainSubstring("DriftCorrected")))
	})
	t.Run("a member that is added while another is recreated", func(t *testing.T) {
		g := NewWithT(t)
		h := settled(t, map[string]string{"Volumes": "a"}, disksOf("Volumes"))
		h.goneAfter["a"] = 2
		h.remove(ref{"Disk", "a"}, metav1.FinalizerDeleteDependents)
		h.schedule("vanish", "Disk a", "a", h.goneAfter)
		h.mustReconcile(t)
		h.editMachine(func(machine *Machine) { machine.Spec["Volumes"] = "a b" })

		h.settle(t)

		g.Expect(h.writes).To(ContainElements("create Disk a", "create Disk b"))
		g.Expect(h.events.take()).NotTo(deleted)
	})
}

func TestUnmanagedObjectOfAMembersNameIsReported(t *testing.T) {
	g := NewWithT(t)
	// Given an unmanaged disk with the name of the second member
	cluster := newFakeCluster()
	cluster.store(&Disk{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: machineNamespace}})
	h := newHarness(cluster, disksOf("Volumes"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Volumes": "a b c"}})

	// When it is reconciled
	h.mustReconcile(t)

	// Then it is left alone, and the condition says why
	g.Expect(h.states()).To(ContainElement("VolumesReady=False/NotOwned"))
	g.Expect(metav1.GetControllerOf(cluster.objects[ref{"Disk", "b"}])).To(BeNil())
	g.Expect(cluster.writes).To(ContainElement("create Disk a"))
}

// The watch finds the owner of an object by its owner reference, or else by its name.
func TestNameOfItsOwnThatIsHeldIsCheckedAgain(t *testing.T) {
	ofOwnersName := diskOf("Boot")
	ofOwnersName.ChildName = nil
	ofOwnersName.Desired = func(s *scope) (*deviceConfiguration, error) {
		return desiredDevice(s, "Boot", disk(machineName)), nil
	}
	notAdopted := diskOf("Boot")
	notAdopted.Adopt = func(*scope, *Disk) phases.Verdict {
		return phases.Stalled(string(ssa.ReasonNotOwned), "it is not adopted")
	}
	immutable := fails("Boot", &ssa.Error{Reason: ssa.ReasonImmutableField, Object: "Disk b", Message: "it cannot change"})
	cases := map[string]struct {
		phase phase
		spec  map[string]string
		held  string
		after time.Duration
	}{
		"a member of a set":              {disksOf("Boot"), map[string]string{"Boot": "a b"}, "b", time.Minute},
		"a child with a name of its own": {diskOf("Boot"), map[string]string{"Boot": "fast"}, "boot", time.Minute},
		"a child that is not adopted":    {notAdopted, map[string]string{"Boot": "fast"}, "boot", time.Minute},
		"an action of a step":            {immutable, nil, "b", time.Minute},
		"a child of the owner's name":    {ofOwnersName, map[string]string{"Boot": "fast"}, machineName, 0},
		"a value that is invalid": {
			fails("Boot", &ssa.Error{Reason: ssa.ReasonInvalid, Object: "Disk b", Message: "no such class"}), nil, "b", 0,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given an object that the Machine does not control, with the name of a child
			cluster := newFakeCluster()
			cluster.store(&Disk{ObjectMeta: metav1.ObjectMeta{Name: c.held, Namespace: machineNamespace}})
			h := newHarness(cluster, c.phase)
			cluster.createMachine(&Machine{Spec: c.spec})

			// When the Machine is reconciled
			result := h.mustReconcile(t)

			// Then it is stalled, and reconciled again if no watch does it
			g.Expect(meta.IsStatusConditionTrue(h.machine().Status.Conditions, phases.ConditionStalled)).To(BeTrue())
			g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: c.after}))
		})
	}
}

func TestMemberThatCannotBeAppliedDoesNotHideTheOthers(t *testing.T) {
	g := NewWithT(t)
	// Given a set of which one member changes and is refused
	h := settled(t, map[string]string{"Volumes": "a b c"}, disksOf("Volumes"))
	var seen []string
	status := h.definition.Status
	h.definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
		seen = s.seen
		return status(s, summary)
	}
	refusal := &ssa.Error{Reason: ssa.ReasonQuotaExceeded, Object: "Disk b", Message: "the quota is used up", Transient: true}
	h.fail = func(what string) error {
		if what == "apply Disk b" {
			return refusal
		}
		return nil
	}
	h.editMachine(func(machine *Machine) { machine.Spec["Volumes"] = "a b=slow c" })

	// When it is reconciled
	_, err := h.reconcile(t)

	// Then all that exist are observed, once
	g.Expect(err).To(MatchError(refusal))
	g.Expect(seen).To(Equal([]string{"a", "b", "c"}))
	g.Expect(h.states()).To(ContainElement("VolumesReady=False/QuotaExceeded"))
}

func TestVerdictOfASetIsThatOfTheGravestMember(t *testing.T) {
	done, wait := phases.Done("attached"), phases.Wait("NotAttached", "not attached yet", time.Minute)
	cases := map[string]struct {
		a, b  phases.Verdict
		state string
		after time.Duration
		more  string
	}{
		"done and done":                          {a: done, b: done, state: "VolumesReady=True/Ready"},
		"done and a wait":                        {a: done, b: wait, state: "VolumesReady=False/NotAttached", after: time.Minute},
		"a wait and done":                        {a: wait, b: done, state: "VolumesReady=False/NotAttached", after: time.Minute},
		"a wait, and done with an earlier time":  {a: wait, b: done.RecheckAfter(time.Second), state: "VolumesReady=False/NotAttached", after: time.Second},
		"done with an earlier time, and a wait":  {a: done.RecheckAfter(time.Second), b: wait, state: "VolumesReady=False/NotAttached", after: time.Second},
		"a wait, and another with an earlier":    {a: wait, b: phases.Wait("Detaching", "", time.Second), state: "VolumesReady=False/NotAttached", after: time.Second},
		"a wait for a watch, and a later one":    {a: phases.Wait("Watched", "", 0), b: wait, state: "VolumesReady=False/Watched", after: phases.SafetyNet},
		"done with a time, and with another":     {a: done.RecheckAfter(time.Hour), b: done.RecheckAfter(time.Minute), state: "VolumesReady=True/Ready", after: time.Minute},
		"done, and done while something goes on": {a: done, b: phases.DoneBecause("Resizing", "").WhileReconciling(), state: "VolumesReady=True/Resizing", more: "Reconciling=True/Resizing"},
		"done because, and done":                 {a: phases.DoneBecause("Grown", ""), b: done, state: "VolumesReady=True/Grown"},
		"done, and done with a time":             {a: done, b: done.RecheckAfter(time.Minute), state: "VolumesReady=True/Ready", after: time.Minute},
		"two of which something goes on": {a: phases.DoneBecause("Resizing", "").WhileReconciling(), b: phases.DoneBecause("Moving", "").WhileReconciling(),
			state: "VolumesReady=True/Resizing", more: "Reconciling=True/Resizing"},
		"stalled, and done with a time": {a: phases.Stalled("BadClass", ""), b: done.RecheckAfter(time.Minute), state: "VolumesReady=False/BadClass"},
		"stalled and done":              {a: phases.Stalled("BadClass", ""), b: done, state: "VolumesReady=False/BadClass", more: "Stalled=True/BadClass"},
		"done and stalled":              {a: done, b: phases.Stalled("BadClass", ""), state: "VolumesReady=False/BadClass", more: "Stalled=True/BadClass"},
		"none and done":                 {a: nil, b: done, state: "VolumesReady=False/Failed", more: "Stalled=True/Failed"},
		"done and none":                 {a: done, b: nil, state: "VolumesReady=False/Failed", more: "Stalled=True/Failed"},
		"done and a zero value":         {a: done, b: phases.DoneVerdict{}, state: "VolumesReady=False/Failed", more: "Stalled=True/Failed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := newFakeCluster()
			volumes := disksOf("Volumes")
			volumes.Ready = func(_ context.Context, _ *scope, live *Disk) phases.Verdict {
				return map[string]phases.Verdict{"a": c.a, "b": c.b}[live.Name]
			}
			h := newHarness(cluster, volumes)
			cluster.createMachine(&Machine{Spec: map[string]string{"Volumes": "a b"}})

			result := h.mustReconcile(t)

			g.Expect(h.states()).To(ContainElement(c.state))
			g.Expect(result.RequeueAfter).To(Equal(c.after))
			if c.more != "" {
				g.Expect(h.states()).To(ContainElement(c.more))
			}
		})
	}
}

func TestMemberThatIsNotReadyCountsMoreThanOneThatIsDeleted(t *testing.T) {
	g := NewWithT(t)
	// Given a member that is not ready, and one that is no longer desired
	h := settled(t, map[string]string{"Volumes": "a b"}, disksOf("Volumes"))
	h.goneAfter["b"] = 2
	h.modify("Disk", "a", func(d device) { d.device().Attached = false })
	h.editMachine(func(machine *Machine) { machine.Spec["Volumes"] = "a" })

	// When it is reconciled
	result := h.mustReconcile(t)

	// Then the condition is that of the member, and the earlier time counts
	g.Expect(h.writes).To(Equal([]string{"delete Disk b", "status"}))
	g.Expect(h.states()).To(ContainElement("VolumesReady=False/NotAttached"))
	g.Expect(result.RequeueAfter).To(Equal(5 * time.Second))
}

func TestNoDriftIsReportedFromAWrongConfiguration(t *testing.T) {
	g := NewWithT(t)
	// Given a drift that is to be reported, behind a phase that gates
	h := settled(t, map[string]string{"Volumes": "a"}, disksOf("Volumes"))
	reportsDrift(h)
	h.modify("Disk", "a", func(d device) { d.device().Spec["class"] = "slow" })
	volumes := disksOf("Volumes")
	h.definition.Phases = []phase{observes("Address", phases.Wait("Pending", "", 0)), volumes}
	h.mustReconcile(t)
	g.Expect(h.machine().Status.Drifts).To(HaveLen(1))

	// When the configuration is that of an object in another namespace
	volumes.Desired = func(*scope) ([]*deviceConfiguration, error) {
		return []*deviceConfiguration{inNamespace(disk("a").with("class", "fast"), "elsewhere")}, nil
	}
	h.definition.Phases[1] = volumes
	h.mustReconcile(t)

	// Then it says nothing of the disk
	g.Expect(h.machine().Status.Drifts).To(BeEmpty())
}

func TestDriftIsReportedBesideAMemberOfWhichTheCacheHoldsADigest(t *testing.T) {
	g := NewWithT(t)
	// Given a cache of digests, two members of which the second has drifted, and a phase that gates
	h := settled(t, map[string]string{"Volumes": "a b"}, disksOf("Volumes"))
	reportsDrift(h)
	h.digests = true
	h.modify("Disk", "b", func(d device) { d.device().Spec["class"] = "slow" })
	h.definition.Phases = []phase{observes("Address", phases.Wait("Pending", "", 0)), disksOf("Volumes")}

	// When the first one is to change
	h.editMachine(func(machine *Machine) { machine.Spec["Volumes"] = "a=cheap b" })
	h.mustReconcile(t)

	// Then the drift of the second one is reported
	g.Expect(h.machine().Status.Drifts).To(Equal([]string{"Disk b: kubectl-edit changed .spec.class from fast to slow"}))
}

func TestMembersThatCannotBeListedAreNotObservedAsAbsent(t *testing.T) {
	g := NewWithT(t)
	// Given a suspended Machine whose disks cannot be listed
	told := 0
	volumes := disksOf("Volumes")
	volumes.Observed = func(*scope, []*Disk) { told++ }
	h := settled(t, map[string]string{"Volumes": "a"}, volumes)
	h.editMachine(func(machine *Machine) { machine.Suspend = true })
	h.dependencies.Reader = failingReader{h.dependencies.Reader, errDown}
	told = 0

	h.mustReconcile(t)

	g.Expect(told).To(BeZero())
}

func TestPlanOfASet(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, map[string]string{"Volumes": "a b"}, disksOf("Volumes"))
	h.attachedAfter["b"] = 1
	h.editMachine(func(machine *Machine) { machine.Spec["Volumes"] = "b=slow c" })

	plan := h.plan(t)

	g.Expect(h.writes).To(BeEmpty())
	g.Expect(changesOf(plan)).To(Equal([]string{"Volumes: Update Disk b", "Volumes: Create Disk c", "Volumes: Delete Disk a"}))
	h.mustReconcile(t)
	g.Expect(h.writes).To(Equal([]string{"update Disk b", "create Disk c", "delete Disk a", "status"}))
}

func TestSetReadsNothingPastTheCacheAtTheFixedPoint(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, map[string]string{"Volumes": "a b"}, disksOf("Volumes"))
	h.dependencies.Uncached = refusing{}

	h.mustReconcile(t)

	g.Expect(h.writes).To(BeEmpty())
}

// refusing is a reader that nothing may read from.
type refusing struct{}

func (refusing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("a read past the cache")
}

func (refusing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("a list past the cache")
}
