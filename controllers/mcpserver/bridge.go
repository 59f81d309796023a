package mcpserver

import (
	"slices"
	"strconv"
	"time"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

// withBridge puts the bridge into the user's unmodified image: an init container copies the program
// to a volume that both share, and the container starts it in place of the command.
func withBridge(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, server *v1alpha1.MCPServer, settings Settings) {
	pod.WithVolumes(corev1ac.Volume().WithName(bridgeVolume).WithEmptyDir(corev1ac.EmptyDirVolumeSource()))
	shared := func() *corev1ac.VolumeMountApplyConfiguration {
		return corev1ac.VolumeMount().WithName(bridgeVolume).WithMountPath(v1alpha1.MCPReservedPath)
	}
	pod.WithInitContainers(corev1ac.Container().
		WithName(bridgeContainer).
		WithImage(settings.BridgeImage).
		WithCommand("/mcp-bridge", "install", bridgeProgram).
		WithSecurityContext(restricted()).
		WithVolumeMounts(shared()))
	container.WithVolumeMounts(shared().WithReadOnly(true))
	container.Command = slices.Concat([]string{bridgeProgram}, bridgeArguments(server), []string{"--"}, server.Spec.Command)
}

func bridgeArguments(server *v1alpha1.MCPServer) []string {
	arguments := []string{"serve", "--listen", ":" + strconv.Itoa(int(server.Spec.Port)), "--path", pathOf(server)}
	if limits := server.Spec.Bridge; limits != nil {
		arguments = append(arguments,
			"--max-sessions", strconv.Itoa(int(limits.MaxSessions)),
			"--idle-timeout", limits.IdleTimeout.Duration.String(),
			"--max-message-bytes", strconv.FormatInt(limits.MaxMessageBytes, 10))
	}
	drain := drainTimeout(server)
	arguments = append(arguments, "--drain-timeout", drain.String())
	if stop := drain / stopPart; stop < stopGrace {
		arguments = append(arguments, "--stop-grace", stop.String())
	}
	return arguments
}

const (
	// answersOut is left of the grace at the end, for the answers that are on their way out.
	answersOut = 2 * time.Second
	// stopGrace is how long a child has by default to end after its standard input was closed, and again
	// after SIGTERM; stopPart is by how much of the drain the two may not be more, each.
	stopGrace = 2 * time.Second
	stopPart  = 4
)

// drainTimeout is how long running sessions may go on. The kubelet kills the pod when the grace is
// over, of which drainSeconds have passed before the bridge is told: what is left is all there is.
func drainTimeout(server *v1alpha1.MCPServer) time.Duration {
	left := time.Duration(server.Spec.TerminationGracePeriodSeconds-drainSeconds(server)) * time.Second
	if limits := server.Spec.Bridge; limits != nil && limits.DrainTimeout.Duration > 0 {
		return min(limits.DrainTimeout.Duration, left)
	}
	return left - min(answersOut, left/stopPart)
}
