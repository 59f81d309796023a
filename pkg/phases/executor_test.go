package phases_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Each kind of write is proposed for the Machine that the cache shows, and must not be carried out, since
// the newest one asks for something else.
func TestOwnerIsConfirmedBeforeEachKindOfWrite(t *testing.T) {
	cases := map[string]struct {
		spec map[string]string
		// newest is the spec that the cache does not show yet.
		newest map[string]string
		happen func(*harness)
		// shown changes the Machine that the cache shows. Optional.
		shown func(*Machine)
		// want is what is written for the newest spec, and not what is proposed for the cached one.
		want []string
	}{
		"a create": {
			spec: map[string]string{"Boot": "fast"}, newest: map[string]string{},
			happen: func(h *harness) { delete(h.objects, ref{"Disk", "boot"}) },
			want:   []string{"status"},
		},
		"an update": {
			spec: map[string]string{"Boot": "fast"}, newest: map[string]string{"Boot": "slow"},
			happen: func(h *harness) {
				h.modify("Disk", "boot", func(d device) {
					d.device().Spec["class"] = "slow"
					d.SetAnnotations(map[string]string{recordAnnotation: `{"class":"slow"}`})
				})
			},
			want: []string{"status"},
		},
		"a correction": {
			spec: map[string]string{"Boot": "fast"}, newest: map[string]string{"Boot": "slow"},
			happen: func(h *harness) {
				h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
			},
			want: []string{"update Disk boot", "status"},
		},
		"an adoption": {
			spec: map[string]string{"Boot": "fast"}, newest: map[string]string{},
			happen: func(h *harness) {
				h.modify("Disk", "boot", func(d device) { d.SetOwnerReferences(nil) })
			},
			want: []string{"status"},
		},
		"a deletion": {
			spec: map[string]string{}, newest: map[string]string{"Boot": "fast"},
			happen: func(h *harness) {
				owner := *metav1.NewControllerRef(h.machine(), machineGroup.WithKind("Machine"))
				h.store(&Disk{
					ObjectMeta: metav1.ObjectMeta{Name: "boot", Namespace: machineNamespace, OwnerReferences: []metav1.OwnerReference{owner},
						Annotations: map[string]string{recordAnnotation: `{"class":"fast"}`}},
					Device: Device{Spec: map[string]string{"class": "fast"}, Attached: true},
				})
			},
			want: []string{"status"},
		},
		"an Ensure": {
			spec: map[string]string{"Address": "static"}, newest: map[string]string{},
			happen: func(h *harness) { delete(h.ips, "address") },
			want:   []string{"status"},
		},
		"an Undo": {
			spec: map[string]string{}, newest: map[string]string{"Address": "static"},
			happen: func(h *harness) { h.ips["address"] = "static" },
			shown: func(machine *Machine) {
				left := metav1.Condition{Type: "AddressReady", Status: metav1.ConditionFalse, Reason: phases.ReasonPruning}
				machine.Status.Conditions = append(machine.Status.Conditions, left)
			},
			want: []string{"status"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a Machine whose newest spec the cache does not show
			cluster := newFakeCluster()
			h := newHarness(cluster, diskOf("Boot"), optionalIPOf(cluster, "Address"))
			h.definition.Policies = func(*Machine) phases.Policies {
				return phases.Policies{Adoption: ssa.AdoptIfUnowned, Drift: ssa.CorrectDrift}
			}
			cluster.createMachine(&Machine{Spec: c.spec})
			h.settle(t)
			before := h.machine()
			if c.shown != nil {
				c.shown(before)
			}
			h.lags = true
			h.editMachine(func(machine *Machine) { machine.Spec = c.newest })
			c.happen(h)
			h.showOnlyTheMachineAsItWas(before)
			h.writes = nil

			// When it is reconciled
			h.mustReconcile(t)

			// Then the write that the cached spec asks for is not carried out
			g.Expect(h.writes).To(Equal(c.want))
		})
	}
}

// applying counts the applies that reach the cluster.
func applying(h *harness, count *int, failure func(n int) error) {
	h.fail = func(what string) error {
		if what != "apply Disk boot" {
			return nil
		}
		*count++
		return failure(*count)
	}
}

