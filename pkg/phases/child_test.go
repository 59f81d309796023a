package phases_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestNothingIsWrittenAtTheFixedPoint(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, map[string]string{"Boot": "fast", "Uplink": "cheap"}, diskOf("Boot"), nicOf("Uplink"), nicOf("Backup"))
	h.dependencies.Uncached, h.dependencies.Applier = refusing{}, unneeded{h.dependencies.Applier}

	for range 3 {
		result := h.mustReconcile(t)
		g.Expect(result).To(Equal(reconcile.Result{}))
	}

	g.Expect(h.writes).To(BeEmpty())
	g.Expect(h.events.take()).To(BeEmpty())
}

// unneeded is an applier for a cluster in which nothing is to be done.
type unneeded struct{ phases.Applier }

func (unneeded) Execute(context.Context, ssa.Decision) (ssa.Result, error) {
	return ssa.Result{}, errors.New("a decision was executed")
}

func TestMissingChildIsCreatedWithoutAReadPastTheCache(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"))
	reads := &countedReads{Reader: h.dependencies.Uncached}
	h.dependencies.Uncached = reads
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	h.mustReconcile(t)

	g.Expect(h.writes).To(ContainElement("create Disk boot"))
	g.Expect(reads.of).NotTo(HaveKey("boot"))
}

func TestConfigurationBesideAnErrorIsNotApplied(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	boot := diskOf("Boot")
	boot.Desired = func(*scope) (*deviceConfiguration, error) { return disk("boot"), errors.New("no such class") }
	h := newHarness(cluster, boot)
	cluster.createMachine(&Machine{})

	_, err := h.reconcile(t)

	g.Expect(err).To(MatchError("phase Boot: no such class"))
	g.Expect(h.writes).To(Equal([]string{"finalize", "status"}))
}

func TestChildHasTheNameOfItsOwnerByDefault(t *testing.T) {
	g := NewWithT(t)
	boot := diskOf("Boot")
	boot.ChildName = nil
	boot.Desired = func(s *scope) (*deviceConfiguration, error) { return disk(s.machine.Name).with("class", "fast"), nil }
	boot.Health = nil

	h := settled(t, nil, boot)

	g.Expect(h.device("Disk", machineName)).NotTo(BeNil())
	g.Expect(h.condition(t, "BootReady").Message).To(Equal("Disk vm1 applied"), "without Health and Ready it is ready once it is applied")
}

func TestChildThatIsNoLongerDesiredIsPruned(t *testing.T) {
	g := NewWithT(t)
	// Given a disk whose deletion takes a tick
	h := settled(t, map[string]string{"Boot": "fast", "Uplink": "cheap"}, diskOf("Boot"), nicOf("Uplink"))
	h.goneAfter["boot"] = 1

	// When the Machine no longer asks for it
	h.editMachine(func(machine *Machine) { delete(machine.Spec, "Boot") })
	result := h.mustReconcile(t)

	// Then it is deleted once, and the phase waits for that
	g.Expect(h.writes).To(Equal([]string{"delete Disk boot", "status"}))
	g.Expect(result.RequeueAfter).To(Equal(phases.SafetyNet))
	g.Expect(h.states()).To(ContainElements("BootReady=False/Pruning", "UplinkReady=Unknown/Blocked"))
	g.Expect(h.condition(t, "BootReady").Message).To(Equal("waiting for Disk boot to be deleted (finalizers: foregroundDeletion); it is no longer desired"))
	h.mustReconcile(t)
	g.Expect(h.writes).To(HaveLen(2))

	// When it is gone
	h.settle(t)
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "UplinkReady=True/Ready"}))
}

