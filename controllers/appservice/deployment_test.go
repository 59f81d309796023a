package appservice

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// plainDeployment is the desired Deployment of an AppService that sets only its image.
const plainDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  labels: {app.kubernetes.io/name: web, app.kubernetes.io/managed-by: fixpoint}
spec:
  selector:
    matchLabels: {app.kubernetes.io/name: web}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 25%}
  progressDeadlineSeconds: 600
  template:
    metadata:
      labels: {app.kubernetes.io/name: web, app.kubernetes.io/managed-by: fixpoint}
    spec:
      containers:
      - name: app
        image: ghcr.io/acme/shop:1.4.2
        imagePullPolicy: IfNotPresent
        ports:
        - {name: http, containerPort: 8080, protocol: TCP}
`

func TestDesiredDeployment(t *testing.T) {
	type spec = v1beta1.AppServiceSpec
	// want lists the differences from plainDeployment, as path and YAML value.
	cases := map[string]struct {
		change func(*spec)
		want   map[string]string
	}{
		"only an image": {func(*spec) {}, nil},
		"replicas":      {func(s *spec) { s.Replicas = ptr.To[int32](3) }, map[string]string{"spec.replicas": "3"}},
		"pull policy": {func(s *spec) { s.ImagePullPolicy = corev1.PullAlways }, map[string]string{
			"spec.template.spec.containers.0.imagePullPolicy": "Always"}},
		"port": {func(s *spec) { s.Port = 80 }, map[string]string{
			"spec.template.spec.containers.0.ports": "[{name: http, containerPort: 80, protocol: TCP}]"}},
		"no rollingUpdate beside Recreate": {func(s *spec) { s.Strategy = v1beta1.StrategyRecreate }, map[string]string{
			"spec.strategy": "{type: Recreate}"}},
		"progress deadline": {func(s *spec) { s.ProgressDeadlineSeconds = 30 }, map[string]string{"spec.progressDeadlineSeconds": "30"}},
		"config as environment": {func(s *spec) { s.Config = map[string]string{"A": "1", "B": "2"} }, map[string]string{
			"spec.template.metadata.annotations":      "{fixpoint.dev/config-hash: 3eda2f06741f1d08}",
			"spec.template.spec.containers.0.envFrom": "[{configMapRef: {name: web}}]",
		}},
		"config as files": {func(s *spec) {
			s.Config, s.ConfigMountPath = map[string]string{"A": "1", "B": "2"}, "/etc/shop"
		}, map[string]string{
			"spec.template.metadata.annotations":           "{fixpoint.dev/config-hash: 3eda2f06741f1d08}",
			"spec.template.spec.volumes":                   "[{name: config, configMap: {name: web}}]",
			"spec.template.spec.containers.0.volumeMounts": "[{name: config, mountPath: /etc/shop, readOnly: true}]",
		}},
		"a mount path without config": {func(s *spec) { s.ConfigMountPath = "/etc/shop" }, nil},
		// Sorted by path, so that their order in the spec replaces no pods.
		"mounts": {func(s *spec) {
			s.Mounts = []v1beta1.AppServiceMount{
				{Name: "tmp", MountPath: "/tmp", EmptyDir: v1beta1.MCPServerEmptyDir{SizeLimit: ptr.To(resource.MustParse("64Mi"))}},
				{Name: "run", MountPath: "/run", EmptyDir: v1beta1.MCPServerEmptyDir{Medium: v1beta1.MediumMemory}},
				{Name: "cache", MountPath: "/var/cache"},
			}
		}, map[string]string{
			"spec.template.spec.volumes":                   "[{name: run, emptyDir: {medium: Memory}}, {name: tmp, emptyDir: {sizeLimit: 64Mi}}, {name: cache, emptyDir: {}}]",
			"spec.template.spec.containers.0.volumeMounts": "[{name: run, mountPath: /run}, {name: tmp, mountPath: /tmp}, {name: cache, mountPath: /var/cache}]",
		}},
		"env": {func(s *spec) {
			s.Env = []corev1.EnvVar{
				{Name: "PLAIN", Value: "x"},
				{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "db"}, Key: "password"}}},
				{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
			}
		}, map[string]string{"spec.template.spec.containers.0.env": `
