package mcpserver_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func TestManagerRestartWritesNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	first := w.startManager()
	w.createSecret("one", "k", "1")
	names := []string{"asked", "unasked", "secrets", "closed", "failing"}
	w.create("asked", seldom, replicas(2))
	w.create("unasked", everything)
	w.create("secrets", seldom, fromSecrets("one"))
	for _, name := range names[:3] {
		w.complete(name)
	}
	w.server.set(false, "sesame")
	w.create("closed", seldom)
	w.shows("closed", "ProtocolReady", "True CredentialsRequired", ContainSubstring("401"))
	w.server.set(true, "")
	w.create("failing", often)
	w.shows("failing", "ProtocolReady", "False ProtocolFailing", ContainSubstring("500"))
	w.change("failing", seldom)
	w.shows("failing", "ProtocolReady", "False ProtocolFailing", ContainSubstring("500"))
	w.AtRest(names...)
	w.Settled()
	w.Stop(first)
	versions, mark := w.versions(names), w.Mark()

	// When another manager has reconciled all of them, and the servers do not respond to it
	options := w.options()
	options.ProbeEndpoint.Host = "127.0.0.1:1" // no server listens there, so that requests fail immediately
	second := w.StartManager(shared.Config(harness.ManagerUser), options)
	for _, name := range names {
		w.Eventually(func() int { return second.Checks("MCPServer", name, "Deployment") }).Should(BeNumerically(">=", 1), name)
	}
	w.Settled()

	// Then what was said last stands.
	w.Expect(w.Requests(mark).Writes()).To(BeEmpty())
	w.Expect(w.versions(names)).To(Equal(versions))
}

// versions are the resource versions of MCPServers and of their children.
func (w *fixture) versions(names []string) map[string]string {
	w.T.Helper()
	versions := map[string]string{}
	for _, name := range names {
		versions["MCPServer "+name] = harness.Read(w, name, &v1beta1.MCPServer{}).ResourceVersion
		for kind, newObject := range childKinds {
			object := newObject()
			if err := api.Get(w.Ctx, w.Key(name), object); err == nil {
				versions[kind+" "+name] = object.GetResourceVersion()
			}
		}
	}
	return versions
}

func TestResyncSendsNoRequests(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	options := w.options()
	options.SyncPeriod = time.Second
	w.StartManager(shared.Config(harness.ManagerUser), options)
	w.createSecret("one", "k", "1")
	w.create("asked", seldom, func(s *v1beta1.MCPServerSpec) {
		s.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: "one", Key: "k"}
	})
	w.ready("asked")
	w.create("full", everything, fromSecrets("one"))
	w.create("bridged", unasked, func(s *v1beta1.MCPServerSpec) {
		s.Transport, s.Command = v1beta1.TransportStdio, []string{"serve"}
	}, overrides(`{"priority":null,"containers":[{"name":"server","resources":{"limits":{"memory":"1024Mi"}}}]}`))
	w.complete("full")
	w.complete("bridged")
	mark := w.Settled()

	w.Checked("MCPServer", "asked", "Deployment", 4)
	w.Checked("MCPServer", "full", "Deployment", 4)
	w.Checked("MCPServer", "bridged", "Deployment", 4)

	w.Expect(w.Requests(mark).WithoutWatches()).To(BeEmpty(), "at rest")
}

func TestKeepsFieldsOfOtherManagers(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("tools", unasked)
	mark := w.Settled()

	// kubectl rollout restart, an injector's annotation, a label
	harness.Update(w, "kubectl-rollout", "tools", &appsv1.Deployment{}, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
		d.Annotations["team"] = "a"
	})
	harness.Update(w, "labeller", "tools", &corev1.Service{}, func(s *corev1.Service) { s.Labels["team"] = "a" })
	w.Scale("autoscaler", w.deployment("tools"), 3) // spec.replicas is left out
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(m.Status.ReadyReplicas).To(BeEquivalentTo(3))
		g.Expect(conditions(m)).To(HaveKeyWithValue("DeploymentReady", "True Ready"))
	})
	w.Settled()

	w.Expect(w.Requests(mark).Writes().Except("mcpservers.fixpoint.dev")).To(BeEmpty())
	deployment := w.deployment("tools")
	w.Expect(deployment.Spec.Template.Annotations).To(HaveKey("kubectl.kubernetes.io/restartedAt"))
	w.Expect(deployment.Annotations).To(HaveKeyWithValue("team", "a"))
	w.Expect(deployment.Spec.Replicas).To(HaveValue(BeEquivalentTo(3)))
	w.Expect(harness.Read(w, "tools", &corev1.Service{}).Labels).To(HaveKeyWithValue("team", "a"))
	w.Expect(harness.Read(w, "tools", &v1beta1.MCPServer{}).Status.Drifts).To(BeEmpty())
}

