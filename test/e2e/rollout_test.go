package e2e_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

// A rollout of a server without sessions, while somebody calls all the time: on new
// connections, as many clients do, and on one that lasts.
func TestRolloutUnderLoadFailsNoCall(t *testing.T) {
	cases := map[string]struct {
		server func(w *world) *v1alpha1.MCPServer
		load   string
		change func(*v1alpha1.MCPServer)
	}{
		"streamable HTTP, new connections": {
			server: func(w *world) *v1alpha1.MCPServer {
				server := w.streamable("stateless", 2)
				server.Spec.SessionAffinity = v1alpha1.SessionAffinityNone
				server.Spec.Env = []corev1.EnvVar{{Name: "STATELESS", Value: "true"}}
				return server
			},
			load:   "sessions",
			change: func(s *v1alpha1.MCPServer) { s.Spec.Image = otherSubjectImage },
		},
		"stdio, a connection that lasts": {
			server: func(w *world) *v1alpha1.MCPServer { return w.stdio("shared", 2) },
			load:   "client",
			change: func(s *v1alpha1.MCPServer) { s.Spec.Env = []corev1.EnvVar{{Name: "SECRET", Value: "new"}} },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).withClient()
			server := c.server(w)
			w.Expect(api.Create(w.ctx, server)).To(Succeed())
			ready(w, server)
			before := w.names(podsOf(server))

			w.load(c.load, server.Status.Endpoint)
			edit(w, server, c.change)
			w.replaced(podsOf(server), before, 2)
			ready(w, server)
			found := w.stopLoad()

			t.Logf("%d calls during the rollout, answered by %v", found.Calls, found.Pods)
			w.Expect(found.Failures).To(BeEmpty())
			w.Expect(found.Pods).To(HaveKey(BeElementOf(before)), "old pods answered")
			w.Expect(found.Pods).To(HaveKey(Not(BeElementOf(before))), "new pods answered")
		})
	}
}

func TestRolloutOfAnAppServiceUnderLoadFailsNoCall(t *testing.T) {
	w := newWorld(t).withClient()
	app := w.app("shop")
	w.Expect(api.Create(w.ctx, app)).To(Succeed())
	ready(w, app)
	labels := client.MatchingLabels{"app.kubernetes.io/name": app.Name}
	before := w.names(labels)

	w.load("get", app.Status.URL)
	edit(w, app, func(a *v1alpha1.AppService) { a.Spec.Image = otherWebImage })
	w.replaced(labels, before, 2)
	ready(w, app)
	found := w.stopLoad()

	t.Logf("%d calls during the rollout, answered by %v", found.Calls, found.Pods)
	w.Expect(found.Failures).To(BeEmpty())
	w.Expect(found.Pods).To(HaveKey(BeElementOf(before)), "old pods answered")
	w.Expect(found.Pods).To(HaveKey(Not(BeElementOf(before))), "new pods answered")
}

// sessionTime is how long a session goes on after its pod was told to go; the grace
// that the servers give is longer.
const sessionTime = 12 * time.Second

// A session that is under way when its server is rolled out goes on in its old pod.
func TestRolloutCutsNoSessionWithinTheGrace(t *testing.T) {
	servers := map[string]func(w *world) *v1alpha1.MCPServer{
		"streamable HTTP": func(w *world) *v1alpha1.MCPServer {
			server := w.streamable("stateful", 1)
			// It ends at once when it is told to.
			server.Spec.DrainSeconds, server.Spec.TerminationGracePeriodSeconds = ptr.To[int64](25), 40
			return server
		},
		"stdio behind the bridge": func(w *world) *v1alpha1.MCPServer {
			server := w.stdio("stateful", 1)
			// The bridge goes on after it was told to end.
			server.Spec.DrainSeconds, server.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3), 40
			return server
		},
	}
	for name, newServer := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).withClient()
			server := newServer(w)
			w.Expect(api.Create(w.ctx, server)).To(Succeed())
			ready(w, server)
			old := w.pods(podsOf(server))[0]

			w.load("session", server.Status.Endpoint)
			edit(w, server, func(s *v1alpha1.MCPServer) {
				s.Spec.Env = []corev1.EnvVar{{Name: "SECRET", Value: "new"}}
			})
			w.Eventually(func(g Gomega) {
				g.Expect(api.Get(w.ctx, w.key(old.Name), &old)).To(Succeed())
				g.Expect(old.DeletionTimestamp).NotTo(BeNil())
			}).Should(Succeed())
			w.Consistently(func() ([]string, error) {
				r, err := w.ask("/report")
				return r.Failures, err
			}, sessionTime, time.Second).Should(BeEmpty())
			found := w.stopLoad()

			w.Expect(found.Failures).To(BeEmpty())
			w.Expect(found.Pods).To(HaveLen(1))
			w.Expect(found.Pods).To(HaveKey(old.Name))
			w.Expect(found.Last.Calls).To(BeEquivalentTo(found.Calls), "one session from the first call to the last")
			next, err := w.called("/call", server.Status.Endpoint)
			w.Expect(err).NotTo(HaveOccurred())
			w.Expect(next.Last.Secret).To(Equal("new"), "a new session is with a new pod")
			w.gone(&old)
		})
	}
}

// names are those of the pods.
func (w *world) names(labels client.MatchingLabels) []string {
	w.t.Helper()
	var names []string
	for _, pod := range w.pods(labels) {
		names = append(names, pod.Name)
	}
	return names
}

// replaced waits until other pods are there, all ready, and the earlier ones are gone.
func (w *world) replaced(labels client.MatchingLabels, before []string, replicas int) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		var list corev1.PodList
		g.Expect(api.List(w.ctx, &list, client.InNamespace(w.namespace), labels)).To(Succeed())
		g.Expect(list.Items).To(HaveLen(replicas))
		for i := range list.Items {
			g.Expect(before).NotTo(ContainElement(list.Items[i].Name))
			g.Expect(isPodReady(&list.Items[i])).To(BeTrue())
		}
	}).Should(Succeed())
}
