package mcpserver

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// podTemplate is what the pods are made from. What is in it decides when they are replaced: nothing
// that does not concern them may be.
func podTemplate(server *v1alpha1.MCPServer, settings Settings, dependencies string) (*corev1ac.PodTemplateSpecApplyConfiguration, error) {
	container, err := serverContainer(server)
	if err != nil {
		return nil, err
	}
	pod := corev1ac.PodSpec().
		WithContainers(container).
		WithTerminationGracePeriodSeconds(server.Spec.TerminationGracePeriodSeconds).
		WithAutomountServiceAccountToken(false)
	if err := withSecurity(pod, container, server); err != nil {
		return nil, err
	}
	withAccount(pod, server)
	for _, secret := range server.Spec.ImagePullSecrets {
		pod.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(secret.Name))
	}
	if err := withScheduling(pod, server); err != nil {
		return nil, err
	}
	withFiles(pod, container, server)
	withMounts(pod, container, server)
	if isStdio(server) {
		withBridge(pod, container, server, settings)
	}
	pod.Containers[0] = *container

	template := corev1ac.PodTemplateSpec().WithLabels(labelsOf(server)).WithSpec(pod)
	if len(server.Spec.Files) > 0 {
		template.WithAnnotations(map[string]string{filesHashAnnotation: filesHash(server)})
	}
	if dependencies != "" {
		template.WithAnnotations(map[string]string{dependenciesHashAnnotation: dependencies})
	}
	return template, nil
}

func serverContainer(server *v1alpha1.MCPServer) (*corev1ac.ContainerApplyConfiguration, error) {
	spec := server.Spec
	container := corev1ac.Container().
		WithName(containerName).
		WithImage(spec.Image).
		WithPorts(corev1ac.ContainerPort().WithName(portName).WithContainerPort(spec.Port).WithProtocol(corev1.ProtocolTCP))
	if spec.ImagePullPolicy != "" {
		container.WithImagePullPolicy(spec.ImagePullPolicy)
	}
	if len(spec.Command) > 0 {
		container.WithCommand(spec.Command...)
	}
	if len(spec.Args) > 0 {
		container.WithArgs(spec.Args...)
	}
	for i := range spec.Env {
		env := corev1ac.EnvVar()
		if err := workload.Convert(spec.Env[i], env); err != nil {
			return nil, fmt.Errorf("reading spec.env[%d]: %w", i, err)
		}
		container.WithEnv(env)
	}
	for i := range spec.EnvFrom {
		source := corev1ac.EnvFromSource()
		if err := workload.Convert(spec.EnvFrom[i], source); err != nil {
			return nil, fmt.Errorf("reading spec.envFrom[%d]: %w", i, err)
		}
		container.WithEnvFrom(source)
	}
	if len(spec.Resources.Requests)+len(spec.Resources.Limits)+len(spec.Resources.Claims) > 0 {
		resources := corev1ac.ResourceRequirements()
		if err := workload.Convert(spec.Resources, resources); err != nil {
			return nil, fmt.Errorf("reading spec.resources: %w", err)
		}
		container.WithResources(resources)
	}
	withProbes(container, server)
	if drain := drainSeconds(server); drain > 0 {
		// The kubelet waits, and not a program that the image may not have.
		container.WithLifecycle(corev1ac.Lifecycle().WithPreStop(
			corev1ac.LifecycleHandler().WithSleep(corev1ac.SleepAction().WithSeconds(drain))))
	}
	return container, nil
}

func drainSeconds(server *v1alpha1.MCPServer) int64 {
	if server.Spec.DrainSeconds == nil {
		return 0
	}
	return *server.Spec.DrainSeconds
}

// withSecurity satisfies the restricted Pod Security Standard, and lays over it what the spec says.
// See https://kubernetes.io/docs/concepts/security/pod-security-standards/.
func withSecurity(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, server *v1alpha1.MCPServer) error {
	podContext := corev1ac.PodSecurityContext().
		WithRunAsNonRoot(true).
		WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))
	if given := server.Spec.PodSecurityContext; given != nil {
		if err := workload.Convert(given, podContext); err != nil {
			return fmt.Errorf("reading spec.podSecurityContext: %w", err)
		}
	}
	pod.WithSecurityContext(podContext)

	containerContext := restricted()
	if given := server.Spec.ContainerSecurityContext; given != nil {
		if err := workload.Convert(given, containerContext); err != nil {
			return fmt.Errorf("reading spec.containerSecurityContext: %w", err)
		}
	}
	container.WithSecurityContext(containerContext)
	return nil
}

