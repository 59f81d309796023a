package ssa_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	autoscalingv2ac "k8s.io/client-go/applyconfigurations/autoscaling/v2"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// generator creates random configurations that hold what appliers get wrong.
type generator struct{ *rand.Rand }

func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

// quantity is one in a notation that the server rewrites, more often than not.
func (g generator) quantity() resource.Quantity {
	// MustParse keeps the text as it is until it is computed with.
	return resource.MustParse(pick(g, "1000m", "0.5", "1", "1500m", "250m", "0.1"))
}

func (g generator) memory() resource.Quantity {
	return resource.MustParse(pick(g, "1024Mi", "1Gi", "0.5Gi", "1e9", "1048576Ki", "128M"))
}

func (g generator) word() string { return fmt.Sprintf("w%d", g.IntN(1000)) }

// unique is a number that no other edit of the process uses, so that each edit is a change.
func (g generator) unique() int { return int(serial.Add(1)) % 20000 }

func (g generator) fresh() string { return fmt.Sprintf("u%d", g.unique()) }

var serial counter

func (g generator) labels() map[string]string {
	labels := map[string]string{}
	for range 1 + g.IntN(3) {
		labels[pick(g, "tier", "team", "example.com/part")] = g.word()
	}
	return labels
}

// kinds are the generators of the kinds under test.
var kinds = map[string]func(g generator, name, namespace string) ssa.Configuration{
	"Deployment": func(g generator, name, namespace string) ssa.Configuration { return g.deployment(name, namespace) },
	"Service":    func(g generator, name, namespace string) ssa.Configuration { return g.service(name, namespace) },
	"ConfigMap":  func(g generator, name, namespace string) ssa.Configuration { return g.configMap(name, namespace) },
	"HorizontalPodAutoscaler": func(g generator, name, namespace string) ssa.Configuration {
		return g.autoscaler(name, namespace)
	},
	"AppService": func(g generator, name, namespace string) ssa.Configuration { return g.appService(name, namespace) },
	"MCPServer":  func(g generator, name, namespace string) ssa.Configuration { return g.mcpServer(name, namespace) },
	"SecureStorage": func(g generator, name, namespace string) ssa.Configuration {
		return g.secureStorage(name, namespace)
	},
}

func (g generator) deployment(name, namespace string) *appsv1ac.DeploymentApplyConfiguration {
	container := g.container("web")
	pod := corev1ac.PodSpec().WithContainers(container)
	if g.chance(30) {
		pod.WithContainers(g.container("helper"))
	}
	if g.chance(40) {
		volume := corev1ac.Volume().WithName("scratch").WithEmptyDir(corev1ac.EmptyDirVolumeSource())
		container.WithVolumeMounts(corev1ac.VolumeMount().WithName("scratch").WithMountPath("/tmp"))
		pod.WithVolumes(volume)
		pod.Containers[0] = *container
	}
	if g.chance(30) {
		pod.WithVolumes(corev1ac.Volume().WithName("config").WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName("settings").
			WithItems(corev1ac.KeyToPath().WithKey("a").WithPath("b"))))
	}
	if g.chance(30) {
		pod.WithSecurityContext(corev1ac.PodSecurityContext()) // an empty struct that the server defaults
	}
	if g.chance(20) {
		pod.WithTolerations(corev1ac.Toleration().WithKey("dedicated").WithOperator(corev1.TolerationOpExists))
	}
	if g.chance(20) {
		pod.WithTerminationGracePeriodSeconds(int64(g.IntN(60)))
	}
	if g.chance(20) {
		pod.WithAffinity(corev1ac.Affinity()) // empty, and kept
	}
	if g.chance(20) {
		pod.WithTopologySpreadConstraints(corev1ac.TopologySpreadConstraint().WithMaxSkew(1).
			WithTopologyKey("kubernetes.io/hostname").WithWhenUnsatisfiable(corev1.ScheduleAnyway).
			WithLabelSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{"app": name})))
	}
	spec := appsv1ac.DeploymentSpec().
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{"app": name})).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(map[string]string{"app": name}).WithSpec(pod))
	if g.chance(60) {
		spec.WithReplicas(int32(1 + g.IntN(4)))
	}
	switch g.IntN(3) {
	case 0:
		spec.WithStrategy(appsv1ac.DeploymentStrategy().WithType(appsv1.RecreateDeploymentStrategyType))
	case 1:
		spec.WithStrategy(appsv1ac.DeploymentStrategy().WithType(appsv1.RollingUpdateDeploymentStrategyType).
			WithRollingUpdate(appsv1ac.RollingUpdateDeployment().WithMaxUnavailable(pick(g, intstr.FromInt32(0), intstr.FromString("25%"))).
				WithMaxSurge(intstr.FromInt32(1))))
	}
	d := appsv1ac.Deployment(name, namespace).WithLabels(g.labels()).WithSpec(spec)
	if g.chance(50) {
		d.WithAnnotations(map[string]string{"example.com/note": g.word()})
	}
	return d
}