func TestDeletedChildIsRecreated(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that a user deletes, which takes a tick
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.goneAfter["boot"] = 1
	h.remove(ref{"Disk", "boot"}, metav1.FinalizerDeleteDependents)
	h.schedule("vanish", "Disk boot", "boot", h.goneAfter)

	// When it is reconciled meanwhile
	h.mustReconcile(t)

	// Then the phase waits, and recreates the disk when it is gone
	g.Expect(h.writes).To(Equal([]string{"status"}))
	g.Expect(h.states()).To(ContainElement("BootReady=False/Recreating"))
	g.Expect(h.condition(t, "BootReady").Message).To(Equal("Disk boot is being deleted (finalizers: foregroundDeletion); it will be recreated"))
	h.settle(t)
	g.Expect(h.writes).To(ContainElement("create Disk boot"))
	g.Expect(h.states()).To(ContainElement("Ready=True/Ready"))
	g.Expect(h.events.take()).To(ContainElement("Warning DriftCorrected (Correct): Disk boot was deleted; recreated"))
}

func TestChildThatIsConfiguredAgainWasNotDeleted(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that is turned off, and on again
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.editMachine(func(machine *Machine) { delete(machine.Spec, "Boot") })
	h.settle(t)
	h.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "fast" })

	// When it is created again
	h.settle(t)

	// Then it is not reported as deleted
	g.Expect(h.events.take()).NotTo(ContainElement(ContainSubstring("DriftCorrected")))
}

func TestChildThatIsDeletedWhileTheSpecChangesIsReported(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "cheap" })
	h.remove(ref{"Disk", "boot"}, "")

	h.mustReconcile(t)

	g.Expect(h.events.take()).To(ContainElement("Warning DriftCorrected (Correct): Disk boot was deleted; recreated"))
}

func TestDriftIsReverted(t *testing.T) {
	g := NewWithT(t)
	// Given a disk whose class a user has changed
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })

	// When it is reconciled
	h.mustReconcile(t)

	// Then it is as desired, and status and Event say who had changed what
	g.Expect(h.device("Disk", "boot").Spec).To(HaveKeyWithValue("class", "fast"))
	g.Expect(h.writes).To(Equal([]string{"correct Disk boot", "status"}))
	g.Expect(h.machine().Status.Drifts).To(Equal([]string{"Disk boot: kubectl-edit changed .spec.class from fast to slow"}))
	g.Expect(h.events.take()).To(Equal([]string{
		"Warning DriftCorrected (Correct): Disk boot: kubectl-edit changed .spec.class from fast to slow; reverted",
	}))
}

func TestReportsOfDriftAreRedacted(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine whose drifts are to be redacted, and a disk whose class a user has changed
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.definition.Policies = func(machine *Machine) phases.Policies {
		return phases.Policies{Redact: func(drift *ssa.Drift) { drift.Desired, drift.Actual = machine.Name, "hidden" }}
	}
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })

	// When it is reconciled
	h.mustReconcile(t)

	// Then neither the status nor the Event quotes the values
	drift := "Disk boot: kubectl-edit changed .spec.class from " + h.machine().Name + " to hidden"
	g.Expect(h.machine().Status.Drifts).To(Equal([]string{drift}))
	g.Expect(h.events.take()).To(Equal([]string{"Warning DriftCorrected (Correct): " + drift + "; reverted"}))
}

