package phases_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// countingReader counts what is read of the Machine.
type countingReader struct {
	client.Reader
	machines *int
	fail     error
}

func (r countingReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if _, ok := object.(*Machine); ok {
		*r.machines++
		if r.fail != nil {
			return r.fail
		}
	}
	return r.Reader.Get(ctx, key, object, opts...)
}

// lagging is a settled harness with a disk, a NIC and an IP, and a count of the reads of the Machine past the
// cache.
func lagging(t *testing.T, spec map[string]string) (*harness, *int) {
	t.Helper()
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"), nicOf("Uplink"), ipOf(cluster, "Address"))
	cluster.createMachine(&Machine{Spec: spec})
	h.settle(t)
	reads := 0
	h.dependencies.Uncached = countingReader{Reader: h.dependencies.Uncached, machines: &reads}
	cluster.writes = nil
	return h, &reads
}

// showOnlyTheMachineAsItWas brings the cache up to date, but for the Machine.
func (cluster *fakeCluster) showOnlyTheMachineAsItWas(before client.Object) {
	cluster.sync()
	cluster.cache[ref{"Machine", machineName}] = before
}

func TestNothingIsWrittenForAnOwnerThatHasChanged(t *testing.T) {
	all := map[string]string{"Boot": "fast", "Uplink": "tiny", "Address": "cheap"}
	type change struct {
		happen func(*fakeCluster)
		// want is what is written for the Machine as it is now, by what is missing.
		want  map[string][]string
		after time.Duration
	}
	// What would be written if the Machine were still what the cache shows.
	missing := map[string]func(*fakeCluster){
		"a child is missing": func(cluster *fakeCluster) { delete(cluster.objects, ref{"Disk", "boot"}) },
		"a child has drifted": func(cluster *fakeCluster) {
			cluster.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
		},
		"an IP is missing": func(cluster *fakeCluster) { delete(cluster.ips, "address") },
	}
	changes := map[string]change{
		"its spec": {
			happen: func(cluster *fakeCluster) {
				cluster.editMachine(func(machine *Machine) { machine.Spec = map[string]string{} })
			},
			want: map[string][]string{
				"a child is missing":  {"delete Nic uplink", "status"},
				"a child has drifted": {"delete Disk boot", "status"},
				"an IP is missing":    {"delete Disk boot", "status"},
			},
			after: phases.SafetyNet,
		},
		"the class of its disk": {
			happen: func(cluster *fakeCluster) {
				cluster.attachedAfter["boot"] = 1
				cluster.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "cheap" })
			},
			want: map[string][]string{
				"a child is missing":  {"create Disk boot", "status"},
				"a child has drifted": {"update Disk boot", "status"},
				"an IP is missing":    {"update Disk boot", "status"},
			},
			after: 5 * time.Second,
		},
		"it is being deleted": {
			happen: func(cluster *fakeCluster) { cluster.deleteMachine() },
			want: map[string][]string{
				"a child is missing":  {"release ip address", "status"},
				"a child has drifted": {"release ip address", "status"},
				"an IP is missing":    {"delete Nic uplink", "status"},
			},
		},
		"it is another one": {
			happen: func(cluster *fakeCluster) {
				delete(cluster.objects, ref{"Machine", machineName})
				cluster.createMachine(&Machine{Spec: all})
			},
			after: 50 * time.Millisecond,
		},
		"it is another one of the same version, after etcd was restored": {
			happen: func(cluster *fakeCluster) {
				version := cluster.objects[ref{"Machine", machineName}].GetResourceVersion()
				delete(cluster.objects, ref{"Machine", machineName})
				cluster.createMachine(&Machine{Spec: all})
				cluster.objects[ref{"Machine", machineName}].SetResourceVersion(version)
			},
			after: 50 * time.Millisecond,
		},
		"it is gone": {happen: func(cluster *fakeCluster) { delete(cluster.objects, ref{"Machine", machineName}) }},
	}
	for name, change := range changes {
		for what, take := range missing {
			t.Run(name+", and "+what, func(t *testing.T) {
				g := NewWithT(t)
				// Given a cache that shows the Machine as it was
				h, reads := lagging(t, all)
				before := h.machine()
				h.lags = true
				change.happen(h.fakeCluster)
				take(h.fakeCluster)
				h.showOnlyTheMachineAsItWas(before)
				h.writes = nil

				// When it is reconciled
				result, err := h.reconcile(t)

				// Then it is what the Machine asks for now that is written, which takes one read to know
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(h.violations).To(BeEmpty())
				g.Expect(h.writes).To(Equal(change.want[what]))
				if change.after > 0 {
					g.Expect(result.RequeueAfter).To(Equal(change.after))
				}
				g.Expect(*reads).To(Equal(1))
				if disk := h.device("Disk", "boot"); disk != nil && change.after == 5*time.Second {
					g.Expect(disk.Spec).To(HaveKeyWithValue("class", "cheap"))
				}
				if machine := h.machine(); machine != nil && len(h.writes) > 0 {
					g.Expect(machine.Status.ObservedGeneration).To(Equal(machine.Generation))
				}
			})
		}
	}
}