func restricted() *corev1ac.SecurityContextApplyConfiguration {
	return corev1ac.SecurityContext().
		WithAllowPrivilegeEscalation(false).
		WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))
}

func withAccount(pod *corev1ac.PodSpecApplyConfiguration, server *v1alpha1.MCPServer) {
	account := server.Spec.ServiceAccount
	if account == nil {
		return
	}
	pod.WithAutomountServiceAccountToken(account.AutomountToken)
	name := account.Name
	if account.Create {
		name = server.Name
	}
	if name != "" {
		// The API server copies the name into the deprecated field, from which the name would come
		// back when it is taken out of the spec: so both are ours.
		pod.WithServiceAccountName(name).WithDeprecatedServiceAccount(name)
	}
}

func withScheduling(pod *corev1ac.PodSpecApplyConfiguration, server *v1alpha1.MCPServer) error {
	scheduling := server.Spec.Scheduling
	if scheduling == nil {
		return nil
	}
	if len(scheduling.NodeSelector) > 0 {
		pod.WithNodeSelector(scheduling.NodeSelector)
	}
	if scheduling.PriorityClassName != "" {
		pod.WithPriorityClassName(scheduling.PriorityClassName)
	}
	for i := range scheduling.Tolerations {
		toleration := corev1ac.Toleration()
		if err := workload.Convert(scheduling.Tolerations[i], toleration); err != nil {
			return fmt.Errorf("reading spec.scheduling.tolerations[%d]: %w", i, err)
		}
		pod.WithTolerations(toleration)
	}
	for i := range scheduling.TopologySpreadConstraints {
		constraint := corev1ac.TopologySpreadConstraint()
		if err := workload.Convert(scheduling.TopologySpreadConstraints[i], constraint); err != nil {
			return fmt.Errorf("reading spec.scheduling.topologySpreadConstraints[%d]: %w", i, err)
		}
		if constraint.LabelSelector == nil {
			// Without a selector it would spread nothing.
			constraint.WithLabelSelector(metav1ac.LabelSelector().WithMatchLabels(selectorOf(server)))
		}
		pod.WithTopologySpreadConstraints(constraint)
	}
	if scheduling.Affinity != nil {
		affinity := corev1ac.Affinity()
		if err := workload.Convert(scheduling.Affinity, affinity); err != nil {
			return fmt.Errorf("reading spec.scheduling.affinity: %w", err)
		}
		pod.WithAffinity(affinity)
	}
	return nil
}

// withFiles mounts each file at its path, and leaves what else the image has in its folder.
func withFiles(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, server *v1alpha1.MCPServer) {
	if len(server.Spec.Files) == 0 {
		return
	}
	pod.WithVolumes(corev1ac.Volume().WithName(filesVolume).
		WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName(server.Name)))
	for _, file := range server.Spec.Files {
		container.WithVolumeMounts(corev1ac.VolumeMount().WithName(filesVolume).
			WithMountPath(path.Clean(file.Path)).WithSubPath(fileKey(file)).WithReadOnly(true))
	}
}

func withMounts(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, server *v1alpha1.MCPServer) {
	for _, mount := range server.Spec.Mounts {
		pod.WithVolumes(volumeOf(mount))
		volumeMount := corev1ac.VolumeMount().WithName(mount.Name).WithMountPath(mount.MountPath)
		if mount.ReadOnly {
			volumeMount.WithReadOnly(true)
		}
		if mount.SubPath != "" {
			volumeMount.WithSubPath(mount.SubPath)
		}
		container.WithVolumeMounts(volumeMount)
	}
}

func volumeOf(mount v1alpha1.MCPServerMount) *corev1ac.VolumeApplyConfiguration {
	volume := corev1ac.Volume().WithName(mount.Name)
	switch {
	case mount.ConfigMap != nil:
		return volume.WithConfigMap(corev1ac.ConfigMapVolumeSource().
			WithName(mount.ConfigMap.Name).WithOptional(mount.ConfigMap.Optional).WithItems(itemsOf(mount.ConfigMap.Items)...))
	case mount.Secret != nil:
		return volume.WithSecret(corev1ac.SecretVolumeSource().
			WithSecretName(mount.Secret.Name).WithOptional(mount.Secret.Optional).WithItems(itemsOf(mount.Secret.Items)...))
	case mount.PersistentVolumeClaim != nil:
		return volume.WithPersistentVolumeClaim(corev1ac.PersistentVolumeClaimVolumeSource().WithClaimName(mount.PersistentVolumeClaim.ClaimName))
	default:
		return volume.WithEmptyDir(emptyDir(mount.EmptyDir))
	}
}

