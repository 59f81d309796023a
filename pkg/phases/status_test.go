package phases_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// scripted is a workshop whose one phase comes to whatever verdict or error the test sets.
type scripted struct {
	*workshop
	verdict phases.Verdict
	failure error
}

func newScripted() *scripted {
	s := &scripted{}
	rail := step{Name: "Rail"}
	rail.Observe = func(context.Context, *scope) (phases.Verdict, error) { return s.verdict, s.failure }
	s.workshop = newWorkshop(newWorld(), rail)
	s.createToy(&Toy{})
	return s
}

// come makes a pass that comes to the verdict, and fails for no other reason.
func (s *scripted) come(t *testing.T, verdict phases.Verdict, failure error) {
	t.Helper()
	s.verdict, s.failure = verdict, failure
	if _, err := s.pass(t); err != nil {
		NewWithT(t).Expect(err).To(MatchError(failure))
	}
}

func TestConditions(t *testing.T) {
	cases := map[string]struct {
		verdict phases.Verdict
		failure error
		want    []string
	}{
		"done":                   {phases.Done("it is there"), nil, []string{"Ready=True/Ready", "RailReady=True/Ready"}},
		"done because":           {phases.DoneBecause("Reused", ""), nil, []string{"Ready=True/Ready", "RailReady=True/Reused"}},
		"not configured is True": {phases.NotConfigured(""), nil, []string{"Ready=True/Ready", "RailReady=True/NotConfigured"}},
		"waiting":                {phases.Wait("Pending", "", 0), nil, []string{"Ready=False/Pending", "RailReady=False/Pending", "Reconciling=True/Pending"}},
		"stalled":                {phases.Stalled("BadLength", ""), nil, []string{"Ready=False/BadLength", "RailReady=False/BadLength", "Stalled=True/BadLength"}},
		"done, and not at its end": {phases.DoneBecause("OldServes", "").AndReconciling(), nil,
			[]string{"Ready=True/Ready", "RailReady=True/OldServes", "Reconciling=True/OldServes"}},
		"done, and never at its end": {phases.DoneBecause("OldServes", "").AndStalled(), nil,
			[]string{"Ready=True/Ready", "RailReady=True/OldServes", "Stalled=True/OldServes"}},
		"an error": {phases.Verdict{}, errors.New("down"), []string{
			"Ready=False/Failed", "RailReady=False/Failed", "Reconciling=True/Failed"}},
		"a permanent error": {phases.Verdict{}, &ssa.Error{Reason: ssa.ReasonImmutableField}, []string{
			"Ready=False/ImmutableField", "RailReady=False/ImmutableField", "Stalled=True/ImmutableField"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			shop := newScripted()

			shop.come(t, c.verdict, c.failure)

			g.Expect(shop.states()).To(Equal(c.want))
			g.Expect(shop.toy().Status.ObservedGeneration).To(Equal(int64(1)))
			for _, condition := range shop.toy().Status.Conditions {
				g.Expect(condition.ObservedGeneration).To(Equal(int64(1)), condition.Type)
			}
		})
	}
}

func TestTheGenerationThatWasObservedIsSaid(t *testing.T) {
	g := NewWithT(t)
	shop := newScripted()
	shop.come(t, phases.Done(""), nil)

	// When the spec changes and nothing else
	shop.editToy(func(*Toy) {})
	shop.come(t, phases.Done(""), nil)

	// Then the generation is written, at the top and in each condition, and no Event tells of it
	g.Expect(shop.toy().Status.ObservedGeneration).To(Equal(int64(2)))
	g.Expect(shop.condition(t, "Ready").ObservedGeneration).To(Equal(int64(2)))
	g.Expect(shop.condition(t, "RailReady").ObservedGeneration).To(Equal(int64(2)))
	g.Expect(shop.events.take()).To(HaveLen(2), "those of the first pass")
}