func TestRevertsDriftAndReportsIt(t *testing.T) {
	deploy := func(change func(*corev1.Container)) func(*fixture, string) {
		return func(w *fixture, name string) {
			harness.Update(w, "kubectl-edit", name, &appsv1.Deployment{}, func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec.Containers[0]) })
		}
	}
	service := func(change func(*corev1.ServiceSpec)) func(*fixture, string) {
		return func(w *fixture, name string) {
			harness.Update(w, "kubectl-edit", name, &corev1.Service{}, func(s *corev1.Service) { change(&s.Spec) })
		}
	}
	cases := map[string]struct {
		change func(w *fixture, name string)
		field  string
	}{
		"image":    {deploy(func(c *corev1.Container) { c.Image = otherImage }), `.spec.template.spec.containers[name="server"].image`},
		"env":      {deploy(func(c *corev1.Container) { c.Env[0].Value = "slow" }), `.spec.template.spec.containers[name="server"].env[name="MODE"].value`},
		"scale":    {func(w *fixture, name string) { w.Scale("kubectl-edit", w.deployment(name), 5) }, ".spec.replicas"},
		"selector": {service(func(s *corev1.ServiceSpec) { s.Selector["app.kubernetes.io/name"] = "else" }), ".spec.selector"},
		"port":     {service(func(s *corev1.ServiceSpec) { s.Ports[0].TargetPort.StrVal = "else" }), `.spec.ports[port=8080,protocol="TCP"].targetPort`},
	}
	w := newManagedFixture(t)
	for name := range cases {
		w.create(name, everything)
	}
	for name, c := range cases {
		w.complete(name)
		c.change(w, name)
	}
	for name, c := range cases {
		server := harness.Eventually(w, name, &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
			g.Expect(m.Status.Drifts).To(HaveLen(1), name)
			g.Expect(conditions(m)).To(HaveKeyWithValue("DeploymentReady", "True Ready"))
		})
		drift := server.Status.Drifts[0]
		w.Expect(drift.Field).To(Equal(c.field))
		w.Expect(drift.Manager).To(Equal("kubectl-edit"))
		w.Expect(drift.Action).To(Equal(v1beta1.DriftCorrected))
	}
	for name := range cases {
		container := w.deployment(name).Spec.Template.Spec.Containers[0]
		w.Expect(container.Image).To(Equal(image))
		w.Expect(container.Env[0].Value).To(Equal("fast"))
		w.Expect(w.deployment(name).Spec.Replicas).To(HaveValue(BeEquivalentTo(2)))
		w.Expect(harness.Read(w, name, &corev1.Service{}).Spec.Selector).To(Equal(map[string]string{"app.kubernetes.io/name": name, "fixpoint.dev/kind": "mcpserver"}))
		w.Expect(harness.Read(w, name, &corev1.Service{}).Spec.Ports[0].TargetPort.StrVal).To(Equal("mcp"))
	}
}

func TestRecreatesDeletedChild(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("tools", everything)
	drifts := 0
	for kind, newObject := range childKinds {
		before := harness.Read(w, "tools", newObject())
		w.Expect(api.Delete(w.Ctx, before)).To(Succeed())
		drifts++
		harness.Eventually(w, "tools", newObject(), func(g Gomega, o client.Object) { g.Expect(o.GetUID()).NotTo(Equal(before.GetUID()), kind) })
		harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
			g.Expect(m.Status.Drifts).To(HaveLen(drifts))
			g.Expect(m.Status.Drifts[0]).To(And(HaveField("Kind", kind), HaveField("Action", v1beta1.DriftCorrected)))
		})
		// While the Deployment progresses, the phases after it are not reconciled, and the status
		// does not know of their children.
		w.complete("tools")
	}
}

func TestSuspendStopsAllWork(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("tools", often)

	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.Suspend = true })
	w.shows("tools", "Suspended", "True Suspended", Not(BeEmpty()))
	mark := w.Settled()
	w.Eventually(w.server.connections).Should(BeZero(), "a probe that was running has closed its session")
	asked := w.server.requests("/mcp")
	harness.Update(w, "kubectl-edit", "tools", &appsv1.Deployment{}, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = otherImage })
	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.Port = 9090 })
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(m.Status.ObservedGeneration).To(Equal(m.Generation))
	})
	// longer than it takes to ask twice
	w.Consistently(func() int { return w.server.requests("/mcp") }).WithTimeout(6 * time.Second).Should(Equal(asked))
	w.Expect(w.Requests(mark).Writes().Where(func(r cluster.Request) bool { return r.Resource != "mcpservers" })).To(BeEmpty())

	w.change("tools", func(s *v1beta1.MCPServerSpec) { s.Suspend = false })
	w.complete("tools")
	w.Expect(w.deployment("tools").Spec.Template.Spec.Containers[0].Image).To(Equal(image))
	w.Expect(w.server.requests("/mcp")).To(BeNumerically(">", asked))
}
