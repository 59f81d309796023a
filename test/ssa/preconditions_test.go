package ssa_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// preconditionsOf are the uid and resourceVersion that each request carried.
func (s *scenario) preconditionsOf(request int) (uid types.UID, resourceVersion string) {
	body := metav1.PartialObjectMetadata{}
	s.ExpectWithOffset(1, json.Unmarshal(s.log.bodies[request], &body)).To(Succeed())
	return body.UID, body.ResourceVersion
}

func (s *scenario) delete(live client.Object) {
	s.ExpectWithOffset(1, api.Delete(s, live, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
}

func TestCreateLeavesExistingObjectUnchanged(t *testing.T) {
	s := newScenario(t, nil)
	desired := s.configMap("c", map[string]string{"a": "1"})
	created := s.done(desired, nil, ssa.ActionCreate).Live
	s.requests()

	result, err := s.apply(desired, nil)

	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.Action).To(Equal(ssa.ActionNone))
	s.Expect(result.Live.GetUID()).To(Equal(created.GetUID()))
	s.Expect(result.Live.GetResourceVersion()).To(Equal(created.GetResourceVersion()))
	s.Expect(s.log.bodies).To(HaveLen(1))
	_, resourceVersion := s.preconditionsOf(0)
	s.Expect(resourceVersion).To(Equal("1"), "no object has it, so the request creates or fails")
}

func TestCreateNeverChangesAnUnmanagedObject(t *testing.T) {
	s := newScenario(t, nil)
	s.create("kubectl-create", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "unmanaged"}})
	version := get(s, &corev1.ConfigMap{}, "c").ResourceVersion

	err := s.fails(s.configMap("c", map[string]string{"a": "desired"}), nil)

	s.Expect(err.Reason).To(Equal(ssa.ReasonNotOwned))
	s.Expect(get(s, &corev1.ConfigMap{}, "c").ResourceVersion).To(Equal(version))
}

func TestUpdateOfADeletedObjectCreatesIt(t *testing.T) {
	s := newScenario(t, nil)
	live := s.done(s.configMap("c", nil), nil, ssa.ActionCreate).Live
	s.delete(live)
	s.requests()

	result, err := s.apply(s.configMap("c", map[string]string{"a": "1"}), live)

	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.Action).To(Equal(ssa.ActionCreate))
	s.Expect(result.Live.GetUID()).NotTo(Equal(live.GetUID()))
	s.Expect(s.log.bodies).To(HaveLen(2))
	uid, _ := s.preconditionsOf(0)
	s.Expect(uid).To(Equal(live.GetUID()), "the first request is bound to the object that is gone")
	uid, resourceVersion := s.preconditionsOf(1)
	s.Expect(uid).To(BeEmpty())
	s.Expect(resourceVersion).To(Equal("1"))
}

func TestUpdateNeverChangesAnotherObjectOfTheName(t *testing.T) {
	s := newScenario(t, nil)
	live := s.done(s.configMap("c", nil), nil, ssa.ActionCreate).Live
	s.delete(live)
	s.create("kubectl-create", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "unmanaged"}})

	err := s.fails(s.configMap("c", map[string]string{"a": "desired"}), live)

	s.Expect(err.Reason).To(Equal(ssa.ReasonNotOwned))
	s.Expect(get(s, &corev1.ConfigMap{}, "c").Data).To(Equal(map[string]string{"a": "unmanaged"}))
}

// Adopting changes managed fields, which is bound to the version that was decided on.
func TestAdoptionWithALaggingCacheDecidesOnTheLiveObject(t *testing.T) {
	s := newScenario(t, nil)
	s.create("kubectl-create", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "unmanaged"}})
	cached := get(s, &corev1.ConfigMap{}, "c")
	editAs(s, "kubectl-edit", cached, func(c *corev1.ConfigMap) { c.Data["b"] = "new" })

	result := s.done(s.configMap("c", map[string]string{"a": "desired"}), cached, ssa.ActionAdopt, adopt)

	s.Expect(as[*corev1.ConfigMap](result.Live).Data).To(Equal(map[string]string{"a": "desired", "b": "new"}))
}
