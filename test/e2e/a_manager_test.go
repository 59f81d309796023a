package e2e_test

import (
	"testing"

	. "github.com/onsi/gomega"
)

// The first test by the order of files, since what comes after it harms the manager.
func TestManagerRunsAsThreeHardenedReplicas(t *testing.T) {
	w := newWorld(t)

	w.Expect(isAvailable(w.ctx, systemNamespace, managerName, managerReplicas)).To(Succeed())
	leader := w.leader()
	w.Expect(leader.Spec.Containers).To(HaveLen(1))
	for _, pod := range w.managers() {
		w.Expect(pod.Status.ContainerStatuses[0].RestartCount).To(BeZero(), pod.Name)
		content, err := clientset.CoreV1().Pods(systemNamespace).ProxyGet("http", pod.Name, "8081", "/readyz", nil).DoRaw(w.ctx)
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(string(content)).To(Equal("ok"))
	}
}
