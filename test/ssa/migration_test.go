package ssa_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// older is a deployment as an earlier version of the operator wrote it, by Update, with all that
// has a key of its own.
func (s *scenario) older(who string) *appsv1.Deployment {
	old := plainDeployment("d")
	old.OwnerReferences = []metav1.OwnerReference{s.owner}
	old.Labels = map[string]string{"old": "label"}
	pod := &old.Spec.Template.Spec
	pod.Containers[0].Env = []corev1.EnvVar{{Name: "OLD", Value: "1"}}
	pod.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
	pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "old", MountPath: "/old"}}
	pod.Volumes = []corev1.Volume{{Name: "old", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}}}}}
	pod.Containers = append(pod.Containers, corev1.Container{Name: "old", Image: "old:1"})
	s.create(who, old)
	return get(s, &appsv1.Deployment{}, "d")
}

// What the earlier version wrote and is no longer desired is removed with the first apply; what others
// wrote stays.
func TestMigrationRemovesWhatIsNoLongerDesired(t *testing.T) {
	for name, who := range map[string]string{"under the same name": manager, "under a former name": formerManager} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, nil)
			live := s.older(who)
			live = editAs(s, "kubectl-edit", live, func(d *appsv1.Deployment) {
				d.Labels["foreign"] = "x"
				d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
			})
			s.applier, s.log = newApplierAfter(formerManager)
			result, err := s.apply(s.deployment("d"), live)

			s.Expect(err).NotTo(HaveOccurred())
			s.Expect(result.Action).To(Equal(ssa.ActionUpdate))
			s.Expect(s.requests()).To(Equal(2))
			migrated := as[*appsv1.Deployment](result.Live)
			s.Expect(migrated.Labels).To(Equal(map[string]string{"foreign": "x"}))
			s.Expect(migrated.Spec.Template.Annotations).To(HaveKey("kubectl.kubernetes.io/restartedAt"))
			pod := migrated.Spec.Template.Spec
			s.Expect(pod.Containers).To(HaveLen(1))
			s.Expect(pod.Containers[0].Image).To(Equal("web:1"))
			s.Expect(pod.Containers[0].Env).To(BeEmpty())
			s.Expect(pod.Containers[0].Ports).To(BeEmpty())
			s.Expect(pod.Containers[0].VolumeMounts).To(BeEmpty())
			s.Expect(pod.Volumes).To(BeEmpty())
			s.Expect(managers(migrated)).To(ConsistOf(manager+" Apply", "kubectl-edit Update"))
			s.isQuiet(s.deployment("d"), migrated)
		})
	}
}

func TestMigrationChangesOnlyManagersOfDesiredFields(t *testing.T) {
	s := newScenario(t, nil)
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", OwnerReferences: []metav1.OwnerReference{s.owner}}, Data: map[string]string{"a": "1", "b": "1"}}
	s.create(manager, old)

	kept := s.done(s.configMap("c", map[string]string{"a": "1", "b": "1"}), get(s, &corev1.ConfigMap{}, "c"), ssa.ActionUpdate)
	s.Expect(managers(kept.Live)).To(ConsistOf(manager + " Apply"))

	dropped := s.done(s.configMap("c", map[string]string{"a": "1"}), kept.Live, ssa.ActionUpdate)
	s.Expect(as[*corev1.ConfigMap](dropped.Live).Data).To(Equal(map[string]string{"a": "1"}))
}

// Of a struct, whoever creates an object holds the defaults too. They must not outlive it.
func TestDroppedStructOfAnAdoptedCustomResourceIsRemovedWithItsDefaults(t *testing.T) {
	s := newScenario(t, nil)
	s.create("kubectl-create", &v1beta1.AppService{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1beta1.AppServiceSpec{
			Image:   "registry.example/a:1",
			Config:  map[string]string{"UNMANAGED": "1"},
			Ingress: &v1beta1.Ingress{Host: "a.example.com"},
		},
	})
	with := func() *fixpointac.AppServiceApplyConfiguration {
		return fixpointac.AppService("a", s.namespace).WithSpec(fixpointac.AppServiceSpec().WithImage("registry.example/a:2").
			WithConfig(map[string]string{"MANAGED": "1"}).
			WithIngress(fixpointac.Ingress().WithHost("a.example.com")))
	}
	adopted := s.done(with(), get(s, &v1beta1.AppService{}, "a"), ssa.ActionAdopt, adopt)
	without := fixpointac.AppService("a", s.namespace).WithSpec(fixpointac.AppServiceSpec().WithImage("registry.example/a:2"))

	result := s.done(without, adopted.Live, ssa.ActionUpdate)

	left := as[*v1beta1.AppService](result.Live).Spec
	s.Expect(left.Ingress).To(BeNil())
	s.Expect(left.Config).To(Equal(map[string]string{"UNMANAGED": "1"}))
}

func TestDroppedContainerIsRemovedWithFieldsOfOtherManagers(t *testing.T) {
	s := newScenario(t, nil)
	with := s.deployment("d")
	with.Spec.Template.Spec.WithContainers(container("helper", "helper:1").WithEnv(corev1ac.EnvVar().WithName("MANAGED").WithValue("1")))
	live := as[*appsv1.Deployment](s.done(with, nil, ssa.ActionCreate).Live)
	live = editAs(s, "kubectl-edit", live, func(d *appsv1.Deployment) {
		helper := &d.Spec.Template.Spec.Containers[1]
		helper.Env = append(helper.Env, corev1.EnvVar{Name: "UNMANAGED", Value: "1"})
		helper.ImagePullPolicy = corev1.PullAlways
	})

	result := s.done(s.deployment("d"), live, ssa.ActionUpdate)

	s.Expect(as[*appsv1.Deployment](result.Live).Spec.Template.Spec.Containers).To(HaveLen(1))
}
