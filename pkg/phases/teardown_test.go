package phases_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestFinalizerIsAddedBeforeTheFirstSideEffect(t *testing.T) {
	for name, first := range map[string]func(*fakeCluster) phase{
		"a child": func(*fakeCluster) phase { return diskOf("Boot") },
		"a step":  func(cluster *fakeCluster) phase { return ipOf(cluster, "Boot") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := newFakeCluster()
			h := newHarness(cluster, first(cluster))
			cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

			h.mustReconcile(t)

			g.Expect(cluster.writes[0]).To(Equal("finalize"))
			g.Expect(len(cluster.writes)).To(BeNumerically(">", 1))
		})
	}
}

func TestTeardownIsTheListReversed(t *testing.T) {
	g := NewWithT(t)
	// Given a settled Machine, whose NIC and IP take ticks to be gone
	cluster := newFakeCluster()
	cluster.goneAfter["uplink"], cluster.goneAfter["address"] = 2, 1
	h := newHarness(cluster, diskOf("Boot"), ipOf(cluster, "Address"), nicOf("Uplink"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast", "Address": "static", "Uplink": "cheap"}})
	h.settle(t)
	cluster.writes = nil

	// When it is deleted
	cluster.deleteMachine()
	result := h.mustReconcile(t)

	// Then the last phase is undone first, and the status says what it waits for
	g.Expect(cluster.writes).To(Equal([]string{"delete Nic uplink", "status"}))
	g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: phases.SafetyNet}))
	g.Expect(h.states()).To(Equal([]string{
		"Ready=False/Terminating", "BootReady=Unknown/Blocked", "AddressReady=Unknown/Blocked", "UplinkReady=False/Terminating",
		"Reconciling=True/Terminating",
	}))
	g.Expect(h.condition(t, "Ready").Message).To(Equal("Uplink: waiting for Nic uplink to be deleted (finalizers: foregroundDeletion)"))
	g.Expect(h.condition(t, "BootReady").Message).To(Equal("kept until phase Uplink is deleted"))

	// When it still exists at the next reconcile, it is not deleted again
	cluster.tick()
	h.mustReconcile(t)
	g.Expect(cluster.writes).To(HaveLen(2))

	// When it is gone, the step is undone, with a wait of its own
	cluster.tick()
	result = h.mustReconcile(t)
	g.Expect(cluster.writes).To(Equal([]string{"delete Nic uplink", "status", "release ip address", "status"}))
	g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: 3 * time.Second}))
	g.Expect(h.condition(t, "Ready").Message).To(Equal("Address: waiting for the IP to be released"))
	g.Expect(h.condition(t, "UplinkReady").Message).To(Equal("deleted"))
	g.Expect(h.states()).To(ContainElement("UplinkReady=False/Terminating"))

	// When that is gone, the rest is undone, and the finalizer removed last
	h.settle(t)
	g.Expect(cluster.writes[4:]).To(Equal([]string{"delete Disk boot", "unfinalize"}))
	g.Expect(cluster.machine()).To(BeNil())
	g.Expect(cluster.left()).To(BeEmpty())
}

// withoutDependents is a phase whose child is deleted in the background.
func withoutDependents(p diskPhase) diskPhase {
	p.Propagation = metav1.DeletePropagationBackground
	return p
}

func TestTeardownDoesNotWaitForChildrenWithoutDependents(t *testing.T) {
	g := NewWithT(t)
	// Given two disks, of which one takes ticks to be gone
	h := settled(t, map[string]string{"Boot": "fast", "Data": "fast"}, withoutDependents(diskOf("Boot")), withoutDependents(diskOf("Data")))
	h.goneAfter["data"] = 2

	// When the Machine is deleted, both are, and the status names the one that is left
	h.deleteMachine()
	h.mustReconcile(t)
	g.Expect(h.writes).To(Equal([]string{"delete Disk data", "delete Disk boot", "status"}))
	g.Expect(h.states()).To(ContainElement("Ready=False/Terminating"))
	g.Expect(h.condition(t, "Ready").Message).To(Equal("Data: waiting for Disk data to be deleted (finalizers: example.com/slow)"))
	g.Expect(h.condition(t, "BootReady").Message).To(Equal("deleted"))

	// When it is gone, the finalizer is removed
	h.settle(t)
	g.Expect(h.writes[3:]).To(Equal([]string{"unfinalize"}))
	g.Expect(h.machine()).To(BeNil())
}

