package ssa_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func (s *scenario) service(name string) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(name, s.namespace).WithSpec(corev1ac.ServiceSpec().
		WithSelector(map[string]string{"app": name}).
		WithPorts(corev1ac.ServicePort().WithName("http").WithProtocol(corev1.ProtocolTCP).WithPort(8080).WithTargetPort(intstr.FromInt32(80))))
}

// The number of a port is its key: an edit of the number removes the declared port and adds another port with
// the same name. The API server refuses two ports of one name.
func TestUniqueFieldsRemovesPortWithEditedNumber(t *testing.T) {
	s := newScenario(t, nil)
	live := as[*corev1.Service](s.done(s.service("web"), nil, ssa.ActionCreate).Live)
	live = editAs(s, "kubectl-edit", live, func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })
	s.restart()

	result := s.done(s.service("web"), live, ssa.ActionCorrect, unique("spec.ports.name"))

	s.Expect(as[*corev1.Service](result.Live).Spec.Ports).To(HaveExactElements(And(HaveField("Name", "http"), HaveField("Port", BeEquivalentTo(8080)))))
	s.Expect(result.Drifts).NotTo(BeEmpty())
	s.done(s.service("web"), result.Live, ssa.ActionNone, unique("spec.ports.name"))
}

// A port that another manager has added shares no name.
func TestUniqueFieldsLeavesOtherPorts(t *testing.T) {
	s := newScenario(t, nil)
	live := as[*corev1.Service](s.done(s.service("web"), nil, ssa.ActionCreate).Live)
	live = editAs(s, "kubectl-edit", live, func(s *corev1.Service) {
		s.Spec.Ports[0].Port = 81
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "metrics", Port: 9090})
	})

	result := s.done(s.service("web"), live, ssa.ActionCorrect, unique("spec.ports.name"))

	s.Expect(as[*corev1.Service](result.Live).Spec.Ports).To(ConsistOf(
		And(HaveField("Name", "http"), HaveField("Port", BeEquivalentTo(8080))),
		And(HaveField("Name", "metrics"), HaveField("Port", BeEquivalentTo(9090))),
	))
}
