package mcpserver

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// service is the Service in front of the pods.
var service = phases.Child[*scope, *corev1ac.ServiceApplyConfiguration, *corev1.Service]{
	Name:    "Service",
	Desired: desired(desiredService),
	// A field manager that changes the number of the port adds a second port of the same name, which the
	// API server rejects beside the declared one.
	UniqueFields: []string{"spec.ports.name"},
}

func desiredService(server *v1beta1.MCPServer) *corev1ac.ServiceApplyConfiguration {
	spec := corev1ac.ServiceSpec().
		WithSelector(selectorOf(server)).
		WithPorts(corev1ac.ServicePort().
			WithName(portName).
			WithProtocol(corev1.ProtocolTCP).
			WithPort(server.Spec.Port).
			WithTargetPort(intstr.FromString(portName)))
	if hasAffinity(server) {
		spec.WithSessionAffinity(corev1.ServiceAffinityClientIP).
			WithSessionAffinityConfig(corev1ac.SessionAffinityConfig().WithClientIP(
				corev1ac.ClientIPConfig().WithTimeoutSeconds(server.Spec.SessionAffinityTimeoutSeconds)))
	} else {
		spec.WithSessionAffinity(corev1.ServiceAffinityNone)
	}
	return corev1ac.Service(server.Name, server.Namespace).WithLabels(labelsOf(server)).WithSpec(spec)
}

// hasAffinity reports whether requests of a client go to the same pod. A session lives in one pod, and
// whether a client uses sessions is not known in advance.
func hasAffinity(server *v1beta1.MCPServer) bool {
	return server.Spec.SessionAffinity != v1beta1.SessionAffinityNone
}
