package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// The limits from the fault to the first write of the next leader.
const (
	afterLease = 5 * time.Second
	graceful   = 2 * time.Second
	// slack is added on busy machines. It is too short for a Lease that expired to count as a Lease that was released.
	slack = 8 * time.Second

	roundsVariable = "E2E_ROUNDS"
	defaultRounds  = 2
)

// fault affects the leader or a service that it needs.
type fault struct {
	name string
	// within is the limit; zero if the leader may stay.
	within time.Duration
	// inject injects the fault. It returns the start of the takeover and a function that ends the fault.
	inject func(env *environment, leader corev1.Pod) (at time.Time, end func())
}

var faults = []fault{
	{"killed", controllers.DefaultLeaseDuration + afterLease, killed},
	{"deleted", graceful, deleted},
	{"frozen", controllers.DefaultLeaseDuration + afterLease, frozen},
	{"cut off", controllers.DefaultLeaseDuration + afterLease, cutOff},
	// The containers must start as well.
	{"all killed", controllers.DefaultLeaseDuration + 2*afterLease, allKilled},
	{"API server restarted", 0, apiServerRestarted},
	{"cloud restarted", 0, cloudRestarted},
}

func managerContainer(pod corev1.Pod) string { return pod.Status.ContainerStatuses[0].ContainerID }

// killed kills the process, and then deletes the pod: restarts in place are delayed more and more.
func killed(env *environment, leader corev1.Pod) (time.Time, func()) {
	env.Expect(local.Signal(managerContainer(leader), syscall.SIGKILL)).To(Succeed())
	return time.Now(), func() { env.deletePod(leader) }
}

func deleted(env *environment, leader corev1.Pod) (time.Time, func()) {
	at := time.Now()
	env.Expect(api.Delete(env.ctx, &leader)).To(Succeed())
	return at, func() {}
}

// frozen stops the process until another replica leads, and then continues it.
func frozen(env *environment, leader corev1.Pod) (time.Time, func()) {
	container := managerContainer(leader)
	env.Expect(local.Signal(container, syscall.SIGSTOP)).To(Succeed())
	return time.Now(), func() {
		env.Expect(local.Signal(container, syscall.SIGCONT)).To(Succeed())
		env.waitForRestart(leader)
		env.deletePod(leader)
	}
}

// cutOff disconnects the leader from the API server until another replica leads.
func cutOff(env *environment, leader corev1.Pod) (time.Time, func()) {
	reconnect, err := local.CutOff(managerContainer(leader))
	env.Expect(err).NotTo(HaveOccurred())
	return time.Now(), func() {
		env.waitForRestart(leader)
		env.Expect(reconnect()).To(Succeed())
		env.deletePod(leader)
	}
}

func allKilled(env *environment, _ corev1.Pod) (time.Time, func()) {
	pods := env.waitForReplicas()
	for _, pod := range pods {
		env.Expect(local.Signal(managerContainer(pod), syscall.SIGKILL)).To(Succeed())
	}
	return time.Now(), func() {
		for _, pod := range pods {
			if name, _ := holder(); name != pod.Name {
				env.deletePod(pod)
			}
		}
	}
}

func apiServerRestarted(env *environment, _ corev1.Pod) (time.Time, func()) {
	env.Expect(local.Cluster.RestartPart(env.ctx, cluster.APIServer)).To(Succeed())
	return time.Now(), func() {}
}

func cloudRestarted(env *environment, _ corev1.Pod) (time.Time, func()) {
	pod := env.cloudPod()
	restarts := pod.Status.ContainerStatuses[0].RestartCount
	at := time.Now()
	env.Expect(local.Signal(managerContainer(pod), syscall.SIGTERM)).To(Succeed())
	env.Eventually(func(g Gomega) {
		g.Expect(api.Get(env.ctx, client.ObjectKeyFromObject(&pod), &pod)).To(Succeed())
		g.Expect(pod.Status.ContainerStatuses[0].RestartCount).To(Equal(restarts + 1))
		g.Expect(isPodReady(&pod)).To(BeTrue())
	}).Should(Succeed())
	return at, func() {}
}