func TestChildThatTheCacheShowsAsItWasIsReadAndDecidedOnAgain(t *testing.T) {
	cases := map[string]struct {
		happen func(*harness)
		want   []string
		class  string
	}{
		"it exists, and the cache shows none": {
			happen: func(h *harness) { delete(h.cache, ref{"Disk", "boot"}) },
			want:   nil,
			class:  "fast",
		},
		"it has drifted, and the cache shows none": {
			happen: func(h *harness) {
				h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
				delete(h.cache, ref{"Disk", "boot"})
			},
			want:  []string{"correct Disk boot", "status"},
			class: "fast",
		},
		"it was recreated by a user, and the cache shows the drift of the former one": {
			happen: func(h *harness) {
				h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
				h.syncKind("Disk")
				delete(h.objects, ref{"Disk", "boot"})
			},
			want:  []string{"create Disk boot", "status"},
			class: "fast",
		},
		"it is not owned, and the cache shows none": {
			happen: func(h *harness) {
				h.modify("Disk", "boot", func(d device) {
					d.SetOwnerReferences(nil)
					d.device().Spec["class"] = "slow"
				})
				delete(h.cache, ref{"Disk", "boot"})
			},
			want:  []string{"status"},
			class: "slow",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
			h.lags = true
			c.happen(h)
			h.writes = nil

			h.mustReconcile(t)

			g.Expect(h.writes).To(Equal(c.want))
			g.Expect(h.device("Disk", "boot").Spec).To(HaveKeyWithValue("class", c.class))
		})
	}
}

func TestChildThatStaysStaleIsTriedThreeTimes(t *testing.T) {
	g := NewWithT(t)
	// Given a disk whose apply is always refused as stale
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	applies := 0
	applying(h, &applies, func(int) error { return stale("Disk boot") })

	// When it is reconciled
	result := h.mustReconcile(t)

	// Then nothing is reported, and it is reconciled again soon
	g.Expect(applies).To(Equal(3))
	g.Expect(result).To(Equal(reconcile.Result{RequeueAfter: 50 * time.Millisecond}))
	g.Expect(h.writes).To(Equal([]string{"finalize"}))
	g.Expect(h.events.take()).To(BeEmpty())
}

func TestChildThatIsStaleTwiceIsAppliedInTheSameReconcile(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	h := newHarness(cluster, diskOf("Boot"))
	cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast"}})
	applies := 0
	applying(h, &applies, func(n int) error {
		if n < 3 {
			return stale("Disk boot")
		}
		return nil
	})

	h.mustReconcile(t)

	g.Expect(h.writes).To(Equal([]string{"finalize", "create Disk boot", "status"}))
	g.Expect(h.states()).To(ContainElement("Ready=True/Ready"))
}

// failingReader fails the reads of disks.
type failingReader struct {
	client.Reader
	failure error
}

func (r failingReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, ok := into.(*Disk); ok {
		return r.failure
	}
	return r.Reader.Get(ctx, key, into, options...)
}

func (r failingReader) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if _, ok := into.(*DiskList); ok {
		return r.failure
	}
	return r.Reader.List(ctx, into, options...)
}

func TestStaleChildThatCannotBeReadIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		situation func(*harness)
		// applies are those that reach the cluster.
		applies int
	}{
		"which the cache does not show": {func(h *harness) {
			h.lags = true
			delete(h.cache, ref{"Disk", "boot"})
		}, 1},
		"of which the cache holds a digest": {func(h *harness) {
			h.digests = true
			h.editMachine(func(machine *Machine) { machine.Spec["Boot"] = "slow" })
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a disk that cannot be read past the cache
			h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
			c.situation(h)
			h.dependencies.Uncached = failingReader{h.dependencies.Uncached, errDown}
			applies := 0
			applying(h, &applies, func(int) error { return nil })

			// When it is reconciled
			_, err := h.reconcile(t)

			// Then it is retried with backoff, and the status says why
			g.Expect(err).To(MatchError(errDown))
			g.Expect(h.condition(t, "BootReady").Message).To(Equal("reading Disk lab/boot: the API server is down"))
			g.Expect(applies).To(Equal(c.applies))
		})
	}
}

