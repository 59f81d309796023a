package mcpserver

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// withBridge adds the bridge to the unmodified image: an init container copies the program to a shared
// volume, and the container runs it instead of the command.
func withBridge(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, server *v1beta1.MCPServer, settings Settings, resources []string) {
	pod.WithVolumes(corev1ac.Volume().WithName(bridgeVolume).WithEmptyDir(corev1ac.EmptyDirVolumeSource()))
	shared := func() *corev1ac.VolumeMountApplyConfiguration {
		return corev1ac.VolumeMount().WithName(bridgeVolume).WithMountPath(v1beta1.MCPReservedPath)
	}
	install := corev1ac.Container().
		WithName(bridgeContainer).
		WithImage(settings.BridgeImage).
		WithCommand("/mcp-bridge", "install", bridgeProgram).
		WithSecurityContext(workload.RestrictedContainer().WithReadOnlyRootFilesystem(true)).
		WithVolumeMounts(shared())
	if needsCertificates(server) {
		install.WithCommand(certificatesPath)
	}
	if server.Spec.ImagePullPolicy == corev1.PullAlways {
		install.WithImagePullPolicy(corev1.PullAlways)
	}
	install.WithResources(installResources(server.Spec.Resources))
	pod.WithInitContainers(install)
	container.WithVolumeMounts(shared().WithReadOnly(true))
	container.WithPorts(corev1ac.ContainerPort().WithName(bridgePortName).WithContainerPort(bridgePort(server)).WithProtocol(corev1.ProtocolTCP))
	withSessionRouting(pod, container, server)
	container.Command = slices.Concat([]string{bridgeProgram}, bridgeArguments(server), authorizationArguments(server, resources), policyArguments(server), telemetryArguments(server), []string{"--"}, server.Spec.Command)
}

// installResources are those of the server, without devices. The init container runs before the server, so the pod
// requests no more than without it, and a ResourceQuota that requires limits of every container admits the pod. Other
// values could raise what the pod requests, or lower its limit of ephemeral storage.
func installResources(resources corev1.ResourceRequirements) *corev1ac.ResourceRequirementsApplyConfiguration {
	basic := func(list corev1.ResourceList) corev1.ResourceList {
		kept := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			if quantity, ok := list[name]; ok {
				kept[name] = quantity
			}
		}
		return kept
	}
	requests, limits := basic(resources.Requests), basic(resources.Limits)
	if len(requests)+len(limits) == 0 {
		return nil
	}
	configuration := corev1ac.ResourceRequirements()
	if len(requests) > 0 {
		configuration.WithRequests(requests)
	}
	if len(limits) > 0 {
		configuration.WithLimits(limits)
	}
	return configuration
}

func bridgeArguments(server *v1beta1.MCPServer) []string {
	arguments := []string{
		"serve", "--listen", listenAddress(server.Spec.Port), "--admin-listen", listenAddress(bridgePort(server)), "--path", unexpanded(pathOf(server)),
		"--allowed-host", strings.Join(allowedHosts(server), ","),
	}
	if limits := server.Spec.Bridge; limits != nil && len(limits.AllowedOrigins) > 0 {
		arguments = append(arguments, "--allowed-origin", strings.Join(slices.Sorted(slices.Values(limits.AllowedOrigins)), ","))
	}
	if limits := server.Spec.Bridge; limits != nil {
		arguments = append(arguments,
			"--max-sessions", strconv.Itoa(int(limits.MaxSessions)),
			"--idle-timeout", limits.IdleTimeout.Duration.String(),
			"--max-message-bytes", strconv.FormatInt(limits.MaxMessageBytes, 10))
		if limits.FirstSessionUser != nil {
			arguments = append(arguments, "--first-session-user", strconv.FormatInt(*limits.FirstSessionUser, 10))
		}
	}
	drain := drainTimeout(server)
	arguments = append(arguments, "--drain-timeout", drain.String())
	arguments = append(arguments, routingArguments(server, drain)...)
	if stop := drain / stopDivisor; stop < stopGrace {
		arguments = append(arguments, "--stop-grace", stop.String())
	}
	return arguments
}

// hasUserPerSession reports whether the bridge runs each session as a user of its own.
func hasUserPerSession(server *v1beta1.MCPServer) bool {
	return server.Spec.Bridge != nil && server.Spec.Bridge.FirstSessionUser != nil
}

func listenAddress(port int32) string { return ":" + strconv.Itoa(int(port)) }

// bridgePort is the port of the bridge's health and metrics. The Service does not publish it.
func bridgePort(server *v1beta1.MCPServer) int32 {
	const port = 9191
	if server.Spec.Port == port {
		return port + 1
	}
	return port
}

// allowedHosts are the host names under which clients reach the server. The bridge adds the form with the
// domain of the cluster, if it is another one.
func allowedHosts(server *v1beta1.MCPServer) []string {
	inNamespace := server.Name + "." + server.Namespace
	hosts := []string{server.Name, inNamespace, inNamespace + ".svc", inNamespace + ".svc.cluster.local"}
	var others []string
	if server.Spec.Ingress != nil {
		others = append(others, server.Spec.Ingress.Host)
	}
	if route := server.Spec.HTTPRoute; route != nil {
		others = append(others, route.Hostnames...)
		if len(route.Hostnames) == 0 {
			// Those of the listeners of the Gateways, which may change and have wildcards.
			others = append(others, anyHost)
		}
	}
	if server.Spec.Bridge != nil {
		others = append(others, server.Spec.Bridge.AllowedHosts...)
	}
	return append(hosts, slices.Compact(slices.Sorted(slices.Values(others)))...)
}

// anyHost allows all hosts.
const anyHost = "*"

const (
	// responseGrace is the part of the grace period that is left for sending the last responses.
	responseGrace = 2 * time.Second
	// stopGrace is the bridge's default time for a child to exit after its standard input is closed, and
	// again after SIGTERM. It is at most the drain timeout divided by stopDivisor.
	stopGrace   = 2 * time.Second
	stopDivisor = 4
)

// drainTimeout is how long running sessions may continue after SIGTERM. The kubelet sends SIGTERM after
// drainSeconds of the grace period, and SIGKILL at its end.
func drainTimeout(server *v1beta1.MCPServer) time.Duration {
	left := time.Duration(server.Spec.TerminationGracePeriodSeconds-drainSeconds(server)) * time.Second
	if limits := server.Spec.Bridge; limits != nil && limits.DrainTimeout.Duration > 0 {
		return min(limits.DrainTimeout.Duration, left)
	}
	return left - min(responseGrace, left/stopDivisor)
}