func TestForegroundDeletionWaitsForTheDependentsOfAllChildren(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that is otherwise deleted in the background
	h := settled(t, map[string]string{"Boot": "fast"}, withoutDependents(diskOf("Boot")))
	h.goneAfter["boot"] = 1

	// When the Machine is deleted with --cascade=foreground
	h.editMachine(func(machine *Machine) {
		machine.Finalizers = append(machine.Finalizers, metav1.FinalizerDeleteDependents)
	})
	h.deleteMachine()
	h.mustReconcile(t)

	// Then the disk is deleted in the foreground
	const waits = "Boot: waiting for Disk boot to be deleted (finalizers: foregroundDeletion)"
	g.Expect(h.condition(t, "Ready").Message).To(Equal(waits))
}

func TestStatusNamesAChildThatIsLeftWhileEarlierPhasesAreUndone(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, map[string]string{"Uplink": "cheap", "Data": "fast"}, nicOf("Uplink"), withoutDependents(diskOf("Data")))
	h.goneAfter["uplink"], h.goneAfter["data"] = 1, 1

	h.deleteMachine()
	h.mustReconcile(t)

	g.Expect(h.states()).To(ContainElements("DataReady=False/Terminating", "UplinkReady=False/Terminating"))
	g.Expect(h.condition(t, "DataReady").Message).To(Equal("waiting for Disk data to be deleted (finalizers: example.com/slow)"))
}

func TestStepThatLeavesNothingBehindWaitsForNoChild(t *testing.T) {
	g := NewWithT(t)
	// Given a step that only observes, before a disk that takes ticks to be gone
	h := settled(t, map[string]string{"Boot": "fast", "Data": "fast"},
		withoutDependents(diskOf("Boot")), observes("Address", phases.Done("")), withoutDependents(diskOf("Data")))
	h.goneAfter["data"] = 2

	// When the Machine is deleted, the disk before the step is, too
	h.deleteMachine()
	h.mustReconcile(t)
	g.Expect(h.writes).To(Equal([]string{"delete Disk data", "delete Disk boot", "status"}))
}

func TestChildrenThatAreGoneBeforeAStepAreNotReadAgain(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that the Machine asks for and that does not exist, after a step
	cluster := newFakeCluster()
	h := newHarness(cluster, ipOf(cluster, "Address"), withoutDependents(diskOf("Data")))
	cluster.createMachine(&Machine{Spec: map[string]string{"Data": "fast"}})
	h.settle(t)
	delete(h.objects, ref{"Disk", "data"})
	h.sync()
	reads := &countedReads{Reader: h.dependencies.Uncached}
	h.dependencies.Uncached = reads

	// When the Machine is deleted
	h.deleteMachine()
	h.mustReconcile(t)

	// Then it is read past the cache before the step is undone
	g.Expect(h.machine()).To(BeNil())
	g.Expect(reads.of).To(HaveKeyWithValue("data", 1))
}

func TestTeardownThatCannotReadWhatIsLeftKeepsTheFinalizer(t *testing.T) {
	for name, c := range map[string]struct {
		phase phase
		fail  func(*harness)
	}{
		"in the cache": {diskOf("Boot"), func(h *harness) {
			h.dependencies.Reader = failingReader{h.dependencies.Reader, errDown}
		}},
		"past the cache": {diskOf("Boot"), func(h *harness) {
			h.dependencies.Uncached = failingReader{h.dependencies.Uncached, errDown}
		}},
		"of a set, past the cache": {disksOf("Volumes"), func(h *harness) {
			h.dependencies.Uncached = failingReader{h.dependencies.Uncached, errDown}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a disk that the cache does not show, and that cannot be read
			h := settled(t, map[string]string{"Boot": "fast", "Volumes": "a"}, c.phase)
			h.deleteMachine()
			h.lags = true
			maps.DeleteFunc(h.cache, func(r ref, _ client.Object) bool { return r.kind == "Disk" })
			c.fail(h)

			// When the Machine is reconciled
			_, err := h.reconcile(t)

			// Then it is an error, and the Machine stays
			g.Expect(err).To(MatchError(errDown))
			g.Expect(h.machine().Finalizers).To(ContainElement(machineFinalizer))
			g.Expect(h.left()).To(HaveLen(1))
		})
	}
}

