package appservice

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// service is the Service in front of the pods, on spec.port.
var service = phases.Child[*scope, *corev1ac.ServiceApplyConfiguration, *corev1.Service]{
	Name:    "Service",
	Desired: func(s *scope) (*corev1ac.ServiceApplyConfiguration, error) { return desiredService(s.app), nil },
	Ready:   func(*corev1.Service) phases.Verdict { return phases.Done("the Service leads to the pods") },
	// Who gives our port another number has made another one, of a name that only one may have.
	UniqueFields: []string{"spec.ports.name"},
}

func desiredService(app *v1alpha1.AppService) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(app.Name, app.Namespace).
		WithLabels(labelsOf(app)).
		WithSpec(corev1ac.ServiceSpec().
			WithSelector(selectorOf(app)).
			WithPorts(corev1ac.ServicePort().
				WithName(portName).
				WithProtocol(corev1.ProtocolTCP).
				WithPort(app.Spec.Port).
				WithTargetPort(intstr.FromString(portName))))
}