// thirdParty is a phase that a user of the package writes: a NIC with the class that the Machine asks for,
// and a label in a directory.
type thirdParty struct {
	name      string
	directory map[string]string
	// next replaces the phase's own. Optional.
	next phases.Question[*scope]
}

func (p *thirdParty) PhaseName() string { return p.name }

func (p *thirdParty) Declare(*runtime.Scheme) (phases.Declaration[*scope], error) {
	d := phases.Declaration[*scope]{
		Next: p.propose, Undo: p.undo, Observe: p.observe,
		Child:         &Nic{},
		Names:         func(pass phases.Reconcile[*scope]) ([]string, error) { return []string{pass.Owner.GetName()}, nil },
		HasOwnersName: true,
	}
	if p.next != nil {
		d.Next = p.next
	}
	return d, nil
}

func (p *thirdParty) live(ctx context.Context, pass phases.Reconcile[*scope]) (*Nic, error) {
	live := &Nic{}
	exists, err := pass.Cluster.Get(ctx, client.ObjectKeyFromObject(pass.Owner), live)
	if !exists {
		live = nil
	}
	return live, err
}

func (p *thirdParty) propose(ctx context.Context, pass phases.Reconcile[*scope]) (phases.Next, error) {
	live, err := p.live(ctx, pass)
	if err != nil {
		return nil, err
	}
	class := pass.Scope.machine.Spec[p.name]
	if class == "" {
		if live != nil && live.DeletionTimestamp == nil {
			return phases.Delete{Object: live, Propagation: metav1.DeletePropagationForeground}, nil
		}
		return phases.NotConfigured(), nil
	}
	request := ssa.Request{Desired: nic(pass.Owner.GetName()).with("class", class), Owner: &pass.Reference, Drift: pass.Policies.Drift}
	if live != nil {
		request.Live = live
	}
	decision, err := pass.Cluster.Decide(request)
	switch {
	case err != nil:
		return nil, err
	case decision.Action != ssa.ActionNone:
		return phases.Apply{Decision: decision}, nil
	case p.directory["vm1"] != class:
		return phases.Do{Action: phases.ActionEnsure, What: "register vm1", Reason: "Unregistered", Func: func(context.Context) (phases.Verdict, error) {
			p.directory["vm1"] = class
			return phases.Done("registered"), nil
		}}, nil
	default:
		return phases.Done("registered"), nil
	}
}

func (p *thirdParty) observe(ctx context.Context, pass phases.Reconcile[*scope]) (phases.Next, error) {
	live, err := p.live(ctx, pass)
	if err == nil && live != nil {
		pass.Scope.seen = append(pass.Scope.seen, live.Name)
	}
	return nil, err
}

func (p *thirdParty) undo(ctx context.Context, pass phases.Reconcile[*scope]) (phases.Next, error) {
	live := &Nic{}
	switch err := pass.Cluster.Uncached.Get(ctx, client.ObjectKeyFromObject(pass.Owner), live); {
	case client.IgnoreNotFound(err) != nil:
		return nil, err
	case err == nil && live.DeletionTimestamp == nil:
		return phases.Delete{Object: live, Propagation: metav1.DeletePropagationForeground}, nil
	case err == nil:
		return phases.Wait(phases.ReasonTerminating, "waiting for the NIC to be deleted", 0), nil
	case p.directory["vm1"] != "":
		return phases.Do{Action: phases.ActionUndo, What: "unregister vm1", Reason: phases.ReasonTerminating, Func: func(context.Context) (phases.Verdict, error) {
			delete(p.directory, "vm1")
			return phases.Done("unregistered"), nil
		}}, nil
	default:
		return phases.Done("unregistered"), nil
	}
}