func TestDriftIsReportedAndNotReverted(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that wants drift to be reported, and a disk that has drifted
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.definition.Policies = func(*Machine) phases.Policies {
		return phases.Policies{Adoption: ssa.AdoptNever, Drift: ssa.ReportDrift}
	}
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })

	// When it is reconciled repeatedly
	h.mustReconcile(t)
	h.mustReconcile(t)

	// Then nothing is changed, and status, condition and one Event report the drift while it exists
	const drift = "Disk boot: kubectl-edit changed .spec.class from fast to slow"
	g.Expect(h.device("Disk", "boot").Spec).To(HaveKeyWithValue("class", "slow"))
	g.Expect(h.writes).To(Equal([]string{"status"}))
	g.Expect(h.machine().Status.Drifts).To(Equal([]string{drift}))
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "BootReady=True/Ready", "Drifted=True/Drifted"}))
	g.Expect(h.events.take()).To(Equal([]string{
		"Warning Drifted (Drifted): Drifted is True: " + drift + "; not reverted because the drift policy is Report",
	}))

	// When the Machine asks for something else besides, it is applied around the drift
	bigger := diskOf("Boot")
	bigger.Desired = func(*scope) (*deviceConfiguration, error) {
		return disk("boot").with("class", "fast").with("size", "big"), nil
	}
	h.definition.Phases = []phase{bigger}
	h.mustReconcile(t)
	g.Expect(h.device("Disk", "boot").Spec).To(Equal(map[string]string{"class": "slow", "size": "big"}))
	g.Expect(h.states()).To(ContainElement("Drifted=True/Drifted"))

	// When an earlier phase gates, the drift is still reported
	h.definition.Phases = []phase{observes("Address", phases.Wait("Pending", "", 0)), bigger}
	h.mustReconcile(t)
	g.Expect(h.states()).To(ContainElement("Drifted=True/Drifted"))
	g.Expect(h.machine().Status.Drifts).To(Equal([]string{drift}))
	h.definition.Phases = []phase{bigger}
	h.mustReconcile(t)
	g.Expect(h.events.take()).NotTo(ContainElement(ContainSubstring("Drifted")))

	// When the drift is gone, so is the condition
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "fast" })
	h.mustReconcile(t)
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "BootReady=True/Ready"}))
	g.Expect(h.machine().Status.Drifts).To(BeEmpty())
	g.Expect(h.events.take()).To(ContainElement("Normal DriftedOver (Drifted): Drifted is no longer True"))
}

func TestReportOfADriftWritesNothing(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that has drifted, under the policy Report
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	reportsDrift(h)
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })

	// When the spec changes, too, behind a phase that gates
	h.definition.Phases = []phase{observes("Address", phases.Wait("Pending", "", 0)), diskOf("Boot")}
	h.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "cheap" })
	h.mustReconcile(t)

	// Then the drift is reported, and the disk is as it was
	g.Expect(h.writes).To(Equal([]string{"status"}))
	g.Expect(h.states()).To(ContainElement("Drifted=True/Drifted"))
	g.Expect(h.device("Disk", "boot").Spec).To(HaveKeyWithValue("class", "slow"))
}

func TestSummaryTellsRevertedDriftFromReportedDrift(t *testing.T) {
	for policy, corrected := range map[ssa.DriftPolicy]bool{ssa.CorrectDrift: true, ssa.ReportDrift: false} {
		t.Run(string(policy), func(t *testing.T) {
			g := NewWithT(t)
			h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
			h.definition.Policies = func(*Machine) phases.Policies { return phases.Policies{Adoption: ssa.AdoptNever, Drift: policy} }
			var seen phases.Summary
			status := h.definition.Status
			h.definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
				seen = summary
				return status(s, summary)
			}
			h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })

			h.mustReconcile(t)

			g.Expect(seen.Drifts).To(Equal([]phases.ObservedDrift{{
				Drift:     ssa.Drift{Path: ".spec.class", Manager: "kubectl-edit", Desired: "fast", Actual: "slow"},
				Child:     "Disk boot",
				Corrected: corrected,
			}}))
			g.Expect(meta.FindStatusCondition(seen.Conditions, phases.ConditionOf("Boot"))).NotTo(BeNil())
			g.Expect(meta.FindStatusCondition(seen.Conditions, phases.ConditionOf("Data"))).To(BeNil())
		})
	}
}

func TestRevertedDriftHasAnEventEvenIfTheStatusCannotBeWritten(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that has drifted, and a Machine that keeps changing
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
	h.fail = func(what string) error {
		if what == "status" {
			return stale("Machine")
		}
		return nil
	}

	// When it is reconciled
	h.mustReconcile(t)

	// Then the drift, which no later reconcile can observe, has one Event
	g.Expect(h.events.take()).To(ConsistOf(ContainSubstring("DriftCorrected")))
}

