package mcpserver_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

func TestARestartOfTheManagerWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
	w.settled()
	w.stop(first)
	versions, mark := w.versions(names), w.mark()

	// When another manager has looked at all of them, and the servers do not answer it
	options := w.options()
	options.ProbeEndpoint.Host = "127.0.0.1:1" // nobody is there, which is found out at once
	second := w.startManagerAs(shared.Config(managerUser), options)
	for _, name := range names {
		w.Eventually(func() int { return second.looks("Deployment", name) }).Should(BeNumerically(">=", 1), name)
	}
	w.settled()

	// Then what was said last stands.
	w.Expect(w.requests(mark).Writes()).To(BeEmpty())
	w.Expect(w.versions(names)).To(Equal(versions))
}

// versions are the resource versions of MCPServers and of their children.
func (w *world) versions(names []string) map[string]string {
	w.t.Helper()
	versions := map[string]string{}
	for _, name := range names {
		versions["MCPServer "+name] = read(w, name, &v1alpha1.MCPServer{}).ResourceVersion
		for kind, newObject := range childKinds {
			object := newObject()
			if err := api.Get(w.ctx, w.key(name), object); err == nil {
				versions[kind+" "+name] = object.GetResourceVersion()
			}
		}
	}
	return versions
}

func TestAForcedResyncAsksTheAPIServerNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	options := w.options()
	options.SyncPeriod = time.Second
	w.startManagerAs(shared.Config(managerUser), options)
	w.createSecret("one", "k", "1")
	w.create("asked", seldom, func(s *v1alpha1.MCPServerSpec) {
		s.Protocol.CredentialsSecretRef = &v1alpha1.MCPServerCredentialsSecretRef{Name: "one", Key: "k"}
	})
	w.ready("asked")
	w.create("full", everything, fromSecrets("one"))
	w.create("bridged", unasked, func(s *v1alpha1.MCPServerSpec) {
		s.Transport, s.Command = v1alpha1.TransportStdio, []string{"serve"}
	}, overrides(`{"priority":null,"containers":[{"name":"server","resources":{"limits":{"memory":"1024Mi"}}}]}`))
	w.complete("full")
	w.complete("bridged")
	mark := w.settled()

	w.looks("asked", 4)
	w.looks("full", 4)
	w.looks("bridged", 4)

	w.Expect(w.requests(mark)).To(BeEmpty(), "at rest")
}

func TestOthersMayWriteWhatIsTheirs(t *testing.T) {
	w := newManagedWorld(t)
	w.createReady("tools", unasked)
	mark := w.settled()

	// kubectl rollout restart, an injector's annotation, a label
	update(w, "kubectl-rollout", "tools", &appsv1.Deployment{}, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
		d.Annotations["team"] = "a"
	})
	update(w, "labeller", "tools", &corev1.Service{}, func(s *corev1.Service) { s.Labels["team"] = "a" })
	w.scale("autoscaler", w.deployment("tools"), 3) // spec.replicas is left out
	eventually(w, "tools", &v1alpha1.MCPServer{}, func(g Gomega, m *v1alpha1.MCPServer) {
		g.Expect(m.Status.ReadyReplicas).To(BeEquivalentTo(3))
		g.Expect(conditions(m)).To(HaveKeyWithValue("DeploymentReady", "True Ready"))
	})
	w.settled()

	w.Expect(w.requests(mark).Writes().Except("mcpservers.fixpoint.dev")).To(BeEmpty())
	deployment := w.deployment("tools")
	w.Expect(deployment.Spec.Template.Annotations).To(HaveKey("kubectl.kubernetes.io/restartedAt"))
	w.Expect(deployment.Annotations).To(HaveKeyWithValue("team", "a"))
	w.Expect(deployment.Spec.Replicas).To(HaveValue(BeEquivalentTo(3)))
	w.Expect(read(w, "tools", &corev1.Service{}).Labels).To(HaveKeyWithValue("team", "a"))
	w.Expect(read(w, "tools", &v1alpha1.MCPServer{}).Status.Drifts).To(BeEmpty())
}

// scale sets the number of pods as `kubectl scale` and autoscalers do.
func (w *world) scale(manager string, object client.Object, n int32) {
	w.t.Helper()
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: n}}
	w.Expect(as(manager).SubResource("scale").Update(w.ctx, object, client.WithSubResourceBody(scale))).To(Succeed())
}

