package mcpserver

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// plainDeployment is the Deployment of an MCPServer that sets only its image.
const plainDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: tools
  namespace: acme
  labels: {app.kubernetes.io/name: tools, app.kubernetes.io/managed-by: fixpoint, fixpoint.dev/kind: mcpserver}
spec:
  selector:
    matchLabels: {app.kubernetes.io/name: tools, fixpoint.dev/kind: mcpserver}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 25%}
  progressDeadlineSeconds: 600
  template:
    metadata:
      labels: {app.kubernetes.io/name: tools, app.kubernetes.io/managed-by: fixpoint, fixpoint.dev/kind: mcpserver}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 60
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: server
        image: ghcr.io/acme/tools:1.4.2
        imagePullPolicy: IfNotPresent
        ports:
        - {name: mcp, containerPort: 8080, protocol: TCP}
        lifecycle: {preStop: {sleep: {seconds: 10}}}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        startupProbe: {tcpSocket: {port: mcp}, initialDelaySeconds: 0, periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 60}
        readinessProbe: {tcpSocket: {port: mcp}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3}
`

// Where the tables below change the plain Deployment.
const (
	pod       = "spec.template.spec"
	container = pod + ".containers.0"
)

func object(name string, keys ...string) *v1beta1.MCPServerMountedObject {
	mounted := &v1beta1.MCPServerMountedObject{Name: name}
	for _, key := range keys {
		mounted.Items = append(mounted.Items, v1beta1.MCPServerMountedKey{Key: key, Path: key + ".txt"})
	}
	return mounted
}

// Each case says where the Deployment differs from the plain one, as "path: value" in YAML.
func TestDesiredDeployment(t *testing.T) {
	cases := map[string]struct {
		change func(*spec)
		want   map[string]string
	}{
		"nothing but an image": {func(*spec) {}, nil},
		"sse":                  {sse, nil},
		"replicas":             {func(s *spec) { s.Replicas = ptr.To[int32](3) }, map[string]string{"spec.replicas": "3"}},
		"port": {func(s *spec) { s.Port = 3001 }, map[string]string{
			container + ".ports": "[{name: mcp, containerPort: 3001, protocol: TCP}]"}},
		"a path leaves the pods alone": {func(s *spec) { s.Path = "/else" }, nil},
		"no rollingUpdate beside Recreate": {func(s *spec) { s.Strategy = v1beta1.StrategyRecreate }, map[string]string{
			"spec.strategy": "{type: Recreate}"}},
		"progress deadline": {func(s *spec) { s.ProgressDeadlineSeconds = 30 }, map[string]string{"spec.progressDeadlineSeconds": "30"}},
		"how pods end": {func(s *spec) { s.TerminationGracePeriodSeconds, s.DrainSeconds = 300, ptr.To[int64](20) }, map[string]string{
			pod + ".terminationGracePeriodSeconds": "300",
			container + ".lifecycle":               "{preStop: {sleep: {seconds: 20}}}"}},
		"no drain": {func(s *spec) { s.DrainSeconds = ptr.To[int64](0) }, map[string]string{container + ".lifecycle": ""}},
		"what runs": {func(s *spec) {
			s.ImagePullPolicy, s.Command, s.Args = corev1.PullAlways, []string{"/serve", "-v"}, []string{"--all"}
		}, map[string]string{container + ".imagePullPolicy": "Always", container + ".command": "[/serve, -v]", container + ".args": "[--all]"}},
		"env": {func(s *spec) {
			s.Env = []corev1.EnvVar{
				{Name: "PLAIN", Value: "x"},
				{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "db"}, Key: "password"}}},
				{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
			}
			s.EnvFrom = []corev1.EnvFromSource{
				{Prefix: "A_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "all"}, Optional: ptr.To(true)}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "some"}}},
			}
		}, map[string]string{
			container + ".env": `
[{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}},
 {name: PLAIN, value: x},
 {name: SECRET, valueFrom: {secretKeyRef: {name: db, key: password}}}]`,
			container + ".envFrom": "[{prefix: A_, secretRef: {name: all, optional: true}}, {configMapRef: {name: some}}]",
		}},
		"files": {func(s *spec) {
			s.Files = []v1beta1.MCPServerFile{{Path: "/etc/tools.json", Content: "{}"}, {Path: "/etc/b", Content: "b"}}
		}, map[string]string{
			"spec.template.metadata.annotations": "{fixpoint.dev/files-hash: 0a45fb4e5cf015da}",
			pod + ".volumes":                     "[{name: fixpoint-files, configMap: {name: tools}}]",
			container + ".volumeMounts": `
