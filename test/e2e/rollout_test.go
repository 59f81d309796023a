package e2e_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/bridge"
)

// TestRolloutUnderLoadFailsNoCall rolls out servers without sessions under load: on new connections, and on a persistent
// one.
func TestRolloutUnderLoadFailsNoCall(t *testing.T) {
	cases := map[string]struct {
		server func(env *environment) *v1beta1.MCPServer
		load   string
		change func(*v1beta1.MCPServer)
	}{
		"streamable HTTP, new connections": {
			server: func(env *environment) *v1beta1.MCPServer {
				server := env.streamable("stateless", 2)
				server.Spec.SessionAffinity = v1beta1.SessionAffinityNone
				server.Spec.Env = []corev1.EnvVar{{Name: "STATELESS", Value: "true"}}
				return servesOn(server)
			},
			load:   "sessions",
			change: func(s *v1beta1.MCPServer) { s.Spec.Image = otherSubjectImage },
		},
		"stdio, one connection": {
			server: func(env *environment) *v1beta1.MCPServer { return servesOn(env.stdio("shared", 2)) },
			load:   "client",
			change: func(s *v1beta1.MCPServer) { s.Spec.Env = []corev1.EnvVar{{Name: "SECRET", Value: "new"}} },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment(t).withClient()
			server := c.server(env)
			env.Expect(api.Create(env.ctx, server)).To(Succeed())
			ready(env, server)
			before := env.podNames(podsOf(server))

			env.startLoad(c.load, server.Status.Endpoint)
			edit(env, server, c.change)
			env.waitReplaced(podsOf(server), before, 2)
			ready(env, server)
			env.waitResponses(before)
			found := env.stopLoad()

			t.Logf("%d calls during the rollout, at most %v apart, by pods %v", found.Calls, found.Pause, found.Pods)
			env.Expect(found.Failures).To(BeEmpty())
			env.Expect(found.Pods).To(HaveKey(BeElementOf(before)), "old pods responded")
			env.Expect(found.Pods).To(HaveKey(Not(BeElementOf(before))), "new pods responded")
		})
	}
}

func TestRolloutOfAnAppServiceUnderLoadFailsNoCall(t *testing.T) {
	env := newEnvironment(t).withClient()
	app := env.app("shop")
	app.Spec.Config["LAME_DUCK"] = serveTime.String()
	env.Expect(api.Create(env.ctx, app)).To(Succeed())
	ready(env, app)
	labels := client.MatchingLabels{"app.kubernetes.io/name": app.Name}
	before := env.podNames(labels)

	env.startLoad("get", app.Status.URL)
	edit(env, app, func(a *v1beta1.AppService) { a.Spec.Image = otherWebImage })
	env.waitReplaced(labels, before, 2)
	ready(env, app)
	env.waitResponses(before)
	found := env.stopLoad()

	t.Logf("%d calls during the rollout, at most %v apart, by pods %v", found.Calls, found.Pause, found.Pods)
	env.Expect(found.Failures).To(BeEmpty())
	env.Expect(found.Pods).To(HaveKey(BeElementOf(before)), "old pods responded")
	env.Expect(found.Pods).To(HaveKey(Not(BeElementOf(before))), "new pods responded")
}

// serveTime is how long terminating pods serve in tests in which no call may fail: on a busy machine, they leave the Service
// late. The kubelet kills the pods of an AppService after 30 seconds.
const serveTime = 25 * time.Second

// servesOn makes the terminating pods of a server serve for serveTime.
func servesOn(server *v1beta1.MCPServer) *v1beta1.MCPServer {
	drain := int64(serveTime / time.Second)
	server.Spec.DrainSeconds, server.Spec.TerminationGracePeriodSeconds = &drain, drain+15
	return server
}

// waitResponses waits until the load was served by a pod other than those.
func (env *environment) waitResponses(before []string) {
	env.t.Helper()
	env.Eventually(func() (map[string]int, error) {
		found, err := env.request("/report")
		return found.Pods, err
	}).Should(HaveKey(Not(BeElementOf(before))))
}

// sessionTime is how long a session continues after its pod was deleted. The servers' grace periods are longer.
const sessionTime = 12 * time.Second

// rolledSession is a server that is rolled out during a session.
type rolledSession struct {
	server func(env *environment) *v1beta1.MCPServer
	// idle is how long a session in a terminating pod can be idle before it is ended; zero means forever.
	idle time.Duration
}