func emptyDir(given *v1alpha1.MCPServerEmptyDir) *corev1ac.EmptyDirVolumeSourceApplyConfiguration {
	source := corev1ac.EmptyDirVolumeSource()
	if given == nil {
		return source
	}
	if given.SizeLimit != nil {
		source.WithSizeLimit(*given.SizeLimit)
	}
	if given.Medium != "" {
		source.WithMedium(corev1.StorageMedium(given.Medium))
	}
	return source
}

func itemsOf(items []v1alpha1.MCPServerMountedKey) []*corev1ac.KeyToPathApplyConfiguration {
	paths := make([]*corev1ac.KeyToPathApplyConfiguration, 0, len(items))
	for _, item := range items {
		paths = append(paths, corev1ac.KeyToPath().WithKey(item.Key).WithPath(item.Path))
	}
	return paths
}

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
			"--max-message-bytes", strconv.FormatInt(limits.MaxMessageBytes, 10),
			"--drain-timeout", limits.DrainTimeout.Duration.String())
	}
	return arguments
}

// Timings of the default probes.
const (
	startupPeriod, startupFailures = 2, 60
	probePeriod, probeFailures     = 10, 3
	probeTimeout                   = 2
)

// withProbes sets what the kubelet asks. By default that is whether somebody listens on the port:
// what the protocol's path answers to a stranger differs from server to server. The bridge has
// endpoints of its own. Liveness is not asked by default: a server that is busy is not dead, and
// killing it ends its sessions.
func withProbes(container *corev1ac.ContainerApplyConfiguration, server *v1alpha1.MCPServer) {
	given := server.Spec.Probes
	if given == nil {
		given = &v1alpha1.MCPServerProbes{}
	}
	listens := corev1ac.Probe().WithTCPSocket(corev1ac.TCPSocketAction().WithPort(intstr.FromString(portName)))
	ready, alive := listens, (*corev1ac.ProbeApplyConfiguration)(nil)
	if isStdio(server) {
		ready, alive = httpProbe("/readyz", intstr.FromString(portName)), httpProbe("/healthz", intstr.FromString(portName))
	}
	if probe := probeOf(given.Startup, copyProbe(ready), startupPeriod, startupFailures); probe != nil {
		container.WithStartupProbe(probe)
	}
	if probe := probeOf(given.Readiness, copyProbe(ready), probePeriod, probeFailures); probe != nil {
		container.WithReadinessProbe(probe)
	}
	if probe := probeOf(given.Liveness, alive, probePeriod, probeFailures); probe != nil {
		container.WithLivenessProbe(probe)
	}
}

func copyProbe(p *corev1ac.ProbeApplyConfiguration) *corev1ac.ProbeApplyConfiguration {
	clone := *p
	return &clone
}

func httpProbe(path string, port intstr.IntOrString) *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().WithHTTPGet(corev1ac.HTTPGetAction().WithPath(path).WithPort(port))
}

// probeOf lays what the spec says over the default; nil is no probe.
func probeOf(given *v1alpha1.MCPServerProbe, probe *corev1ac.ProbeApplyConfiguration, period, failures int32) *corev1ac.ProbeApplyConfiguration {
	if given == nil {
		given = &v1alpha1.MCPServerProbe{}
	}
	port := intstr.FromString(portName)
	if given.Port != nil {
		port = intstr.FromInt32(*given.Port)
	}
	switch given.Type {
	case v1alpha1.ProbeOff:
		return nil
	case v1alpha1.ProbeHTTP:
		probe = httpProbe(given.Path, port)
	case v1alpha1.ProbeTCP:
		probe = corev1ac.Probe().WithTCPSocket(corev1ac.TCPSocketAction().WithPort(port))
	}
	if probe == nil {
		return nil
	}
	return probe.
		WithInitialDelaySeconds(or(given.InitialDelaySeconds, 0)).
		WithPeriodSeconds(or(given.PeriodSeconds, period)).
		WithTimeoutSeconds(or(given.TimeoutSeconds, probeTimeout)).
		WithFailureThreshold(or(given.FailureThreshold, failures))
}

func or(value *int32, otherwise int32) int32 {
	if value == nil {
		return otherwise
	}
	return *value
}

// jsonOf is the tree of a configuration, for merging.
func jsonOf(v any) (map[string]any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	tree := map[string]any{}
	return tree, utiljson.Unmarshal(raw, &tree)
}