func TestTransitionTimesCarryOver(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy that began to wait at some time
	shop := newScripted()
	began := metav1.NewTime(shop.clock.Now())
	shop.come(t, phases.Wait("Pending", "1 of 3", 0), nil)

	// When it waits for another reason a minute later, the status of its conditions is the same
	shop.tick()
	shop.come(t, phases.Wait("AlmostThere", "2 of 3", 0), nil)
	rail := shop.condition(t, "RailReady")
	g.Expect(rail.LastTransitionTime.Equal(&began)).To(BeTrue())
	g.Expect(rail.Message).To(Equal("2 of 3"))
	ready := shop.condition(t, "Ready")
	g.Expect(ready.LastTransitionTime.Equal(&began)).To(BeTrue())

	// When it is done another minute later
	shop.tick()
	done := metav1.NewTime(shop.clock.Now())
	shop.come(t, phases.Done(""), nil)

	// Then that is when it became True
	for _, conditionType := range []string{"Ready", "RailReady"} {
		c := shop.condition(t, conditionType)
		g.Expect(c.LastTransitionTime.Equal(&done)).To(BeTrue(), conditionType)
	}
	shop.tick()
	writes := len(shop.writes)
	shop.come(t, phases.Done(""), nil)
	g.Expect(shop.writes).To(HaveLen(writes), "time alone is no reason to write")
}

func TestTimesSurviveTheAPIServersPrecision(t *testing.T) {
	g := NewWithT(t)
	// Given a clock that shows fractions of a second, which the API server does not keep
	shop := newScripted()
	shop.clock.SetTime(shop.clock.Now().Add(123456789 * time.Nanosecond))
	shop.come(t, phases.Done(""), nil)
	writes := len(shop.writes)

	shop.come(t, phases.Done(""), nil)

	g.Expect(shop.writes).To(HaveLen(writes))
}

func TestEventsTellOfTransitionsAndOfNothingElse(t *testing.T) {
	wait, otherWait := phases.Wait("Pending", "made", 0), phases.Wait("Almost", "nearly", 0)
	cases := map[string]struct {
		before, after phases.Verdict
		beforeFailure error
		afterFailure  error
		want          []string
	}{
		"the same": {before: wait, after: wait},
		"another message": {
			before: wait, after: phases.Wait("Pending", "made, 2 of 3", 0),
		},
		"another reason": {
			before: wait, after: otherWait,
			want: []string{
				"Normal Almost (Ready): Ready is False: Rail: nearly",
				"Normal Almost (RailReady): RailReady is False: nearly",
			},
		},
		"another status": {
			before: wait, after: phases.Done("it is there"),
			want: []string{
				"Normal Ready (Ready): Ready is True: all phases are done",
				"Normal Ready (RailReady): RailReady is True: it is there",
			},
		},
		"trouble": {
			before: wait, after: otherWait.AsTrouble(),
			want: []string{
				"Warning Almost (Ready): Ready is False: Rail: nearly",
				"Warning Almost (RailReady): RailReady is False: nearly",
			},
		},
		"serving, and not at its end": {
			before: phases.Done(""), after: phases.DoneBecause("OldServes", "old ones serve").AndStalled(),
			want: []string{
				"Normal OldServes (RailReady): RailReady is True: old ones serve",
				"Warning OldServes (Stalled): Stalled is True: old ones serve",
			},
		},
		"turned off": {
			before: phases.Done(""), after: phases.NotConfigured("not asked for"),
			want: []string{"Normal NotConfigured (RailReady): RailReady is True: not asked for"},
		},
		"stalled": {
			before: wait, after: phases.Stalled("BadLength", "too long"),
			want: []string{
				"Warning BadLength (Ready): Ready is False: Rail: too long",
				"Warning BadLength (RailReady): RailReady is False: too long",
				"Warning BadLength (Stalled): Stalled is True: too long",
			},
		},
		"no longer stalled": {
			before: phases.Stalled("BadLength", "too long"), after: wait,
			want: []string{
				"Normal Pending (Ready): Ready is False: Rail: made",
				"Normal Pending (RailReady): RailReady is False: made",
				"Normal StalledOver (Stalled): Stalled is over",
			},
		},
		"failing": {
			before: phases.Done(""), afterFailure: errors.New("down"),
			want: []string{
				"Warning Failed (Ready): Ready is False: Rail: down",
				"Warning Failed (RailReady): RailReady is False: down",
			},
		},
		"failing on": {
			beforeFailure: errors.New("down"), afterFailure: errors.New("down"),
		},
		"failing otherwise, for the same reason": {
			beforeFailure: errors.New("down"), afterFailure: errors.New("still down"),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Given a Toy with the conditions of before
			shop := newScripted()
			shop.come(t, c.before, c.beforeFailure)
			shop.events.take()

			// When a pass comes to what is after, and another to the same
			shop.come(t, c.after, c.afterFailure)
			first := shop.events.take()
			shop.come(t, c.after, c.afterFailure)

			// Then the Events are those of the transition, once
			if len(c.want) == 0 {
				g.Expect(first).To(BeEmpty())
			} else {
				g.Expect(first).To(Equal(c.want))
			}
			g.Expect(shop.events.take()).To(BeEmpty())
		})
	}
}

