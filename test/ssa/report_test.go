package ssa_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestReportSendsNothing(t *testing.T) {
	s := newScenario(t, nil)
	desired := s.configMap("c", map[string]string{"a": "1", "b": "1"})
	live := as[*corev1.ConfigMap](s.done(desired, nil, ssa.ActionCreate, report).Live)
	live = editAs(s, "robot", live, func(c *corev1.ConfigMap) { c.Data["a"] = "9" })
	live = editAs(s, "kubectl-edit", live, func(c *corev1.ConfigMap) { delete(c.Data, "b") })

	for range 2 { // it is reported for as long as it stands, after a restart too
		s.restart()
		result, err := s.apply(desired, live, report)

		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(result.Action).To(Equal(ssa.ActionReport))
		s.Expect(result.Left).To(BeTrue())
		s.Expect(descriptions(result.Drifts)).To(ConsistOf(`robot changed .data.a from "1" to "9"`, `an unknown field manager removed .data.b (was "1")`))
		s.Expect(s.requests()).To(BeZero())
		s.Expect(result.Live.GetResourceVersion()).To(Equal(live.ResourceVersion))
	}
}

func TestReportAppliesChangesWithoutDriftedFields(t *testing.T) {
	s := newScenario(t, nil)
	live := as[*corev1.ConfigMap](s.done(s.configMap("c", map[string]string{"a": "1", "b": "1"}), nil, ssa.ActionCreate, report).Live)
	live = editAs(s, "robot", live, func(c *corev1.ConfigMap) { c.Data["a"] = "9" })
	s.requests()
	desired := s.configMap("c", map[string]string{"a": "2", "b": "2", "c": "new"})

	result := s.done(desired, live, ssa.ActionUpdate, report)

	s.Expect(s.requests()).To(Equal(1))
	s.Expect(result.Left).To(BeTrue())
	s.Expect(descriptions(result.Drifts)).To(ConsistOf(`robot changed .data.a from "2" to "9"`))
	s.Expect(as[*corev1.ConfigMap](result.Live).Data).To(Equal(map[string]string{"a": "9", "b": "2", "c": "new"}))

	s.restart()
	still, err := s.apply(desired, result.Live, report)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(still.Action).To(Equal(ssa.ActionReport))
	s.Expect(descriptions(still.Drifts)).To(ConsistOf(`robot changed .data.a from "2" to "9"`))
	s.Expect(s.requests()).To(BeZero())
}

func TestReportEndsWhenTheValueIsRestored(t *testing.T) {
	s := newScenario(t, nil)
	desired := s.configMap("c", map[string]string{"a": "1"})
	live := as[*corev1.ConfigMap](s.done(desired, nil, ssa.ActionCreate, report).Live)
	live = editAs(s, "robot", live, func(c *corev1.ConfigMap) { c.Data["a"] = "9" })
	live = editAs(s, "robot", live, func(c *corev1.ConfigMap) { c.Data["a"] = "1" })

	result := s.done(desired, live, ssa.ActionCorrect, report)

	s.Expect(result.Drifts).To(BeEmpty())
	s.Expect(result.Left).To(BeFalse())
	s.Expect(as[*corev1.ConfigMap](result.Live).Data).To(Equal(map[string]string{"a": "1"}))
}

func TestReportedDriftIsRevertedUnderCorrect(t *testing.T) {
	s := newScenario(t, nil)
	desired := s.configMap("c", map[string]string{"a": "1"})
	live := as[*corev1.ConfigMap](s.done(desired, nil, ssa.ActionCreate, report).Live)
	live = editAs(s, "robot", live, func(c *corev1.ConfigMap) { c.Data["a"] = "9" })

	result := s.done(desired, live, ssa.ActionCorrect)

	s.Expect(descriptions(result.Drifts)).To(ConsistOf(`robot changed .data.a from "1" to "9"`))
}

func TestReportLeavesADroppedFieldToItsManager(t *testing.T) {
	s := newScenario(t, nil)
	live := as[*corev1.ConfigMap](s.done(s.configMap("c", map[string]string{"a": "1", "b": "1"}), nil, ssa.ActionCreate, report).Live)
	live = editAs(s, "robot", live, func(c *corev1.ConfigMap) { c.Data["a"] = "9" })

	result := s.done(s.configMap("c", map[string]string{"b": "1"}), live, ssa.ActionUpdate, report)

	s.Expect(result.Drifts).To(BeEmpty())
	s.Expect(as[*corev1.ConfigMap](result.Live).Data).To(Equal(map[string]string{"a": "9", "b": "1"}))
}