[{name: fixpoint-files, mountPath: /etc/b, subPath: file-79d24e96ede13d39, readOnly: true},
 {name: fixpoint-files, mountPath: /etc/tools.json, subPath: file-fe4905b8dc821843, readOnly: true}]`,
		}},
		"mounts": {func(s *spec) {
			size := resource.MustParse("64Mi")
			s.Mounts = []v1beta1.MCPServerMount{
				{Name: "a", MountPath: "/a", ConfigMap: object("some", "k")},
				{Name: "b", MountPath: "/b", Secret: object("all"), SubPath: "x"},
				{Name: "c", MountPath: "/c", PersistentVolumeClaim: &v1beta1.MCPServerMountedClaim{ClaimName: "data"}, ReadOnly: true},
				{Name: "d", MountPath: "/d", EmptyDir: &v1beta1.MCPServerEmptyDir{SizeLimit: &size, Medium: v1beta1.MediumMemory}},
			}
			s.Mounts[1].Secret.Optional = true
		}, map[string]string{
			pod + ".volumes": `
[{name: a, configMap: {name: some, optional: false, items: [{key: k, path: k.txt}]}},
 {name: b, secret: {secretName: all, optional: true}},
 {name: c, persistentVolumeClaim: {claimName: data}},
 {name: d, emptyDir: {sizeLimit: 64Mi, medium: Memory}}]`,
			container + ".volumeMounts": `
[{name: a, mountPath: /a}, {name: b, mountPath: /b, subPath: x}, {name: c, mountPath: /c, readOnly: true}, {name: d, mountPath: /d}]`,
		}},
		"resources": {func(s *spec) {
			s.Resources = corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
			}
		}, map[string]string{container + ".resources": "{requests: {cpu: 50m}, limits: {memory: 128Mi}}"}},
		"an account of its own": {func(s *spec) {
			s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Create: true, AutomountToken: true}
		},
			map[string]string{
				pod + ".serviceAccountName":           "tools",
				pod + ".serviceAccount":               "tools", // the deprecated field, which the API server keeps in sync
				pod + ".automountServiceAccountToken": "true",
			}},
		"an account that exists": {func(s *spec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Name: "robot"} },
			map[string]string{pod + ".serviceAccountName": "robot", pod + ".serviceAccount": "robot"}},
		"the default account": {func(s *spec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{AutomountToken: true} },
			map[string]string{pod + ".automountServiceAccountToken": "true"}},
		"pull secrets": {func(s *spec) { s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}} },
			map[string]string{pod + ".imagePullSecrets": "[{name: a}, {name: b}]"}},
		"scheduling": {func(s *spec) {
			s.Scheduling = &v1beta1.MCPServerScheduling{
				NodeSelector:      map[string]string{"disk": "ssd"},
				PriorityClassName: "high",
				Tolerations:       []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
				Affinity:          &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}},
			}
		}, map[string]string{
			pod + ".nodeSelector":              "{disk: ssd}",
			pod + ".priorityClassName":         "high",
			pod + ".tolerations":               "[{key: gpu, operator: Exists}]",
			pod + ".affinity":                  "{nodeAffinity: {}}",
			pod + ".topologySpreadConstraints": "[{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}]",
		}},
		"pods of other MCPServers do not count for the spread": {func(s *spec) {
			s.Scheduling = &v1beta1.MCPServerScheduling{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}}}
		}, map[string]string{
			pod + ".topologySpreadConstraints": "[{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app.kubernetes.io/name: tools, fixpoint.dev/kind: mcpserver}}}]"}},
		"security": {func(s *spec) {
			s.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("tools.json")}}
			s.ContainerSecurityContext = &corev1.SecurityContext{
				ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}}}
		}, map[string]string{
			pod + ".securityContext":       "{runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: Localhost, localhostProfile: tools.json}}",
			container + ".securityContext": "{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}",
		}},
		"stdio": {stdio, map[string]string{
			pod + ".initContainers": `
