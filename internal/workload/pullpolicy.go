package workload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// DeclarePullPolicies sets the API server's default on each container that declares no pull policy.
// The API server itself defaults the policy only on creation: when the image later changes, say from
// latest to a version, the policy would stay that of the previous image.
func DeclarePullPolicies(pod *corev1ac.PodSpecApplyConfiguration) {
	for _, containers := range [][]corev1ac.ContainerApplyConfiguration{pod.InitContainers, pod.Containers} {
		for i := range containers {
			if container := &containers[i]; container.ImagePullPolicy == nil && container.Image != nil {
				container.WithImagePullPolicy(pullPolicy(*container.Image))
			}
		}
	}
}

// pullPolicy is the API server's default for an image: Always for the tag latest, else IfNotPresent.
func pullPolicy(image string) corev1.PullPolicy {
	name, _, hasDigest := strings.Cut(image, "@")
	tag := ""
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		tag = name[colon+1:]
	}
	if tag == "latest" || tag == "" && !hasDigest {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
