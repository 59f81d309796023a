package faults

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// ServerEdit changes the spec of an MCPServer.
type ServerEdit = func(*v1beta1.MCPServerSpec)

// secretName is the name of the Secret that the pods use.
const secretName = "credentials"

// NewMCPServer returns an MCPServer with one replica, changed by the edits. Its probe interval is longer than most runs, and
// short enough that within [Timeout] the next probe makes up for one that a busy machine missed.
func NewMCPServer(name string, edits ...ServerEdit) *v1beta1.MCPServer {
	server := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Name: name}}
	server.Spec.Image = "registry.test/tools:1"
	server.Spec.Protocol.Interval, server.Spec.Protocol.Timeout = metav1.Duration{Duration: 30 * time.Second}, metav1.Duration{Duration: 5 * time.Second}
	for _, edit := range edits {
		edit(&server.Spec)
	}
	return server
}

// AllServerOptions turns on every optional phase of an MCPServer that the cluster supports.
func AllServerOptions(s *v1beta1.MCPServerSpec) {
	s.Files = []v1beta1.MCPServerFile{{Path: "/etc/tools/config.json", Content: "{}"}}
	s.Autoscaling = &v1beta1.MCPServerAutoscaling{MinReplicas: 2, MaxReplicas: 4, TargetCPUUtilizationPercent: ptr.To[int32](80)}
	s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Create: true}
	s.DisruptionBudget = &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
	s.NetworkPolicy = &v1beta1.MCPServerNetworkPolicy{Ingress: &v1beta1.MCPServerNetworkIngress{
		From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "client"}}}},
	}}
	s.Ingress = &v1beta1.Ingress{Host: "tools.example.com", IngressClassName: ptr.To(IngressClass)}
}

// NoServerOptions turns off every optional phase of an MCPServer.
func NoServerOptions(s *v1beta1.MCPServerSpec) {
	s.Files, s.Autoscaling, s.ServiceAccount, s.DisruptionBudget, s.NetworkPolicy, s.Ingress = nil, nil, nil, nil, nil, nil
}

func withSecret(s *v1beta1.MCPServerSpec) {
	s.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secretName}}}}
}

func withStdio(s *v1beta1.MCPServerSpec) {
	s.Transport, s.Command = v1beta1.TransportStdio, []string{"/tools"}
}

// withSessions lets every pod serve the sessions of all pods, which share keys.
func withSessions(s *v1beta1.MCPServerSpec) {
	if s.Transport == v1beta1.TransportSSE {
		return // It does not support the field.
	}
	s.SessionRouting = v1beta1.SessionRoutingForward
}

// withAuthorization protects a server, except with transport sse, which does not support it. The resource does not depend
// on the namespace.
func withAuthorization(s *v1beta1.MCPServerSpec) {
	if s.Transport == v1beta1.TransportSSE {
		return
	}
	s.Authorization = &v1beta1.MCPServerAuthorization{
		Issuers:  []v1beta1.MCPServerIssuer{{Issuer: "https://id.example.com", JWKSURI: "https://id.example.com/keys"}},
		Resource: "https://tools.example.com/mcp", Scopes: []string{"mcp"},
	}
}

// withLimits limits what callers of a server may do, except with transport sse, which does not support it.
func withLimits(s *v1beta1.MCPServerSpec) {
	if s.Transport == v1beta1.TransportSSE {
		return
	}
	s.Limits = &v1beta1.MCPServerLimits{RequestsPerMinute: 600, MaxConcurrentCalls: 10}
}

// withTelemetry records requests of a server, except with transport sse, which does not support it.
func withTelemetry(s *v1beta1.MCPServerSpec) {
	if s.Transport == v1beta1.TransportSSE {
		return
	}
	s.Telemetry = &v1beta1.MCPServerTelemetry{Audit: &v1beta1.MCPServerAudit{}, OTLP: &v1beta1.MCPServerOTLP{Endpoint: "http://collector:4318"}}
}

// withPin lets only pods with the approved contract take traffic. No pods run, so none waits.
func withPin(s *v1beta1.MCPServerSpec) {
	s.Contract = &v1beta1.MCPServerContract{Policy: v1beta1.ContractPin}
}

// changeServerPod sets fields that affect only the pod template.
func changeServerPod(s *v1beta1.MCPServerSpec) {
	s.Env, s.ImagePullPolicy = []corev1.EnvVar{{Name: "LEVEL", Value: "high"}}, corev1.PullAlways
	s.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	s.Scheduling = &v1beta1.MCPServerScheduling{NodeSelector: map[string]string{"disk": "fast"}}
	s.Mounts = []v1beta1.MCPServerMount{{Name: "cache", MountPath: "/cache", EmptyDir: &v1beta1.MCPServerEmptyDir{}}}
	s.PodSecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](2000)}
	s.ContainerSecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](2000)}
	s.Probes = &v1beta1.MCPServerProbes{Readiness: &v1beta1.MCPServerProbe{Type: v1beta1.ProbeTCP}}
	s.PodOverrides = &v1beta1.MCPServerPodOverrides{Metadata: &v1beta1.MCPServerPodMetadata{Labels: map[string]string{"team": "tools"}}}
	s.ProgressDeadlineSeconds = 300
}

func createServer(edits ...ServerEdit) Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			return env.Create(ctx, NewMCPServer(objectName, edits...))
		},
		Done: func(env *Environment) bool { return env.serverIsComplete(1) },
	}
}

// serverIsComplete reports whether the MCPServer is Ready and its rollout is complete.
func (env *Environment) serverIsComplete(generation int64) bool {
	if !env.ReadyWith(MCPServer, objectName, generation) {
		return false
	}
	status, _, _ := condition(env.Get(MCPServer, objectName), "DeploymentReady")
	return status == "True"
}

