package appservice

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// service is the Service for the pods, on spec.port.
var service = phases.Child[*scope, *corev1ac.ServiceApplyConfiguration, *corev1.Service]{
	Name:    "Service",
	Desired: func(s *scope) (*corev1ac.ServiceApplyConfiguration, error) { return desiredService(s.app), nil },
	// A port that another field manager has renumbered is a second port with the same name, which the
	// API server rejects.
	UniqueFields: []string{"spec.ports.name"},
}

func desiredService(app *v1beta1.AppService) *corev1ac.ServiceApplyConfiguration {
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
