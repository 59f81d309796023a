package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/node"
)

// outside is the group of processes that have no route to pods.
const outside = 64000

// TestNodeManagerOutsideOfTheCluster runs the manager as make run-current does, in place of the deployed one: as a
// process with a kubeconfig, and with no route to pods.
func TestNodeManagerOutsideOfTheCluster(t *testing.T) {
	env := newEnvironment(t)
	program := filepath.Join(t.TempDir(), "manager")
	env.Expect(node.GoBuild(env.ctx, "../..", program, nil, "-ldflags", "-s -w", "./cmd/manager")).To(Succeed())
	restore, err := local.Separate(outside)
	env.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(restore()).To(Succeed()) })
	env.withoutManager()

	// Given a server that requires a token
	const token = "open sesame"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: env.namespace, Name: "token"}, StringData: map[string]string{"token": token}}
	env.Expect(api.Create(env.ctx, secret)).To(Succeed())
	server := env.streamable("tools", 1)
	server.Spec.Env = []corev1.EnvVar{{Name: "REQUIRED_TOKEN", Value: token}}
	server.Spec.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: secret.Name}
	server.Spec.Protocol.Interval = metav1.Duration{Duration: probeInterval}
	env.Expect(api.Create(env.ctx, server)).To(Succeed())

	// When the user of the kubeconfig has only the permissions of the deployed manager
	stop := env.runOutside(program, managerUser)
	env.Eventually(func(g Gomega) {
		g.Expect(api.Get(env.ctx, env.key("tools"), server)).To(Succeed())
		condition := conditionOf(server, v1beta1.ConditionProtocolReady)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Reason).To(Equal(v1beta1.ReasonProtocolFailing))
		g.Expect(condition.Message).To(Equal("MCP handshake failed: the API server does not forward the connection to the pod: Forbidden; the manager runs outside of the cluster, " +
			"so its user needs permission to list pods, and to get and create pods/portforward; check with kubectl port-forward"))
	}).Should(Succeed())
	stop()
	pods := env.livePods(podsOf(server))
	env.Expect(pods).To(HaveLen(1))
	connect := []string{"-c", "exec 3<>/dev/tcp/" + pods[0].Status.PodIP + "/8080"}
	env.Expect(exec.CommandContext(env.ctx, "bash", connect...).Run()).To(Succeed())
	env.Expect(env.outsideOfCluster("bash", connect...).Run()).NotTo(Succeed(), "the manager has no route to pods")

	// When it is an administrator
	stop = env.runOutside(program, "admin", "system:masters")
	ready(env, server)
	stop()
	env.Expect(conditionOf(server, v1beta1.ConditionProtocolReady).Reason).To(Equal(v1beta1.ReasonReady), "the token reached the server")
	env.Expect(server.Status.Server.Name).To(Equal("subject"))
}

// probeInterval is the minimum of spec.protocol.interval.
const probeInterval = 5 * time.Second

// withoutManager stops the deployed manager until the end of the test.
func (env *environment) withoutManager() {
	env.t.Helper()
	scale := func(replicas int) error {
		return kubectl(env.ctx, "", "-n", systemNamespace, "scale", "deployment", managerName, fmt.Sprintf("--replicas=%d", replicas))
	}
	env.t.Cleanup(func() {
		g := NewWithT(env.t)
		g.Expect(scale(managerReplicas)).To(Succeed())
		g.Eventually(func() error { return isAvailable(env.ctx, systemNamespace, managerName, managerReplicas) }, timeout, interval).Should(Succeed())
	})
	env.Expect(scale(0)).To(Succeed())
	env.Eventually(func() ([]corev1.Pod, error) {
		var pods corev1.PodList
		err := api.List(env.ctx, &pods, client.InNamespace(systemNamespace))
		return pods.Items, err
	}).Should(BeEmpty())
}

// runOutside starts the manager for the namespace, with the kubeconfig of a user.
func (env *environment) runOutside(program, user string, groups ...string) (stop func()) {
	env.t.Helper()
	kubeconfig, err := local.Cluster.Kubeconfig(user, groups...)
	env.Expect(err).NotTo(HaveOccurred())
	manager := env.outsideOfCluster(program, "--kubeconfig="+kubeconfig, "--namespaces="+env.namespace, "--controllers=mcpserver", "--health-probe-bind-address=0")
	manager.Stderr = os.Stderr
	env.Expect(manager.Start()).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- manager.Wait() }()
	env.t.Cleanup(func() { _ = manager.Process.Kill() })
	return func() {
		env.t.Helper()
		env.Expect(manager.Process.Signal(syscall.SIGTERM)).To(Succeed())
		env.Eventually(ended).Should(Receive(BeNil()))
	}
}

// outsideOfCluster is a program that has no route to pods.
func (env *environment) outsideOfCluster(program string, args ...string) *exec.Cmd {
	command := exec.CommandContext(env.ctx, program, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Gid: outside}}
	return command
}