func (g generator) container(name string) *corev1ac.ContainerApplyConfiguration {
	c := corev1ac.Container().WithName(name).WithImage("registry.example/" + name + ":" + g.word())
	for i := range g.IntN(4) {
		c.WithEnv(g.env(fmt.Sprintf("E%d", i)))
	}
	switch g.IntN(4) {
	case 0:
		c.WithPorts(corev1ac.ContainerPort().WithContainerPort(8080)) // no protocol, which is part of the key
	case 1:
		c.WithPorts(corev1ac.ContainerPort().WithContainerPort(8080).WithProtocol(corev1.ProtocolTCP).WithName("http"),
			corev1ac.ContainerPort().WithContainerPort(8080).WithProtocol(corev1.ProtocolUDP).WithName("quic"))
	}
	if g.chance(60) {
		limits := corev1.ResourceList{}
		if g.chance(70) {
			limits[corev1.ResourceCPU], limits[corev1.ResourceMemory] = resource.MustParse("8000m"), resource.MustParse("8192Mi")
		}
		c.WithResources(corev1ac.ResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceCPU: g.quantity(), corev1.ResourceMemory: g.memory()}).
			WithLimits(limits)) // at times an empty map
	}
	if g.chance(40) {
		c.WithArgs("--verbose", g.word()) // atomic
	}
	if g.chance(20) {
		c.WithCommand([]string{}...) // nil: nothing is claimed
	}
	if g.chance(30) {
		c.WithSecurityContext(corev1ac.SecurityContext())
	}
	if g.chance(40) {
		c.WithReadinessProbe(corev1ac.Probe().WithHTTPGet(corev1ac.HTTPGetAction().WithPath("/ready").WithPort(intstr.FromInt32(8080))))
	}
	return c
}

func (g generator) env(name string) *corev1ac.EnvVarApplyConfiguration {
	e := corev1ac.EnvVar().WithName(name)
	switch g.IntN(4) {
	case 0:
		return e.WithValueFrom(corev1ac.EnvVarSource().WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath("metadata.name")))
	case 1:
		return e.WithValueFrom(corev1ac.EnvVarSource().WithSecretKeyRef(corev1ac.SecretKeySelector().WithName("s").WithKey("k")))
	case 2:
		return e.WithValueFrom(corev1ac.EnvVarSource().WithResourceFieldRef(corev1ac.ResourceFieldSelector().WithResource("limits.cpu")))
	default:
		return e.WithValue(pick(g, "", g.word()))
	}
}

func (g generator) service(name, namespace string) *corev1ac.ServiceApplyConfiguration {
	spec := corev1ac.ServiceSpec().WithSelector(map[string]string{"app": name, "tier": g.word()})
	port := corev1ac.ServicePort().WithName("http").WithPort(80)
	if g.chance(50) {
		port.WithTargetPort(pick(g, intstr.FromInt32(8080), intstr.FromString("http")))
	}
	if g.chance(50) {
		port.WithProtocol(corev1.ProtocolTCP)
	}
	spec.WithPorts(port)
	if g.chance(30) {
		spec.WithPorts(corev1ac.ServicePort().WithName("metrics").WithPort(9090))
	}
	if g.chance(30) {
		spec.WithSessionAffinity(corev1.ServiceAffinityClientIP)
	}
	if g.chance(30) {
		spec.WithType(corev1.ServiceTypeClusterIP)
	}
	return corev1ac.Service(name, namespace).WithLabels(g.labels()).WithSpec(spec)
}