func TestNoDriftIsReportedInATeardown(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that has drifted, under the policy Report
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	reportsDrift(h)
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
	h.mustReconcile(t)
	g.Expect(h.states()).To(ContainElement("Drifted=True/Drifted"))

	// When the Machine is deleted
	h.goneAfter["boot"] = 1
	h.deleteMachine()
	h.mustReconcile(t)

	// Then the drift is neither reported nor called over
	g.Expect(h.states()).NotTo(ContainElement(HavePrefix("Drifted")))
	g.Expect(h.machine().Status.Drifts).To(BeEmpty())
	g.Expect(h.events.take()).NotTo(ContainElement(ContainSubstring("DriftedOver")))
}

func TestOrphanIsNotAdoptedAgainAfterAnotherWriteOfTheSameReconcile(t *testing.T) {
	g := NewWithT(t)
	// Given two disks, the first of which has drifted
	h := settled(t, map[string]string{"Boot": "fast", "Data": "fast"}, diskOf("Boot"), diskOf("Data"))
	h.definition.Policies = func(*Machine) phases.Policies {
		return phases.Policies{Adoption: ssa.AdoptIfUnowned, Drift: ssa.CorrectDrift}
	}
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })

	// When the Machine is deleted with its children to be kept, after the write of the first one
	h.check = func(string, string, string) error {
		h.check = nil
		h.remove(ref{"Machine", machineName}, metav1.FinalizerOrphanDependents)
		h.modify("Disk", "data", func(d device) { d.SetOwnerReferences(nil) })
		return nil
	}
	h.mustReconcile(t)

	// Then the second one is not adopted again
	g.Expect(h.writes).To(Equal([]string{"correct Disk boot", "status"}))
	g.Expect(h.objects[ref{"Disk", "data"}].GetOwnerReferences()).To(BeEmpty())
}

func TestStepIsUndoneWhenTheChildrenAfterItAreGone(t *testing.T) {
	g := NewWithT(t)
	// Given an IP that a disk without dependents uses, which takes a tick to be gone
	cluster := newFakeCluster()
	h := newHarness(cluster, ipOf(cluster, "Address"), withoutDependents(diskOf("Boot")))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast", "Address": "static"}})
	h.settle(t)
	cluster.writes = nil
	cluster.goneAfter["boot"] = 1

	// When the Machine is deleted, the IP is kept until the disk is gone
	cluster.deleteMachine()
	h.mustReconcile(t)
	g.Expect(cluster.writes).To(Equal([]string{"delete Disk boot", "status"}))
	h.settle(t)
	g.Expect(cluster.writes[2:]).To(HaveExactElements("release ip address", "status", "unfinalize"))
}

func TestTeardownReadsChildrenThatMayBeLeftPastTheCacheOnce(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine with two disks and a NIC, and an option that its spec and its status know nothing of
	h := settled(t, map[string]string{"Boot": "fast", "Uplink": "cheap", "Data": "old"},
		withoutDependents(diskOf("Boot")), nicOf("Uplink"), withoutDependents(diskOf("Data")), withoutDependents(diskOf("Scratch")))
	h.goneAfter["uplink"], h.goneAfter["data"] = 3, 1
	reads := &countedReads{Reader: h.dependencies.Uncached}
	h.dependencies.Uncached = reads

	// When it is deleted, and reconciled more often than its children change
	h.deleteMachine()
	for h.machine() != nil {
		h.mustReconcile(t)
		h.mustReconcile(t)
		h.tick()
	}

	// Then each child is read past the cache once, but for what was gone when it was deleted, and what never existed
	g.Expect(reads.of).To(And(HaveKeyWithValue("uplink", 1), HaveKeyWithValue("data", 1), Not(HaveKey("boot")), Not(HaveKey("scratch"))))
}