[{name: PLAIN, value: x},
 {name: SECRET, valueFrom: {secretKeyRef: {name: db, key: password}}},
 {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]`}},
		"resources": {func(s *spec) {
			s.Resources = corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
			}
		}, map[string]string{"spec.template.spec.containers.0.resources": "{requests: {cpu: 50m, memory: 32Mi}, limits: {memory: 128Mi}}"}},
		"probes": {func(s *spec) {
			s.Probes = &v1beta1.AppServiceProbes{
				Readiness: &v1beta1.AppServiceProbe{Path: "/ready", PeriodSeconds: 5, TimeoutSeconds: 1, FailureThreshold: 3},
				Liveness:  &v1beta1.AppServiceProbe{Path: "/live", Port: ptr.To[int32](9090), PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 5},
				Startup:   &v1beta1.AppServiceProbe{InitialDelaySeconds: 7, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 60},
			}
		}, map[string]string{
			"spec.template.spec.containers.0.readinessProbe": "{httpGet: {path: /ready, port: http}, initialDelaySeconds: 0, periodSeconds: 5, timeoutSeconds: 1, failureThreshold: 3}",
			"spec.template.spec.containers.0.livenessProbe":  "{httpGet: {path: /live, port: 9090}, initialDelaySeconds: 0, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 5}",
			"spec.template.spec.containers.0.startupProbe":   "{httpGet: {path: /, port: http}, initialDelaySeconds: 7, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 60}",
		}},
		"empty probes": {func(s *spec) { s.Probes = &v1beta1.AppServiceProbes{} }, nil},
		"scheduling and identity": {func(s *spec) {
			s.ServiceAccountName = "shop"
			s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull-a"}, {Name: "pull-b"}}
			s.NodeSelector = map[string]string{"disk": "ssd"}
		}, map[string]string{
			"spec.template.spec.serviceAccountName": "shop",
			"spec.template.spec.serviceAccount":     "shop", // the deprecated field, which the API server keeps in sync
			"spec.template.spec.imagePullSecrets":   "[{name: pull-a}, {name: pull-b}]",
			"spec.template.spec.nodeSelector":       "{disk: ssd}",
		}},
		"restricted": {func(s *spec) { s.PodSecurityStandard = v1beta1.PodSecurityRestricted }, map[string]string{
			"spec.template.spec.automountServiceAccountToken": "false",
			"spec.template.spec.securityContext":              "{runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}",
			"spec.template.spec.containers.0.securityContext": "{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}",
		}},
		"restricted, with settings": {func(s *spec) {
			s.PodSecurityStandard, s.AutomountServiceAccountToken = v1beta1.PodSecurityRestricted, ptr.To(true)
			s.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000), FSGroup: ptr.To[int64](1000)}
			s.ContainerSecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
		}, map[string]string{
			"spec.template.spec.automountServiceAccountToken": "true",
			"spec.template.spec.securityContext":              "{runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000, seccompProfile: {type: RuntimeDefault}}",
			"spec.template.spec.containers.0.securityContext": "{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}",
		}},
		// The default of an existing AppService adds nothing, so that its pods are not replaced.
		"baseline": {func(s *spec) { s.PodSecurityStandard = v1beta1.PodSecurityBaseline }, nil},
		"baseline, with settings": {func(s *spec) {
			s.AutomountServiceAccountToken = ptr.To(false)
			s.PodSecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](1000)}
			s.ContainerSecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](0)}
		}, map[string]string{
			"spec.template.spec.automountServiceAccountToken": "false",
			"spec.template.spec.securityContext":              "{fsGroup: 1000}",
			"spec.template.spec.containers.0.securityContext": "{runAsUser: 0}",
		}},
		// These options are separate children, and do not change the Deployment.
		"options that are other phases": {func(s *spec) {
			s.Autoscaling = &v1beta1.AppServiceAutoscaling{MinReplicas: 2, MaxReplicas: 6}
			s.DisruptionBudget = &v1beta1.DisruptionBudget{}
			s.Ingress = &v1beta1.Ingress{Host: "shop.example.com"}
		}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			desired, err := desiredDeployment(&scope{app: webApp(c.change)})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(asJSON(t, desired)).To(MatchYAML(edited(t, plainDeployment, c.want)))
		})
	}
}

// edited sets values in a YAML document, at paths whose steps are keys and indices.
func edited(t *testing.T, document string, edits map[string]string) string {
	t.Helper()
	g := NewWithT(t)
	var tree map[string]any
	g.Expect(yaml.Unmarshal([]byte(document), &tree)).To(Succeed())
	for path, value := range edits {
		steps := strings.Split(path, ".")
		at := tree
		for i := 0; i < len(steps)-1; i++ {
			next := at[steps[i]]
			if list, ok := next.([]any); ok {
				next = list[0] // the only index that the tables use
				i++
			}
			step, ok := next.(map[string]any)
			g.Expect(ok).To(BeTrue(), "%s: %s is not a map", path, steps[i])
			at = step
		}
		var parsed any
		g.Expect(yaml.Unmarshal([]byte(value), &parsed)).To(Succeed())
		at[steps[len(steps)-1]] = parsed
	}
	return asJSON(t, tree)
}

// A change that does not affect the pods must not roll them.
func TestRollsPodsOnlyForChangesOfThePodTemplate(t *testing.T) {
	template := func(change func(*v1beta1.AppService)) string {
		app := webApp(withConfig(map[string]string{"A": "1"}))
		change(app)
		template := podTemplate(app)
		return asJSON(t, template)
	}
	before := template(func(*v1beta1.AppService) {})

	for name, c := range map[string]struct {
		change func(*v1beta1.AppService)
		rolls  bool
	}{
		"replicas":              {func(a *v1beta1.AppService) { a.Spec.Replicas = ptr.To[int32](5) }, false},
		"a label":               {func(a *v1beta1.AppService) { a.Labels = map[string]string{"team": "a"} }, false},
		"an annotation":         {func(a *v1beta1.AppService) { a.Annotations = map[string]string{"note": "x"} }, false},
		"the generation":        {func(a *v1beta1.AppService) { a.Generation++ }, false},
		"the strategy":          {func(a *v1beta1.AppService) { a.Spec.Strategy = v1beta1.StrategyRecreate }, false},
		"the deadline":          {func(a *v1beta1.AppService) { a.Spec.ProgressDeadlineSeconds = 60 }, false},
		"the policies":          {func(a *v1beta1.AppService) { a.Spec.DriftPolicy = v1beta1.DriftReport }, false},
		"an ingress":            {func(a *v1beta1.AppService) { a.Spec.Ingress = &v1beta1.Ingress{} }, false},
		"a value of config":     {func(a *v1beta1.AppService) { a.Spec.Config = map[string]string{"A": "2"} }, true},
		"the image":             {func(a *v1beta1.AppService) { a.Spec.Image = "shop:2" }, true},
		"the config mount path": {func(a *v1beta1.AppService) { a.Spec.ConfigMountPath = "/etc/shop" }, true},
		"removed config":        {func(a *v1beta1.AppService) { a.Spec.Config = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if c.rolls {
				g.Expect(template(c.change)).NotTo(Equal(before))
			} else {
				g.Expect(template(c.change)).To(Equal(before))
			}
		})
	}
}
