package phases_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/phases/phasestest"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// scripted is a harness whose one phase observes whatever the test sets.
type scripted struct {
	*harness
	observation phases.Observation
	failure     error
}

func newScripted() *scripted {
	s := &scripted{}
	address := step{Name: "Address"}
	address.Observe = func(context.Context, *scope) (phases.Observation, error) { return s.observation, s.failure }
	s.harness = newHarness(newFakeCluster(), address)
	s.createMachine(&Machine{})
	return s
}

// observe reconciles where the phase observes this, and fails for no other reason.
func (s *scripted) observe(t *testing.T, observation phases.Observation, failure error) {
	t.Helper()
	s.observation, s.failure = observation, failure
	if _, err := s.reconcile(t); err != nil {
		NewWithT(t).Expect(err).To(MatchError(failure))
	}
}

func TestKindWithoutAStatusSubresourceIsReported(t *testing.T) {
	g := NewWithT(t)
	// Given a CustomResourceDefinition without the status subresource, to which the API server answers that the object
	// does not exist
	refuse := func(call ssatest.Call) error {
		if call.Subresource == "status" && !call.Done {
			return apierrors.NewNotFound(schema.GroupResource{Group: machineGroup.Group, Resource: "machines"}, machineName)
		}
		return nil
	}
	e := newStandalone(t, phasestest.Options{Intercept: refuse}, observes("Address", phases.Done("")))
	machine := clusterScopedMachine()
	e.Create(machine)

	// When it is reconciled
	_, err := e.Reconcile(machineName)

	// Then the error says what to do
	g.Expect(err).To(MatchError(ContainSubstring("writing the status: Machine has no status subresource: add subresources.status to its CustomResourceDefinition")))
}

func TestConditionsFollowFromTheVerdict(t *testing.T) {
	cases := map[string]struct {
		verdict phases.Verdict
		failure error
		want    []string
	}{
		"done":                            {phases.Done("allocated"), nil, []string{"Ready=True/Ready", "AddressReady=True/Ready"}},
		"done because":                    {phases.DoneBecause("Reused", ""), nil, []string{"Ready=True/Ready", "AddressReady=True/Reused"}},
		"not configured has no condition": {phases.NotConfigured(), nil, []string{"Ready=True/Ready"}},
		"waiting":                         {phases.Wait("Pending", "", 0), nil, []string{"Ready=False/Pending", "AddressReady=False/Pending", "Reconciling=True/Pending"}},
		"stalled":                         {phases.Stalled("BadClass", ""), nil, []string{"Ready=False/BadClass", "AddressReady=False/BadClass", "Stalled=True/BadClass"}},
		"done, while something goes on": {phases.DoneBecause("OldVersionServes", "").WhileReconciling(), nil,
			[]string{"Ready=True/Ready", "AddressReady=True/OldVersionServes", "Reconciling=True/OldVersionServes"}},
		"done, while something stalls": {phases.DoneBecause("OldVersionServes", "").WhileStalled(), nil,
			[]string{"Ready=True/Ready", "AddressReady=True/OldVersionServes", "Stalled=True/OldVersionServes"}},
		"an error": {nil, errors.New("down"), []string{
			"Ready=False/Failed", "AddressReady=False/Failed", "Reconciling=True/Failed"}},
		"a permanent error": {nil, &ssa.Error{Reason: ssa.ReasonImmutableField}, []string{
			"Ready=False/ImmutableField", "AddressReady=False/ImmutableField", "Stalled=True/ImmutableField"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newScripted()

			h.observe(t, c.verdict, c.failure)

			g.Expect(h.states()).To(Equal(c.want))
			g.Expect(h.machine().Status.ObservedGeneration).To(Equal(int64(1)))
			for _, condition := range h.machine().Status.Conditions {
				g.Expect(condition.ObservedGeneration).To(Equal(int64(1)), condition.Type)
			}
		})
	}
}

func TestConditionsOfTwoPhasesFollowFromBothVerdicts(t *testing.T) {
	const messageOfReady = "Address: the old one serves"
	serves := phases.DoneBecause("OldServes", "the old one serves")
	cases := map[string]struct {
		address, route phases.Verdict
		more           string
		message        string
	}{
		"one has not finished":                {serves.WhileReconciling(), phases.Done(""), "Reconciling=True/OldServes", messageOfReady},
		"one stalls":                          {serves.WhileStalled(), phases.Done(""), "Stalled=True/OldServes", messageOfReady},
		"one has not finished, another waits": {serves.WhileReconciling(), phases.Wait("Pending", "routing", 0), "Reconciling=True/Pending", "Route: routing"},
		"one stalls, another waits":           {serves.WhileStalled(), phases.Wait("Pending", "routing", 0), "Stalled=True/OldServes", "Route: routing"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(newFakeCluster(), observes("Address", c.address), observes("Route", c.route))
			h.createMachine(&Machine{})

			h.mustReconcile(t)

			g.Expect(h.states()).To(ContainElement(c.more))
			g.Expect(h.condition(t, "Ready").Message).To(Equal(c.message))
		})
	}
}