func TestStatusThatIsRefusedAsStaleIsComputedFromTheNewerOne(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that has drifted, and a Machine whose status remembers what earlier ones said
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
	h.definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
		status := machineStatus(s.machine.Name, summary)
		status.Status.Drifts = append(status.Status.Drifts, s.machine.Status.Drifts...)
		return status
	}
	// And a status that is written while the disk is reverted
	h.fail = func(what string) error {
		if what == "apply Disk boot" {
			machine := h.machine()
			machine.Status.Drifts = []string{"what the newer status says"}
			h.store(machine)
		}
		return nil
	}

	// When it is reconciled
	h.mustReconcile(t)

	// Then the status has the drift, and what the newer status says
	g.Expect(h.machine().Status.Drifts).To(HaveExactElements(ContainSubstring("slow"), "what the newer status says"))
	g.Expect(h.states()).To(ContainElement("Ready=True/Ready"))
	g.Expect(h.events.take()).To(ConsistOf(ContainSubstring("DriftCorrected")), "once")
}

func TestChildrenThatNoPhaseNamesAreDeleted(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that an earlier version has named otherwise, and others that the Machine does not own
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	owned := []metav1.OwnerReference{*metav1.NewControllerRef(h.machine(), machineGroup.WithKind("Machine"))}
	other := []metav1.OwnerReference{*metav1.NewControllerRef(&Machine{ObjectMeta: metav1.ObjectMeta{Name: machineName, UID: "another"}}, machineGroup.WithKind("Machine"))}
	store := func(name string, owners []metav1.OwnerReference) {
		h.store(&Disk{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: machineNamespace, OwnerReferences: owners}})
	}
	store("old-boot", owned)
	store("anothers", other)
	store("unmanaged", nil)
	h.store(&Nic{ObjectMeta: metav1.ObjectMeta{Name: "uplink", Namespace: machineNamespace, OwnerReferences: owned}})
	h.goneAfter["old-boot"] = 1

	// When it is reconciled
	h.mustReconcile(t)

	// Then what the Machine owns of the phase's kind is deleted, and the phase waits for that
	g.Expect(h.writes).To(Equal([]string{"delete Disk old-boot", "status"}))
	g.Expect(h.states()).To(ContainElement("BootReady=False/Pruning"))
	h.settle(t)
	g.Expect(h.device("Disk", "old-boot")).To(BeNil())
	g.Expect(h.device("Disk", "anothers")).NotTo(BeNil())
	g.Expect(h.device("Disk", "unmanaged")).NotTo(BeNil())
	g.Expect(h.device("Nic", "uplink")).NotTo(BeNil(), "no phase is of this kind")
	g.Expect(h.states()).To(ContainElement("Ready=True/Ready"))
}

func TestTeardownDeletesChildrenThatNoPhaseNames(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.store(&Disk{ObjectMeta: metav1.ObjectMeta{Name: "old-boot", Namespace: machineNamespace,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(h.machine(), machineGroup.WithKind("Machine"))}}})

	h.deleteMachine()
	h.settle(t)

	g.Expect(h.machine()).To(BeNil())
	g.Expect(h.left()).To(BeEmpty())
}