[{name: fixpoint-bridge, image: "ghcr.io/fixpoint-dev/fixpoint:1", imagePullPolicy: IfNotPresent, command: [/mcp-bridge, install, /.fixpoint/mcp-bridge],
  securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true},
  volumeMounts: [{name: fixpoint-bridge, mountPath: /.fixpoint}]}]`,
			pod + ".volumes":              "[{name: fixpoint-bridge, emptyDir: {}}]",
			container + ".volumeMounts":   "[{name: fixpoint-bridge, mountPath: /.fixpoint, readOnly: true}]",
			container + ".command":        `[/.fixpoint/mcp-bridge, serve, --listen, ":8080", --admin-listen, ":9191", --path, /mcp, --allowed-host, "tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local", --drain-timeout, 48s, --, npx, -y, server-memory]`,
			container + ".ports":          "[{name: mcp, containerPort: 8080, protocol: TCP}, {name: bridge-metrics, containerPort: 9191, protocol: TCP}]",
			container + ".startupProbe":   "{httpGet: {path: /readyz, port: bridge-metrics}, initialDelaySeconds: 0, periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 60}",
			container + ".readinessProbe": "{httpGet: {path: /readyz, port: bridge-metrics}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3}",
			container + ".livenessProbe":  "{httpGet: {path: /healthz, port: bridge-metrics}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3}",
		}},
		// These settings have their own children and do not affect the Deployment.
		"options that are other phases": {func(s *spec) {
			s.Autoscaling = &v1beta1.MCPServerAutoscaling{MinReplicas: 2, MaxReplicas: 6}
			s.DisruptionBudget = &v1beta1.DisruptionBudget{}
			s.NetworkPolicy = &v1beta1.MCPServerNetworkPolicy{}
			s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{}
		}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			desired, err := desiredDeployment(&scope{server: tools(c.change), settings: settings})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(asJSON(t, desired)).To(MatchYAML(edited(t, plainDeployment, c.want)))
		})
	}
}

// Always is for images that only some may pull, so a pod with Always has no image that is not pulled. Never is for an image
// that is on the nodes, where that of the bridge need not be.
func TestBridgeIsPulledAlwaysIfTheServerIs(t *testing.T) {
	for given, want := range map[corev1.PullPolicy]corev1.PullPolicy{
		"": corev1.PullIfNotPresent, corev1.PullAlways: corev1.PullAlways,
		corev1.PullIfNotPresent: corev1.PullIfNotPresent, corev1.PullNever: corev1.PullIfNotPresent,
	} {
		t.Run("policy "+string(given), func(t *testing.T) {
			g := NewWithT(t)
			server := tools(func(s *spec) { stdio(s); s.ImagePullPolicy = given })

			desired, err := desiredDeployment(&scope{server: server, settings: settings})

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(desired.Spec.Template.Spec.InitContainers).To(HaveLen(1))
			g.Expect(desired.Spec.Template.Spec.InitContainers[0].ImagePullPolicy).To(HaveValue(Equal(want)))
		})
	}
}

func TestBridgeIsInstalledWithTheResourcesOfTheServer(t *testing.T) {
	list := func(values ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(values); i += 2 {
			l[corev1.ResourceName(values[i])] = resource.MustParse(values[i+1])
		}
		return l
	}
	for name, c := range map[string]struct {
		requests, limits corev1.ResourceList
		want             string
	}{
		"none":         {nil, nil, "{}"},
		"requests":     {list("cpu", "50m", "memory", "32Mi"), nil, "{requests: {cpu: 50m, memory: 32Mi}}"},
		"limits":       {nil, list("memory", "128Mi", "ephemeral-storage", "1Gi"), "{limits: {memory: 128Mi, ephemeral-storage: 1Gi}}"},
		"devices too":  {list("cpu", "1", "example.com/gpu", "1"), list("example.com/gpu", "1"), "{requests: {cpu: \"1\"}}"},
		"devices only": {nil, list("example.com/gpu", "1"), "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := tools(stdio, func(s *spec) { s.Resources = corev1.ResourceRequirements{Requests: c.requests, Limits: c.limits} })
			desired, err := desiredDeployment(&scope{server: server, settings: settings})
			g.Expect(err).NotTo(HaveOccurred())
			got := desired.Spec.Template.Spec.InitContainers[0].Resources
			if got == nil {
				got = corev1ac.ResourceRequirements()
			}
			g.Expect(asJSON(t, got)).To(MatchYAML(c.want))
		})
	}
}

func TestBridgeArguments(t *testing.T) {
	cases := map[string]struct {
		change func(*spec)
		want   string
	}{
		"defaults":      {func(*spec) {}, "serve --listen :8080 --admin-listen :9191 --path /mcp --allowed-host tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local --drain-timeout 48s"},
		"port and path": {func(s *spec) { s.Port, s.Path = 80, "/a/b" }, "serve --listen :80 --admin-listen :9191 --path /a/b --allowed-host tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local --drain-timeout 48s"},
		"the port of the bridge itself": {func(s *spec) { s.Port = 9191 },
			"serve --listen :9191 --admin-listen :9192 --path /mcp --allowed-host tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local --drain-timeout 48s"},
		"hosts and origins": {func(s *spec) {
			s.Bridge = &v1beta1.MCPServerBridge{MaxSessions: 7, MaxMessageBytes: 1024,
				AllowedHosts: []string{"z.example.com", "a.example.com"}, AllowedOrigins: []string{"https://z.example.com", "*"}}
		}, "serve --listen :8080 --admin-listen :9191 --path /mcp --allowed-host tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local,a.example.com,z.example.com --allowed-origin *,https://z.example.com --max-sessions 7 --idle-timeout 0s --max-message-bytes 1024 --drain-timeout 48s"},
		"a long grace": {func(s *spec) { s.TerminationGracePeriodSeconds, s.DrainSeconds = 3600, ptr.To[int64](30) },
			"serve --listen :8080 --admin-listen :9191 --path /mcp --allowed-host tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local --drain-timeout 59m28s"},
		"a short grace": {func(s *spec) { s.TerminationGracePeriodSeconds, s.DrainSeconds = 5, ptr.To[int64](1) },
			"serve --listen :8080 --admin-listen :9191 --path /mcp --allowed-host tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local --drain-timeout 3s --stop-grace 750ms"},
		"a grace whose quarter is the default of the bridge": {func(s *spec) { s.TerminationGracePeriodSeconds, s.DrainSeconds = 10, nil },
			"serve --listen :8080 --admin-listen :9191 --path /mcp --allowed-host tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local --drain-timeout 8s"},
		"minimal grace": {func(s *spec) { s.TerminationGracePeriodSeconds, s.DrainSeconds = 1, nil },
			"serve --listen :8080 --admin-listen :9191 --path /mcp --allowed-host tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local --drain-timeout 750ms --stop-grace 187.5ms"},
		"a user per session": {func(s *spec) {
			s.Bridge = &v1beta1.MCPServerBridge{MaxSessions: 7, MaxMessageBytes: 1024, FirstSessionUser: ptr.To[int64](100000)}
		}, "serve --listen :8080 --admin-listen :9191 --path /mcp --allowed-host tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local --max-sessions 7 --idle-timeout 0s --max-message-bytes 1024 --first-session-user 100000 --drain-timeout 48s"},
		// Validation rejects this, but not for objects that were stored before the rule existed.
		"more than the grace": {func(s *spec) {
			s.TerminationGracePeriodSeconds = 30
			s.Bridge = &v1beta1.MCPServerBridge{MaxSessions: 1, MaxMessageBytes: 1024, DrainTimeout: metav1.Duration{Duration: time.Hour}}
		}, "serve --listen :8080 --admin-listen :9191 --path /mcp --allowed-host tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local --max-sessions 1 --idle-timeout 0s --max-message-bytes 1024 --drain-timeout 20s"},
		"limits": {func(s *spec) {
			s.Bridge = &v1beta1.MCPServerBridge{
				MaxSessions: 7, IdleTimeout: metav1.Duration{Duration: 30 * time.Minute}, MaxMessageBytes: 4 << 20,
				DrainTimeout: metav1.Duration{Duration: 45 * time.Second}}
		}, "serve --listen :8080 --admin-listen :9191 --path /mcp --allowed-host tools,tools.acme,tools.acme.svc,tools.acme.svc.cluster.local --max-sessions 7 --idle-timeout 30m0s --max-message-bytes 4194304 --drain-timeout 45s"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(strings.Join(bridgeArguments(tools(stdio, c.change)), " ")).To(Equal(c.want))
		})
	}
}

// The bridge refuses other host names, so clients must find all that lead to the server.
func TestAllowedHosts(t *testing.T) {
	service := []string{"tools", "tools.acme", "tools.acme.svc", "tools.acme.svc.cluster.local"}
	cases := map[string]struct {
		change func(*spec)
		want   []string
	}{
		"Service": {func(*spec) {}, nil},
		"Ingress": {func(s *spec) { s.Ingress = &v1beta1.Ingress{Host: "tools.example.com"} }, []string{"tools.example.com"}},
		"HTTPRoute": {func(s *spec) {
			s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{Hostnames: []string{"b.example.com", "a.example.com"}}
		}, []string{"a.example.com", "b.example.com"}},
		"HTTPRoute with the hosts of its listeners": {func(s *spec) { s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{} }, []string{"*"}},
		"also listed": {func(s *spec) {
			s.Ingress = &v1beta1.Ingress{Host: "tools.example.com"}
			s.Bridge = &v1beta1.MCPServerBridge{AllowedHosts: []string{"tools.example.com", "proxy.example.com"}}
		}, []string{"proxy.example.com", "tools.example.com"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(allowedHosts(tools(stdio, c.change))).To(Equal(append(service, c.want...)))
		})
	}
}

// No Service, Ingress or HTTPRoute publishes the port of health and metrics.
func TestServiceDoesNotPublishThePortOfTheBridge(t *testing.T) {
	g := NewWithT(t)
	server := tools(stdio)
	ports := desiredService(server).Spec.Ports
	g.Expect(ports).To(HaveLen(1))
	g.Expect(ports[0].TargetPort.String()).To(Equal(portName))
	container := podTemplate(server, settings, "")
	for _, port := range container.Spec.Containers[0].Ports {
		g.Expect(*port.Name == portName).To(Equal(*port.ContainerPort == server.Spec.Port))
	}
}

// Kubernetes appends args to command, so the arguments of the server follow those of the bridge.
func TestBridgeRunsCommandWithArguments(t *testing.T) {
	g := NewWithT(t)
	template := podTemplate(tools(stdio, func(s *spec) { s.Args = []string{"--file", "/data/x"} }), settings, "")
	server := template.Spec.Containers[0]
	line := strings.Join(append(server.Command, server.Args...), " ")
	g.Expect(line).To(HaveSuffix(" -- npx -y server-memory --file /data/x"))
}

func TestProbes(t *testing.T) {
	off := &v1beta1.MCPServerProbe{Type: v1beta1.ProbeOff}
	cases := map[string]struct {
		transport func(*spec)
		probes    *v1beta1.MCPServerProbes
		want      map[string]string
	}{
		"all off": {stdio, &v1beta1.MCPServerProbes{Readiness: off, Liveness: off, Startup: off},
			map[string]string{"startupProbe": "null", "readinessProbe": "null", "livenessProbe": "null"}},
		"only timings": {stdio,
			&v1beta1.MCPServerProbes{Startup: off, Liveness: &v1beta1.MCPServerProbe{PeriodSeconds: ptr.To[int32](30), InitialDelaySeconds: ptr.To[int32](9)}},
			map[string]string{
				"startupProbe":   "null",
				"readinessProbe": "{httpGet: {path: /readyz, port: bridge-metrics}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3}",
				"livenessProbe":  "{httpGet: {path: /healthz, port: bridge-metrics}, initialDelaySeconds: 9, periodSeconds: 30, timeoutSeconds: 2, failureThreshold: 3}",
			}},
		"HTTP without a port": {stdio, &v1beta1.MCPServerProbes{
			Startup:   &v1beta1.MCPServerProbe{Type: v1beta1.ProbeTCP},
			Readiness: &v1beta1.MCPServerProbe{Type: v1beta1.ProbeHTTP, Path: "/readyz"},
			Liveness:  &v1beta1.MCPServerProbe{Type: v1beta1.ProbeHTTP, Path: "/live", Port: ptr.To[int32](8090)},
		}, map[string]string{
			"startupProbe":   "{tcpSocket: {port: mcp}, initialDelaySeconds: 0, periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 60}",
			"readinessProbe": "{httpGet: {path: /readyz, port: bridge-metrics}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3}",
			"livenessProbe":  "{httpGet: {path: /live, port: 8090}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3}",
		}},
		// Without a default probe, timings have no effect.
		"timings of no probe": {sse, &v1beta1.MCPServerProbes{Startup: off, Readiness: off, Liveness: &v1beta1.MCPServerProbe{PeriodSeconds: ptr.To[int32](30)}},
			map[string]string{"startupProbe": "null", "readinessProbe": "null", "livenessProbe": "null"}},
		"all set": {func(*spec) {}, &v1beta1.MCPServerProbes{
			Startup:   &v1beta1.MCPServerProbe{Type: v1beta1.ProbeTCP, Port: ptr.To[int32](9090), FailureThreshold: ptr.To[int32](5)},
			Readiness: &v1beta1.MCPServerProbe{Type: v1beta1.ProbeHTTP, Path: "/ready", TimeoutSeconds: ptr.To[int32](4)},
			Liveness:  &v1beta1.MCPServerProbe{Type: v1beta1.ProbeHTTP, Path: "/live", Port: ptr.To[int32](9090)},
		}, map[string]string{
			"startupProbe":   "{tcpSocket: {port: 9090}, initialDelaySeconds: 0, periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 5}",
			"readinessProbe": "{httpGet: {path: /ready, port: mcp}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 4, failureThreshold: 3}",
			"livenessProbe":  "{httpGet: {path: /live, port: 9090}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3}",
		}},
		"TLS server": {func(s *spec) { s.Protocol.Scheme = v1beta1.SchemeHTTPS }, &v1beta1.MCPServerProbes{
			Startup:   off,
			Readiness: &v1beta1.MCPServerProbe{Type: v1beta1.ProbeHTTP, Path: "/ready"},
			Liveness:  &v1beta1.MCPServerProbe{Type: v1beta1.ProbeHTTP, Path: "/live", Port: ptr.To[int32](9090)},
		}, map[string]string{
			"startupProbe":   "null",
			"readinessProbe": "{httpGet: {path: /ready, port: mcp, scheme: HTTPS}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3}",
			"livenessProbe":  "{httpGet: {path: /live, port: 9090}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3}",
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			template := podTemplate(tools(c.transport, func(s *spec) { s.Probes = c.probes }), settings, "")
			server := template.Spec.Containers[0]
			g.Expect(asJSON(t, server.StartupProbe)).To(MatchYAML(c.want["startupProbe"]), "startup")
			g.Expect(asJSON(t, server.ReadinessProbe)).To(MatchYAML(c.want["readinessProbe"]), "readiness")
			g.Expect(asJSON(t, server.LivenessProbe)).To(MatchYAML(c.want["livenessProbe"]), "liveness")
		})
	}
}

// The rules are those of https://kubernetes.io/docs/concepts/security/pod-security-standards/, for
// the volumes and fields that an MCPServer can set.
func TestPodsSatisfyRestrictedPodSecurityByDefault(t *testing.T) {
	allowed := map[string]bool{"configMap": true, "secret": true, "emptyDir": true, "persistentVolumeClaim": true}
	for name, transport := range map[string]func(*spec){"streamable-http": func(*spec) {}, "sse": sse, "stdio": stdio} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			template := podTemplate(tools(transport, func(s *spec) {
				s.Files = []v1beta1.MCPServerFile{{Path: "/a", Content: "b"}}
				s.Mounts = []v1beta1.MCPServerMount{
					{Name: "a", MountPath: "/x", Secret: object("s")}, {Name: "b", MountPath: "/y", EmptyDir: &v1beta1.MCPServerEmptyDir{}},
					{Name: "c", MountPath: "/z", PersistentVolumeClaim: &v1beta1.MCPServerMountedClaim{ClaimName: "c"}}}
			}), settings, "")
			g.Expect(template.Spec.HostNetwork).To(BeNil())
			g.Expect(template.Spec.HostPID).To(BeNil())
			g.Expect(template.Spec.HostIPC).To(BeNil())
			g.Expect(template.Spec.SecurityContext.RunAsNonRoot).To(HaveValue(BeTrue()))
			g.Expect(template.Spec.SecurityContext.SeccompProfile.Type).To(HaveValue(Equal(corev1.SeccompProfileTypeRuntimeDefault)))
			for _, c := range append(template.Spec.Containers, template.Spec.InitContainers...) {
				g.Expect(c.SecurityContext.AllowPrivilegeEscalation).To(HaveValue(BeFalse()), *c.Name)
				g.Expect(c.SecurityContext.Capabilities.Drop).To(ConsistOf(corev1.Capability("ALL")), *c.Name)
				g.Expect(c.SecurityContext.Capabilities.Add).To(BeEmpty(), *c.Name)
				g.Expect(c.SecurityContext.Privileged).To(BeNil(), *c.Name)
				for _, port := range c.Ports {
					g.Expect(port.HostPort).To(BeNil(), *c.Name)
				}
			}
			for _, volume := range template.Spec.Volumes {
				var tree map[string]any
				g.Expect(asJSON(t, volume)).To(WithTransform(func(s string) error { return unmarshal(s, &tree) }, Succeed()))
				delete(tree, "name")
				for source := range tree {
					g.Expect(allowed).To(HaveKey(source))
				}
			}
		})
	}
}

func TestPodTemplateChangesOnlyWithPodSettings(t *testing.T) {
	template := func(change func(*v1beta1.MCPServer), dependencies string) string {
		server := tools(func(s *spec) { s.Files = []v1beta1.MCPServerFile{{Path: "/a", Content: "b"}} })
		change(server)
		template := podTemplate(server, settings, dependencies)
		return asJSON(t, template)
	}
	nothing := func(*v1beta1.MCPServer) {}
	before := template(nothing, "one")
	cases := map[string]struct {
		change       func(*v1beta1.MCPServer)
		dependencies string
		rolls        bool
	}{
		"labels, annotations and the generation": {change: func(m *v1beta1.MCPServer) {
			m.Labels, m.Annotations, m.Generation = map[string]string{"a": "b"}, map[string]string{"c": "d"}, 99
		}},
		"replicas":         {change: func(m *v1beta1.MCPServer) { m.Spec.Replicas = ptr.To[int32](9) }},
		"path":             {change: func(m *v1beta1.MCPServer) { m.Spec.Path = "/x" }},
		"affinity":         {change: func(m *v1beta1.MCPServer) { m.Spec.SessionAffinity = v1beta1.SessionAffinityNone }},
		"strategy":         {change: func(m *v1beta1.MCPServer) { m.Spec.Strategy = v1beta1.StrategyRecreate }},
		"deadline":         {change: func(m *v1beta1.MCPServer) { m.Spec.ProgressDeadlineSeconds = 30 }},
		"protocol":         {change: func(m *v1beta1.MCPServer) { m.Spec.Protocol = v1beta1.MCPServerProtocol{Probe: v1beta1.ProbeDisabled} }},
		"policies":         {change: func(m *v1beta1.MCPServer) { m.Spec.DriftPolicy = v1beta1.DriftReport }},
		"image":            {change: func(m *v1beta1.MCPServer) { m.Spec.Image = "else" }, rolls: true},
		"content":          {change: func(m *v1beta1.MCPServer) { m.Spec.Files[0].Content = "c" }, rolls: true},
		"data of a Secret": {change: nothing, dependencies: "two", rolls: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dependencies := "one"
			if c.dependencies != "" {
				dependencies = c.dependencies
			}
			after := template(c.change, dependencies)
			NewWithT(t).Expect(after != before).To(Equal(c.rolls), "before: %s\nafter: %s", before, after)
		})
	}
}

func TestPodTemplateIgnoresOrderOfLists(t *testing.T) {
	given := func(s *spec) {
		s.Files = []v1beta1.MCPServerFile{{Path: "/etc/a", Content: "1"}, {Path: "/etc/b", Content: "2"}}
		s.Mounts = []v1beta1.MCPServerMount{
			{Name: "z", MountPath: "/data", ConfigMap: object("one", "k", "l")}, {Name: "y", MountPath: "/data/in", Secret: object("two")}}
		s.Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}
	}
	cases := map[string]struct {
		change func(*spec)
		same   bool
	}{
		"files":           {func(s *spec) { slices.Reverse(s.Files) }, true},
		"mounts":          {func(s *spec) { slices.Reverse(s.Mounts) }, true},
		"keys of a mount": {func(s *spec) { slices.Reverse(s.Mounts[0].ConfigMap.Items) }, true},
		"env":             {func(s *spec) { slices.Reverse(s.Env) }, true},
		"env with references": {func(s *spec) {
			s.Env[0].Value = "$(B)"
			slices.Reverse(s.Env)
		}, false},
	}
	template := func(changes ...func(*spec)) string {
		made := podTemplate(tools(changes...), settings, "")
		return asJSON(t, made)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(template(given, c.change) == template(given)).To(Equal(c.same))
		})
	}
	// $(B) is expanded only after B.
	refers := func(s *spec) { s.Env = []corev1.EnvVar{{Name: "B", Value: "1"}, {Name: "A", Value: "$(B)"}} }
	NewWithT(t).Expect(template(refers)).To(ContainSubstring(`"env":[{"name":"B","value":"1"},{"name":"A","value":"$(B)"}]`))
}

// rollout is a Deployment of two pods during a rollout.
func rollout(changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "tools", Generation: 2},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), ProgressDeadlineSeconds: ptr.To[int32](600)},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 1, ReadyReplicas: 2, AvailableReplicas: 2},
	}
	for _, change := range changes {
		change(d)
	}
	return d
}

func TestDeploymentReady(t *testing.T) {
	serving := outcome{"done", "OldReplicasServing", "the rollout is incomplete; old pods still serve"}
	cases := map[string]struct {
		change func(*appsv1.Deployment)
		want   outcome
	}{
		"enough old pods serve":    {func(*appsv1.Deployment) {}, serving},
		"old pods are terminating": {func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 2 }, serving},
		"too few pods available": {func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 1 },
			outcome{"wait", "RolloutProgressing", "waiting for updated pods to be created"}},
		"no old pods": {func(d *appsv1.Deployment) { d.Status.Replicas, d.Status.AvailableReplicas = 1, 1 },
			outcome{"wait", "RolloutProgressing", "waiting for updated pods to be created"}},
		"scaled up": {func(d *appsv1.Deployment) {
			d.Spec.Replicas, d.Status.Replicas, d.Status.UpdatedReplicas = ptr.To[int32](3), 3, 3
		},
			outcome{"wait", "RolloutProgressing", "waiting for updated pods to become available"}},
		"not observed": {func(d *appsv1.Deployment) { d.Generation = 3 },
			outcome{"wait", "RolloutProgressing", "waiting for the Deployment controller to observe the last change"}},
		"paused": {func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionUnknown, Reason: "DeploymentPaused"}}
		}, outcome{"done", "OldReplicasServing", "the rollout is incomplete; old pods still serve: the Deployment is paused: resume it with kubectl rollout resume deployment tools, or wait for who paused it"}},
		"one old pod": {func(d *appsv1.Deployment) {
			d.Spec.Replicas, d.Status = nil, appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1}
		}, serving},
		"complete": {func(d *appsv1.Deployment) { d.Status.Replicas, d.Status.UpdatedReplicas = 2, 2 },
			outcome{"done", "Ready", "all pods are updated and available"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(outcomeOf(deploymentReady(rollout(c.change)))).To(Equal(c.want))
		})
	}
}

func TestIncompleteRolloutIsRequeued(t *testing.T) {
	NewWithT(t).Expect(deploymentReady(rollout()).After()).To(Equal(rolloutRecheckInterval))
}

func TestStalledRolloutStaysReadyWhileOldPodsServe(t *testing.T) {
	g := NewWithT(t)
	overdue := func(d *appsv1.Deployment) {
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}
	}
	verdict := deploymentReady(rollout(overdue))
	g.Expect(verdict.IsDone()).To(BeTrue())
	g.Expect(verdict.Reason()).To(Equal("RolloutStalled"))
	g.Expect(verdict.Message()).To(HavePrefix("the rollout is incomplete; old pods still serve: not all pods became available within spec.progressDeadlineSeconds (600)"))
	g.Expect(verdict.After()).To(Equal(time.Minute), "the pods may fail for another reason by then")

	tooFew := deploymentReady(rollout(overdue, func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 1 }))
	g.Expect(tooFew.IsStalled()).To(BeTrue())
	g.Expect(tooFew.Reason()).To(Equal("RolloutStalled"))
}

func TestOldPodsServeWhileNewPodsCannotBeCreated(t *testing.T) {
	refused := rollout(func(d *appsv1.Deployment) {
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue,
			Message: `pods "tools-1-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2`}}
	})
	NewWithT(t).Expect(deploymentReady(refused).After()).To(Equal(rolloutRecheckInterval))
	NewWithT(t).Expect(outcomeOf(deploymentReady(refused))).To(Equal(outcome{"done", "OldReplicasServing",
		"the rollout is incomplete; old pods still serve: pods cannot be created: exceeded quota: small, requested: pods=1, limited: pods=2; raise the ResourceQuota, or lower spec.replicas or spec.resources"}))
}