func TestTeardownReadsWhatTheStatusDoesNotKnowOf(t *testing.T) {
	for name, edit := range map[string]func(*Machine){
		"the status is that of an earlier spec": func(machine *Machine) { machine.Generation = 2 }, // and the deletion makes it 3
		"there is no status":                    func(machine *Machine) { machine.Status.Conditions = nil },
		"the status says that something is left": func(machine *Machine) {
			machine.Status.Conditions[0].Type, machine.Status.Conditions[1].Type = "Ready", "ScratchReady"
		},
		"what the spec asks for cannot be computed": func(machine *Machine) { machine.Spec["Scratch"] = "unknown" },
		"the spec asks for it, and nothing created": func(machine *Machine) { machine.Spec["Scratch"] = "fast" },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a Machine with a disk, and one that only the API server shows
			scratch := withoutDependents(diskOf("Scratch"))
			desired := scratch.Desired
			scratch.Desired = func(s *scope) (*deviceConfiguration, error) {
				if s.machine.Spec["Scratch"] == "unknown" {
					return nil, errors.New("no such class")
				}
				return desired(s)
			}
			h := settled(t, map[string]string{"Boot": "fast"}, withoutDependents(diskOf("Boot")), scratch)
			machine := h.machine()
			edit(machine)
			h.store(machine)
			reads := &countedReads{Reader: h.dependencies.Uncached}
			h.dependencies.Uncached = reads

			// When it is deleted
			h.deleteMachine()
			h.settle(t)

			// Then that is read past the cache before the finalizer is removed
			g.Expect(h.machine()).To(BeNil())
			g.Expect(reads.of).To(HaveKeyWithValue("scratch", 1))
		})
	}
}

// countedReads counts reads by the object's name.
type countedReads struct {
	client.Reader
	of map[string]int
}

func (r *countedReads) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if r.of == nil {
		r.of = map[string]int{}
	}
	r.of[key.Name]++
	return r.Reader.Get(ctx, key, into, options...)
}

func TestTeardownLeavesUnmanagedObjectsAlone(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that could not create its disk, because an unmanaged one has the name
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"))
	cluster.store(&Disk{ObjectMeta: metav1.ObjectMeta{Name: "boot", Namespace: machineNamespace}})
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	h.settle(t)

	// When it is deleted
	cluster.deleteMachine()
	h.settle(t)

	// Then it is gone and the unmanaged disk exists
	g.Expect(cluster.machine()).To(BeNil())
	g.Expect(cluster.device("Disk", "boot")).NotTo(BeNil())
}

func TestTeardownDoesNotBelieveALaggingCache(t *testing.T) {
	g := NewWithT(t)
	// Given a cache that does not show the disk yet which the last reconcile has created
	cluster := newFakeCluster()
	cluster.lags = true
	h := newHarness(cluster, diskOf("Boot"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	cluster.sync()
	h.mustReconcile(t)
	cluster.deleteMachine()
	cluster.cache[ref{"Machine", machineName}] = cluster.machine()

	// When the Machine is torn down
	h.mustReconcile(t)

	// Then the disk is deleted all the same
	g.Expect(cluster.writes).To(ContainElement("delete Disk boot"))
}

func TestObjectWithoutTheFinalizerIsNotTornDownAgain(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that is deleted, and has only the finalizer of another controller
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"))
	cluster.createMachine(&Machine{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"example.com/other"}}, Spec: map[string]string{"Boot": "fast"}})
	h.settle(t)
	cluster.deleteMachine()
	h.settle(t)
	g.Expect(cluster.machine().Finalizers).To(Equal([]string{"example.com/other"}))
	cluster.writes = nil

	// When it is reconciled
	result := h.mustReconcile(t)

	// Then nothing is done
	g.Expect(result).To(Equal(reconcile.Result{}))
	g.Expect(cluster.writes).To(BeEmpty())
}