func TestNothingIsCreatedForAnObjectThatIsBeingDeleted(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that is being torn down, which the cache shows as it was created
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"), diskOf("Data"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast", "Data": "cheap"}})
	before := cluster.machine()
	h.settle(t)
	cluster.deleteMachine()
	h.mustReconcile(t)
	g.Expect(cluster.device("Disk", "data")).To(BeNil())
	cluster.lags = true
	cluster.showOnlyTheMachineAsItWas(before)
	cluster.writes = nil

	// When it is reconciled
	h.mustReconcile(t)

	// Then the teardown goes on
	g.Expect(cluster.writes).NotTo(ContainElement(HavePrefix("create")))
	g.Expect(cluster.device("Disk", "data")).To(BeNil())
	g.Expect(cluster.device("Disk", "boot")).To(BeNil())
}

func TestNothingIsPrunedForAnOldSpec(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that the cache shows without an uplink, which it has just been given
	h, _ := lagging(t, map[string]string{"Boot": "fast"})
	before := h.machine()
	h.editMachine(func(machine *Machine) { machine.Spec["Uplink"] = "tiny" })
	h.settle(t)
	h.lags = true
	h.showOnlyTheMachineAsItWas(before)
	h.writes = nil

	// When it is reconciled
	h.mustReconcile(t)

	// Then the uplink stays
	g.Expect(h.writes).To(BeEmpty())
	g.Expect(h.device("Nic", "uplink")).NotTo(BeNil())
}

func TestReconcileGoesByTheNewestStatus(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine whose status was just written, which the cache does not show yet
	h, reads := lagging(t, map[string]string{"Boot": "fast", "Address": "cheap"})
	before := h.machine()
	newest := h.machine()
	newest.Status.Drifts = []string{"what the newest status says"}
	h.store(newest)
	var seen [][]string
	h.definition.Scope = func(machine *Machine) *scope {
		if machine.Name != "" { // New checks the definition with an empty one
			seen = append(seen, machine.Status.Drifts)
		}
		return &scope{machine: machine}
	}
	h.definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
		status := machineStatus(s.machine.Name, summary)
		status.Status.Drifts = append(status.Status.Drifts, s.machine.Status.Drifts...)
		return status
	}
	for missing, take := range map[string]func(){
		"ip":    func() { delete(h.ips, "address") },
		"child": func() { delete(h.objects, ref{"Disk", "boot"}) },
		"drift": func() { h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" }) },
	} {
		h.lags = true
		take()
		h.showOnlyTheMachineAsItWas(before)
		h.writes, seen, *reads = nil, nil, 0
		h.events.take()

		// When there is something to write
		h.mustReconcile(t)

		// Then it is written by the newest status, which takes one read to know
		g.Expect(seen).To(HaveExactElements(BeEmpty(), ContainElement("what the newest status says")), missing)
		g.Expect(h.writes).To(HaveExactElements(MatchRegexp("^(allocate|create|correct) "), "status"), missing)
		events := strings.Join(h.events.take(), "\n")
		g.Expect(strings.Count(events, "DriftCorrected")).To(BeNumerically("<=", 1), events)
		g.Expect(h.machine().Status.Drifts).To(ContainElement("what the newest status says"), missing)
		g.Expect(*reads).To(Equal(1), missing)
	}
}