func (g generator) configMap(name, namespace string) *corev1ac.ConfigMapApplyConfiguration {
	c := corev1ac.ConfigMap(name, namespace).WithLabels(g.labels())
	data := map[string]string{"first": g.word()}
	for range g.IntN(4) {
		data[pick(g, "second", "a.b", "with-dash", "UPPER")] = pick(g, "", g.word(), "line\nline", "ünï <&>")
	}
	c.WithData(data)
	if g.chance(30) {
		c.WithBinaryData(map[string][]byte{"blob": {0, 1, 2, byte(g.IntN(255))}})
	}
	return c
}

func (g generator) autoscaler(name, namespace string) *autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration {
	cpu := autoscalingv2ac.MetricSpec().WithType(autoscalingv2.ResourceMetricSourceType).WithResource(
		autoscalingv2ac.ResourceMetricSource().WithName(corev1.ResourceCPU).WithTarget(
			autoscalingv2ac.MetricTarget().WithType(autoscalingv2.UtilizationMetricType).WithAverageUtilization(int32(10 + g.IntN(80)))))
	spec := autoscalingv2ac.HorizontalPodAutoscalerSpec().
		WithScaleTargetRef(autoscalingv2ac.CrossVersionObjectReference().WithAPIVersion("apps/v1").WithKind("Deployment").WithName(name)).
		WithMaxReplicas(int32(5 + g.IntN(5))).WithMetrics(cpu)
	if g.chance(60) {
		spec.WithMinReplicas(int32(1 + g.IntN(3)))
	}
	if g.chance(40) {
		spec.WithMetrics(autoscalingv2ac.MetricSpec().WithType(autoscalingv2.ResourceMetricSourceType).WithResource(
			autoscalingv2ac.ResourceMetricSource().WithName(corev1.ResourceMemory).WithTarget(
				autoscalingv2ac.MetricTarget().WithType(autoscalingv2.AverageValueMetricType).WithAverageValue(g.memory()))))
	}
	if g.chance(30) {
		spec.WithBehavior(autoscalingv2ac.HorizontalPodAutoscalerBehavior().WithScaleDown(
			autoscalingv2ac.HPAScalingRules().WithStabilizationWindowSeconds(int32(g.IntN(300)))))
	}
	return autoscalingv2ac.HorizontalPodAutoscaler(name, namespace).WithLabels(g.labels()).WithSpec(spec)
}

func (g generator) appService(name, namespace string) *fixpointac.AppServiceApplyConfiguration {
	spec := fixpointac.AppServiceSpec().WithImage("registry.example/app:" + g.word())
	if g.chance(60) {
		spec.WithReplicas(int32(2 + g.IntN(3)))
	}
	if g.chance(60) {
		spec.WithConfig(map[string]string{"A": g.word(), "B": ""})
	}
	if g.chance(50) {
		spec.WithEnv(corev1.EnvVar{Name: "X", Value: g.word()}, corev1.EnvVar{Name: "Y", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}})
	}
	if g.chance(50) {
		spec.WithProbes(fixpointac.AppServiceProbes().WithReadiness(fixpointac.AppServiceProbe().WithPath("/ready")))
	}
	if g.chance(40) {
		spec.WithDisruptionBudget(fixpointac.DisruptionBudget().WithMinAvailable(pick(g, intstr.FromInt32(1), intstr.FromString("50%"))))
	}
	if g.chance(40) {
		spec.WithResources(corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: g.quantity(), corev1.ResourceMemory: g.memory()}})
	}
	if g.chance(40) {
		spec.WithIngress(fixpointac.Ingress().WithHost("a.example.com"))
	}
	return fixpointac.AppService(name, namespace).WithLabels(g.labels()).WithSpec(spec)
}