// TestRolloutKeepsSessionsWithinTheGracePeriod rolls out a server during a session, which must continue in its old pod.
func TestRolloutKeepsSessionsWithinTheGracePeriod(t *testing.T) {
	cases := map[string]rolledSession{
		"streamable HTTP": {server: func(env *environment) *v1beta1.MCPServer {
			server := env.streamable("stateful", 1)
			// The server exits immediately on SIGTERM.
			server.Spec.DrainSeconds, server.Spec.TerminationGracePeriodSeconds = ptr.To[int64](60), 90
			return server
		}},
		"stdio behind the bridge": {server: func(env *environment) *v1beta1.MCPServer {
			server := env.stdio("stateful", 1)
			// The bridge continues to serve after SIGTERM.
			server.Spec.DrainSeconds, server.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3), 90
			return server
		}, idle: bridge.DefaultOptions().DrainIdleTimeout},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A session that is idle in a terminating pod is ended, and rightly so. If the machine is so busy that the calls of
			// this session paused for that long, the case says nothing, and is repeated.
			for !c.keepsSession(t) {
				t.Logf("the calls paused for %v or longer", c.idle)
			}
		})
	}
}

// keepsSession returns false if the session was idle for too long.
func (c rolledSession) keepsSession(t *testing.T) bool {
	t.Helper()
	env := newEnvironment(t).withClient()
	server := c.server(env)
	env.Expect(api.Create(env.ctx, server)).To(Succeed())
	ready(env, server)
	old := env.livePods(podsOf(server))[0]

	env.startLoad("session", server.Status.Endpoint)
	edit(env, server, func(s *v1beta1.MCPServer) {
		s.Spec.Env = []corev1.EnvVar{{Name: "SECRET", Value: "new"}}
	})
	env.Eventually(func(g Gomega) {
		g.Expect(api.Get(env.ctx, env.key(old.Name), &old)).To(Succeed())
		g.Expect(old.DeletionTimestamp).NotTo(BeNil())
	}).Should(Succeed())
	wasIdle := func(r report) bool { return c.idle > 0 && r.Pause >= c.idle }
	env.Consistently(func() ([]string, error) {
		r, err := env.request("/report")
		if wasIdle(r) {
			return nil, err
		}
		return r.Failures, err
	}, sessionTime, time.Second).Should(BeEmpty())
	found := env.stopLoad()
	if wasIdle(found) {
		return false
	}

	env.Expect(found.Failures).To(BeEmpty())
	env.Expect(found.Pods).To(HaveLen(1))
	env.Expect(found.Pods).To(HaveKey(old.Name))
	env.Expect(found.Last.Calls).To(BeEquivalentTo(found.Calls), "one session from the first call to the last")
	env.waitNewSession(server, HaveField("Last.Secret", "new"))
	env.waitDeleted(&old)
	return true
}

// TestRolloutLosesNoSessionThatAnyPodServes rolls out servers with four pods during 200 sessions, whose clients call
// through a proxy without affinity: each call reaches any pod, while its session lives in one of them, old or new.
func TestRolloutLosesNoSessionThatAnyPodServes(t *testing.T) {
	const replicas, sessions = 4, 200
	servers := map[string]func(env *environment) *v1beta1.MCPServer{
		"stdio behind the bridge": func(env *environment) *v1beta1.MCPServer {
			server := env.stdio("anywhere", replicas)
			// The bridge continues to serve after SIGTERM.
			server.Spec.Bridge = &v1beta1.MCPServerBridge{DrainTimeout: metav1.Duration{Duration: drainTime}}
			server.Spec.DrainSeconds, server.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3), int64(drainTime/time.Second)+10
			return server
		},
		"streamable HTTP behind the proxy": func(env *environment) *v1beta1.MCPServer {
			server := env.streamable("anywhere", replicas)
			// The server exits immediately on SIGTERM.
			server.Spec.DrainSeconds, server.Spec.TerminationGracePeriodSeconds = ptr.To(int64(drainTime/time.Second)), int64(drainTime/time.Second)+10
			return server
		},
	}
	for name, newServer := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment(t).withClient()
			server := newServer(env)
			server.Spec.SessionRouting, server.Spec.SessionAffinity = v1beta1.SessionRoutingForward, v1beta1.SessionAffinityNone
			env.Expect(api.Create(env.ctx, server)).To(Succeed())
			ready(env, server)
			before := env.podNames(podsOf(server))
			env.Expect(before).To(HaveLen(replicas))

			env.startLoad("scattered", server.Status.Endpoint)
			// The first calls start the sessions, and each session is called in turn.
			env.waitCalls(2 * sessions)
			edit(env, server, func(s *v1beta1.MCPServer) {
				s.Spec.Env = []corev1.EnvVar{{Name: "SECRET", Value: "new"}}
			})
			env.Eventually(func(g Gomega) {
				live := env.livePods(podsOf(server))
				g.Expect(live).To(HaveLen(replicas))
				for i := range live {
					g.Expect(before).NotTo(ContainElement(live[i].Name))
					g.Expect(isPodReady(&live[i])).To(BeTrue())
				}
			}, drainTime).Should(Succeed())
			replaced, err := env.request("/report")
			env.Expect(err).NotTo(HaveOccurred())
			env.waitCalls(replaced.Calls + sessions)
			drained := env.drainedFor(podsOf(server))
			found := env.stopLoad()

			t.Logf("%d calls, %d of them before all pods were replaced; the first pod has drained for %v; by pods %v", found.Calls, replaced.Calls, drained, found.Pods)
			env.Expect(found.Failures).To(BeEmpty(), "sessions continue for %v in a deleted pod, and the first one has drained for %v", drainTime, drained)
			for _, pod := range before {
				env.Expect(found.Pods[pod]).To(BeNumerically(">", replaced.Pods[pod]), "%s served while it drained", pod)
			}
			env.waitNewSession(server, HaveField("Last.Pod", Not(BeElementOf(before))))
		})
	}
}

