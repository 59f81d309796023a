package ssa_test

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
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

// server is an MCPServer whose configuration may have a network policy.
func (s *scenario) server(dns ...v1beta1.MCPServerDNSPolicy) *fixpointac.MCPServerApplyConfiguration {
	spec := fixpointac.MCPServerSpec().WithImage("registry.example/tools:1")
	for _, policy := range dns {
		spec.WithNetworkPolicy(fixpointac.MCPServerNetworkPolicy().WithEgress(fixpointac.MCPServerNetworkEgress().WithDNS(policy)))
	}
	return fixpointac.MCPServer("m", s.namespace).WithSpec(spec)
}

// The manager that added a struct holds it, even without a field in it. The API server would store null for the struct,
// and refuse it.
func TestDroppedStructIsRemovedFromTheManagerThatAddedIt(t *testing.T) {
	s := newScenario(t, nil)
	live := as[*v1beta1.MCPServer](s.done(s.server(), nil, ssa.ActionCreate).Live)
	live = editAs(s, "kubectl-edit", live, func(m *v1beta1.MCPServer) {
		m.Spec.NetworkPolicy = &v1beta1.MCPServerNetworkPolicy{Egress: &v1beta1.MCPServerNetworkEgress{DNS: v1beta1.DNSAllowed}}
	})
	taken := s.done(s.server(v1beta1.DNSDenied), live, ssa.ActionUpdate)
	s.Expect(managers(taken.Live)).To(ConsistOf(manager+" Apply", "kubectl-edit Update"))

	result := s.done(s.server(), taken.Live, ssa.ActionUpdate)

	s.Expect(as[*v1beta1.MCPServer](result.Live).Spec.NetworkPolicy).To(BeNil())
	s.Expect(managers(result.Live)).To(ConsistOf(manager + " Apply"))
}

// The same holds for lists.
func TestDroppedListIsRemovedFromTheManagerThatAddedIt(t *testing.T) {
	s := newScenario(t, nil)
	live := as[*v1beta1.MCPServer](s.done(s.server(), nil, ssa.ActionCreate).Live)
	live = editAs(s, "kubectl-edit", live, func(m *v1beta1.MCPServer) { m.Spec.Env = []corev1.EnvVar{{Name: "UNMANAGED", Value: "1"}} })
	with := s.server()
	with.Spec.WithEnv(corev1.EnvVar{Name: "MANAGED", Value: "1"})
	live = as[*v1beta1.MCPServer](s.done(with, live, ssa.ActionUpdate).Live)
	live = editAs(s, "kubectl-edit", live, func(m *v1beta1.MCPServer) {
		m.Spec.Env = slices.DeleteFunc(m.Spec.Env, func(e corev1.EnvVar) bool { return e.Name == "UNMANAGED" })
	})
	s.Expect(managers(live)).To(ConsistOf(manager+" Apply", "kubectl-edit Update"))

	result := s.done(s.server(), live, ssa.ActionUpdate)

	s.Expect(as[*v1beta1.MCPServer](result.Live).Spec.Env).To(BeEmpty())
	s.Expect(managers(result.Live)).To(ConsistOf(manager + " Apply"))
}

// After managed fields are wiped, the next apply assigns all fields to before-first-apply, in the version of whoever
// applies. What is left there must not keep a struct that is dropped, be it empty or without a required field.
func TestDroppedStructIsRemovedFromBeforeFirstApplyOfAnotherVersion(t *testing.T) {
	s := newScenario(t, nil)
	atAlpha := func(c ssa.Configuration) ssa.Configuration {
		converted, err := alphaConfigurationOf(c)
		s.ExpectWithOffset(1, err).NotTo(HaveOccurred())
		return converted
	}
	service := func() *fixpointac.AppServiceApplyConfiguration {
		return fixpointac.AppService("a", s.namespace).WithSpec(fixpointac.AppServiceSpec().WithImage("registry.example/a:1"))
	}
	with := service()
	with.Spec.WithIngress(fixpointac.Ingress().WithHost("a.example.com"))
	for name, test := range map[string]struct {
		with, without func() ssa.Configuration
		// change is what kubectl-edit changes before the applier applies again.
		change func(client.Object)
		left   func(client.Object) any
	}{
		"a struct whose only field is dropped": {
			with:    func() ssa.Configuration { return s.server(v1beta1.DNSDenied) },
			without: func() ssa.Configuration { return s.server() },
			change: func(live client.Object) {
				as[*v1beta1.MCPServer](live).Spec.NetworkPolicy.Egress.DNS = v1beta1.DNSAllowed
			},
			left: func(live client.Object) any { return as[*v1alpha1.MCPServer](live).Spec.NetworkPolicy },
		},
		"a struct with a default": {
			with:    func() ssa.Configuration { return clone(with) },
			without: func() ssa.Configuration { return service() },
			change:  func(live client.Object) { as[*v1beta1.AppService](live).Spec.Ingress.Host = "b.example.com" },
			left:    func(live client.Object) any { return as[*v1alpha1.AppService](live).Spec.Ingress },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.Gomega = NewWithT(t)
			live := s.done(atAlpha(test.with()), nil, ssa.ActionCreate).Live
			s.wipeManagedFields(live)
			inBeta, err := in(s, beta, live)
			s.Expect(err).NotTo(HaveOccurred())
			s.applyAs("argo", inBeta, fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {name: %s, annotations: {foreign: "1"}}}`, beta, *test.with().GetKind(), live.GetName()))
			s.Expect(api.Get(s, client.ObjectKeyFromObject(live), inBeta)).To(Succeed())
			editAs(s, "kubectl-edit", inBeta, test.change)
			s.Expect(api.Get(s, client.ObjectKeyFromObject(live), live)).To(Succeed())
			live = s.done(atAlpha(test.with()), live, ssa.ActionCorrect).Live
			s.Expect(managers(live)).To(ConsistOf(manager+" Apply", "argo Apply", beforeFirstApply+" Update"))

			result := s.done(atAlpha(test.without()), live, ssa.ActionUpdate)

			s.Expect(test.left(result.Live)).To(BeNil())
		})
	}
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
