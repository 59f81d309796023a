package mcpserver

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

const (
	sessionKeysVolume = v1beta1.MCPReservedPrefix + "session-keys"
	// sessionKeysPath is not below MCPReservedPath, where a read-only volume is mounted.
	sessionKeysPath = v1beta1.MCPReservedPath + "-session-keys"
	// podIPVariable has the address at which other pods reach the bridge or the proxy.
	podIPVariable = "FIXPOINT_POD_IP"
)

// withSessionRouting gives the container of the bridge, or that of the proxy, the session keys, its address and a port for
// other pods. The template does not depend on the keys: new ones are read while the container runs.
func withSessionRouting(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, server *v1beta1.MCPServer) {
	if !forwardsSessions(server) {
		return
	}
	pod.WithVolumes(corev1ac.Volume().WithName(sessionKeysVolume).WithSecret(corev1ac.SecretVolumeSource().
		WithSecretName(sessionKeysName(server)).WithDefaultMode(sessionKeysMode(server))))
	container.WithVolumeMounts(corev1ac.VolumeMount().WithName(sessionKeysVolume).WithMountPath(sessionKeysPath).WithReadOnly(true))
	container.WithEnv(corev1ac.EnvVar().WithName(podIPVariable).WithValueFrom(corev1ac.EnvVarSource().
		WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath("status.podIP"))))
	container.WithPorts(corev1ac.ContainerPort().WithName(peerPortName).WithContainerPort(peerPort(server)).WithProtocol(corev1.ProtocolTCP))
}

// sessionKeysMode is the mode of the files, which belong to root, and to the group of the volumes, if there is one. The
// user of the image is not known: without a group, it reads them as any user does. Only the container of the proxy mounts
// them, or with stdio that of the server, and all of its processes are of one user, unless each session has its own: then the
// bridge is root.
func sessionKeysMode(server *v1beta1.MCPServer) int32 {
	switch {
	case hasUserPerSession(server):
		return 0o400
	case server.Spec.PodSecurityContext != nil && server.Spec.PodSecurityContext.FSGroup != nil:
		return 0o440
	default:
		return 0o444
	}
}

// routingArguments are the arguments of the bridge and the proxy for spec.sessionRouting. The bridge keeps idle sessions while
// it drains, since their requests reach it through other pods; the proxy does as long as the server lives.
func routingArguments(server *v1beta1.MCPServer, drain time.Duration) []string {
	if !forwardsSessions(server) {
		return nil
	}
	arguments := []string{
		"--session-keys", sessionKeysPath, "--server-id", server.Namespace + "/" + server.Name,
		"--peer-listen", listenAddress(peerPort(server)), "--peer-ip", "$(" + podIPVariable + ")",
	}
	if isStdio(server) {
		arguments = append(arguments, "--drain-idle-timeout", drain.String())
	}
	return arguments
}

// peerPort is the port for the requests that other pods forward. The Service does not publish it.
func peerPort(server *v1beta1.MCPServer) int32 {
	const port = 9292
	if server.Spec.Port == port {
		return port + 1
	}
	return port
}

// admitPeers lets the pods of the server connect to each other, where a policy restricts connections.
func admitPeers(spec *networkingv1ac.NetworkPolicySpecApplyConfiguration, server *v1beta1.MCPServer) {
	if !forwardsSessions(server) {
		return
	}
	pods := func() *networkingv1ac.NetworkPolicyPeerApplyConfiguration {
		return networkingv1ac.NetworkPolicyPeer().WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(selectorOf(server)))
	}
	port := func() *networkingv1ac.NetworkPolicyPortApplyConfiguration {
		return networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromString(peerPortName))
	}
	if server.Spec.NetworkPolicy.Ingress != nil {
		spec.WithIngress(networkingv1ac.NetworkPolicyIngressRule().WithFrom(pods()).WithPorts(port()))
	}
	if server.Spec.NetworkPolicy.Egress != nil {
		spec.WithEgress(networkingv1ac.NetworkPolicyEgressRule().WithTo(pods()).WithPorts(port()))
	}
}