// drainTime is how long sessions can continue after their pod was deleted. All pods are replaced within it, on a busy machine
// too. No test waits until it is over.
const drainTime = 5 * time.Minute

// drainedFor returns how long ago the first of the terminating pods was deleted.
func (env *environment) drainedFor(labels client.MatchingLabels) time.Duration {
	env.t.Helper()
	var list corev1.PodList
	env.Expect(api.List(env.ctx, &list, client.InNamespace(env.namespace), labels)).To(Succeed())
	var longest time.Duration
	for _, pod := range list.Items {
		if pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil {
			grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
			longest = max(longest, time.Since(pod.DeletionTimestamp.Add(-grace)))
		}
	}
	return longest.Round(time.Second)
}

// waitCalls waits until the client pod has made that many calls.
func (env *environment) waitCalls(number int) {
	env.t.Helper()
	env.Eventually(func() (int, error) {
		r, err := env.request("/report")
		return r.Calls, err
	}, drainTime).Should(BeNumerically(">=", number))
}

// waitNewSession waits until a new session uses a new pod: kube-proxy may not have removed the old ones yet.
func (env *environment) waitNewSession(server *v1beta1.MCPServer, usesNewPod types.GomegaMatcher) {
	env.t.Helper()
	env.Eventually(func() (report, error) { return env.call("/call", server.Status.Endpoint) }).Should(usesNewPod, "a new session uses a new pod")
}

// TestRolloutOfAnotherContractWaitsForApproval rolls out a server with another tool under load: the new pods take no
// traffic until their contract is approved, and no call fails.
func TestRolloutOfAnotherContractWaitsForApproval(t *testing.T) {
	t.Parallel()
	const replicas = 2
	env := newEnvironment(t).withClient()
	server := env.streamable("pinned", replicas)
	server.Spec.SessionAffinity = v1beta1.SessionAffinityNone
	server.Spec.Env = []corev1.EnvVar{{Name: "STATELESS", Value: "true"}}
	server.Spec.Contract = &v1beta1.MCPServerContract{Policy: v1beta1.ContractPin}
	server.Spec.Protocol.Interval.Duration = contractInterval
	servesOn(server)
	env.Expect(api.Create(env.ctx, server)).To(Succeed())
	ready(env, server)
	approved := server.Status.Contract.Digest
	before := env.podNames(podsOf(server))

	env.startLoad("sessions", server.Status.Endpoint)
	edit(env, server, func(s *v1beta1.MCPServer) {
		s.Spec.Env = append(s.Spec.Env, corev1.EnvVar{Name: "EXTRA_TOOL", Value: "extra"})
	})
	waitNotApproved(env, server, `added: tool "extra"`)
	env.Consistently(func(g Gomega) {
		for _, pod := range env.livePods(podsOf(server)) {
			g.Expect(isPodReady(&pod)).To(Equal(slices.Contains(before, pod.Name)), pod.Name)
		}
	}, 2*contractInterval, time.Second).Should(Succeed())
	env.Expect(server.Status.Contract.Digest).To(Equal(approved))

	edit(env, server, func(s *v1beta1.MCPServer) {
		s.Annotations = map[string]string{v1beta1.AnnotationApprovedContract: s.Status.PendingContract.Digest}
	})
	env.waitReplaced(podsOf(server), before, replicas)
	ready(env, server)
	env.waitResponses(before)
	found := env.stopLoad()

	t.Logf("%d calls during the rollout, at most %v apart, by pods %v", found.Calls, found.Pause, found.Pods)
	env.Expect(found.Failures).To(BeEmpty())
	env.Expect(found.Pods).To(HaveKey(Not(BeElementOf(before))), "new pods responded")
	env.Expect(server.Status.Contract.Digest).NotTo(Equal(approved))
}