func TestPhaseThatCannotBeComputedHasAConditionWhileItIsBlocked(t *testing.T) {
	g := NewWithT(t)
	boot := diskOf("Boot")
	boot.Desired = func(*scope) (*deviceConfiguration, error) { return nil, errors.New("no such class") }
	h := newHarness(newFakeCluster(), observes("Address", phases.Wait("Pending", "", 0)), boot)
	h.createMachine(&Machine{})

	h.mustReconcile(t)

	g.Expect(h.states()).To(ContainElement("BootReady=Unknown/Blocked"))
}

func TestObservedGenerationIsWrittenForEachCondition(t *testing.T) {
	g := NewWithT(t)
	h := newScripted()
	h.observe(t, phases.Done(""), nil)

	// When the spec changes and nothing else
	h.editMachine(func(*Machine) {})
	h.observe(t, phases.Done(""), nil)

	// Then the generation is written, at the top and in each condition, and no Event tells of it
	g.Expect(h.machine().Status.ObservedGeneration).To(Equal(int64(2)))
	g.Expect(h.condition(t, "Ready").ObservedGeneration).To(Equal(int64(2)))
	g.Expect(h.condition(t, "AddressReady").ObservedGeneration).To(Equal(int64(2)))
	g.Expect(h.events.take()).To(HaveLen(1), "that of the first reconcile")
}

func TestTransitionTimeChangesWithTheStatusOfACondition(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that began to wait at some time
	h := newScripted()
	began := metav1.NewTime(h.clock.Now())
	h.observe(t, phases.Wait("Pending", "1 of 3", 0), nil)

	// When it waits for another reason a minute later, the status of its conditions is the same
	h.tick()
	h.observe(t, phases.Wait("AlmostReady", "2 of 3", 0), nil)
	address := h.condition(t, "AddressReady")
	g.Expect(address.LastTransitionTime.Equal(&began)).To(BeTrue())
	g.Expect(address.Message).To(Equal("2 of 3"))
	ready := h.condition(t, "Ready")
	g.Expect(ready.LastTransitionTime.Equal(&began)).To(BeTrue())

	// When it is done another minute later
	h.tick()
	done := metav1.NewTime(h.clock.Now())
	h.observe(t, phases.Done(""), nil)

	// Then that is when it became True
	for _, conditionType := range []string{"Ready", "AddressReady"} {
		c := h.condition(t, conditionType)
		g.Expect(c.LastTransitionTime.Equal(&done)).To(BeTrue(), conditionType)
	}
	h.tick()
	writes := len(h.writes)
	h.observe(t, phases.Done(""), nil)
	g.Expect(h.writes).To(HaveLen(writes), "time alone is no reason to write")
}

func TestTimesHaveThePrecisionOfTheAPIServer(t *testing.T) {
	g := NewWithT(t)
	// Given a clock that shows fractions of a second, which the API server does not keep
	h := newScripted()
	h.clock.SetTime(h.clock.Now().Add(123456789 * time.Nanosecond))
	h.observe(t, phases.Done(""), nil)
	writes := len(h.writes)

	h.observe(t, phases.Done(""), nil)

	g.Expect(h.writes).To(HaveLen(writes))
}

