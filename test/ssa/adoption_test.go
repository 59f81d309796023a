package ssa_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestUnownedObjectIsNotChangedWithoutAdoption(t *testing.T) {
	s := newScenario(t, nil)
	s.create("kubectl-create", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "unmanaged"}})
	live := get(s, &corev1.ConfigMap{}, "c")

	err := s.fails(s.configMap("c", map[string]string{"a": "desired"}), live)

	s.Expect(err.Reason).To(Equal(ssa.ReasonNotOwned))
	s.Expect(err.Permanent()).To(BeTrue())
	s.Expect(err.Error()).To(Equal("ConfigMap " + s.namespace + "/c: an object of this name exists and no controller owns it; delete or rename it"))
	err = s.fails(s.configMap("c", map[string]string{"a": "desired"}), live, func(r *ssa.Request) { r.Adoption = ssa.AdoptNever })
	s.Expect(err.Message).To(HaveSuffix("; delete or rename it, or set spec.adoptionPolicy to IfUnowned to adopt it"), "users of an owner with a policy can change it")
	s.Expect(s.requests()).To(BeZero())
	s.Expect(get(s, &corev1.ConfigMap{}, "c").ResourceVersion).To(Equal(live.ResourceVersion))
}

func TestAdoptionTakesDesiredFieldsAndLeavesTheRest(t *testing.T) {
	s := newScenario(t, nil)
	s.create("kubectl-create", &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"team": "unmanaged"}},
		Data:       map[string]string{"a": "unmanaged", "b": "unmanaged"},
	})

	result := s.done(s.configMap("c", map[string]string{"a": "desired"}), get(s, &corev1.ConfigMap{}, "c"), ssa.ActionAdopt, adopt)

	s.Expect(s.requests()).To(Equal(2), "one to take the fields over, one to apply")
	s.Expect(result.Drifts).To(BeEmpty())
	adopted := as[*corev1.ConfigMap](result.Live)
	s.Expect(adopted.Data).To(Equal(map[string]string{"a": "desired", "b": "unmanaged"}))
	s.Expect(adopted.Labels).To(HaveKeyWithValue("team", "unmanaged"))
	s.Expect(metav1.GetControllerOf(adopted).UID).To(Equal(s.owner.UID))
	s.Expect(managers(adopted)).To(ConsistOf(manager+" Apply", "kubectl-create Update"))

	dropped := as[*corev1.ConfigMap](s.done(s.configMap("c", nil), adopted, ssa.ActionUpdate, adopt).Live)
	s.Expect(dropped.Data).To(Equal(map[string]string{"b": "unmanaged"}))
	s.Expect(dropped.Labels).To(HaveKeyWithValue("team", "unmanaged"))
}

// kubectl create owns all that it writes, including every default. That must not keep an item or a struct
// from being removed once the configuration drops it.
func TestDroppedPartsOfAnAdoptedDeploymentAreRemovedWithTheirDefaults(t *testing.T) {
	s := newScenario(t, nil)
	created := plainDeployment("d")
	pod := &created.Spec.Template.Spec
	pod.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
	pod.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81}}
	pod.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}}
	pod.Containers[0].ReadinessProbe.TCPSocket.Port.IntVal = 80
	pod.Containers = append(pod.Containers, corev1.Container{Name: "helper", Image: "helper:1", TerminationMessagePath: "/x"})
	pod.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}}}}}
	pod.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	pod.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](7)}
	s.create("kubectl-create", created)
	full := func() ssa.Configuration {
		d := s.deployment("d")
		d.Spec.Template.Spec.Containers[0].
			WithEnv(corev1ac.EnvVar().WithName("A").WithValue("1"), corev1ac.EnvVar().WithName("B").WithValueFrom(corev1ac.EnvVarSource().WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath("metadata.name")))).
			WithPorts(corev1ac.ContainerPort().WithContainerPort(80), corev1ac.ContainerPort().WithContainerPort(81)).
			WithReadinessProbe(corev1ac.Probe().WithPeriodSeconds(3))
		d.Spec.Template.Spec.WithContainers(container("helper", "helper:1")).
			WithVolumes(corev1ac.Volume().WithName("config").WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName("x"))).
			WithSecurityContext(corev1ac.PodSecurityContext().WithRunAsUser(7))
		return d
	}
	adopted := s.done(full(), get(s, &appsv1.Deployment{}, "d"), ssa.ActionAdopt, adopt)

	result := s.done(s.deployment("d"), adopted.Live, ssa.ActionUpdate, adopt)

	s.Expect(s.requests()).To(Equal(1))
	left := as[*appsv1.Deployment](result.Live).Spec.Template.Spec
	s.Expect(left.Containers).To(HaveLen(1))
	s.Expect(left.Containers[0].Env).To(BeEmpty())
	s.Expect(left.Containers[0].Ports).To(BeEmpty())
	s.Expect(left.Containers[0].ReadinessProbe).To(BeNil())
	s.Expect(left.Volumes).To(BeEmpty())
	s.Expect(left.SecurityContext.RunAsUser).To(BeNil())
	s.Expect(left.Affinity).NotTo(BeNil(), "the configuration never declared it")
}

