package mcpserver

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// service is the Service in front of the pods.
var service = phases.Child[*scope, *corev1ac.ServiceApplyConfiguration, *corev1.Service]{
	Name:    "Service",
	Desired: desired(desiredService),
	Ready:   done[*corev1.Service]("the Service leads to the pods"),
	// Who gives our port another number has made another one, of a name that only one may have.
	UniqueFields: []string{"spec.ports.name"},
}

func desiredService(server *v1alpha1.MCPServer) *corev1ac.ServiceApplyConfiguration {
	spec := corev1ac.ServiceSpec().
		WithSelector(selectorOf(server)).
		WithPorts(corev1ac.ServicePort().
			WithName(portName).
			WithProtocol(corev1.ProtocolTCP).
			WithPort(server.Spec.Port).
			WithTargetPort(intstr.FromString(portName)))
	if sticks(server) {
		spec.WithSessionAffinity(corev1.ServiceAffinityClientIP).
			WithSessionAffinityConfig(corev1ac.SessionAffinityConfig().WithClientIP(
				corev1ac.ClientIPConfig().WithTimeoutSeconds(server.Spec.SessionAffinityTimeoutSeconds)))
	} else {
		spec.WithSessionAffinity(corev1.ServiceAffinityNone)
	}
	return corev1ac.Service(server.Name, server.Namespace).WithLabels(labelsOf(server)).WithSpec(spec)
}

// sticks says whether a client is led to the same pod again. A session lives in one pod, and which
// spec version a client speaks, and so whether it has sessions, is not known before it comes.
func sticks(server *v1alpha1.MCPServer) bool {
	return server.Spec.SessionAffinity != v1alpha1.SessionAffinityNone
}
