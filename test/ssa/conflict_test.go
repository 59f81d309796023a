package ssa_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestConflictNamesFieldAndManager(t *testing.T) {
	s := newScenario(t, nil)
	s.create("kubectl-create", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "unmanaged", "b": "unmanaged"}})
	live := get(s, &corev1.ConfigMap{}, "c")

	err := s.fails(s.configMap("c", map[string]string{"a": "desired", "b": "desired"}), live, shared)

	s.Expect(err.Reason).To(Equal(ssa.ReasonConflict))
	s.Expect(err.Message).To(Equal(`.data.a is managed by "kubectl-create", .data.b is managed by "kubectl-create"; remove the field there, or set the same value in both`))
	s.Expect(err.Transient).To(BeFalse())
	s.Expect(s.requests()).To(Equal(1))
	s.Expect(get(s, &corev1.ConfigMap{}, "c").ResourceVersion).To(Equal(live.ResourceVersion))
}

func TestConflictNamesManagerOfTheScaleSubresource(t *testing.T) {
	s := newScenario(t, nil)
	desired := s.deployment("d")
	desired.Spec.WithReplicas(2)
	created := s.done(desired, nil, ssa.ActionCreate, shared).Live
	s.scale(created, 5, "kubectl")

	err := s.fails(desired, get(s, &appsv1.Deployment{}, "d"), shared)

	s.Expect(err.Reason).To(Equal(ssa.ReasonConflict))
	s.Expect(err.Message).To(Equal(`.spec.replicas is managed by "kubectl"; remove the field there, or set the same value in both`))
}

func TestSharedFieldWithEqualValueIsHeldByBoth(t *testing.T) {
	s := newScenario(t, nil)
	s.create("kubectl-create", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "same"}})

	result := s.done(s.configMap("c", map[string]string{"a": "same"}), get(s, &corev1.ConfigMap{}, "c"), ssa.ActionUpdate, shared)
	s.Expect(s.requests()).To(Equal(1))
	dropped := as[*corev1.ConfigMap](s.done(s.configMap("c", nil), result.Live, ssa.ActionUpdate, shared).Live)

	s.Expect(dropped.Data).To(Equal(map[string]string{"a": "same"}), "the other field manager still owns it")
	s.Expect(dropped.OwnerReferences).To(BeEmpty())
}

func TestConflictEndsWhenTheOtherManagerDropsTheField(t *testing.T) {
	s := newScenario(t, nil)
	const configMap = `
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
`
	s.applyAs("argo", s.blankConfigMap("c"), configMap+"data: {a: unmanaged}")
	desired := s.configMap("c", map[string]string{"a": "desired"})
	s.Expect(s.fails(desired, get(s, &corev1.ConfigMap{}, "c"), shared).Reason).To(Equal(ssa.ReasonConflict))

	s.applyAs("argo", s.blankConfigMap("c"), configMap)

	result := s.done(desired, get(s, &corev1.ConfigMap{}, "c"), ssa.ActionUpdate, shared)
	s.Expect(as[*corev1.ConfigMap](result.Live).Data).To(Equal(map[string]string{"a": "desired"}))
}

// Without force, nothing is taken from other managers, not even fields that are dropped.
func TestDroppedSharedFieldStaysWithTheManagerThatTookIt(t *testing.T) {
	s := newScenario(t, nil)
	created := as[*corev1.ConfigMap](s.done(s.configMap("c", map[string]string{"a": "desired", "b": "desired"}), nil, ssa.ActionCreate, shared).Live)
	edited := editAs(s, "kubectl-edit", created, func(c *corev1.ConfigMap) { c.Data["a"] = "unmanaged" })

	result := s.done(s.configMap("c", map[string]string{"b": "desired"}), edited, ssa.ActionUpdate, shared)

	s.Expect(as[*corev1.ConfigMap](result.Live).Data).To(Equal(map[string]string{"a": "unmanaged", "b": "desired"}))
}

func TestChangeOfASharedFieldIsAConflict(t *testing.T) {
	s := newScenario(t, nil)
	desired := s.configMap("c", map[string]string{"a": "desired"})
	created := as[*corev1.ConfigMap](s.done(desired, nil, ssa.ActionCreate, shared).Live)
	edited := editAs(s, "kubectl-edit", created, func(c *corev1.ConfigMap) { c.Data["a"] = "unmanaged" })

	err := s.fails(desired, edited, shared)

	s.Expect(err.Reason).To(Equal(ssa.ReasonConflict))
	s.Expect(err.Message).To(Equal(`.data.a is managed by "kubectl-edit"; remove the field there, or set the same value in both`))
}