func TestPhasesOfOthersAreReconciledLikeThoseOfThePackage(t *testing.T) {
	for name, lags := range map[string]bool{"with a cache in sync": false, "with a cache that lags": true} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a phase of a type of its own between two of the package
			cluster := newFakeCluster()
			cluster.lags = lags
			registered := &thirdParty{name: "Registration", directory: map[string]string{}}
			h := newHarness(cluster, diskOf("Boot"), registered, diskOf("Data"))
			cluster.createMachine(&Machine{Spec: map[string]string{"Boot": "fast", "Registration": "cheap", "Data": "fast"}})
			cluster.sync()

			// When it is planned, the plan names the first action of each phase
			g.Expect(changesOf(h.plan(t))).To(Equal([]string{
				"Boot: Create Disk boot", "Registration: Create Nic vm1", "Registration: Ensure register vm1",
			}))

			// When it is reconciled, all of its actions are performed in one reconcile
			h.mustReconcile(t)
			g.Expect(h.writes).To(Equal([]string{"finalize", "create Disk boot", "create Nic vm1", "create Disk data", "status"}))
			g.Expect(registered.directory).To(HaveKeyWithValue("vm1", "cheap"))
			g.Expect(h.states()).To(ContainElements("Ready=True/Ready", "RegistrationReady=True/Ready"))
			h.lags = false
			h.sync()
			h.settle(t)
			h.writes = nil

			// When drift is found, it is reverted and reported
			h.modify("Nic", "vm1", func(d device) { d.device().Spec["class"] = "slow" })
			h.settle(t)
			g.Expect(h.writes).To(Equal([]string{"correct Nic vm1", "status", "status"}))
			g.Expect(h.events.take()).To(ContainElement(ContainSubstring("Nic vm1: kubectl-edit changed .spec.class")))

			// When it is turned off, its object is deleted
			h.editMachine(func(machine *Machine) { delete(machine.Spec, "Registration") })
			h.settle(t)
			g.Expect(h.device("Nic", "vm1")).To(BeNil())
			g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "BootReady=True/Ready", "DataReady=True/Ready"}))
			h.editMachine(func(machine *Machine) { machine.Spec["Registration"] = "cheap" })
			h.settle(t)

			// When the Machine is deleted, it is undone in its place
			h.writes = nil
			h.deleteMachine()
			h.settle(t)
			g.Expect(h.machine()).To(BeNil())
			g.Expect(firsts(h.writes, "delete")).To(Equal([]string{"data", "vm1", "boot"}))
			g.Expect(registered.directory).To(BeEmpty())
		})
	}
}

func TestPhaseOfAnotherTypeIsWatchedAndObserved(t *testing.T) {
	g := NewWithT(t)
	registered := &thirdParty{name: "Registration", directory: map[string]string{}}
	watches := watchesOf(t, diskOf("Boot"), registered)
	g.Expect(watches).To(HaveLen(2))
	g.Expect(watches[1].Object).To(BeAssignableToTypeOf(&Nic{}))

	h := settled(t, map[string]string{"Registration": "cheap"}, registered)
	var seen []string
	status := h.definition.Status
	h.definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
		seen = s.seen
		return status(s, summary)
	}
	h.definition.Phases = []phase{observes("Address", phases.Wait("Pending", "", 0)), registered}
	h.mustReconcile(t)
	g.Expect(seen).To(Equal([]string{machineName}))
}

func TestPhaseMayActOnAnyNumberOfObjects(t *testing.T) {
	g := NewWithT(t)
	// Given a phase with more children than actions that may repeat
	const children = 1100
	applied := 0
	next := func(_ context.Context, pass phases.Reconcile[*scope]) (phases.Next, error) {
		if applied == children {
			return phases.Done("applied"), nil
		}
		applied++
		decision, err := pass.Cluster.Decide(ssa.Request{Desired: nic(fmt.Sprintf("nic%d", applied)), Owner: &pass.Reference})
		return phases.Apply{Decision: decision}, err
	}
	cluster := newFakeCluster()
	h := newHarness(cluster, &thirdParty{name: "Registration", next: next})
	cluster.createMachine(&Machine{})

	// When it is reconciled once
	h.mustReconcile(t)

	// Then all are applied
	g.Expect(firsts(h.writes, "create")).To(HaveLen(children))
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "RegistrationReady=True/Ready"}))
}

