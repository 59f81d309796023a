package ssa

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// realistic is a Deployment as operators write them: two containers, a dozen variables, probes,
// resources and volumes. It is built again for each check, as in a reconcile.
func realistic() *appsv1ac.DeploymentApplyConfiguration {
	labels := map[string]string{"app.kubernetes.io/name": "shop", "app.kubernetes.io/instance": "web", "app.kubernetes.io/managed-by": "operator"}
	probe := func(path string) *corev1ac.ProbeApplyConfiguration {
		return corev1ac.Probe().WithHTTPGet(corev1ac.HTTPGetAction().WithPath(path).WithPort(intstr.FromString("http"))).WithPeriodSeconds(10).WithTimeoutSeconds(2)
	}
	web := corev1ac.Container().WithName("web").WithImage("registry.example/shop:1.4.2").
		WithArgs("--listen", ":8080").
		WithPorts(corev1ac.ContainerPort().WithName("http").WithContainerPort(8080)).
		WithReadinessProbe(probe("/ready")).WithLivenessProbe(probe("/live")).
		WithResources(corev1ac.ResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("256Mi")}).
			WithLimits(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")})).
		WithVolumeMounts(corev1ac.VolumeMount().WithName("config").WithMountPath("/etc/shop"), corev1ac.VolumeMount().WithName("tmp").WithMountPath("/tmp"))
	for i := range 8 {
		web.WithEnv(corev1ac.EnvVar().WithName(fmt.Sprintf("SETTING_%d", i)).WithValue("some value or other"))
	}
	web.WithEnv(corev1ac.EnvVar().WithName("POD").WithValueFrom(corev1ac.EnvVarSource().WithFieldRef(corev1ac.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath("metadata.name"))))
	proxy := corev1ac.Container().WithName("proxy").WithImage("registry.example/proxy:2").
		WithEnv(corev1ac.EnvVar().WithName("MODE").WithValue("sidecar"), corev1ac.EnvVar().WithName("UPSTREAM").WithValue("127.0.0.1:8080")).
		WithPorts(corev1ac.ContainerPort().WithName("proxy").WithContainerPort(8443).WithProtocol(corev1.ProtocolTCP))
	return appsv1ac.Deployment("web", "shop").WithLabels(labels).WithSpec(appsv1ac.DeploymentSpec().
		WithReplicas(3).
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{"app.kubernetes.io/instance": "web"})).
		WithStrategy(appsv1ac.DeploymentStrategy().WithType(appsv1.RollingUpdateDeploymentStrategyType)).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithAnnotations(map[string]string{"example.com/config": "5f2a"}).WithSpec(corev1ac.PodSpec().
			WithContainers(web, proxy).
			WithServiceAccountName("shop").
			WithSecurityContext(corev1ac.PodSecurityContext().WithRunAsNonRoot(true)).
			WithVolumes(
				corev1ac.Volume().WithName("config").WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName("web-config")),
				corev1ac.Volume().WithName("tmp").WithEmptyDir(corev1ac.EmptyDirVolumeSource())))))
}

const benchManager = "fixpoint-bench"

func newBenchApplier(b testing.TB, server *countingServer) *Applier {
	applier, err := New(Options{Client: server, FieldManager: benchManager})
	if err != nil {
		b.Fatal(err)
	}
	return applier
}

// BenchmarkQuietCheck: what it costs to know that a Deployment needs nothing. The configuration is
// built outside of the measurement, as in the benchmark beside it.
func BenchmarkQuietCheck(b *testing.B) {
	server, owner := newServer(), ownedBy("o")
	applier := newBenchApplier(b, server)
	created, err := applier.Apply(context.Background(), Request{Desired: realistic(), Owner: owner})
	if err != nil {
		b.Fatal(err)
	}
	for name, applier := range map[string]*Applier{"running": applier, "after a restart": newBenchApplier(b, server)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			desired := realistic()
			for b.Loop() {
				result, err := applier.Apply(context.Background(), Request{Desired: desired, Owner: owner, Live: created.Live})
				if err != nil || result.Action != ActionNone {
					b.Fatal(result, err)
				}
			}
		})
	}
	if server.requests != 1 {
		b.Fatalf("%d requests", server.requests)
	}
}