func TestPhasesOfOneKindLeaveEachOtherAlone(t *testing.T) {
	g := NewWithT(t)
	// Given two disks and a NIC between them
	h := settled(t, map[string]string{"Boot": "fast", "Uplink": "cheap", "Data": "old"}, diskOf("Boot"), nicOf("Uplink"), diskOf("Data"))

	// Then neither prunes the other
	g.Expect(h.device("Disk", "boot").Spec).To(HaveKeyWithValue("class", "fast"))
	g.Expect(h.device("Disk", "data").Spec).To(HaveKeyWithValue("class", "old"))

	// When one is turned off, the other stays
	h.editMachine(func(machine *Machine) { delete(machine.Spec, "Boot") })
	h.settle(t)
	g.Expect(h.device("Disk", "boot")).To(BeNil())
	g.Expect(h.device("Disk", "data")).NotTo(BeNil())

	// When the Machine is deleted, each is deleted in the order of the list reversed
	h.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "fast" })
	h.settle(t)
	h.writes = nil
	h.deleteMachine()
	h.settle(t)
	g.Expect(h.writes).To(Equal([]string{"delete Disk data", "delete Nic uplink", "delete Disk boot", "unfinalize"}))
}

func TestAdoptionFollowsThePolicy(t *testing.T) {
	cases := map[string]struct {
		policy ssa.AdoptionPolicy
		owner  string
		ready  string
		class  string
	}{
		"never":                            {ssa.AdoptNever, "", "Ready=False/NotOwned", "slow"},
		"if unowned":                       {ssa.AdoptIfUnowned, "", "Ready=True/Ready", "fast"},
		"if unowned, but owned by another": {ssa.AdoptIfUnowned, "another", "Ready=False/OwnedByAnother", "slow"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a disk of the child's name that exists already
			cluster := newFakeCluster()
			h := newHarness(cluster, diskOf("Boot"))
			h.definition.Policies = func(*Machine) phases.Policies { return phases.Policies{Adoption: c.policy, Drift: ssa.CorrectDrift} }
			found := &Disk{ObjectMeta: metav1.ObjectMeta{Name: "boot", Namespace: machineNamespace}, Device: Device{Spec: map[string]string{"class": "slow"}}}
			if c.owner != "" {
				owner := &Machine{ObjectMeta: metav1.ObjectMeta{Name: c.owner, UID: "another"}}
				found.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, machineGroup.WithKind("Machine"))}
			}
			cluster.store(found)
			cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

			// When it is settled
			h.settle(t)

			// Then it is adopted if it may be, and the status says it if not
			g.Expect(h.states()).To(ContainElement(c.ready))
			g.Expect(cluster.device("Disk", "boot").Spec).To(HaveKeyWithValue("class", c.class))
		})
	}
}

func TestAdoptionByThePhaseComesBeforeThePolicy(t *testing.T) {
	named := func(uid types.UID) func(*scope, *Disk) phases.Verdict {
		return func(_ *scope, live *Disk) phases.Verdict {
			if live.UID == uid {
				return phases.Done("adopted")
			}
			return phases.Stalled("NotOwned", "set spec.adopt to "+string(live.UID))
		}
	}
	cases := map[string]struct {
		adopt  func(*scope, *Disk) phases.Verdict
		policy ssa.AdoptionPolicy
		owner  string
		want   string
		class  string
	}{
		"adopted by its UID":                             {named("found"), ssa.AdoptNever, "", "True/Ready", "fast"},
		"another UID":                                    {named("another"), ssa.AdoptNever, "", "False/NotOwned: set spec.adopt to found", "slow"},
		"another UID, where the policy adopts":           {named("another"), ssa.AdoptIfUnowned, "", "False/NotOwned: set spec.adopt to found", "slow"},
		"the UID of a disk that another controller owns": {named("found"), ssa.AdoptIfUnowned, "another", "False/OwnedByAnother", "slow"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a disk of the child's name that exists already
			cluster := newFakeCluster()
			boot := diskOf("Boot")
			boot.Adopt, boot.Health = c.adopt, nil
			h := newHarness(cluster, boot)
			h.definition.Policies = func(*Machine) phases.Policies { return phases.Policies{Adoption: c.policy} }
			found := &Disk{ObjectMeta: metav1.ObjectMeta{Name: "boot", Namespace: machineNamespace, UID: "found"}, Device: Device{Spec: map[string]string{"class": "slow"}}}
			if c.owner != "" {
				owner := &Machine{ObjectMeta: metav1.ObjectMeta{Name: c.owner, UID: "another"}}
				found.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, machineGroup.WithKind("Machine"))}
			}
			cluster.store(found)
			cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

			// When it is settled
			h.settle(t)

			// Then the phase has decided
			condition := h.condition(t, "BootReady")
			g.Expect(string(condition.Status) + "/" + condition.Reason + ": " + condition.Message).To(HavePrefix(c.want))
			g.Expect(cluster.device("Disk", "boot").Spec).To(HaveKeyWithValue("class", c.class))
		})
	}
}

