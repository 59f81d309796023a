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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const (
	roundsVariable = "E2E_ROUNDS"
	defaultRounds  = 2
)

// fault affects the leader or a service that it needs.
type fault struct {
	name string
	// ends is what happens to the Lease of the leader.
	ends ending
	// inject injects the fault. It returns the start of the takeover and a function that ends the fault, or nil if the
	// leader has ended by itself before.
	inject func(env *environment, leader corev1.Pod) (at time.Time, end func())
}

// ending is how the term of a leader ends.
type ending int

const (
	// stays means that the leader may stay.
	stays ending = iota
	// expires means that the next leader waits until the Lease has expired.
	expires
	// isReleased means that the leader gives up the Lease, and that the next leader takes it after its first read.
	isReleased
)

// reads is how often the next leader may read the Lease before it takes it, if no request for the Lease fails. Times depend
// on the machine. It sees the last renewal at one read, and takes the Lease at the first read after LeaseDuration. It reads
// the Lease at least a retry period after the last read. Another replica can be the first to try, and fail.
func (e ending) reads() int {
	if e == isReleased {
		return 1
	}
	const lease, retry = controllers.DefaultLeaseDuration, controllers.DefaultRetryPeriod
	return 1 + int((lease+retry-1)/retry) + 1
}

var faults = []fault{
	{"killed", expires, killed},
	{"deleted", isReleased, deleted},
	{"frozen", expires, frozen},
	{"cut off", expires, cutOff},
	{"all killed", expires, allKilled},
	{"API server restarted", stays, apiServerRestarted},
	{"cloud restarted", stays, cloudRestarted},
}

func managerContainer(pod corev1.Pod) string { return pod.Status.ContainerStatuses[0].ContainerID }

// killed kills the process, and then deletes the pod: restarts in place are delayed more and more.
func killed(env *environment, leader corev1.Pod) (time.Time, func()) {
	if env.hadEnded(leader, local.Signal(managerContainer(leader), syscall.SIGKILL)) {
		return time.Time{}, nil
	}
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
	if env.hadEnded(leader, local.Signal(container, syscall.SIGSTOP)) {
		return time.Time{}, nil
	}
	return time.Now(), func() {
		env.hadEnded(leader, local.Signal(container, syscall.SIGCONT)) // the kubelet kills it if its probes fail for long
		env.waitForRestart(leader)
		env.deletePod(leader)
	}
}

// cutOff disconnects the leader from the API server until another replica leads.
func cutOff(env *environment, leader corev1.Pod) (time.Time, func()) {
	reconnect, err := local.CutOff(managerContainer(leader))
	if env.hadEnded(leader, err) {
		return time.Time{}, nil
	}
	return time.Now(), func() {
		env.waitForRestart(leader)
		env.Expect(reconnect()).To(Succeed())
		env.deletePod(leader)
	}
}

func allKilled(env *environment, _ corev1.Pod) (time.Time, func()) {
	pods := env.waitForReplicas()
	for _, pod := range pods {
		if env.hadEnded(pod, local.Signal(managerContainer(pod), syscall.SIGKILL)) {
			return time.Time{}, nil
		}
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

// hadEnded reports whether an error of a fault says that the replica had ended by itself, and waits for its restart: on a busy
// machine, a leader can lose its Lease at any time.
func (env *environment) hadEnded(pod corev1.Pod, err error) bool {
	env.t.Helper()
	if err == nil {
		return false
	}
	env.t.Log(err)
	env.waitForRestart(pod)
	return true
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
// fault, that is the next leader. A leader that has lost its Lease before the fault affects it is not the one that was meant:
// the fault is injected again, into the next one.
func (env *environment) injectFault(f fault, history *leaseHistory) time.Duration {
	env.t.Helper()
	for {
		mark, err := local.Cluster.Audit().Mark()
		env.Expect(err).NotTo(HaveOccurred())
		leader, term := env.leadingTerm(history)
		at, end := f.inject(env, leader)
		if end == nil {
			progress(f.name + ": the leader had ended already; the fault is injected again")
			env.waitForReplicas()
			continue
		}
		if f.ends == stays {
			first := env.waitForWrite(f, mark, at, func(a write) bool { return history.termStart(a).After(time.Time{}) })
			end()
			return first.at.Sub(at)
		}
		first := env.waitForWrite(f, mark, at, func(a write) bool { return history.termStart(a).After(term.from) })
		next := history.next(term)
		wasMeant := next.from.After(at)
		if wasMeant {
			env.verifyTakeover(f, mark, at, next)
		}
		end()
		if wasMeant {
			return first.at.Sub(at)
		}
		progress(f.name + ": another replica led already; the fault is injected again")
		env.waitForReplicas()
	}
}

// leadingTerm returns the leader and its term.
func (env *environment) leadingTerm(history *leaseHistory) (leader corev1.Pod, current term) {
	env.t.Helper()
	env.Eventually(func() bool {
		leader, current = env.leader(), history.current()
		return current.pod() == leader.Name
	}).Should(BeTrue(), "the history of the Lease contains the term of the leader")
	return leader, current
}

// verifyTakeover checks that the next leader took the Lease as soon as it could.
func (env *environment) verifyTakeover(f fault, mark cluster.Mark, at time.Time, next term) {
	env.t.Helper()
	requests, err := local.Cluster.Audit().Since(mark)
	env.Expect(err).NotTo(HaveOccurred())
	ofLease := requests.By(managerUser).In(systemNamespace).Of("leases.coordination.k8s.io").
		Where(func(r cluster.Request) bool { return r.Name == controllers.LeaderElectionID })
	writes := ofLease.Writes().Succeeded()
	taken := slices.IndexFunc(writes, func(r cluster.Request) bool { return r.Pod == next.pod() && r.Received.After(next.from) })
	env.Expect(taken).NotTo(Equal(-1), "%s took the Lease", next.identity)
	var before time.Time
	if taken > 0 {
		before = writes[taken-1].Answered
	}
	reads := ofLease.Verbs("get").Where(func(r cluster.Request) bool {
		return r.Pod == next.pod() && r.Received.After(before) && r.Received.Before(writes[taken].Received)
	})
	allowed := f.ends.reads()
	if len(reads) > allowed {
		allowed += env.failedReads(next.pod(), at)
	}
	env.Expect(len(reads)).To(BeNumerically("<=", allowed), "%s: %s took the Lease late; its reads:\n%s", f.name, next.identity, reads)
	if f.ends == isReleased {
		env.Expect(next.fromNobody).To(BeTrue(), "%s: the leader gives the Lease up", f.name)
	}
}

// failedReads returns how often a replica failed to take the Lease because a request for it failed, by its log. Each time
// costs a read.
func (env *environment) failedReads(pod string, since time.Time) int {
	env.t.Helper()
	from := metav1.NewTime(since)
	log, err := clientset.CoreV1().Pods(systemNamespace).GetLogs(pod, &corev1.PodLogOptions{SinceTime: &from}).DoRaw(env.ctx)
	env.Expect(err).NotTo(HaveOccurred())
	return strings.Count(string(log), "Error retrieving lease lock") + strings.Count(string(log), "Failed to update lease")
}

// waitForWrite waits until a leader writes.
func (env *environment) waitForWrite(f fault, mark cluster.Mark, at time.Time, will func(write) bool) write {
	env.t.Helper()
	var first write
	env.Eventually(func() bool {
		var found bool
		first, found = env.firstWrite(mark, at, will)
		return found
	}).Should(BeTrue(), "%s: no leader wrote", f.name)
	return first
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
