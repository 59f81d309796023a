package plugin

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// argumentsVariable makes the test binary the plugin with these arguments.
const argumentsVariable = "FIXPOINT_PLUGIN_TEST_ARGUMENTS"

func TestMain(m *testing.M) {
	if arguments := os.Getenv(argumentsVariable); arguments != "" {
		os.Args = append(os.Args[:1], strings.Fields(arguments)...)
		Main()
	}
	os.Exit(m.Run())
}

func TestCtrlCEndsACommandThatReadsTheStandardInput(t *testing.T) {
	g := NewWithT(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), argumentsVariable+"=plan -f - --server http://127.0.0.1:1", "KUBECONFIG="+os.DevNull)
	in, err := cmd.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	// A pipe holds less, so the command has begun to read.
	_, err = in.Write([]byte(strings.Repeat("# more is to come\n", 1<<16)))
	g.Expect(err).NotTo(HaveOccurred())

	g.Eventually(func() <-chan struct{} {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		return ended
	}).WithTimeout(10 * time.Second).Should(BeClosed())

	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	g.Expect(ok).To(BeTrue())
	g.Expect(status.Signal()).To(Equal(syscall.SIGINT))
}
