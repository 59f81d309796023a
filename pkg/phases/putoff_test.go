package phases_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

const reportInterval = 3 * time.Second

// patient is a harness of one engine whose first status of a generation may be put off.
func patient(t *testing.T, list ...phase) (h *harness, run func() reconcile.Result) {
	t.Helper()
	h = newHarness(newFakeCluster(), list...)
	h.definition.ReportInterval = reportInterval
	engine, err := h.engine()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return h, func() reconcile.Result {
		result, err := engine.Reconcile(t.Context(), machineRequest)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return result
	}
}

func TestStatusOfAChildThatSoonIsReadyIsWrittenOnce(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that takes a while to be attached
	h, run := patient(t, diskOf("Boot"))
	h.attachedAfter["boot"] = 1
	h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	// When it is applied, nothing is reported yet, and the object is reconciled again when that is due
	g.Expect(run()).To(Equal(reconcile.Result{RequeueAfter: reportInterval}))
	g.Expect(h.writes).To(Equal([]string{"finalize", "create Disk boot"}))
	g.Expect(h.events.take()).To(BeEmpty())

	// When it is attached before that, the first status is that the Machine is ready
	h.tick()
	g.Expect(run()).To(Equal(reconcile.Result{}))
	g.Expect(h.writes[2:]).To(Equal([]string{"status"}))
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "BootReady=True/Ready"}))
	g.Expect(h.events.take()).To(Equal([]string{"Normal Ready (Ready): Ready is True: all phases are ready"}))
}

func TestStatusIsPutOffForTheReportIntervalAtMost(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that is not attached
	h, run := patient(t, diskOf("Boot"))
	h.attachedAfter["boot"] = 100
	h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	run()
	h.clock.SetTime(h.clock.Now().Add(reportInterval - time.Second))
	g.Expect(run().RequeueAfter).To(Equal(time.Second))
	g.Expect(h.writes).NotTo(ContainElement("status"))

	// When the interval is over, the status says so
	h.clock.SetTime(h.clock.Now().Add(time.Second))
	run()
	g.Expect(h.states()).To(ContainElements("Ready=False/NotAttached", "Reconciling=True/NotAttached"))

	// When it is over for another generation
	h.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "cheap" })
	h.writes = nil
	g.Expect(run().RequeueAfter).To(Equal(reportInterval))
	g.Expect(h.writes).To(Equal([]string{"update Disk boot"}))

	// When the Machine is deleted and created again meanwhile, its own time begins
	h.clock.SetTime(h.clock.Now().Add(reportInterval - time.Second))
	h.remove(ref{"Disk", "boot"}, "")
	machine := h.machine()
	delete(h.objects, ref{"Machine", machineName})
	h.changed()
	machine.UID, machine.ResourceVersion, machine.Finalizers, machine.Status.Conditions = "", "", nil, nil
	h.createMachine(machine)
	g.Expect(run().RequeueAfter).To(Equal(reportInterval))
}

// A change of metadata increments the generation of some children. The object stays ready until their controllers have
// observed it, which takes less than a second.
func TestABriefWaitOfAReadyObjectIsPutOff(t *testing.T) {
	for name, c := range map[string]struct {
		verdict phases.WaitVerdict
		putOff  bool
	}{
		"a wait":       {phases.Wait("NotAttached", "waiting for the disk", 0), false},
		"a brief wait": {phases.Wait("NotObserved", "waiting for the controller", 0).Briefly(), true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a Machine that is ready
			boot := diskOf("Boot")
			var now phases.Verdict = phases.Done("attached")
			boot.Health = func(*Disk) phases.Verdict { return now }
			h, run := patient(t, boot)
			h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
			run()
			g.Expect(h.states()).To(ContainElement("Ready=True/Ready"))
			h.writes = nil

			// When its disk is not, for the same generation
			now = c.verdict
			result := run()
			if !c.putOff {
				g.Expect(h.states()).To(ContainElement("Ready=False/" + c.verdict.Reason()))
				return
			}
			g.Expect(result.RequeueAfter).To(Equal(phases.BriefInterval))
			h.clock.SetTime(h.clock.Now().Add(phases.BriefInterval - time.Second))
			g.Expect(run().RequeueAfter).To(Equal(time.Second))
			g.Expect(h.states()).To(ContainElement("Ready=True/Ready"))
			g.Expect(h.writes).To(BeEmpty())

			// Then the status says so when the interval is over, or never if the disk is ready before.
			now = phases.Done("attached")
			run()
			g.Expect(h.writes).To(BeEmpty())
			now = c.verdict
			g.Expect(run().RequeueAfter).To(Equal(phases.BriefInterval), "a new wait")
			h.clock.SetTime(h.clock.Now().Add(phases.BriefInterval))
			run()
			g.Expect(h.states()).To(ContainElement("Ready=False/" + c.verdict.Reason()))
		})
	}
}

