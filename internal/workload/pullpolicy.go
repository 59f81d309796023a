package workload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// DeclarePullPolicies gives each container that declares no pull policy the one that the API server
// would give it in a new pod. By itself the API server does so only once: when the image changes
// later, say from latest to a version, the policy would stay what it was for the image before.
func DeclarePullPolicies(pod *corev1ac.PodSpecApplyConfiguration) {
	for _, containers := range [][]corev1ac.ContainerApplyConfiguration{pod.InitContainers, pod.Containers} {
		for i := range containers {
			if container := &containers[i]; container.ImagePullPolicy == nil && container.Image != nil {
				container.WithImagePullPolicy(pullPolicy(*container.Image))
			}
		}
	}
}

// pullPolicy is the default for an image: what may be another one tomorrow is pulled each time.
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
