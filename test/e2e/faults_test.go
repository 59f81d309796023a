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

// The bars, from the fault to the first write of the next leader.
const (
	afterLease = 5 * time.Second
	graceful   = 2 * time.Second
	// slack is for machines that have a lot else to do. It is less than what would let
	// a lease that was not given back pass for one that was.
	slack = 8 * time.Second

	roundsVariable = "E2E_ROUNDS"
	defaultRounds  = 2
)

// fault happens to the leader, or to what it needs.
type fault struct {
	name string
	// within is the bar; zero if the leader may stay.
	within time.Duration
	// happen returns the moment from which the takeover is timed, and what ends the
	// fault after it.
	happen func(w *world, leader corev1.Pod) (at time.Time, end func())
}

var faults = []fault{
	{"killed", controllers.DefaultLeaseDuration + afterLease, killed},
	{"deleted", graceful, deleted},
	{"frozen", controllers.DefaultLeaseDuration + afterLease, frozen},
	{"cut off", controllers.DefaultLeaseDuration + afterLease, cutOff},
	// The containers have to start as well.
	{"all killed", controllers.DefaultLeaseDuration + 2*afterLease, allKilled},
	{"API server restarted", 0, apiServerRestarted},
	{"cloud restarted", 0, cloudRestarted},
}

func managerContainer(pod corev1.Pod) string { return pod.Status.ContainerStatuses[0].ContainerID }

// killed ends the process as the kernel would, and the pod with it: its container
// would be started again in place, later from time to time.
func killed(w *world, leader corev1.Pod) (time.Time, func()) {
	w.Expect(local.Signal(managerContainer(leader), syscall.SIGKILL)).To(Succeed())
	return time.Now(), func() { w.removed(leader) }
}

func deleted(w *world, leader corev1.Pod) (time.Time, func()) {
	at := time.Now()
	w.Expect(api.Delete(w.ctx, &leader)).To(Succeed())
	return at, func() {}
}

// frozen stops the process until another one leads, and then lets it go on.
func frozen(w *world, leader corev1.Pod) (time.Time, func()) {
	container := managerContainer(leader)
	w.Expect(local.Signal(container, syscall.SIGSTOP)).To(Succeed())
	return time.Now(), func() {
		w.Expect(local.Signal(container, syscall.SIGCONT)).To(Succeed())
		w.endsByItself(leader)
		w.removed(leader)
	}
}

// cutOff takes the API server away from the leader until another one leads.
func cutOff(w *world, leader corev1.Pod) (time.Time, func()) {
	mend, err := local.CutOff(managerContainer(leader))
	w.Expect(err).NotTo(HaveOccurred())
	return time.Now(), func() {
		w.endsByItself(leader)
		w.Expect(mend()).To(Succeed())
		w.removed(leader)
	}
}

func allKilled(w *world, _ corev1.Pod) (time.Time, func()) {
	pods := w.complete()
	for _, pod := range pods {
		w.Expect(local.Signal(managerContainer(pod), syscall.SIGKILL)).To(Succeed())
	}
	return time.Now(), func() {
		for _, pod := range pods {
			if name, _ := holder(); name != pod.Name {
				w.removed(pod)
			}
		}
	}
}

func apiServerRestarted(w *world, _ corev1.Pod) (time.Time, func()) {
	w.Expect(local.Cluster.RestartPart(w.ctx, cluster.APIServer)).To(Succeed())
	return time.Now(), func() {}
}

func cloudRestarted(w *world, _ corev1.Pod) (time.Time, func()) {
	pod := w.cloudPod()
	restarts := pod.Status.ContainerStatuses[0].RestartCount
	at := time.Now()
	w.Expect(local.Signal(managerContainer(pod), syscall.SIGTERM)).To(Succeed())
	w.Eventually(func(g Gomega) {
		g.Expect(api.Get(w.ctx, client.ObjectKeyFromObject(&pod), &pod)).To(Succeed())
		g.Expect(pod.Status.ContainerStatuses[0].RestartCount).To(Equal(restarts + 1))
		g.Expect(isPodReady(&pod)).To(BeTrue())
	}).Should(Succeed())
	return at, func() {}
}