// rememberedPhase is a phase whose teardown goes by the status alone: it proposes no write before which the
// Machine would be confirmed.
type rememberedPhase struct{ statuses *[]string }

func (rememberedPhase) PhaseName() string { return "Remembered" }

func (p rememberedPhase) Declare(*runtime.Scheme) (phases.Declaration[*scope], error) {
	return phases.Declaration[*scope]{
		Next: func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) { return phases.Done(""), nil },
		Undo: func(_ context.Context, pass phases.Reconcile[*scope]) (phases.Next, error) {
			*p.statuses = append(*p.statuses, strings.Join(pass.Scope.machine.Status.Drifts, ""))
			return phases.Done(""), nil
		},
	}, nil
}

func TestTeardownWithoutWritesGoesByTheNewestStatus(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that is being deleted, which the cache shows without its newest status
	statuses := []string{}
	cluster := newFakeCluster()
	h := newHarness(cluster, rememberedPhase{&statuses})
	cluster.createMachine(&Machine{})
	h.settle(t)
	cluster.lags = true
	cluster.deleteMachine()
	before, newest := h.machine(), h.machine()
	newest.Status.Drifts = []string{"newest"}
	h.store(newest)
	h.showOnlyTheMachineAsItWas(before)

	// When it is reconciled
	h.mustReconcile(t)

	// Then nothing is undone by the old status
	g.Expect(statuses).To(Equal([]string{"newest"}))
	g.Expect(h.machine()).To(BeNil())
}

func TestTeardownGoesByTheNewestStatus(t *testing.T) {
	// Given a Machine that is being deleted, which the cache shows as it was just then
	newTeardown := func(t *testing.T) (h *harness, before *Machine, undone *[]string) {
		undone = &[]string{}
		cluster := newFakeCluster()
		h = newHarness(cluster, &phases.Step[*scope]{
			Name:    "Address",
			Observe: func(context.Context, *scope) (phases.Observation, error) { return phases.Done(""), nil },
			Ensure:  func(context.Context, *scope) (phases.Verdict, error) { return phases.Done(""), nil },
			Undo: func(_ context.Context, s *scope) (phases.Verdict, error) {
				*undone = append(*undone, strings.Join(s.machine.Status.Drifts, ""))
				return phases.Done(""), nil
			},
		})
		cluster.createMachine(&Machine{})
		h.settle(t)
		cluster.lags = true
		cluster.deleteMachine()
		cluster.writes = nil
		return h, cluster.machine(), undone
	}

	t.Run("that has changed", func(t *testing.T) {
		g := NewWithT(t)
		h, before, undone := newTeardown(t)
		newest := h.machine()
		newest.Status.Drifts = []string{"newest"}
		h.store(newest)
		h.showOnlyTheMachineAsItWas(before)
		reads := 0
		h.dependencies.Uncached = countingReader{Reader: h.dependencies.Uncached, machines: &reads}

		h.mustReconcile(t)

		g.Expect(*undone).To(Equal([]string{"newest"}))
		g.Expect(h.machine()).To(BeNil())
		g.Expect(reads).To(Equal(1))
	})
	t.Run("that is gone", func(t *testing.T) {
		g := NewWithT(t)
		h, before, undone := newTeardown(t)
		delete(h.objects, ref{"Machine", machineName})
		h.showOnlyTheMachineAsItWas(before)

		g.Expect(h.mustReconcile(t)).To(Equal(reconcile.Result{}))

		g.Expect(*undone).To(BeEmpty())
		g.Expect(h.writes).To(BeEmpty())
	})
	t.Run("that is another object", func(t *testing.T) {
		g := NewWithT(t)
		h, before, undone := newTeardown(t)
		delete(h.objects, ref{"Machine", machineName})
		h.createMachine(&Machine{})
		h.showOnlyTheMachineAsItWas(before)
		h.writes = nil

		g.Expect(h.mustReconcile(t).RequeueAfter).To(BeNumerically(">", 0))

		g.Expect(*undone).To(BeEmpty())
		g.Expect(h.writes).To(BeEmpty())
	})
	t.Run("that cannot be read", func(t *testing.T) {
		g := NewWithT(t)
		h, before, undone := newTeardown(t)
		h.showOnlyTheMachineAsItWas(before)
		reads, down := 0, errors.New("the API server is down")
		h.dependencies.Uncached = countingReader{Reader: h.dependencies.Uncached, machines: &reads, fail: down}

		_, err := h.reconcile(t)

		g.Expect(err).To(MatchError(down))
		g.Expect(*undone).To(BeEmpty())
	})
}