func TestDriftIsCorrectedAndTold(t *testing.T) {
	deploy := func(change func(*corev1.Container)) func(*world, string) {
		return func(w *world, name string) {
			update(w, "kubectl-edit", name, &appsv1.Deployment{}, func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec.Containers[0]) })
		}
	}
	service := func(change func(*corev1.ServiceSpec)) func(*world, string) {
		return func(w *world, name string) {
			update(w, "kubectl-edit", name, &corev1.Service{}, func(s *corev1.Service) { change(&s.Spec) })
		}
	}
	cases := map[string]struct {
		change func(w *world, name string)
		field  string
	}{
		"image":    {deploy(func(c *corev1.Container) { c.Image = otherImage }), `.spec.template.spec.containers[name="server"].image`},
		"env":      {deploy(func(c *corev1.Container) { c.Env[0].Value = "slow" }), `.spec.template.spec.containers[name="server"].env[name="MODE"].value`},
		"scale":    {func(w *world, name string) { w.scale("kubectl-edit", w.deployment(name), 5) }, ".spec.replicas"},
		"selector": {service(func(s *corev1.ServiceSpec) { s.Selector["app.kubernetes.io/name"] = "else" }), ".spec.selector"},
		"port":     {service(func(s *corev1.ServiceSpec) { s.Ports[0].TargetPort.StrVal = "else" }), `.spec.ports[port=8080,protocol="TCP"].targetPort`},
	}
	w := newManagedWorld(t)
	for name := range cases {
		w.create(name, everything)
	}
	for name, c := range cases {
		w.complete(name)
		c.change(w, name)
	}
	for name, c := range cases {
		server := eventually(w, name, &v1alpha1.MCPServer{}, func(g Gomega, m *v1alpha1.MCPServer) {
			g.Expect(m.Status.Drifts).To(HaveLen(1), name)
			g.Expect(conditions(m)).To(HaveKeyWithValue("DeploymentReady", "True Ready"))
		})
		drift := server.Status.Drifts[0]
		w.Expect(drift.Field).To(Equal(c.field))
		w.Expect(drift.Manager).To(Equal("kubectl-edit"))
		w.Expect(drift.Action).To(Equal(v1alpha1.DriftCorrected))
	}
	for name := range cases {
		container := w.deployment(name).Spec.Template.Spec.Containers[0]
		w.Expect(container.Image).To(Equal(image))
		w.Expect(container.Env[0].Value).To(Equal("fast"))
		w.Expect(w.deployment(name).Spec.Replicas).To(HaveValue(BeEquivalentTo(2)))
		w.Expect(read(w, name, &corev1.Service{}).Spec.Selector).To(Equal(map[string]string{"app.kubernetes.io/name": name, "fixpoint.dev/kind": "mcpserver"}))
		w.Expect(read(w, name, &corev1.Service{}).Spec.Ports[0].TargetPort.StrVal).To(Equal("mcp"))
	}
}

func TestADeletedChildIsMadeAnewAndTold(t *testing.T) {
	w := newManagedWorld(t)
	w.createReady("tools", everything)
	drifts := 0
	for kind, newObject := range childKinds {
		before := read(w, "tools", newObject())
		w.Expect(api.Delete(w.ctx, before)).To(Succeed())
		drifts++
		eventually(w, "tools", newObject(), func(g Gomega, o client.Object) { g.Expect(o.GetUID()).NotTo(Equal(before.GetUID()), kind) })
		eventually(w, "tools", &v1alpha1.MCPServer{}, func(g Gomega, m *v1alpha1.MCPServer) {
			g.Expect(m.Status.Drifts).To(HaveLen(drifts))
			g.Expect(m.Status.Drifts[0]).To(And(HaveField("Kind", kind), HaveField("Action", v1alpha1.DriftCorrected)))
		})
		// While the Deployment is on its way, the phases behind it are not looked at, and the status
		// does not know of their children.
		w.complete("tools")
	}
}

func TestSuspendStopsAllWork(t *testing.T) {
	w := newManagedWorld(t)
	w.createReady("tools", often)

	w.change("tools", func(s *v1alpha1.MCPServerSpec) { s.Suspend = true })
	w.shows("tools", "Suspended", "True Suspended", Not(BeEmpty()))
	mark := w.settled()
	asked := w.server.requests("/mcp")
	update(w, "kubectl-edit", "tools", &appsv1.Deployment{}, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = otherImage })
	w.change("tools", func(s *v1alpha1.MCPServerSpec) { s.Port = 9090 })
	eventually(w, "tools", &v1alpha1.MCPServer{}, func(g Gomega, m *v1alpha1.MCPServer) {
		g.Expect(m.Status.ObservedGeneration).To(Equal(m.Generation))
	})
	// longer than it takes to ask twice
	w.Consistently(func() int { return w.server.requests("/mcp") }).WithTimeout(6 * time.Second).Should(Equal(asked))
	w.Expect(w.requests(mark).Writes().Where(func(r cluster.Request) bool { return r.Resource != "mcpservers" })).To(BeEmpty())

	w.change("tools", func(s *v1alpha1.MCPServerSpec) { s.Suspend = false })
	w.complete("tools")
	w.Expect(w.deployment("tools").Spec.Template.Spec.Containers[0].Image).To(Equal(image))
	w.Expect(w.server.requests("/mcp")).To(BeNumerically(">", asked))
}