// BenchmarkRepair: what it takes to decide that a Deployment has drifted, and to write the apply that reverts it.
func BenchmarkRepair(b *testing.B) {
	server, owner := newServer(), ownedBy("o")
	applier := newBenchApplier(b, server)
	created, err := applier.Apply(context.Background(), Request{Desired: realistic(), Owner: owner})
	if err != nil {
		b.Fatal(err)
	}
	live, _ := created.Live.(*appsv1.Deployment)
	live.Spec.Template.Spec.Containers[0].Image = "registry.example/shop:debug"
	if err := server.Update(context.Background(), live, client.FieldOwner("kubectl-edit")); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	desired := realistic()
	for b.Loop() {
		d, err := applier.Decide(Request{Desired: desired, Owner: owner, Live: live})
		if err != nil || d.Action != ActionCorrect || len(d.Drifts) != 1 {
			b.Fatal(d.Action, d.Drifts, err)
		}
		if _, err := d.body(live).MarshalJSON(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExtractAndCompare: what other appliers do for the same answer, where the server defaults nothing
// inside atomic structs. The configuration already holds its owner reference.
func BenchmarkExtractAndCompare(b *testing.B) {
	server, owner := newServer(), ownedBy("o")
	desired := realistic()
	created, err := newBenchApplier(b, server).Apply(context.Background(), Request{Desired: desired, Owner: owner})
	if err != nil {
		b.Fatal(err)
	}
	live, _ := created.Live.(*appsv1.Deployment)
	// Extract finds our record among the annotations; who works that way has none.
	desired.WithAnnotations(map[string]string{RecordAnnotationPrefix + benchManager: live.Annotations[RecordAnnotationPrefix+benchManager]})
	desired = reread(b, desired)
	b.ReportAllocs()
	for b.Loop() {
		extracted, err := appsv1ac.ExtractDeployment(live, benchManager)
		if err != nil || !equality.Semantic.DeepEqual(extracted, desired) {
			b.Fatal("they differ", err)
		}
	}
}

// reread brings a configuration into the form that Extract gives it, with empty lists left out.
func reread(b testing.TB, c *appsv1ac.DeploymentApplyConfiguration) *appsv1ac.DeploymentApplyConfiguration {
	raw, err := json.Marshal(c)
	if err != nil {
		b.Fatal(err)
	}
	again := &appsv1ac.DeploymentApplyConfiguration{}
	if err := json.Unmarshal(raw, again); err != nil {
		b.Fatal(err)
	}
	return again
}

// BenchmarkStatusQuiet: a status that is as it should be, on an object whose version has moved on
// since the last check and on one whose version has not.
func BenchmarkStatusQuiet(b *testing.B) {
	desired := appsv1ac.Deployment("web", "shop").WithStatus(appsv1ac.DeploymentStatus().WithReplicas(3).WithReadyReplicas(3).WithObservedGeneration(7).
		WithConditions(appsv1ac.DeploymentCondition().WithType("Ready").WithStatus(corev1.ConditionTrue).WithReason("AsDeclared").WithMessage("everything is as declared").WithLastTransitionTime(metav1.Unix(1_700_000_000, 0))))
	server := newServer()
	applier := newBenchApplier(b, server)
	live := withStatus(b, desired)
	for name, next := range map[string]func(int){
		"same version":  func(int) {},
		"other version": func(i int) { live.ResourceVersion = fmt.Sprint(1000 + i) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				next(i)
				result, err := applier.ApplyStatus(context.Background(), desired, live)
				if err != nil || result.Action != ActionNone {
					b.Fatal(result, err)
				}
			}
		})
	}
	if server.requests != 0 {
		b.Fatalf("%d requests", server.requests)
	}
}

// withStatus is the object to which the status has been applied.
func withStatus(b testing.TB, desired *appsv1ac.DeploymentApplyConfiguration) *appsv1.Deployment {
	raw, err := json.Marshal(desired)
	if err != nil {
		b.Fatal(err)
	}
	live := &appsv1.Deployment{}
	if err := json.Unmarshal(raw, live); err != nil {
		b.Fatal(err)
	}
	applier := newBenchApplier(b, newServer())
	tree, err := decode(raw)
	if err != nil {
		b.Fatal(err)
	}
	fields, _, err := applier.schemas.fieldsOf(tree)
	if err != nil {
		b.Fatal(err)
	}
	live.UID, live.ResourceVersion = "u", "1000"
	live.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: benchManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "apps/v1", Subresource: statusSubresource,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}}
	return live
}