func TestWithCommandFailure(t *testing.T) {
	missing := `container server crashes with exit code 127: mcp-bridge: the command "x" was not found in the image: no such file; see kubectl logs --previous`
	other := "container server crashes with exit code 1: mcp-bridge: listening: port in use; see kubectl logs --previous"
	cases := map[string]struct {
		transport      func(*spec)
		reason, before string
		want           outcome
	}{
		"the command":     {stdio, "PodsFailing", missing, outcome{"wait", "BridgeCommandFailed", missing + "; correct spec.command, spec.args or spec.image"}},
		"not the command": {stdio, "PodsFailing", other, outcome{"wait", "PodsFailing", other}},
		"no bridge":       {sse, "PodsFailing", missing, outcome{"wait", "PodsFailing", missing}},
		"other reason":    {stdio, "RolloutProgressing", "x", outcome{"wait", "RolloutProgressing", "x"}},
	}
	serving := phases.DoneBecause("OldReplicasServing", "old pods serve: "+missing).WhileReconciling()
	NewWithT(t).Expect(outcomeOf(withCommandFailure(tools(stdio), serving))).To(Equal(
		outcome{"done", "OldReplicasServing", "old pods serve: " + missing + "; correct spec.command, spec.args or spec.image"}))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			verdict := withCommandFailure(tools(c.transport), phases.Wait(c.reason, c.before, rolloutRecheckInterval))
			NewWithT(t).Expect(outcomeOf(verdict)).To(Equal(c.want))
			NewWithT(t).Expect(verdict.After()).To(Equal(rolloutRecheckInterval))
		})
	}
}