func TestOrphaningDeletionKeepsTheChildren(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that is deleted with its children to be kept
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"), nicOf("Uplink"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast", "Uplink": "cheap"}})
	h.settle(t)
	cluster.remove(ref{"Machine", machineName}, metav1.FinalizerOrphanDependents)
	cluster.writes = nil

	// When it is reconciled before the garbage collector has orphaned them
	result := h.mustReconcile(t)

	// Then they are kept, and the status says what the teardown waits for, which is no phase
	g.Expect(cluster.writes).To(Equal([]string{"status"}))
	g.Expect(result.RequeueAfter).To(Equal(phases.SafetyNet))
	const message = "waiting for the garbage collector to orphan the children, as the deletion asks (finalizers: orphan)"
	g.Expect(h.condition(t, "Ready").Message).To(Equal(message))
	g.Expect(h.states()).To(Equal([]string{
		"Ready=False/Terminating", "BootReady=Unknown/Blocked", "UplinkReady=Unknown/Blocked", "Reconciling=True/Terminating",
	}))
	g.Expect(h.condition(t, "UplinkReady").Message).To(Equal(message))

	// When it has
	for _, r := range []ref{{"Disk", "boot"}, {"Nic", "uplink"}} {
		cluster.modify(r.kind, r.name, func(d device) { d.SetOwnerReferences(nil) })
	}
	machine := cluster.machine()
	machine.Finalizers = []string{machineFinalizer}
	cluster.store(machine)
	h.settle(t)

	// Then the Machine is gone and they exist
	g.Expect(cluster.machine()).To(BeNil())
	g.Expect(cluster.device("Disk", "boot")).NotTo(BeNil())
	g.Expect(cluster.device("Nic", "uplink")).NotTo(BeNil())
}

func TestOrphanIsNotAdoptedAgainWhenTheCacheDoesNotShowTheDeletion(t *testing.T) {
	for name, restarted := range map[string]bool{"by an engine that has just started": true, "by one that has just written the status": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a Machine that is deleted with its children to be kept, and a child that the garbage
			// collector has orphaned already, while the cache shows the Machine as it was
			cluster := newFakeCluster()
			h := newHarness(cluster, diskOf("Boot"))
			h.definition.Policies = func(*Machine) phases.Policies {
				return phases.Policies{Adoption: ssa.AdoptIfUnowned, Drift: ssa.CorrectDrift}
			}
			cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
			h.settle(t)
			engine, err := h.engine()
			g.Expect(err).NotTo(HaveOccurred())
			run := func() reconcile.Result {
				result, err := engine.Reconcile(t.Context(), machineRequest)
				g.Expect(err).NotTo(HaveOccurred())
				return result
			}
			cluster.writes = nil
			if !restarted {
				cluster.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "cheap" })
				run()
				g.Expect(cluster.writes).To(HaveExactElements(ContainSubstring("Disk boot"), "status"))
			}
			cluster.lags = true
			cluster.remove(ref{"Machine", machineName}, metav1.FinalizerOrphanDependents)
			cluster.modify("Disk", "boot", func(d device) { d.SetOwnerReferences(nil) })
			cluster.cache[ref{"Disk", "boot"}] = cluster.objects[ref{"Disk", "boot"}]
			cluster.writes = nil

			// When it is reconciled
			result := run()

			// Then the child is not adopted again, which would tear it down later: the deletion is observed
			g.Expect(cluster.writes).To(Equal([]string{"status"}))
			g.Expect(result.RequeueAfter).To(Equal(phases.SafetyNet))
			g.Expect(h.condition(t, "Ready").Message).To(ContainSubstring("garbage collector"))
			g.Expect(cluster.objects[ref{"Disk", "boot"}].GetOwnerReferences()).To(BeEmpty())
		})
	}
}