func TestPhaseIsAskedToAdoptOnlyWhatNoControllerOwns(t *testing.T) {
	for name, situation := range map[string]func(*harness){
		"nothing exists":        func(h *harness) { h.remove(ref{"Disk", "boot"}, "") },
		"its child has drifted": func(h *harness) { h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" }) },
		"another controller owns the object": func(h *harness) {
			another := &Machine{ObjectMeta: metav1.ObjectMeta{Name: "another", UID: "another"}}
			h.modify("Disk", "boot", func(d device) {
				d.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(another, machineGroup.WithKind("Machine"))})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			boot := diskOf("Boot")
			boot.Adopt = func(*scope, *Disk) phases.Verdict {
				asked++
				return phases.Stalled("NotOwned", "")
			}
			h := settled(t, map[string]string{"Boot": "fast"}, boot)
			situation(h)

			h.mustReconcile(t)

			NewWithT(t).Expect(asked).To(BeZero())
		})
	}
}

func TestFinalizersOfANamespaceAreThoseOfItsContentToo(t *testing.T) {
	remaining := func(status corev1.ConditionStatus) *corev1.Namespace {
		return &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"foregroundDeletion"}},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}},
			Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{
				{Type: corev1.NamespaceContentRemaining, Status: status, Message: "Some resources are remaining: pods. has 5 resource instances"},
				{Type: "Custom", Status: status, Message: "c in 1 resource instances"},
				{Type: corev1.NamespaceFinalizersRemaining, Status: status, Message: "Some content in the namespace has finalizers remaining: example.com/b in 5 resource instances, a in 1 resource instances"},
			}},
		}
	}
	cases := map[string]struct {
		live client.Object
		want string
	}{
		"none":                               {&Disk{}, ""},
		"of an object":                       {&Disk{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"b", "a"}}}, " (finalizers: a, b)"},
		"of a Namespace with content":        {remaining(corev1.ConditionTrue), " (finalizers: a, example.com/b, foregroundDeletion, kubernetes)"},
		"of a Namespace without content":     {remaining(corev1.ConditionFalse), " (finalizers: foregroundDeletion, kubernetes)"},
		"of a Namespace, twice":              {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"kubernetes"}}, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}}, " (finalizers: kubernetes)"},
		"of a Namespace without a condition": {&corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}}, " (finalizers: kubernetes)"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(phases.FinalizersOf(c.live)).To(Equal(c.want))
		})
	}
}

func TestUnmanagedObjectIsReadPastTheCache(t *testing.T) {
	g := NewWithT(t)
	// Given an unmanaged disk of the child's name that was deleted, while the cache shows it
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"))
	cluster.store(&Disk{ObjectMeta: metav1.ObjectMeta{Name: "boot", Namespace: machineNamespace}})
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	cluster.lags = true
	cluster.remove(ref{"Disk", "boot"}, "")

	// When it is reconciled
	h.mustReconcile(t)

	// Then the child is created
	g.Expect(cluster.violations).To(BeEmpty())
	g.Expect(metav1.IsControlledBy(cluster.objects[ref{"Disk", "boot"}], cluster.machine())).To(BeTrue())
}

