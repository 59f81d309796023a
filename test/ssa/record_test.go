package ssa_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

const recordAnnotation = ssa.RecordAnnotationPrefix + manager

func TestRestoresEditedRecord(t *testing.T) {
	tamper := map[string]func(c *corev1.ConfigMap){
		"removed": func(c *corev1.ConfigMap) { delete(c.Annotations, recordAnnotation) },
		"emptied": func(c *corev1.ConfigMap) { c.Annotations[recordAnnotation] = "" },
		"noise":   func(c *corev1.ConfigMap) { c.Annotations[recordAnnotation] = "v1/x/y/!!!" },
		"of a version that is not known": func(c *corev1.ConfigMap) {
			c.Annotations[recordAnnotation] = "v9" + c.Annotations[recordAnnotation][2:]
		},
	}
	for name, mutate := range tamper {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, nil)
			desired := s.configMap("c", map[string]string{"a": "1"})
			live := as[*corev1.ConfigMap](s.done(desired, nil, ssa.ActionCreate).Live)
			record := live.Annotations[recordAnnotation]
			live = editAs(s, "kubectl-edit", live, mutate)

			result := s.done(desired, live, ssa.ActionUpdate)

			s.Expect(s.requests()).To(Equal(1))
			s.Expect(result.Drifts).To(BeEmpty())
			s.Expect(result.Live.GetAnnotations()[recordAnnotation]).To(Equal(record))
		})
	}
}

// kubectl replace with an old manifest takes the annotation away with everything else.
func TestDriftOfAReplacedObjectNamesTheManager(t *testing.T) {
	s := newScenario(t, nil)
	desired := s.configMap("c", map[string]string{"a": "1", "b": "1"})
	live := as[*corev1.ConfigMap](s.done(desired, nil, ssa.ActionCreate).Live)
	live = editAs(s, "kubectl-replace", live, func(c *corev1.ConfigMap) {
		c.Annotations = nil
		c.Data = map[string]string{"a": "9", "b": "1"}
	})
	s.restart()

	reported, err := s.apply(desired, live, report)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(descriptions(reported.Drifts)).To(ConsistOf(`kubectl-replace changed .data.a from "1" to "9"`))
	s.Expect(as[*corev1.ConfigMap](reported.Live).Data).To(HaveKeyWithValue("a", "9"), "it is only reported")

	result := s.done(desired, reported.Live, ssa.ActionCorrect)
	s.Expect(descriptions(result.Drifts)).To(ConsistOf(`kubectl-replace changed .data.a from "1" to "9"`))
	s.Expect(as[*corev1.ConfigMap](result.Live).Data).To(Equal(map[string]string{"a": "1", "b": "1"}))
}

// A record of another object says that we applied fields here which we never did.
func TestRecordOfAnotherObjectRemovesNothing(t *testing.T) {
	s := newScenario(t, nil)
	other := s.done(s.configMap("other", map[string]string{"unmanaged": "1"}), nil, ssa.ActionCreate).Live
	desired := s.configMap("c", map[string]string{"a": "1"})
	live := as[*corev1.ConfigMap](s.done(desired, nil, ssa.ActionCreate).Live)
	live = editAs(s, "kubectl-edit", live, func(c *corev1.ConfigMap) {
		c.Annotations[recordAnnotation] = other.GetAnnotations()[recordAnnotation]
		c.Data["unmanaged"] = "kept"
	})

	result := s.done(desired, live, ssa.ActionUpdate)

	s.Expect(as[*corev1.ConfigMap](result.Live).Data).To(Equal(map[string]string{"a": "1", "unmanaged": "kept"}))
}