func TestTheFirstSightOfWhatIsNotThereIsNoEvent(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	shop := newWorkshop(w, gearOf("Axle"), says("Rail", phases.Wait("Pending", "made", 0)), says("Rim", phases.Done("")))
	w.createToy(&Toy{})

	shop.mustPass(t)

	g.Expect(shop.events.take()).To(Equal([]string{
		"Normal Pending (Ready): Ready is False: Rail: made",
		"Normal Pending (RailReady): RailReady is False: made",
	}))
}

func TestAnOptionThatIsOffIsNoNewsUntilItHasBeenOn(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy with an option that is off, behind a phase that gates
	w := newWorld()
	verdict := phases.Wait("Pending", "made", 0)
	rail := step{Name: "Rail", Observe: func(context.Context, *scope) (phases.Verdict, error) { return verdict, nil }}
	shop := newWorkshop(w, rail, gearOf("Axle"))
	w.createToy(&Toy{Spec: map[string]string{}})
	shop.mustPass(t)
	shop.events.take()
	axle := func() []string {
		return slices.DeleteFunc(shop.events.take(), func(event string) bool { return !strings.Contains(event, "(AxleReady)") })
	}

	// When it is looked at, and then is behind a gate again, nobody is told
	verdict = phases.Done("")
	shop.mustPass(t)
	g.Expect(shop.states()).To(ContainElement("AxleReady=True/NotConfigured"))
	verdict = phases.Wait("Pending", "made", 0)
	shop.mustPass(t)
	g.Expect(shop.states()).To(ContainElement("AxleReady=Unknown/Blocked"))
	verdict = phases.Done("")
	shop.mustPass(t)
	g.Expect(axle()).To(BeEmpty())

	// When it is turned on, and off again, that is told
	shop.editToy(func(toy *Toy) { toy.Spec = map[string]string{"Axle": "red"} })
	shop.settle(t)
	g.Expect(axle()).To(ContainElement("Normal Ready (AxleReady): AxleReady is True: it turns"))
	shop.editToy(func(toy *Toy) { delete(toy.Spec, "Axle") })
	shop.settle(t)
	g.Expect(axle()).To(ContainElement("Normal NotConfigured (AxleReady): AxleReady is True: spec.Axle is not set"))
}

func TestLongMessagesAreCutAndNoLetterInTwo(t *testing.T) {
	g := NewWithT(t)
	shop := newScripted()

	shop.come(t, phases.Wait("Pending", strings.Repeat("ä", 20000), 0), nil)

	// The limits of the API server, for the message of a condition and the note of an Event.
	const longestMessage, longestNote = 32768, 1024
	for _, message := range []string{shop.condition(t, "Ready").Message, shop.condition(t, "RailReady").Message} {
		g.Expect(len(message)).To(BeNumerically("<=", longestMessage))
		g.Expect(strings.ToValidUTF8(message, "?")).To(Equal(message))
	}
	for _, event := range shop.events.take() {
		_, note, _ := strings.Cut(event, "): ")
		g.Expect(len(note)).To(BeNumerically("<=", longestNote))
		g.Expect(strings.ToValidUTF8(note, "?")).To(Equal(note))
	}
}

func TestAConditionOfAPhaseThatIsNoMoreIsDropped(t *testing.T) {
	g := NewWithT(t)
	// Given a Toy settled by a version of the operator with a phase more
	w := newWorld()
	w.createToy(&Toy{})
	newWorkshop(w, says("Rail", phases.Done("")), says("Rim", phases.Done(""))).settle(t)

	shop := newWorkshop(w, says("Rail", phases.Done("")))
	shop.settle(t)

	g.Expect(shop.states()).To(Equal([]string{"Ready=True/Ready", "RailReady=True/Ready"}))
}