func TestObjectOfAnotherControllerIsNeverChanged(t *testing.T) {
	s := newScenario(t, nil)
	other := newOwner(s, s, s.namespace, "other")
	s.create("robot", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", OwnerReferences: []metav1.OwnerReference{other}}})

	err := s.fails(s.configMap("c", nil), get(s, &corev1.ConfigMap{}, "c"), adopt)

	s.Expect(err.Reason).To(Equal(ssa.ReasonOwnedByAnother))
	s.Expect(err.Message).To(Equal("it is controlled by ConfigMap other, so it is not changed; rename one of the two objects, or delete this one there"))
	s.Expect(err.Permanent()).To(BeTrue())
	s.Expect(s.requests()).To(BeZero())
}

func TestWaitsForObjectOfADeletedOwnerOfTheSameName(t *testing.T) {
	s := newScenario(t, nil)
	earlier := s.owner
	earlier.UID = "00000000-0000-0000-0000-000000000000"
	s.create("robot", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", OwnerReferences: []metav1.OwnerReference{earlier}}})

	err := s.fails(s.configMap("c", nil), get(s, &corev1.ConfigMap{}, "c"), adopt)

	s.Expect(err.Reason).To(Equal(ssa.ReasonOwnedByAnother))
	s.Expect(err.Message).To(HavePrefix("it is still owned by a deleted ConfigMap of the same name"))
	s.Expect(err.Transient).To(BeTrue())
	s.Expect(err.Permanent()).To(BeFalse())
	s.Expect(s.requests()).To(BeZero())
}

func TestAdoptionLosesToAnotherControllerThatTheCacheDoesNotShow(t *testing.T) {
	s := newScenario(t, nil)
	s.create("kubectl-create", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "unmanaged"}})
	cached := get(s, &corev1.ConfigMap{}, "c")
	other := newOwner(s, s, s.namespace, "other")
	taken := editAs(s, "other", cached, func(c *corev1.ConfigMap) { c.OwnerReferences = []metav1.OwnerReference{other} })

	err := s.fails(s.configMap("c", map[string]string{"a": "desired"}), cached, adopt)

	s.Expect(err.Reason).To(Equal(ssa.ReasonOwnedByAnother))
	s.Expect(get(s, &corev1.ConfigMap{}, "c").ResourceVersion).To(Equal(taken.ResourceVersion))
}

// The API server itself refuses a second controller; that is no error of the configuration.
func TestUpdateLosesToAnotherControllerThatTheCacheDoesNotShow(t *testing.T) {
	s := newScenario(t, nil)
	cached := as[*corev1.ConfigMap](s.done(s.configMap("c", nil), nil, ssa.ActionCreate).Live)
	other := newOwner(s, s, s.namespace, "other")
	editAs(s, "other", cached, func(c *corev1.ConfigMap) { c.OwnerReferences = []metav1.OwnerReference{other} })

	err := s.fails(s.configMap("c", map[string]string{"a": "new"}), cached)

	s.Expect(err.Reason).To(Equal(ssa.ReasonOwnedByAnother))
	s.Expect(get(s, &corev1.ConfigMap{}, "c").Data).To(BeEmpty())
}