func TestChildOfWhichTheCacheHoldsADigestIsReadOnceIfItsConfigurationChanges(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that is as desired, in a cache of digests
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.digests, h.uncachedReads = true, nil
	h.mustReconcile(t)
	g.Expect(h.writes).To(BeEmpty())
	g.Expect(h.uncachedReads).To(BeEmpty())

	// When the configuration changes
	h.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "slow" })
	h.settle(t)

	// Then the disk is read once, and applied
	g.Expect(h.uncachedReads).To(Equal([]string{"Disk boot"}))
	g.Expect(h.writes).To(ContainElement("update Disk boot"))
}

func TestReadyDecidesByMoreThanTheHealthOfAChild(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that is not attached yet, and a Ready that reads why
	cluster := newFakeCluster()
	cluster.attachedAfter["boot"] = 1
	boot := diskOf("Boot")
	boot.Ready = func(_ context.Context, s *scope, live *Disk) phases.Verdict {
		if health := isAttached(live); health.IsDone() {
			return health.WithMessage(live.Name + " of " + s.machine.Name + " is attached")
		}
		return phases.Wait("QuotaExceeded", live.Name+" exceeds the quota", 7*time.Second)
	}
	h := newHarness(cluster, boot)
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	// When it is reconciled, the condition has the verdict of Ready
	result := h.mustReconcile(t)
	g.Expect(result.RequeueAfter).To(Equal(7 * time.Second))
	g.Expect(h.states()).To(ContainElement("BootReady=False/QuotaExceeded"))
	g.Expect(h.condition(t, "BootReady").Message).To(Equal("boot exceeds the quota"))

	// When the disk is attached, too
	cluster.tick()
	h.mustReconcile(t)
	g.Expect(h.condition(t, "BootReady").Message).To(Equal("boot of vm1 is attached"))
	g.Expect(h.states()).To(ContainElement("Ready=True/Ready"))
}

func versionOf(version string, c *deviceConfiguration) *deviceConfiguration {
	c.WithAPIVersion(machineGroup.Group + "/" + version)
	return c
}

func TestConfigurationOfAnotherObjectIsRefused(t *testing.T) {
	cases := map[string]struct {
		desired *deviceConfiguration
		want    string
		// namespace is that of the phase, if it has one.
		namespace string
	}{
		"another name": {disk("axis"),
			`Desired returns a configuration with the name "axis", and ChildName is "boot" (by default, it is the name of the owner)`, ""},
		"another kind": {nic("boot"),
			"Desired returns a configuration of lab.example.com/v1 Nic, and the child's Go type is of lab.example.com/v1 Disk", ""},
		"another version": {versionOf("v2", disk("boot")),
			"Desired returns a configuration of lab.example.com/v2 Disk, and the child's Go type is of lab.example.com/v1 Disk", ""},
		"another namespace": {inNamespace(disk("boot"), "elsewhere"),
			`Desired returns a configuration in the namespace "elsewhere", and the owner is in "lab"`, ""},
		"another namespace, which the phase names": {inNamespace(disk("boot"), "elsewhere"),
			`Desired returns a configuration in the namespace "elsewhere", and the owner is in "lab"`, "elsewhere"},
		"no namespace": {inNamespace(disk("boot"), ""),
			`Desired returns a configuration in the namespace "", and the owner is in "lab"`, ""},
		"another namespace than that of the phase": {disk("boot"),
			`Desired returns a configuration in the namespace "lab", and ChildNamespace is "elsewhere"`, "elsewhere"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a phase that would create what it would not find again
			cluster := newFakeCluster()
			boot := diskOf("Boot")
			boot.Desired = func(*scope) (*deviceConfiguration, error) { return c.desired, nil }
			if c.namespace != "" {
				boot.ChildNamespace = func(*scope) string { return c.namespace }
			}
			h := newHarness(cluster, boot)
			cluster.createMachine(&Machine{})

			// When it is reconciled
			h.mustReconcile(t)

			// Then nothing is created, and the condition says why
			g.Expect(cluster.writes).To(Equal([]string{"finalize", "status"}))
			g.Expect(h.states()).To(ContainElement("Stalled=True/Failed"))
			g.Expect(h.condition(t, "BootReady").Message).To(HavePrefix(c.want))
		})
	}
}