// mcpServer has the fields that v1alpha1 calls by other names, with values that an edit can change but once. In v1alpha1
// they are false before the edit, because its Go types do not hold an explicit false of the live object.
func (g generator) mcpServer(name, namespace string) *fixpointac.MCPServerApplyConfiguration {
	protocol := fixpointac.MCPServerProtocol().WithTimeout(metav1.Duration{Duration: time.Duration(1+g.IntN(5)) * time.Second})
	if g.chance(70) {
		protocol.WithScheme(v1beta1.SchemeHTTP)
	}
	if g.chance(50) {
		protocol.WithProbe(v1beta1.ProbePeriodic)
	}
	spec := fixpointac.MCPServerSpec().WithImage("registry.example/tools:" + g.word()).WithProtocol(protocol)
	if g.chance(50) {
		spec.WithNetworkPolicy(fixpointac.MCPServerNetworkPolicy().WithEgress(fixpointac.MCPServerNetworkEgress().WithDNS(v1beta1.DNSDenied)))
	}
	if g.chance(50) {
		spec.WithEnv(corev1.EnvVar{Name: "X", Value: g.word()})
	}
	if g.chance(40) {
		spec.WithArgs("--verbose", g.word())
	}
	if g.chance(40) {
		spec.WithResources(corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: g.quantity(), corev1.ResourceMemory: g.memory()}})
	}
	return fixpointac.MCPServer(name, namespace).WithLabels(g.labels()).WithSpec(spec)
}

// secureStorage is the same for SecureStorage.
func (g generator) secureStorage(name, namespace string) *fixpointac.SecureStorageApplyConfiguration {
	provider := fixpointac.SecureStorageProvider().WithSubscriptionID("00000000-0000-4000-8000-00000000f1c5").WithResourceGroup("group").WithLocation("westeurope")
	if g.chance(60) {
		provider.WithCredentialsSecretRef(fixpointac.SecureStorageCredentialsSecretRef().WithName(g.word()))
	}
	spec := fixpointac.SecureStorageSpec().WithProvider(provider).
		WithKey(fixpointac.SecureStorageKey().WithName(g.word()).WithVault(fixpointac.SecureStorageVault().WithName("vault")))
	if g.chance(60) {
		spec.WithAccountLossPolicy(v1beta1.LossRecreate)
	}
	if g.chance(50) {
		spec.WithTags(map[string]string{"a": g.word(), "b": ""})
	}
	return fixpointac.SecureStorage(name, namespace).WithLabels(g.labels()).WithSpec(spec)
}

// clone gives the same configuration again, as a controller builds it again in every reconcile.
func clone(c ssa.Configuration) ssa.Configuration {
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	fresh := newLike(c)
	if err := json.Unmarshal(raw, fresh); err != nil {
		panic(err)
	}
	return fresh
}

func newLike(c ssa.Configuration) ssa.Configuration {
	switch c.(type) {
	case *appsv1ac.DeploymentApplyConfiguration:
		return &appsv1ac.DeploymentApplyConfiguration{}
	case *corev1ac.ServiceApplyConfiguration:
		return &corev1ac.ServiceApplyConfiguration{}
	case *corev1ac.ConfigMapApplyConfiguration:
		return &corev1ac.ConfigMapApplyConfiguration{}
	case *autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration:
		return &autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration{}
	case *fixpointac.AppServiceApplyConfiguration:
		return &fixpointac.AppServiceApplyConfiguration{}
	case *fixpointac.MCPServerApplyConfiguration:
		return &fixpointac.MCPServerApplyConfiguration{}
	case *fixpointac.SecureStorageApplyConfiguration:
		return &fixpointac.SecureStorageApplyConfiguration{}
	default:
		panic(fmt.Sprintf("no generator creates a %T of %s", c, v1beta1.SchemeGroupVersion))
	}
}
