package mcpserver

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// podTemplate is the template of the pods. Any change of it replaces the pods, so it must contain only
// what concerns them. The resources are those of [resourcesOf].
func podTemplate(server *v1beta1.MCPServer, settings Settings, dependencies string, resources ...string) *corev1ac.PodTemplateSpecApplyConfiguration {
	container := serverContainer(server)
	pod := corev1ac.PodSpec().
		WithContainers(container).
		WithTerminationGracePeriodSeconds(server.Spec.TerminationGracePeriodSeconds).
		WithAutomountServiceAccountToken(false)
	withSecurity(pod, container, server)
	withAccount(pod, server)
	for _, secret := range server.Spec.ImagePullSecrets {
		pod.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(secret.Name))
	}
	withScheduling(pod, server)
	withFiles(pod, container, server)
	withMounts(pod, container, server)
	if isStdio(server) {
		withBridge(pod, container, server, settings, resources)
	}
	withProxy(pod, container, server, settings, resources)
	pod.Containers[0] = *container

	template := corev1ac.PodTemplateSpec().WithLabels(labelsOf(server)).WithSpec(pod)
	if len(server.Spec.Files) > 0 {
		template.WithAnnotations(map[string]string{filesHashAnnotation: filesHash(server)})
	}
	if dependencies != "" {
		template.WithAnnotations(map[string]string{dependenciesHashAnnotation: dependencies})
	}
	return template
}

func serverContainer(server *v1beta1.MCPServer) *corev1ac.ContainerApplyConfiguration {
	spec := server.Spec
	container := corev1ac.Container().
		WithName(containerName).
		WithImage(spec.Image).
		WithCommand(spec.Command...).
		WithArgs(spec.Args...).
		WithPorts(corev1ac.ContainerPort().WithName(containerPortName(server)).WithContainerPort(spec.Port).WithProtocol(corev1.ProtocolTCP))
	if spec.ImagePullPolicy != "" {
		container.WithImagePullPolicy(spec.ImagePullPolicy)
	}
	for _, variable := range sortedEnv(spec.Env) {
		container.WithEnv(workload.MustConvert(variable, corev1ac.EnvVar()))
	}
	for i := range spec.EnvFrom {
		container.WithEnvFrom(workload.MustConvert(spec.EnvFrom[i], corev1ac.EnvFromSource()))
	}
	if len(spec.Resources.Requests)+len(spec.Resources.Limits)+len(spec.Resources.Claims) > 0 {
		container.WithResources(workload.MustConvert(spec.Resources, corev1ac.ResourceRequirements()))
	}
	withProbes(container, server)
	if drain := drainSeconds(server); drain > 0 {
		// The kubelet sleeps, because the image may not contain a sleep program.
		container.WithLifecycle(corev1ac.Lifecycle().WithPreStop(
			corev1ac.LifecycleHandler().WithSleep(corev1ac.SleepAction().WithSeconds(drain))))
	}
	return container
}

// sortedEnv sorts variables by name, so that reordering them in the spec replaces no pods. If a value
// contains $(NAME), which refers only to earlier variables, the order is significant and is kept.
func sortedEnv(variables []corev1.EnvVar) []corev1.EnvVar {
	if slices.ContainsFunc(variables, func(v corev1.EnvVar) bool { return strings.Contains(v.Value, "$(") }) {
		return variables
	}
	return slices.SortedStableFunc(slices.Values(variables), func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
}

func drainSeconds(server *v1beta1.MCPServer) int64 { return ptr.Deref(server.Spec.DrainSeconds, 0) }

// withSecurity satisfies the restricted Pod Security Standard; the spec overrides it field by field.
// See https://kubernetes.io/docs/concepts/security/pod-security-standards/.
func withSecurity(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, server *v1beta1.MCPServer) {
	pod.WithSecurityContext(workload.MustConvert(server.Spec.PodSecurityContext, workload.RestrictedPod()))

	containerContext := workload.RestrictedContainer()
	if hasUserPerSession(server) {
		containerContext.WithRunAsUser(0).WithRunAsNonRoot(false).Capabilities.WithAdd("CHOWN", "KILL", "SETGID", "SETUID")
	}
	container.WithSecurityContext(workload.MustConvert(server.Spec.ContainerSecurityContext, containerContext))
}

func withAccount(pod *corev1ac.PodSpecApplyConfiguration, server *v1beta1.MCPServer) {
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
		// The API server copies the name into the deprecated field, which would restore the name after
		// its removal from the spec. So both fields are managed.
		pod.WithServiceAccountName(name).WithDeprecatedServiceAccount(name)
	}
}

