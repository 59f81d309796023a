package workload

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// The schema campaign compares this with the API server's own default.
func TestPullPolicy(t *testing.T) {
	digest := "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for image, want := range map[string]corev1.PullPolicy{
		"shop":                                  corev1.PullAlways,
		"shop:latest":                           corev1.PullAlways,
		"registry.test:5000/team/shop":          corev1.PullAlways,
		"registry.test:5000/team/shop:latest":   corev1.PullAlways,
		"shop:latest" + digest:                  corev1.PullAlways,
		"shop:1":                                corev1.PullIfNotPresent,
		"registry.test:5000/team/shop:1":        corev1.PullIfNotPresent,
		"shop" + digest:                         corev1.PullIfNotPresent,
		"registry.test:5000/team/shop" + digest: corev1.PullIfNotPresent,
		"shop:1" + digest:                       corev1.PullIfNotPresent,
	} {
		t.Run(image, func(t *testing.T) { NewWithT(t).Expect(pullPolicy(image)).To(Equal(want)) })
	}
}

func TestDeclarePullPoliciesKeepsDeclaredPolicies(t *testing.T) {
	g := NewWithT(t)
	pod := corev1ac.PodSpec().
		WithInitContainers(corev1ac.Container().WithName("init").WithImage("init")).
		WithContainers(
			corev1ac.Container().WithName("app").WithImage("shop:1").WithImagePullPolicy(corev1.PullNever),
			corev1ac.Container().WithName("log").WithImage("log:1"),
			corev1ac.Container().WithName("none"))

	DeclarePullPolicies(pod)

	g.Expect(pod.InitContainers[0].ImagePullPolicy).To(HaveValue(Equal(corev1.PullAlways)))
	g.Expect(pod.Containers[0].ImagePullPolicy).To(HaveValue(Equal(corev1.PullNever)))
	g.Expect(pod.Containers[1].ImagePullPolicy).To(HaveValue(Equal(corev1.PullIfNotPresent)))
	g.Expect(pod.Containers[2].ImagePullPolicy).To(BeNil())
}