func TestEventsAreOfReadinessAndErrors(t *testing.T) {
	wait, otherWait := phases.Wait("Pending", "allocating", 0), phases.Wait("Almost", "attaching", 0)
	cases := map[string]struct {
		before, after phases.Observation
		beforeFailure error
		afterFailure  error
		want          []string
	}{
		"the same": {before: wait, after: wait},
		"another message": {
			before: wait, after: phases.Wait("Pending", "allocating, 2 of 3", 0),
		},
		"another reason": {
			before: wait, after: otherWait,
		},
		"no longer ready": {
			before: phases.Done(""), after: wait,
			want: []string{"Normal Pending (Ready): Ready is False: Address: allocating"},
		},
		"ready": {
			before: wait, after: phases.Done("allocated"),
			want: []string{"Normal Ready (Ready): Ready is True: all phases are ready"},
		},
		"a wait that is a warning": {
			before: wait, after: otherWait.AsWarning(),
			want: []string{"Warning Almost (Ready): Ready is False: Address: attaching"},
		},
		"a warning for another reason": {
			before: wait.AsWarning(), after: otherWait.AsWarning(),
			want: []string{"Warning Almost (Ready): Ready is False: Address: attaching"},
		},
		"done, while something stalls": {
			before: phases.Done(""), after: phases.DoneBecause("OldVersionServes", "version 1 serves").WhileStalled(),
			want: []string{"Warning OldVersionServes (Stalled): Stalled is True: version 1 serves"},
		},
		"done, with a reason of its own": {
			before: phases.Done(""), after: phases.DoneBecause("AddressShared", "others use it too"),
			want: []string{"Normal AddressShared (AddressReady): AddressReady is True: others use it too"},
		},
		"done, and not finished": {
			before: phases.Done(""), after: phases.DoneBecause("OldAddressServes", "the old one serves").WhileReconciling(),
		},
		"no longer configured": {
			before: phases.Done(""), after: phases.NotConfigured(),
		},
		"done, for the reason that it has waited for": {
			before: phases.Wait("AddressShared", "", 0), after: phases.DoneBecause("AddressShared", "others use it too"),
			want: []string{"Normal Ready (Ready): Ready is True: all phases are ready", "Normal AddressShared (AddressReady): AddressReady is True: others use it too"},
		},
		"stalled": {
			before: wait, after: phases.Stalled("BadClass", "too long"),
			want: []string{"Warning BadClass (Ready): Ready is False: Address: too long"},
		},
		"no longer stalled": {
			before: phases.Stalled("BadClass", "too long"), after: wait,
		},
		"failing": {
			before: phases.Done(""), afterFailure: errors.New("down"),
			want: []string{"Warning Failed (Ready): Ready is False: Address: down"},
		},
		"failing again": {
			beforeFailure: errors.New("down"), afterFailure: errors.New("down"),
		},
		"failing with another message, for the same reason": {
			beforeFailure: errors.New("down"), afterFailure: errors.New("still down"),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a Machine with the conditions of before
			h := newScripted()
			h.observe(t, c.before, c.beforeFailure)
			h.events.take()

			// When it is reconciled to what is after, and once more
			h.observe(t, c.after, c.afterFailure)
			first := h.events.take()
			h.observe(t, c.after, c.afterFailure)

			// Then the Events are those of the transition, once
			if len(c.want) == 0 {
				g.Expect(first).To(BeEmpty())
			} else {
				g.Expect(first).To(Equal(c.want))
			}
			g.Expect(h.events.take()).To(BeEmpty())
		})
	}
}

func TestEventOfAPhaseThatIsDoneIsNoWarningWhileAnotherFails(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(newFakeCluster(), observes("Address", phases.DoneBecause("AddressShared", "others use it too")), fails("Route", errDown))
	h.createMachine(&Machine{})

	_, err := h.reconcile(t)

	g.Expect(err).To(MatchError(errDown))
	g.Expect(h.events.take()).To(ContainElement("Normal AddressShared (AddressReady): AddressReady is True: others use it too"))
}

func TestEventsOfSuspensionAndDeletion(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that is ready, with a drift that is reported
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	reportsDrift(h)
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "slow" })
	h.mustReconcile(t)
	h.events.take()

	// When it is suspended, that is the Event: whether the drift is over is not known
	h.editMachine(func(machine *Machine) { machine.Suspend = true })
	h.mustReconcile(t)
	g.Expect(h.events.take()).To(Equal([]string{"Normal Suspended (Suspended): Suspended is True: reconciliation is suspended"}))

	// When it is resumed, without the drift
	h.modify("Disk", "boot", func(d device) { d.device().Spec["class"] = "fast" })
	h.editMachine(func(machine *Machine) { machine.Suspend = false })
	h.mustReconcile(t)
	g.Expect(h.events.take()).To(Equal([]string{
		"Normal Ready (Ready): Ready is True: all phases are ready", "Normal SuspendedOver (Suspended): Suspended is no longer True",
	}))

	// When it is deleted, its progress has no Event
	h.goneAfter["boot"] = 1
	h.deleteMachine()
	h.mustReconcile(t)
	g.Expect(h.writes).To(ContainElement("status"))
	g.Expect(h.events.take()).To(BeEmpty())
}

