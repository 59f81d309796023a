package workload

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// EmptyDir is the source of the volume.
func EmptyDir(given v1beta1.MCPServerEmptyDir) *corev1ac.EmptyDirVolumeSourceApplyConfiguration {
	source := corev1ac.EmptyDirVolumeSource()
	if given.SizeLimit != nil {
		source.WithSizeLimit(*given.SizeLimit)
	}
	if given.Medium != "" {
		source.WithMedium(corev1.StorageMedium(given.Medium))
	}
	return source
}