func TestRestoresRemovedOwnerReference(t *testing.T) {
	s := newScenario(t, nil)
	desired := s.configMap("c", nil)
	created := as[*corev1.ConfigMap](s.done(desired, nil, ssa.ActionCreate).Live)
	orphan := editAs(s, "kubectl-edit", created, func(c *corev1.ConfigMap) { c.OwnerReferences = nil })

	result := s.done(desired, orphan, ssa.ActionCorrect)

	s.Expect(result.Drifts).To(HaveLen(1))
	s.Expect(result.Drifts[0].Path).To(Equal(`.metadata.ownerReferences[uid="` + string(s.owner.UID) + `"]`))
	s.Expect(metav1.GetControllerOf(result.Live).UID).To(Equal(s.owner.UID))
}

func TestCopiedRecordProvesNoOwnership(t *testing.T) {
	s := newScenario(t, nil)
	managed := as[*corev1.ConfigMap](s.done(s.configMap("c", map[string]string{"a": "1"}), nil, ssa.ActionCreate).Live)
	s.create("kubectl-create", &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "copy", Annotations: managed.Annotations}, Data: map[string]string{"a": "1", "b": "unmanaged"},
	})
	copied := get(s, &corev1.ConfigMap{}, "copy")

	s.Expect(s.fails(s.configMap("copy", nil), copied).Reason).To(Equal(ssa.ReasonNotOwned))

	adopted := as[*corev1.ConfigMap](s.done(s.configMap("copy", nil), copied, ssa.ActionAdopt, adopt).Live)
	s.Expect(adopted.Data).To(Equal(map[string]string{"a": "1", "b": "unmanaged"}), "a field that is not declared stays with its field manager")
}

// An object of an older version of the operator, or of a restored backup: the owner reference is right, but
// this field manager has never applied the object.
func TestDroppedPartsOfARestoredChildAreRemoved(t *testing.T) {
	s := newScenario(t, nil)
	restored := plainDeployment("d")
	restored.OwnerReferences = []metav1.OwnerReference{s.owner}
	restored.Spec.Template.Spec.Containers = append(restored.Spec.Template.Spec.Containers, corev1.Container{Name: "helper", Image: "helper:1"})
	s.create("restore", restored)
	with := s.deployment("d")
	with.Spec.Template.Spec.WithContainers(container("helper", "helper:1"))

	taken := s.done(with, get(s, &appsv1.Deployment{}, "d"), ssa.ActionUpdate)
	result := s.done(s.deployment("d"), taken.Live, ssa.ActionUpdate)

	s.Expect(as[*appsv1.Deployment](result.Live).Spec.Template.Spec.Containers).To(HaveLen(1))
}

func TestRefusesConfigurationThatNamesAnotherController(t *testing.T) {
	s := newScenario(t, nil)
	desired := s.configMap("c", nil).WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Secret").WithName("x").WithUID("1").WithController(true))

	_, err := s.apply(desired, nil)

	s.Expect(err).To(MatchError(ContainSubstring("its owner references name a controller beside the owner of the request")))
	s.Expect(s.requests()).To(BeZero())
}

func TestWaitsForTerminatingObject(t *testing.T) {
	s := newScenario(t, nil)
	s.create("kubectl-create", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", OwnerReferences: []metav1.OwnerReference{s.owner}, Finalizers: []string{"test.example/stay"}}})
	live := get(s, &corev1.ConfigMap{}, "c")
	s.Expect(api.Delete(s, live, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())

	err := s.fails(s.configMap("c", nil), get(s, &corev1.ConfigMap{}, "c"))

	s.Expect(err.Reason).To(Equal(ssa.ReasonTerminating))
	s.Expect(err.Message).To(Equal("it is being deleted; it will be recreated"))
	s.Expect(err.Transient).To(BeTrue())
	s.Expect(s.requests()).To(BeZero())
}
