package e2e_test

import (
	"testing"

	. "github.com/onsi/gomega"
)

// TestManagerRunsAsThreeHardenedReplicas runs first, by the order of files, because later tests restart the manager.
func TestManagerRunsAsThreeHardenedReplicas(t *testing.T) {
	env := newEnvironment(t)

	env.Expect(isAvailable(env.ctx, systemNamespace, managerName, managerReplicas)).To(Succeed())
	leader := env.leader()
	env.Expect(leader.Spec.Containers).To(HaveLen(1))
	for _, pod := range env.managers() {
		env.Expect(pod.Status.ContainerStatuses[0].RestartCount).To(BeZero(), pod.Name)
		content, err := clientset.CoreV1().Pods(systemNamespace).ProxyGet("http", pod.Name, "8081", "/readyz", nil).DoRaw(env.ctx)
		env.Expect(err).NotTo(HaveOccurred())
		env.Expect(string(content)).To(Equal("ok"))
	}
}
