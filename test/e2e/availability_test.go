package e2e_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestManagerRunsAsThreeHardenedReplicas runs first, by the order of files, because later tests restart the manager.
func TestManagerRunsAsThreeHardenedReplicas(t *testing.T) {
	env := newEnvironment(t)

	env.Eventually(func() error { return isAvailable(env.ctx, systemNamespace, managerName, managerReplicas) }).Should(Succeed())
	leader := env.leader()
	env.Expect(leader.Spec.Containers).To(HaveLen(1))
	for _, pod := range env.managers() {
		env.verifyRestarts(pod, 0)
		env.Eventually(func() (string, error) { // a leader that loses its Lease restarts
			content, err := clientset.CoreV1().Pods(systemNamespace).ProxyGet("http", pod.Name, "8081", "/readyz", nil).DoRaw(env.ctx)
			return string(content), err
		}).Should(Equal("ok"))
	}
}

// verifyRestarts checks that a replica has not restarted, except because it lost the Lease: then it has to exit, and on a busy
// machine it can be unable to renew the Lease in time.
func (env *environment) verifyRestarts(pod corev1.Pod, before int32) {
	env.t.Helper()
	if pod.Status.ContainerStatuses[0].RestartCount == before {
		return
	}
	const lines = 5
	log, err := clientset.CoreV1().Pods(systemNamespace).GetLogs(pod.Name, &corev1.PodLogOptions{Previous: true, TailLines: ptr.To[int64](lines)}).DoRaw(env.ctx)
	env.Expect(err).NotTo(HaveOccurred())
	env.Expect(string(log)).To(Or(ContainSubstring("leader election lost"), ContainSubstring("another replica has acquired the Lease")), "%s has restarted", pod.Name)
}
