package ssa

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Port names are unique within a container only. So the port of a sidecar with the name of a declared port
// is not a rival of it, whoever added the sidecar.
func TestUniqueFieldsLeavesPortOfTheSameNameInAnotherContainer(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	server, owner := newServer(), ownedBy("o")
	labels := map[string]string{"app": "web"}
	desired := func() *appsv1ac.DeploymentApplyConfiguration {
		return appsv1ac.Deployment("web", "n").WithSpec(appsv1ac.DeploymentSpec().
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(corev1ac.PodSpec().WithContainers(corev1ac.Container().
				WithName("app").WithImage("web:1").
				WithPorts(corev1ac.ContainerPort().WithName("http").WithContainerPort(8080).WithProtocol(corev1.ProtocolTCP))))))
	}
	request := Request{Desired: desired(), Owner: owner, UniqueFields: []string{"spec.template.spec.containers.ports.name"}}
	created, err := newBenchApplier(t, server).Apply(ctx, request)
	g.Expect(err).NotTo(HaveOccurred())

	// Given a sidecar with a port named http, and a new number for the declared port
	live, _ := created.Live.(*appsv1.Deployment)
	pod := &live.Spec.Template.Spec
	pod.Containers[0].Ports[0].ContainerPort = 81
	pod.Containers = append(pod.Containers, corev1.Container{Name: "sidecar", Image: "proxy:1",
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 9090, Protocol: corev1.ProtocolTCP}}})
	g.Expect(server.Update(ctx, live, client.FieldOwner("injector"))).To(Succeed())

	// When the drift is corrected
	request.Desired, request.Live = desired(), live
	result, err := newBenchApplier(t, server).Apply(ctx, request)

	// Then the port that replaced the declared one is removed, and the port of the sidecar is not.
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Action).To(Equal(ActionCorrect))
	corrected, _ := result.Live.(*appsv1.Deployment)
	containers := corrected.Spec.Template.Spec.Containers
	g.Expect(containers).To(HaveLen(2))
	g.Expect(containers[0].Ports).To(ConsistOf(And(HaveField("Name", "http"), HaveField("ContainerPort", BeEquivalentTo(8080)))))
	g.Expect(containers[1].Ports).To(ConsistOf(And(HaveField("Name", "http"), HaveField("ContainerPort", BeEquivalentTo(9090)))))
}