func TestOwnerIsConfirmedOnceAndOnlyBeforeWrites(t *testing.T) {
	all := map[string]string{"Boot": "fast", "Uplink": "tiny", "Address": "cheap"}

	t.Run("not at the fixed point", func(t *testing.T) {
		h, reads := lagging(t, all)
		h.mustReconcile(t)
		NewWithT(t).Expect(*reads).To(BeZero())
	})
	t.Run("once for several writes", func(t *testing.T) {
		g := NewWithT(t)
		h, reads := lagging(t, all)
		for _, part := range []ref{{"Disk", "boot"}, {"Nic", "uplink"}} {
			h.modify(part.kind, part.name, func(d device) { d.device().Spec["class"] = "slow" })
		}
		h.writes = nil
		h.mustReconcile(t)
		g.Expect(h.writes).To(ContainElements("correct Disk boot", "correct Nic uplink"))
		g.Expect(*reads).To(Equal(1))
	})
	t.Run("not for a new object, which was answered to the finalizer's apply", func(t *testing.T) {
		g := NewWithT(t)
		cluster := newFakeCluster()
		h := newHarness(cluster, diskOf("Boot"))
		reads := 0
		h.dependencies.Uncached = countingReader{Reader: h.dependencies.Uncached, machines: &reads}
		cluster.createMachine(&Machine{Spec: all})
		h.settle(t)
		g.Expect(cluster.device("Disk", "boot")).NotTo(BeNil())
		g.Expect(reads).To(BeZero())
	})
	t.Run("once for a reconcile that takes longer than an answer counts", func(t *testing.T) {
		g := NewWithT(t)
		h, reads := lagging(t, all)
		slow := step{Name: "Slow", Observe: func(context.Context, *scope) (phases.Observation, error) {
			h.clock.SetTime(h.clock.Now().Add(time.Minute))
			return phases.Done(""), nil
		}}
		h.definition.Phases = []phase{diskOf("Boot"), slow, nicOf("Uplink")}
		for _, part := range []ref{{"Disk", "boot"}, {"Nic", "uplink"}} {
			h.modify(part.kind, part.name, func(d device) { d.device().Spec["class"] = "slow" })
		}
		h.mustReconcile(t)
		g.Expect(h.writes).To(ContainElements("correct Disk boot", "correct Nic uplink"))
		g.Expect(*reads).To(Equal(1))
	})
	t.Run("not again for a write that is retried", func(t *testing.T) {
		g := NewWithT(t)
		h, reads := lagging(t, all)
		delete(h.objects, ref{"Disk", "boot"})
		h.sync()
		tries := 0
		h.fail = func(what string) error {
			if what != "apply Disk boot" {
				return nil
			}
			tries++
			return &ssa.Error{Reason: ssa.ReasonQuotaExceeded, Object: "Disk boot", Message: "the quota is used up", Transient: true}
		}
		engine, err := h.engine()
		g.Expect(err).NotTo(HaveOccurred())
		retry := func() {
			_, err := engine.Reconcile(t.Context(), machineRequest)
			g.Expect(err).To(HaveOccurred())
		}
		for range 5 {
			retry()
		}
		g.Expect(tries).To(Equal(5))
		g.Expect(*reads).To(Equal(1))

		h.clock.SetTime(h.clock.Now().Add(29 * time.Second))
		retry()
		g.Expect(*reads).To(Equal(1))

		// That it was asked for meanwhile makes it no fresher.
		h.clock.SetTime(h.clock.Now().Add(2 * time.Second))
		retry()
		g.Expect(*reads).To(Equal(2), "an answer of half a minute ago is not fresh")

		// So is the read itself, of which the status says nothing new.
		h.clock.SetTime(h.clock.Now().Add(29 * time.Second))
		retry()
		g.Expect(*reads).To(Equal(2))
		h.clock.SetTime(h.clock.Now().Add(2 * time.Second))
		retry()
		g.Expect(*reads).To(Equal(3))
	})
	t.Run("again for another version", func(t *testing.T) {
		g := NewWithT(t)
		h, reads := lagging(t, all)
		engine, err := h.engine()
		g.Expect(err).NotTo(HaveOccurred())
		for n := range 2 {
			h.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "class " + strconv.Itoa(n) })
			_, err = engine.Reconcile(t.Context(), machineRequest)
			g.Expect(err).NotTo(HaveOccurred())
		}
		g.Expect(*reads).To(Equal(2))
	})
	t.Run("not for drift that is only reported", func(t *testing.T) {
		g := NewWithT(t)
		h, reads := lagging(t, all)
		h.definition.Policies = func(*Machine) phases.Policies {
			return phases.Policies{Adoption: ssa.AdoptNever, Drift: ssa.ReportDrift}
		}
		h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
		h.mustReconcile(t)
		g.Expect(*reads).To(BeZero())
	})
	t.Run("not for a plan", func(t *testing.T) {
		g := NewWithT(t)
		h, reads := lagging(t, all)
		delete(h.objects, ref{"Disk", "boot"})
		h.sync()
		g.Expect(h.plan(t).Changes()).To(HaveLen(1))
		g.Expect(*reads).To(BeZero())
	})
	t.Run("and if that fails, so does the reconcile", func(t *testing.T) {
		g := NewWithT(t)
		h, reads := lagging(t, all)
		down := errors.New("the API server is down")
		h.dependencies.Uncached = countingReader{Reader: h.dependencies.Uncached, machines: reads, fail: down}
		delete(h.objects, ref{"Disk", "boot"})
		h.sync()
		h.writes = nil
		_, err := h.reconcile(t)
		g.Expect(err).To(MatchError(down))
		g.Expect(h.writes).To(Equal([]string{"status"}))
		g.Expect(h.condition(t, phases.ConditionReady).Message).To(ContainSubstring("the API server is down"))
	})
}

func TestObjectThatTheFinalizersApplyShowsAsSuspendedIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	// Given a new Machine that was suspended since, which the cache does not show
	cluster := newFakeCluster()
	cluster.lags = true
	h := newHarness(cluster, diskOf("Boot"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	cluster.sync()
	cluster.editMachine(func(machine *Machine) { machine.Suspend = true })

	// When it is reconciled
	h.mustReconcile(t)

	// Then nothing is created
	g.Expect(cluster.writes).To(Equal([]string{"finalize", "status"}))
	g.Expect(h.states()).To(ContainElement("Suspended=True/Suspended"))
}