func editServer(edit ServerEdit) Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			return Edit(ctx, env, user, objectName, &v1beta1.MCPServer{}, func(m *v1beta1.MCPServer) { edit(&m.Spec) })
		},
		Done: func(env *Environment) bool { return env.serverIsComplete(2) },
	}
}

func deleteServer() Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			return env.Delete(ctx, &v1beta1.MCPServer{}, objectName)
		},
		Done: func(env *Environment) bool { return env.Deleted(MCPServer, objectName) },
	}
}

func deleteServerDuring(class string) Step {
	return Step{
		Do:   createServer(AllServerOptions).Do,
		Done: func(env *Environment) bool { return env.Deleted(MCPServer, objectName) },
		During: injectOnce("deleted", hasClass(class), func(ctx context.Context, env *Environment) error {
			return env.Delete(ctx, &v1beta1.MCPServer{}, objectName)
		}),
	}
}

func createSecret() Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			return env.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, StringData: map[string]string{"token": "one"}})
		},
		Done: func(env *Environment) bool { return env.Get("Secret", secretName) != nil },
	}
}

// rotateSecret changes the content of the Secret, which must roll the pods.
func rotateSecret() Step {
	return externalAction(MCPServer, func(ctx context.Context, env *Environment) (string, error) {
		return editAs(ctx, env, "rotator", secretName, &corev1.Secret{}, func(s *corev1.Secret) { s.Data["token"] = []byte("two") })
	}, func(env *Environment) bool {
		return field(env.Get("Deployment", objectName), "metadata", "annotations", revisionAnnotation) == "2" && env.serverIsComplete(1)
	})
}

// createServerBeforeSecret creates an MCPServer before the Secret that it uses.
func createServerBeforeSecret() Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			return createBeforeSecret(ctx, env, MCPServer, NewMCPServer(objectName, withSecret))
		},
		Done: func(env *Environment) bool { return env.serverIsComplete(1) },
	}
}

// createBeforeSecret creates an object, and once it waits for the Secret that it uses, the Secret.
func createBeforeSecret(ctx context.Context, env *Environment, kind string, object client.Object) error {
	if err := env.Create(ctx, object); err != nil {
		return err
	}
	go func() {
		if env.WaitUntil(Timeout, func() bool {
			_, reason, _ := condition(env.Get(kind, objectName), "DependenciesReady")
			return reason == v1beta1.ReasonDependencyMissing
		}) {
			_ = createSecret().Do(ctx, env) // Done notices a failure
		}
	}()
	return nil
}

func editServerDeployment() Step {
	return externalAction(MCPServer, func(ctx context.Context, env *Environment) (string, error) {
		return editAs(ctx, env, "kubectl-edit", objectName, &appsv1.Deployment{}, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image = "registry.test/other:1"
		})
	}, func(env *Environment) bool {
		d := env.Get("Deployment", objectName)
		image, _, ready := readyPods(d)
		return ready && image == "registry.test/tools:1"
	})
}

func mcpServerScenarios() []Scenario {
	server := func(name string, when Step, given ...Step) Scenario {
		return Scenario{Name: name, Kinds: []string{MCPServer}, Given: given, When: when}
	}
	drift := func(name string, when Step, given ...Step) Scenario {
		s := server(name, when, given...)
		s.Unavoidable = reportedDriftMayBeLost
		return s
	}
	all, plain := createServer(AllServerOptions), createServer()
	return []Scenario{
		server("create", createServer(AllServerOptions)),
		server("create-stdio", createServer(withStdio)),
		server("create-sessions", createServer(withStdio, withSessions)),
		server("sessions-on", editServer(withSessions), createServer(withStdio)),
		server("sessions-off", editServer(func(s *v1beta1.MCPServerSpec) { s.SessionRouting = "" }), createServer(withSessions)),
		server("sessions-delete", deleteServer(), createServer(withSessions)),
		server("create-pinned", createServer(withPin)),
		server("pin-on", editServer(withPin), plain),
		server("pin-off", editServer(func(s *v1beta1.MCPServerSpec) { s.Contract = nil }), createServer(withPin)),
		server("authorization", editServer(withAuthorization), plain),
		server("waits", createServerBeforeSecret()),
		server("pods", editServer(func(s *v1beta1.MCPServerSpec) {
			s.Image, s.Args = "registry.test/tools:2", []string{"--fast"}
			s.Env = []corev1.EnvVar{{Name: "LEVEL", Value: "high"}}
		}), all),
		server("files", editServer(func(s *v1beta1.MCPServerSpec) { s.Files[0].Content = `{"more":true}` }), all),
		server("port", editServer(func(s *v1beta1.MCPServerSpec) { s.Port, s.Path = 9090, "/other" }), all),
		server("scale", editServer(func(s *v1beta1.MCPServerSpec) { s.Replicas = ptr.To[int32](3) }), plain),
		server("options-on", editServer(AllServerOptions), plain),
		server("options-off", editServer(NoServerOptions), all),
		server("probe-off", editServer(func(s *v1beta1.MCPServerSpec) { s.Protocol.Probe = v1beta1.ProbeDisabled }), plain),
		server("rotation", rotateSecret(), createSecret(), createServer(withSecret)),
		drift("drift", editServerDeployment(), plain),
		drift("drift-deleted", deleteChild(MCPServer, "Service", func() client.Object { return &corev1.Service{} }), all),
		server("delete", deleteServer(), all),
		raceScenario(server("delete-at-service", deleteServerDuring("apply services"))),
		raceScenario(server("delete-at-status", deleteServerDuring("apply mcpservers/status"))),
	}
}