// waitForReplicas waits until all replicas are ready, with synced caches.
func (env *environment) waitForReplicas() []corev1.Pod {
	env.t.Helper()
	var pods []corev1.Pod
	env.Eventually(func(g Gomega) {
		pods = env.managers()
		g.Expect(pods).To(HaveLen(managerReplicas))
		for i := range pods {
			g.Expect(isPodReady(&pods[i])).To(BeTrue(), pods[i].Name)
		}
	}).Should(Succeed())
	return pods
}

// waitForRestart waits until a leader that lost its Lease has exited.
func (env *environment) waitForRestart(leader corev1.Pod) {
	env.t.Helper()
	env.Eventually(func(g Gomega) {
		var pod corev1.Pod
		g.Expect(api.Get(env.ctx, client.ObjectKeyFromObject(&leader), &pod)).To(Succeed())
		g.Expect(pod.Status.ContainerStatuses[0].RestartCount).To(BeNumerically(">", leader.Status.ContainerStatuses[0].RestartCount))
	}).Should(Succeed())
}

// deletePod deletes a pod immediately, so that the next round has a fresh one.
func (env *environment) deletePod(pod corev1.Pod) {
	env.t.Helper()
	env.Expect(client.IgnoreNotFound(api.Delete(env.ctx, &pod, client.GracePeriodSeconds(0),
		client.Preconditions{UID: &pod.UID}))).To(Succeed())
}

func rounds(env *environment) int {
	given := os.Getenv(roundsVariable)
	if given == "" {
		return defaultRounds
	}
	n, err := strconv.Atoi(given)
	env.Expect(err).NotTo(HaveOccurred(), "%s is a number", roundsVariable)
	env.Expect(n).To(BeNumerically(">", 0), roundsVariable)
	return n
}

// TestNodeLeaderFaults checks that another replica takes over in time, that no two replicas write at once, and that all
// objects converge.
func TestNodeLeaderFaults(t *testing.T) {
	env := newEnvironment(t)
	history := env.watchLease()
	began := time.Now()
	mark, err := local.Cluster.Audit().Mark()
	env.Expect(err).NotTo(HaveOccurred())
	env.leader()
	traffic := env.startChurn(rand.Uint64())

	takeovers := map[string][]time.Duration{}
	for round := range rounds(env) {
		for _, f := range faults {
			env.waitForReplicas()
			takeover := env.injectFault(f, history)
			takeovers[f.name] = append(takeovers[f.name], takeover)
			progress(fmt.Sprintf("round %d: %s: the next write of a leader after %s", round+1, f.name, takeover.Round(10*time.Millisecond)))
		}
	}
	traffic.stop()
	traffic.waitConverged()

	acts := env.writes(mark, began)
	late := history.overlaps(acts)
	progress(summary(takeovers, len(acts), len(late)))
	env.Expect(late).To(BeEmpty(), "writes of a replica after its successor's first write, or without the Lease; the terms:\n%s", history)
}

// injectFault injects a fault and returns the time until a leader writes again. If the leader does not survive the
// fault, that is the next leader.
func (env *environment) injectFault(f fault, history *leaseHistory) time.Duration {
	env.t.Helper()
	leader := env.leader()
	mark, err := local.Cluster.Audit().Mark()
	env.Expect(err).NotTo(HaveOccurred())
	at, end := f.inject(env, leader)
	within, led := f.within+slack, at
	if f.within == 0 {
		within, led = timeout, time.Time{}
	}
	var first write
	env.Eventually(func() bool {
		var found bool
		first, found = env.firstWrite(mark, at, func(a write) bool { return history.termStart(a).After(led) })
		return found
	}, within).Should(BeTrue(), "%s: no leader wrote in time", f.name)
	end()
	return first.at.Sub(at)
}

func summary(takeovers map[string][]time.Duration, acts, late int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d writes of leaders, %d of them overlapping; time to the next write:", acts, late)
	for _, f := range faults {
		times := slices.Sorted(slices.Values(takeovers[f.name]))
		fmt.Fprintf(&b, "\n  %-22s %3d times: min %6.2f s, median %6.2f s, max %6.2f s",
			f.name, len(times), times[0].Seconds(), times[len(times)/2].Seconds(), times[len(times)-1].Seconds())
	}
	return b.String()
}