func TestTeardownThatFailsIsReportedAndRetried(t *testing.T) {
	down := errors.New("the cloud is down")
	cases := map[string]struct {
		verdict phases.Verdict
		failure error
		retried error
		after   time.Duration
		reason  string
	}{
		"an error is retried with backoff": {failure: down, retried: down, reason: "Failed"},
		// Nobody edits the spec of an object that is being deleted, and the cloud is not watched.
		"a stall is rechecked":              {verdict: phases.Stalled("Locked", "remove the lock"), after: phases.SafetyNet, reason: "Locked"},
		"so is a permanent error":           {failure: &ssa.Error{Reason: ssa.ReasonInvalid, Object: "x", Message: "y"}, after: phases.SafetyNet, reason: "Invalid"},
		"so is one that says when":          {verdict: phases.Stalled("Locked", "remove the lock").RecheckAfter(time.Minute), after: time.Minute, reason: "Locked"},
		"a wait says how long":              {verdict: phases.Wait("Going", "", time.Minute), after: time.Minute, reason: "Going"},
		"no verdict does not count as done": {after: phases.SafetyNet, reason: "Failed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a step that cannot be undone yet, after a disk
			cluster := newFakeCluster()
			var broken bool
			address := observes("Address", phases.Done(""))
			address.Ensure = func(context.Context, *scope) (phases.Verdict, error) { return phases.Done(""), nil }
			address.Undo = func(context.Context, *scope) (phases.Verdict, error) {
				if broken {
					return c.verdict, c.failure
				}
				return phases.Done(""), nil
			}
			h := newHarness(cluster, diskOf("Boot"), address)
			cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
			h.settle(t)
			cluster.deleteMachine()

			// When it is reconciled
			broken = true
			result, err := h.reconcile(t)

			// Then it is reconciled again, says why, and does not go on to the disk
			if c.retried != nil {
				g.Expect(err).To(MatchError(c.retried))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(result.RequeueAfter).To(Equal(c.after))
			g.Expect(h.condition(t, "Ready").Reason).To(Equal(c.reason))
			g.Expect(cluster.device("Disk", "boot")).NotTo(BeNil())

			// When it can be undone, the Machine is removed
			broken = false
			h.settle(t)
			g.Expect(cluster.machine()).To(BeNil())
		})
	}
}

func TestObjectWithAWrongSpecCanBeDeleted(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine of whose spec no disk can be computed any more
	cluster := newFakeCluster()
	wrong := false
	boot := diskOf("Boot")
	build := boot.Desired
	boot.Desired = func(s *scope) (*deviceConfiguration, error) {
		if wrong {
			return nil, errors.New("no such class")
		}
		return build(s)
	}
	h := newHarness(cluster, boot)
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	h.settle(t)
	wrong = true

	// When it is deleted
	cluster.deleteMachine()
	h.settle(t)

	// Then it is deleted
	g.Expect(cluster.machine()).To(BeNil())
	g.Expect(cluster.left()).To(BeEmpty())
}

// unserved is a reader of a cluster that does not serve Nics.
type unserved struct{ reader }

func (u unserved) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, ok := into.(*Nic); ok {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: machineGroup.Group, Kind: "Nic"}}
	}
	return u.reader.Get(ctx, key, into, options...)
}

func (u unserved) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if _, ok := into.(*NicList); ok {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: machineGroup.Group, Kind: "Nic"}}
	}
	return u.reader.List(ctx, into, options...)
}

func TestKindThatIsNotServedBlocksNothing(t *testing.T) {
	g := NewWithT(t)
	// Given a cluster that does not serve Nics, which the Machine does not ask for
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"), nicOf("Uplink"))
	h.dependencies.Reader = unserved{reader{fakeCluster: cluster, cached: true}}
	h.dependencies.Uncached = unserved{reader{fakeCluster: cluster}}
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	// When it is settled, it is Ready
	h.settle(t)
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "BootReady=True/Ready"}))

	// When it is deleted, it is deleted, even if it has asked for one last
	cluster.editMachine(func(machine *Machine) { machine.Spec["Uplink"] = "cheap" })
	cluster.deleteMachine()
	h.settle(t)
	g.Expect(cluster.machine()).To(BeNil())
}