func TestBriefWaitIsReportedAtOnceIfNothingIsPutOff(t *testing.T) {
	g := NewWithT(t)
	boot := diskOf("Boot")
	var now phases.Verdict = phases.Done("attached")
	boot.Health = func(*Disk) phases.Verdict { return now }
	h := settled(t, map[string]string{"Boot": "fast"}, boot)

	now = phases.Wait("NotObserved", "waiting for the controller", 0).Briefly()
	h.mustReconcile(t)

	g.Expect(h.states()).To(ContainElement("Ready=False/NotObserved"))
}

func TestDriftThatWasRevertedIsReportedAtOnce(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine whose status is about an earlier generation, and whose disk has drifted
	h, run := patient(t, diskOf("Boot"))
	h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	run()
	h.editMachine(func(*Machine) {})
	h.attachedAfter["boot"] = 100
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })

	// When it is reverted, and the disk is to be attached again
	run()

	// Then the status says both
	g.Expect(h.states()).To(ContainElement("Ready=False/NotAttached"))
	g.Expect(h.machine().Status.Drifts).To(HaveLen(1))
}

func TestTimeOfAnObjectOfTheSameNameIsItsOwn(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine whose status is put off
	h, run := patient(t, diskOf("Boot"))
	h.attachedAfter["boot"] = 100
	h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	g.Expect(run().RequeueAfter).To(Equal(reportInterval))
	h.clock.SetTime(h.clock.Now().Add(time.Second))

	// When another one of its name and generation takes its place
	clear(h.objects)
	h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

	// Then its status is put off for as long
	g.Expect(run().RequeueAfter).To(Equal(reportInterval))
}

func TestNothingIsKeptOfAnObjectThatIsGone(t *testing.T) {
	for name, vanish := range map[string]func(*harness){
		"torn down":            func(h *harness) { h.deleteMachine() },
		"without the teardown": func(h *harness) { clear(h.objects); h.sync() },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a Machine whose status is put off
			h := newHarness(newFakeCluster(), diskOf("Boot"))
			h.definition.ReportInterval = reportInterval
			h.attachedAfter["boot"] = 100
			engine, err := h.engine()
			g.Expect(err).NotTo(HaveOccurred())
			h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
			_, err = engine.Reconcile(t.Context(), machineRequest)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(phases.PutOff(engine)).To(Equal(1))

			// When it is gone
			vanish(h)
			_, err = engine.Reconcile(t.Context(), machineRequest)

			// Then the engine keeps no time of it
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(h.machine()).To(BeNil())
			g.Expect(phases.PutOff(engine)).To(BeZero())
		})
	}
}

func TestWhatIsWrongIsReportedAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		verdict phases.Verdict
		want    string
	}{
		"a wait that is a warning": {phases.Wait("Unschedulable", "no node has room", 0).AsWarning(), "Ready=False/Unschedulable"},
		"stalled":                  {phases.Stalled("BadClass", "no such class"), "Ready=False/BadClass"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			boot := diskOf("Boot")
			boot.Health = func(*Disk) phases.Verdict { return c.verdict }
			h, run := patient(t, boot)
			h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})

			run()

			g.Expect(h.states()).To(ContainElement(c.want))
		})
	}
}

func TestWaitOfAStepIsReportedAtOnce(t *testing.T) {
	g := NewWithT(t)
	// A step may need the status to say what it is about to do.
	h, run := patient(t, observes("Address", phases.Wait("Pending", "allocating", 0)))
	h.createMachine(&Machine{})

	run()

	g.Expect(h.states()).To(ContainElement("Ready=False/Pending"))
}

func TestReadinessThatIsLostIsReportedAtOnce(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine whose status is about its generation
	h, run := patient(t, diskOf("Boot"))
	h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	for range 3 {
		run()
		h.tick()
	}
	g.Expect(h.states()).To(ContainElement("Ready=True/Ready"))

	// When its disk is detached
	h.modify("Disk", "boot", func(d device) { d.device().Attached = false })
	run()

	// Then the status says so
	g.Expect(h.states()).To(ContainElement("Ready=False/NotAttached"))
}

func TestDeletionThatIsSoonCompleteHasNoStatus(t *testing.T) {
	g := NewWithT(t)
	h, run := patient(t, diskOf("Boot"))
	h.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	for range 3 {
		run()
		h.tick()
	}
	h.goneAfter["boot"] = 1
	h.writes = nil
	h.events.take()

	// When the Machine is deleted, and its disk is gone within the interval
	h.deleteMachine()
	g.Expect(run().RequeueAfter).To(Equal(reportInterval))
	h.tick()
	run()

	// Then there is neither a status nor an Event of it
	g.Expect(h.writes).To(Equal([]string{"delete Disk boot", "unfinalize"}))
	g.Expect(h.events.take()).To(BeEmpty())
	g.Expect(h.machine()).To(BeNil())
}
