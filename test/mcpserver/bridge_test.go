package mcpserver_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// lastWords runs the bridge as the pod of an MCPServer would, with a command that does not work, and
// returns its exit code and termination message.
func lastWords(w *fixture, command ...string) (int32, string) {
	w.T.Helper()
	folder := w.T.TempDir()
	program, message := filepath.Join(folder, "mcp-bridge"), filepath.Join(folder, "termination-log")
	build := exec.Command("go", "build", "-o", program, "./cmd/mcp-bridge")
	build.Dir = "../.."
	output, err := build.CombinedOutput()
	w.Expect(err).NotTo(HaveOccurred(), "%s", output)
	w.Expect(os.WriteFile(message, nil, 0o600)).To(Succeed())
	err = exec.Command(program, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--termination-log", message, "--"}, command...)...).Run()
	var exit *exec.ExitError
	w.Expect(errors.As(err, &exit)).To(BeTrue(), "%v", err)
	words, err := os.ReadFile(message)
	w.Expect(err).NotTo(HaveOccurred())
	return int32(exit.ExitCode()), string(words) //nolint:gosec // exit codes are small
}

// crash does what the kubelet does with a container that keeps ending.
func (w *fixture) crash(server string, code int32, message string) {
	w.T.Helper()
	var pods corev1.PodList
	w.Eventually(func() []corev1.Pod {
		w.Expect(api.List(w.Ctx, &pods, client.InNamespace(w.Namespace), client.MatchingLabels{"app.kubernetes.io/name": server})).To(Succeed())
		return pods.Items
	}).ShouldNot(BeEmpty())
	w.Eventually(func() error {
		pod := &corev1.Pod{}
		if err := api.Get(w.Ctx, client.ObjectKeyFromObject(&pods.Items[0]), pod); err != nil {
			return err
		}
		if len(pod.Status.ContainerStatuses) == 0 {
			return errors.New("the node has not begun with the pod")
		}
		status := &pod.Status.ContainerStatuses[0]
		status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container"}}
		status.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message}}
		status.RestartCount = 2
		return w.As("kubelet").Status().Update(w.Ctx, pod)
	}).Should(Succeed())
}

func TestReportsCommandThatCannotStart(t *testing.T) {
	w := newManagedFixture(t)
	code, words := lastWords(w, "serve-tools", "--all")
	w.Expect(code).To(BeEquivalentTo(127))
	w.create("tools", unasked, withImage(cluster.ImageNeverReady), func(s *v1beta1.MCPServerSpec) {
		s.Transport, s.Command, s.Args = v1beta1.TransportStdio, []string{"serve-tools"}, []string{"--all"}
	})

	w.crash("tools", code, words)

	server := w.shows("tools", "DeploymentReady", "False BridgeCommandFailed", And(
		HavePrefix(`container server crashes with exit code 127: mcp-bridge: the command "serve-tools" was not found in the image`),
		HaveSuffix("; correct spec.command, spec.args or spec.image")))
	w.Expect(conditions(server)).To(HaveKeyWithValue("Ready", "False BridgeCommandFailed"))
	w.Eventually(func() []string { return w.events("tools") }).Should(ContainElement(HavePrefix("Warning BridgeCommandFailed Ready is False: Deployment: ")))

	// A program that runs and is no server says why it ended.
	code, words = lastWords(w, "ls", "/no/such/folder")
	w.Expect(code).To(BeEquivalentTo(3))
	w.crash("tools", code, words)
	w.shows("tools", "DeploymentReady", "False BridgeCommandFailed", And(ContainSubstring("with exit code 3: "), ContainSubstring("/no/such/folder")))
}