func withScheduling(pod *corev1ac.PodSpecApplyConfiguration, server *v1beta1.MCPServer) {
	scheduling := server.Spec.Scheduling
	if scheduling == nil {
		return
	}
	pod.WithNodeSelector(scheduling.NodeSelector)
	if scheduling.PriorityClassName != "" {
		pod.WithPriorityClassName(scheduling.PriorityClassName)
	}
	for i := range scheduling.Tolerations {
		pod.WithTolerations(workload.MustConvert(scheduling.Tolerations[i], corev1ac.Toleration()))
	}
	for i := range scheduling.TopologySpreadConstraints {
		constraint := workload.MustConvert(scheduling.TopologySpreadConstraints[i], corev1ac.TopologySpreadConstraint())
		if constraint.LabelSelector == nil {
			// A constraint without a selector matches no pods.
			constraint.WithLabelSelector(metav1ac.LabelSelector().WithMatchLabels(selectorOf(server)))
		}
		pod.WithTopologySpreadConstraints(constraint)
	}
	if scheduling.Affinity != nil {
		pod.WithAffinity(workload.MustConvert(scheduling.Affinity, corev1ac.Affinity()))
	}
}

// withFiles mounts each file at its path, without hiding other files of the directory.
func withFiles(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, server *v1beta1.MCPServer) {
	if len(server.Spec.Files) == 0 {
		return
	}
	pod.WithVolumes(corev1ac.Volume().WithName(filesVolume).
		WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName(server.Name)))
	for _, file := range filesInOrder(server) {
		container.WithVolumeMounts(corev1ac.VolumeMount().WithName(filesVolume).
			WithMountPath(path.Clean(file.Path)).WithSubPath(fileKey(file)).WithReadOnly(true))
	}
}

// withMounts adds the mounts sorted by path, so that a directory precedes mounts below it.
func withMounts(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, server *v1beta1.MCPServer) {
	byPath := func(a, b v1beta1.MCPServerMount) int { return strings.Compare(a.MountPath, b.MountPath) }
	for _, mount := range slices.SortedFunc(slices.Values(server.Spec.Mounts), byPath) {
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

func volumeOf(mount v1beta1.MCPServerMount) *corev1ac.VolumeApplyConfiguration {
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
		return volume.WithEmptyDir(workload.EmptyDir(ptr.Deref(mount.EmptyDir, v1beta1.MCPServerEmptyDir{})))
	}
}

func itemsOf(items []v1beta1.MCPServerMountedKey) []*corev1ac.KeyToPathApplyConfiguration {
	paths := make([]*corev1ac.KeyToPathApplyConfiguration, 0, len(items))
	byPath := func(a, b v1beta1.MCPServerMountedKey) int { return strings.Compare(a.Path, b.Path) }
	for _, item := range slices.SortedStableFunc(slices.Values(items), byPath) {
		paths = append(paths, corev1ac.KeyToPath().WithKey(item.Key).WithPath(item.Path))
	}
	return paths
}

// jsonOf converts an apply configuration to a JSON object for merging.
func jsonOf(v any) (map[string]any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	tree := map[string]any{}
	return tree, utiljson.Unmarshal(raw, &tree)
}