func TestOnlyObjectsAreMerged(t *testing.T) {
	g := NewWithT(t)
	_, err := jsonOf([]int{1})
	g.Expect(err).To(HaveOccurred())
	_, err = jsonOf(make(chan int))
	g.Expect(err).To(MatchError(ContainSubstring("unsupported type: chan int")))
}

func TestPodTemplateHasTheHashOfDependencies(t *testing.T) {
	g := NewWithT(t)
	template := podTemplate(tools(), settings, "h")
	g.Expect(template.Annotations).To(Equal(map[string]string{"fixpoint.dev/dependencies-hash": "h"}))
}

func TestServerWithoutReplicasHasNoOldPodsThatServe(t *testing.T) {
	d := rollout(func(d *appsv1.Deployment) {
		d.Spec.Replicas = ptr.To[int32](0)
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1}
	})
	NewWithT(t).Expect(oldReplicasAvailable(d)).To(BeFalse())
	updated := rollout(func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 3 })
	NewWithT(t).Expect(oldReplicasAvailable(updated)).To(BeFalse(), "all pods are new")
}

// What the children of a server leave to others, and what other writers may not add to them.
func TestFieldsOfChildrenThatOthersWrite(t *testing.T) {
	g := NewWithT(t)
	g.Expect(deployment.HandOver).To(Equal([]string{"spec.replicas"}), "an autoscaler writes the replicas")
	g.Expect(deployment.RemoveFields).To(ContainElements("spec.strategy.type|rollingUpdate", "spec.template.spec.containers.env.value|valueFrom"), "the API server permits one")
	g.Expect(disruptionBudget.RemoveFields).To(Equal([]string{"spec.minAvailable|maxUnavailable"}), "the API server permits one")
	g.Expect(deployment.UniqueFields).To(Equal([]string{"spec.template.spec.containers.ports.name"}))
	g.Expect(service.UniqueFields).To(Equal([]string{"spec.ports.name"}))
	for name, order := range map[string]phases.PruneOrder{"ConfigMap": config.Prune, "ServiceAccount": serviceAccount.Prune, "SessionKeys": sessionKeys.Prune} {
		g.Expect(order).To(Equal(phases.PruneLast), "pods use the %s until they end", name)
	}
	complete := rollout(func(d *appsv1.Deployment) { d.Status.Replicas, d.Status.UpdatedReplicas = 2, 2 })
	g.Expect(deployment.Ready(t.Context(), &scope{server: tools()}, complete).Message()).To(Equal("all pods are updated and available"))
	g.Expect(deployment.Health(rollout())).To(Equal(deploymentReady(rollout())))
}

func TestProbeOfTheOwnPortHasTheSchemeOfTheServer(t *testing.T) {
	server := tools(func(s *spec) { s.Protocol.Scheme = v1beta1.SchemeHTTPS })
	for port, want := range map[int32]corev1.URIScheme{8080: corev1.URISchemeHTTPS, 8081: ""} {
		NewWithT(t).Expect(probeScheme(server, &port)).To(Equal(want))
	}
	NewWithT(t).Expect(probeScheme(server, nil)).To(Equal(corev1.URISchemeHTTPS))
}