func TestChildOfTwoPhasesIsRefused(t *testing.T) {
	const want = "phase Boot has the same child as another phase, Disk boot: this is a bug in the operator"
	data := diskOf("Data")
	data.ChildName = func(*scope) string { return "boot" }
	data.Desired = func(*scope) (*deviceConfiguration, error) { return disk("boot").with("class", "slow"), nil }
	cases := map[string]phase{"a child": data, "a member of a set": disksOf("Data")}
	for name, second := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given two phases whose child is the same
			cluster := newFakeCluster()
			h := newHarness(cluster, diskOf("Boot"), second)
			cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast", "Data": "boot=slow"}})

			// When it is reconciled
			h.mustReconcile(t)
			h.settle(t)

			// Then neither reverts the other, and the status names the child
			g.Expect(cluster.writes).To(Equal([]string{"finalize", "status"}))
			g.Expect(h.states()).To(ContainElement("Stalled=True/Failed"))
			g.Expect(h.condition(t, "BootReady").Message).To(Equal(want))
		})
	}
}

func TestChildOfTwoPhasesIsNotAppliedAlternately(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that an earlier version of the operator has applied in one phase
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	data := diskOf("Data")
	data.ChildName = func(*scope) string { return "boot" }
	data.Desired = func(*scope) (*deviceConfiguration, error) { return disk("boot").with("class", "slow"), nil }

	// When another phase has the same child
	h.definition.Phases = append(h.definition.Phases, data)
	h.mustReconcile(t)
	h.mustReconcile(t)

	// Then it stays as the first phase has applied it
	g.Expect(h.writes).To(Equal([]string{"status"}))
	g.Expect(h.condition(t, phases.ConditionReady).Message).To(Equal("Data: phase Data has the same child as another phase, Disk boot: this is a bug in the operator"))
}

func inNamespace(c *deviceConfiguration, namespace string) *deviceConfiguration {
	c.WithNamespace(namespace)
	return c
}

func TestChildWhoseHealthIsNilIsNotReady(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	boot := diskOf("Boot")
	boot.Health = func(*Disk) phases.Verdict { return nil }
	h := newHarness(cluster, boot)
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	h.settle(t)

	g.Expect(h.states()).To(ContainElements("Ready=False/Failed", "BootReady=False/Failed", "Stalled=True/Failed"))
	g.Expect(h.condition(t, "BootReady").Message).To(Equal("phase Boot gave no verdict and no error (a function returned nil, or the zero value of a verdict): this is a bug in the operator"))
}

func TestChildThatIsGivenNoVerdictIsNotApplied(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(*diskPhase)
		want string
	}{
		"by Requires": {func(boot *diskPhase) {
			boot.Requires = func(context.Context, *scope) (phases.Verdict, error) { return nil, nil }
		}, "phase Boot gave no verdict and no error (a function returned nil, or the zero value of a verdict): this is a bug in the operator"},
		"by Adopt": {func(boot *diskPhase) { boot.Adopt = func(*scope, *Disk) phases.Verdict { return nil } },
			"phase Boot gave no verdict on the adoption of Disk boot: this is a bug in the operator"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given an object of the child's name that no controller owns
			cluster := newFakeCluster()
			boot := diskOf("Boot")
			c.of(&boot)
			h := newHarness(cluster, boot)
			cluster.store(&Disk{ObjectMeta: metav1.ObjectMeta{Name: "boot", Namespace: machineNamespace, UID: "found"}})
			cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

			h.mustReconcile(t)

			g.Expect(cluster.writes).To(Equal([]string{"finalize", "status"}))
			g.Expect(h.condition(t, "BootReady").Message).To(Equal(c.want))
		})
	}
}