// TestServerThatChangesItsContractLosesTraffic within two intervals after it offers another tool while it runs: the second
// probe after the change is the last one that the pod takes traffic after.
func TestServerThatChangesItsContractLosesTraffic(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	server := env.streamable("changing", 1)
	server.Spec.Env = []corev1.EnvVar{{Name: "EXTRA_TOOL", Value: "extra"}, {Name: "EXTRA_TOOL_LATER", Value: "true"}}
	server.Spec.Contract = &v1beta1.MCPServerContract{Policy: v1beta1.ContractPin}
	server.Spec.Protocol.Interval.Duration = contractInterval
	env.Expect(api.Create(env.ctx, server)).To(Succeed())
	ready(env, server)
	live := env.livePods(podsOf(server))
	env.Expect(live).To(HaveLen(1))
	pod := live[0]
	ask := func(path string, answer any) {
		content, err := clientset.CoreV1().Pods(env.namespace).ProxyGet("http", pod.Name, "8080", path, nil).DoRaw(env.ctx)
		env.Expect(err).NotTo(HaveOccurred())
		env.Expect(json.Unmarshal(content, answer)).To(Succeed())
	}

	var changed bool
	ask("/change", &changed)
	env.Expect(changed).To(BeTrue())
	gate, stalled := env.waitNotReady(&pod)
	waitNotApproved(env, server, `added: tool "extra"`)

	var lists []time.Time
	ask("/lists", &lists)
	decided := gate.LastTransitionTime.Add(time.Second) // times have seconds
	probes := slices.IndexFunc(lists, func(at time.Time) bool { return !at.Before(decided) })
	if probes < 0 {
		probes = len(lists)
	}
	t.Logf("the pod lost traffic after %d probes; requests to the API server took %v longer than usual", probes, stalled)
	// The prober goes on while the API server does not respond to the manager, and an interval varies by a tenth.
	env.Expect(probes).To(BeNumerically("<=", 2+int(stalled/(contractInterval*9/10))), "the probes after the change: %v", lists)
	env.Expect(probes).To(BeNumerically(">", 0))
}

// waitNotReady waits until the pod is not ready because of its contract. It returns the gate, and for how long in total the
// API server responded late.
func (env *environment) waitNotReady(pod *corev1.Pod) (gate corev1.PodCondition, stalled time.Duration) {
	env.t.Helper()
	const late = time.Second
	last := time.Now()
	env.Eventually(func(g Gomega) {
		g.Expect(api.Get(env.ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		if took := time.Since(last); took > late {
			stalled += took
		}
		last = time.Now()
		g.Expect(isPodReady(pod)).To(BeFalse())
		at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == v1beta1.PodConditionContract })
		g.Expect(at).NotTo(Equal(-1), "the manager has set the gate")
		gate = pod.Status.Conditions[at]
		g.Expect(gate.Status).To(Equal(corev1.ConditionFalse))
	}).Should(Succeed())
	return gate, stalled
}

// contractInterval is the minimum of spec.protocol.interval.
const contractInterval = 5 * time.Second

// waitNotApproved waits until pods with another contract wait for approval.
func waitNotApproved(env *environment, server *v1beta1.MCPServer, difference string) {
	env.t.Helper()
	env.Eventually(func(g Gomega) {
		g.Expect(api.Get(env.ctx, client.ObjectKeyFromObject(server), server)).To(Succeed())
		condition := conditionOf(server, v1beta1.ConditionContractReady)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Reason).To(Equal(v1beta1.ReasonContractNotApproved))
		g.Expect(condition.Message).To(ContainSubstring(difference))
		g.Expect(server.Status.PendingContract).NotTo(BeNil())
	}).Should(Succeed())
}

// podNames returns the names of the live pods.
func (env *environment) podNames(labels client.MatchingLabels) []string {
	env.t.Helper()
	var names []string
	for _, pod := range env.livePods(labels) {
		names = append(names, pod.Name)
	}
	return names
}

// waitReplaced waits until all pods are new and ready.
func (env *environment) waitReplaced(labels client.MatchingLabels, before []string, replicas int) {
	env.t.Helper()
	env.Eventually(func(g Gomega) {
		var list corev1.PodList
		g.Expect(api.List(env.ctx, &list, client.InNamespace(env.namespace), labels)).To(Succeed())
		g.Expect(list.Items).To(HaveLen(replicas))
		for i := range list.Items {
			g.Expect(before).NotTo(ContainElement(list.Items[i].Name))
			g.Expect(isPodReady(&list.Items[i])).To(BeTrue())
		}
	}).Should(Succeed())
}