func TestPhaseThatIsNotConfiguredHasNoCondition(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine with an optional disk that it does not ask for, behind a phase that gates
	cluster := newFakeCluster()
	observation := phases.Observation(phases.Wait("Pending", "allocating", 0))
	address := step{Name: "Address", Observe: func(context.Context, *scope) (phases.Observation, error) { return observation, nil }}
	h := newHarness(cluster, address, diskOf("Boot"))
	cluster.createMachine(&Machine{Spec: map[string]string{}})
	haveNoBoot := Not(ContainElement(HavePrefix("BootReady")))

	// When the phase is blocked, runs, and is blocked again, it has no condition
	for _, observed := range []phases.Observation{observation, phases.Done(""), observation} {
		observation = observed
		h.mustReconcile(t)
		g.Expect(h.states()).To(haveNoBoot)
	}

	// When it is turned on, blocked or not, it has one
	h.editMachine(func(machine *Machine) { machine.Spec = map[string]string{"Boot": "fast"} })
	h.mustReconcile(t)
	g.Expect(h.states()).To(ContainElement("BootReady=Unknown/Blocked"))
	observation = phases.Done("")
	h.settle(t)

	// When it is turned off, it has one until nothing is left of it
	h.goneAfter["boot"] = 1
	h.editMachine(func(machine *Machine) { delete(machine.Spec, "Boot") })
	h.mustReconcile(t)
	g.Expect(h.states()).To(ContainElement("BootReady=False/Pruning"))
	h.settle(t)
	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "AddressReady=True/Ready"}))
}

func TestPhaseThatIsNotConfiguredKeepsItsConditionUntilItIsPruned(t *testing.T) {
	g := NewWithT(t)
	// Given a disk that is turned off behind a phase that gates
	h := settled(t, map[string]string{"Boot": "fast"}, diskOf("Boot"))
	h.definition.Phases = []phase{observes("Address", phases.Wait("Pending", "", 0)), diskOf("Boot")}
	h.editMachine(func(machine *Machine) { delete(machine.Spec, "Boot") })

	// When it is reconciled, the disk exists, and so does its condition
	h.mustReconcile(t)
	g.Expect(h.device("Disk", "boot")).NotTo(BeNil())
	g.Expect(h.states()).To(ContainElement("BootReady=Unknown/Blocked"))
}

func TestLongMessagesAreCutBetweenCharacters(t *testing.T) {
	g := NewWithT(t)
	h := newScripted()

	h.observe(t, phases.Wait("Pending", strings.Repeat("ä", 20000), 0), nil)

	// The limits of the API server, for the message of a condition and the note of an Event.
	const longestMessage, longestNote = 32768, 1024
	for _, message := range []string{h.condition(t, "Ready").Message, h.condition(t, "AddressReady").Message} {
		g.Expect(len(message)).To(BeNumerically("<=", longestMessage))
		g.Expect(strings.ToValidUTF8(message, "?")).To(Equal(message))
	}
	for _, event := range h.events.take() {
		_, note, _ := strings.Cut(event, "): ")
		g.Expect(len(note)).To(BeNumerically("<=", longestNote))
		g.Expect(strings.ToValidUTF8(note, "?")).To(Equal(note))
	}
}

func TestConditionOfAFormerPhaseIsRemoved(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine settled by a version of the operator with one more phase
	cluster := newFakeCluster()
	cluster.createMachine(&Machine{})
	newHarness(cluster, observes("Address", phases.Done("")), observes("Uplink", phases.Done(""))).settle(t)

	h := newHarness(cluster, observes("Address", phases.Done("")))
	h.settle(t)

	g.Expect(h.states()).To(Equal([]string{"Ready=True/Ready", "AddressReady=True/Ready"}))
}

// The definition finds what its Events are about by comparing the object with the status that is written.
func TestEventsOfTheDefinitionFollowTheStatus(t *testing.T) {
	g := NewWithT(t)
	cluster := newFakeCluster()
	refused := true
	cluster.fail = func(what string) error {
		if what == "status" && refused {
			return &ssa.Error{Reason: ssa.ReasonAPIUnavailable, Object: "Machine vm1", Message: "try again"}
		}
		return nil
	}
	h := newHarness(cluster, observes("Address", phases.Done("has one")))
	h.definition.Events = func(s *scope, summary phases.Summary) []phases.Event {
		if before := s.machine.Status.Conditions; len(before) > 0 || !summary.Ready {
			return nil
		}
		return []phases.Event{{Type: "Normal", Reason: "Noticed", Action: "Observe", Note: strings.Repeat("x", 2000)}}
	}
	cluster.createMachine(&Machine{})

	_, err := h.reconcile(t)
	g.Expect(err).To(HaveOccurred())
	g.Expect(h.events.take()).To(BeEmpty(), "the status was not written")

	refused = false
	h.mustReconcile(t)
	g.Expect(h.events.take()).To(ContainElement(And(ContainSubstring("Noticed"), Not(ContainSubstring(strings.Repeat("x", 1025))))))
	h.mustReconcile(t)
	g.Expect(h.events.take()).To(BeEmpty())
}