// complete waits until all replicas are there and ready: standbys with full caches.
func (w *world) complete() []corev1.Pod {
	w.t.Helper()
	var pods []corev1.Pod
	w.Eventually(func(g Gomega) {
		pods = w.managers()
		g.Expect(pods).To(HaveLen(managerReplicas))
		for i := range pods {
			g.Expect(isPodReady(&pods[i])).To(BeTrue(), pods[i].Name)
		}
	}).Should(Succeed())
	return pods
}

// endsByItself waits until a leader that has lost its Lease has noticed and ended.
func (w *world) endsByItself(leader corev1.Pod) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		var pod corev1.Pod
		g.Expect(api.Get(w.ctx, client.ObjectKeyFromObject(&leader), &pod)).To(Succeed())
		g.Expect(pod.Status.ContainerStatuses[0].RestartCount).To(BeNumerically(">", leader.Status.ContainerStatuses[0].RestartCount))
	}).Should(Succeed())
}

// removed deletes a pod at once, so that the next round has a fresh one.
func (w *world) removed(pod corev1.Pod) {
	w.t.Helper()
	w.Expect(client.IgnoreNotFound(api.Delete(w.ctx, &pod, client.GracePeriodSeconds(0),
		client.Preconditions{UID: &pod.UID}))).To(Succeed())
}

func rounds(w *world) int {
	given := os.Getenv(roundsVariable)
	if given == "" {
		return defaultRounds
	}
	n, err := strconv.Atoi(given)
	w.Expect(err).NotTo(HaveOccurred(), "%s is a number", roundsVariable)
	w.Expect(n).To(BeNumerically(">", 0), roundsVariable)
	return n
}

// Whatever becomes of the leader, another one takes over in time, no two of them ever
// write at once, and in the end everything is as declared.
func TestNodeLeaderFaults(t *testing.T) {
	w := newWorld(t)
	history := w.watchLease()
	began := time.Now()
	mark, err := local.Cluster.Audit().Mark()
	w.Expect(err).NotTo(HaveOccurred())
	w.leader()
	traffic := w.startTraffic(rand.Uint64())

	takeovers := map[string][]time.Duration{}
	for round := range rounds(w) {
		for _, f := range faults {
			w.complete()
			takeover := w.suffer(f, history)
			takeovers[f.name] = append(takeovers[f.name], takeover)
			progress(fmt.Sprintf("round %d: %s: the next write by a leader after %s", round+1, f.name, takeover.Round(10*time.Millisecond)))
		}
	}
	traffic.stop()
	traffic.eventuallyRight()

	acts := w.acts(mark, began)
	late := history.overlaps(acts)
	progress(summary(takeovers, len(acts), len(late)))
	w.Expect(late).To(BeEmpty(), "writes of a leader after its successor's first, or of none; the terms:\n%s", history)
}

// suffer has one fault happen and returns how long it took until a leader wrote again:
// the next one, if the fault is one that a leader does not outlast.
func (w *world) suffer(f fault, history *leaseHistory) time.Duration {
	w.t.Helper()
	leader := w.leader()
	mark, err := local.Cluster.Audit().Mark()
	w.Expect(err).NotTo(HaveOccurred())
	at, end := f.happen(w, leader)
	within, led := f.within+slack, at
	if f.within == 0 {
		within, led = patience, time.Time{}
	}
	var first act
	w.Eventually(func() bool {
		var found bool
		first, found = w.firstAct(mark, at, func(a act) bool { return history.began(a).After(led) })
		return found
	}, within).Should(BeTrue(), "%s: a leader writes again", f.name)
	end()
	return first.at.Sub(at)
}

func summary(takeovers map[string][]time.Duration, acts, late int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d writes by leaders, %d of them overlap; until the next write:", acts, late)
	for _, f := range faults {
		times := slices.Sorted(slices.Values(takeovers[f.name]))
		fmt.Fprintf(&b, "\n  %-22s %3d times: %6.2f s at least, %6.2f s in the middle, %6.2f s at most",
			f.name, len(times), times[0].Seconds(), times[len(times)/2].Seconds(), times[len(times)-1].Seconds())
	}
	return b.String()
}