func TestPhaseWhoseProposalsLeadNowhereIsABug(t *testing.T) {
	unchanging := func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) {
		return phases.Delete{Object: &Nic{ObjectMeta: metav1.ObjectMeta{Name: "gone", Namespace: machineNamespace}}, Propagation: metav1.DeletePropagationForeground}, nil
	}
	cases := map[string]struct {
		next    phases.Question[*scope]
		message string
	}{
		"it never comes to a verdict": {
			next:    unchanging,
			message: "phase Registration has repeated 1000 actions and is not done: this is a bug in the operator",
		},
		"it answers nothing": {
			next:    func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) { return nil, nil },
			message: "phase Registration gave no verdict and no error (a function returned nil, or the zero value of a verdict): this is a bug in the operator",
		},
		"its action has no verdict": {
			next: func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) {
				return phases.Do{Action: phases.ActionEnsure, What: "x", Reason: "X", Func: func(context.Context) (phases.Verdict, error) { return nil, nil }}, nil
			},
			message: "phase Registration gave no verdict and no error (a function returned nil, or the zero value of a verdict): this is a bug in the operator",
		},
		"its action is none of the package": {
			next:    func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) { return unknownAction{}, nil },
			message: "phase Registration proposed a phases_test.unknownAction: this is a bug in the operator",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := newFakeCluster()
			h := newHarness(cluster, &thirdParty{name: "Registration", next: c.next})
			cluster.createMachine(&Machine{})

			result := h.mustReconcile(t)

			g.Expect(result).To(Equal(reconcile.Result{}), "a bug is not retried")
			g.Expect(h.states()).To(ContainElements("RegistrationReady=False/Failed", "Stalled=True/Failed"))
			g.Expect(h.condition(t, "RegistrationReady").Message).To(Equal(c.message))
		})
	}
}

// unknownAction is an action that only embeds one of the package.
type unknownAction struct{ phases.Apply }

func TestActionsOfAPhaseMayRepeatAThousandTimes(t *testing.T) {
	g := NewWithT(t)
	asked := 0
	cluster := newFakeCluster()
	h := newHarness(cluster, &thirdParty{name: "Registration", next: func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) {
		asked++
		return phases.Delete{Object: &Nic{ObjectMeta: metav1.ObjectMeta{Name: "gone", Namespace: machineNamespace}}}, nil
	}})
	cluster.createMachine(&Machine{})

	h.mustReconcile(t)

	g.Expect(asked).To(Equal(1001), "the first concerns an object that none has concerned before")
}

func TestAnswerBesideAnErrorDoesNotCount(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	h := newHarness(cluster, &thirdParty{name: "Registration", next: func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) {
		return phases.Done("registered"), errDown
	}})
	cluster.createMachine(&Machine{})

	_, err := h.reconcile(t)

	g.Expect(err).To(MatchError(errDown))
	g.Expect(h.states()).To(ContainElement("RegistrationReady=False/Failed"))
}

func TestApplyThatHasNothingToDoIsNoChange(t *testing.T) {
	g := NewWithT(t)
	// Given a phase that proposes to apply a disk that is as desired
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	asked := 0
	h.definition.Phases = []phase{&thirdParty{name: "Registration", next: func(ctx context.Context, pass phases.Reconcile[*scope]) (phases.Next, error) {
		if asked++; asked > 1 {
			return phases.Done("registered"), nil
		}
		live := &Disk{}
		if _, err := pass.Cluster.Get(ctx, client.ObjectKey{Namespace: machineNamespace, Name: "boot"}, live); err != nil {
			return nil, err
		}
		decision, err := pass.Cluster.Decide(ssa.Request{Desired: disk("boot").with("class", "fast"), Owner: &pass.Reference, Live: live})
		return phases.Apply{Decision: decision}, err
	}}}

	// When it is planned, the plan changes nothing
	g.Expect(changesOf(h.plan(t))).To(BeEmpty())
}