func TestKindThatIsNotServedAnyMoreBlocksNoTeardown(t *testing.T) {
	for name, unserved := range map[string]error{
		"since the client has started":           &meta.NoKindMatchError{GroupKind: machineGroup.WithKind("Disk").GroupKind()},
		"since the client has found its mapping": apierrors.NewNotFound(schema.GroupResource{Group: machineGroup.Group, Resource: "disks"}, ""),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a Machine with a set of Disks
			h := settled(t, map[string]string{"Volumes": "a"}, disksOf("Volumes"))
			g.Expect(h.states()).To(ContainElement("VolumesReady=True/Ready"))

			// When their kind is served no more, and the Machine is deleted
			h.dependencies.Uncached = failingReader{h.dependencies.Uncached, unserved}
			h.deleteMachine()
			h.settle(t)

			// Then it is deleted
			g.Expect(h.machine()).To(BeNil())
		})
	}
}

func TestFinalizerThatCannotBeRemovedIsReported(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine of which nothing is left, in a cluster that refuses to remove the finalizer
	cluster := newFakeCluster()
	refusal := &ssa.Error{Reason: ssa.ReasonForbidden, Object: "Machine vm1", Message: "grant the permission"}
	h := newHarness(cluster, diskOf("Boot"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	h.settle(t)
	cluster.deleteMachine()
	cluster.fail = func(what string) error {
		if what == "unfinalize" {
			return refusal
		}
		return nil
	}

	// When it is reconciled, and once more
	engine, err := h.engine()
	g.Expect(err).NotTo(HaveOccurred())
	for range 2 {
		_, err = engine.Reconcile(t.Context(), machineRequest)

		// Then it is retried, and the status says what the deletion waits for
		g.Expect(err).To(MatchError(refusal))
	}
	g.Expect(h.condition(t, "Ready").Reason).To(Equal("Forbidden"))
	g.Expect(h.condition(t, "Ready").Message).To(ContainSubstring("removing the finalizer"))

	// When it is no longer refused, the retry removes it
	cluster.fail = nil
	_, err = engine.Reconcile(t.Context(), machineRequest)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cluster.machine()).To(BeNil())
}

func TestNothingIsDoneForAnObjectThatTheCacheStillShows(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that an engine has torn down, and a cache that does not show that it is gone
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	reads := &countedReads{Reader: h.dependencies.Uncached}
	h.dependencies.Uncached = reads
	engine, err := h.engine()
	g.Expect(err).NotTo(HaveOccurred())
	h.deleteMachine()
	h.lags = true
	_, err = engine.Reconcile(t.Context(), machineRequest)
	g.Expect(err).NotTo(HaveOccurred())
	h.syncKind("Disk")
	for h.machine() != nil {
		h.tick()
		h.syncKind("Disk")
		_, err = engine.Reconcile(t.Context(), machineRequest)
		g.Expect(err).NotTo(HaveOccurred())
	}
	h.writes, reads.of = nil, nil

	// When the engine reconciles it again
	result, err := engine.Reconcile(t.Context(), machineRequest)

	// Then it sends nothing
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal(reconcile.Result{}))
	g.Expect(h.writes).To(BeEmpty())
	g.Expect(reads.of).To(BeEmpty())

	// When the cache shows it for longer than an answer counts, the engine reads it past the cache
	h.clock.SetTime(h.clock.Now().Add(31 * time.Second))
	_, err = engine.Reconcile(t.Context(), machineRequest)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(reads.of).To(HaveKeyWithValue(machineName, 1))
	g.Expect(h.writes).To(BeEmpty())
}

func TestTeardownThatNobodyCanUnblockIsTriedAgain(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.deleteMachine()
	h.fail = func(what string) error {
		if strings.HasPrefix(what, "unfinalize") {
			return &ssa.Error{Reason: ssa.ReasonInvalid, Object: "Machine vm1", Message: "a webhook refuses it"}
		}
		return nil
	}
	for range 3 {
		result, err := h.reconcile(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.RequeueAfter).To(Equal(phases.SafetyNet))
	}
	g.Expect(h.condition(t, phases.ConditionReady).Message).To(HavePrefix("removing the finalizer: "))
}