func TestClusterShowsWhatTheReconcileHasDeletedAsGone(t *testing.T) {
	next := func(ctx context.Context, pass phases.Reconcile[*scope]) (phases.Next, error) {
		live := &Disk{}
		exists, err := pass.Cluster.Get(ctx, client.ObjectKey{Namespace: machineNamespace, Name: "boot"}, live)
		if err != nil || !exists {
			return phases.Done("gone"), err
		}
		return phases.Delete{Object: live, Propagation: metav1.DeletePropagationBackground}, nil
	}
	given := func(t *testing.T) *harness {
		h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
		h.definition.Phases = []phase{&thirdParty{name: "Registration", next: next}}
		h.lags = true
		return h
	}

	t.Run("although the cache does not", func(t *testing.T) {
		g := NewWithT(t)
		h := given(t)
		h.mustReconcile(t)
		g.Expect(h.writes).To(Equal([]string{"delete Disk boot", "status"}))
		g.Expect(h.states()).To(ContainElement("RegistrationReady=True/Ready"))
	})
	t.Run("but not what cannot be read", func(t *testing.T) {
		g := NewWithT(t)
		h := given(t)
		h.dependencies.Reader = failingReader{h.dependencies.Reader, errDown}
		_, err := h.reconcile(t)
		g.Expect(err).To(MatchError(errDown))
	})
}

func TestPhasesOfTheirOwnTypeKeepTheirChildren(t *testing.T) {
	g := NewWithT(t)
	// Given a phase of another type, which does not say in which namespace its NIC is, beside one of the package
	registered := &thirdParty{name: "Registration", directory: map[string]string{}}
	h := settled(t, map[string]string{"Uplink": "cheap", "Registration": "cheap"}, nicOf("Uplink"), registered)

	h.mustReconcile(t)

	g.Expect(h.writes).To(BeEmpty(), "neither deletes the NIC of the other")
	g.Expect(h.left()).To(Equal([]string{"Nic uplink", "Nic vm1"}))
}

func TestStatusNamesTheFinalizersOfADeletionThatTheCacheDoesNotShow(t *testing.T) {
	for propagation, finalizers := range map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationForeground: " (finalizers: foregroundDeletion)", metav1.DeletePropagationBackground: "",
	} {
		t.Run(string(propagation), func(t *testing.T) {
			g := NewWithT(t)
			boot := diskOf("Boot")
			boot.Propagation = propagation
			h := settled(t, map[string]string{"Boot": "fast"}, boot)
			h.goneAfter["boot"] = 1
			h.editMachine(func(machine *Machine) { delete(machine.Spec, "Boot") })
			h.lags = true

			h.mustReconcile(t)

			g.Expect(h.condition(t, "BootReady").Message).To(Equal("waiting for Disk boot to be deleted" + finalizers + "; it is no longer desired"))
		})
	}
}

func TestDeletedChildThatTheCacheStillShowsIsGone(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, map[string]string{"Boot": "fast"}, withoutDependents(diskOf("Boot")))
	h.editMachine(func(machine *Machine) { delete(machine.Spec, "Boot") })
	h.lags = true

	h.mustReconcile(t)

	g.Expect(h.writes).To(Equal([]string{"delete Disk boot", "status"}))
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready"}))
}

func TestApplyWithoutADecisionIsAnError(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	h := newHarness(cluster, &thirdParty{name: "Registration", next: func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) {
		return phases.Apply{}, nil
	}})
	cluster.createMachine(&Machine{})

	_, err := h.reconcile(t)

	g.Expect(err).To(HaveOccurred())
	g.Expect(h.states()).To(ContainElement("RegistrationReady=False/Failed"))
}

// A refused delete has been tried again by the applier, which reads the object past the cache.
func TestDeleteThatStaysStaleIsTriedOnce(t *testing.T) {
	g := NewWithT(t)
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	deletes := 0
	h.fail = func(what string) error {
		if strings.HasPrefix(what, "delete") {
			deletes++
			return stale(what)
		}
		return nil
	}
	h.editMachine(func(machine *Machine) { delete(machine.Spec, "Boot") })

	result := h.mustReconcile(t)

	g.Expect(deletes).To(Equal(1))
	g.Expect(result.RequeueAfter).To(Equal(50 * time.Millisecond))
}
