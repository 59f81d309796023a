package plugin_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// running are objects that kubectl has created under the names that an AppService gives them.
type running struct {
	config     *corev1.ConfigMap
	deployment *appsv1.Deployment
	service    *corev1.Service
	scaler     *autoscalingv2.HorizontalPodAutoscaler
}

func (w *fixture) newRunning(name string) running {
	selector := map[string]string{"app.kubernetes.io/name": name}
	meta := metav1.ObjectMeta{Name: name, Namespace: w.Namespace, Labels: selector}
	r := running{
		config:     &corev1.ConfigMap{ObjectMeta: *meta.DeepCopy(), Data: map[string]string{"COLOR": "green"}},
		deployment: &appsv1.Deployment{ObjectMeta: *meta.DeepCopy()},
		service:    &corev1.Service{ObjectMeta: *meta.DeepCopy()},
		scaler:     &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: *meta.DeepCopy()},
	}
	r.service.Spec = corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 8080, TargetPort: intstr.FromInt32(8080)}}}
	r.scaler.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
		MinReplicas:    ptr.To[int32](2), MaxReplicas: 4,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](80)},
		}}},
	}
	r.deployment.Spec = appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: selector}, RevisionHistoryLimit: ptr.To[int32](3),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "fixpoint"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Image: image, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http")}}},
			}}},
		},
	}
	return r
}

// usesConfig gives the container the ConfigMap as an AppService does.
func (r running) usesConfig(w *fixture) {
	w.T.Helper()
	raw, err := json.Marshal(r.config.Data)
	w.Expect(err).NotTo(HaveOccurred())
	hash := sha256.Sum256(raw)
	template := &r.deployment.Spec.Template
	template.Annotations = map[string]string{"fixpoint.dev/config-hash": hex.EncodeToString(hash[:8])}
	template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: r.config.Name}}}}
}

// run creates objects, and waits until the Deployment is available and the autoscaler works.
func (w *fixture) create(objects ...client.Object) {
	w.T.Helper()
	for _, object := range objects {
		w.Expect(w.As("kubectl").Create(w.Ctx, object)).To(Succeed())
	}
	for _, object := range objects {
		switch object := object.(type) {
		case *appsv1.Deployment:
			harness.Eventually(w, object.Name, &appsv1.Deployment{}, func(g Gomega, live *appsv1.Deployment) {
				g.Expect(live.Status.AvailableReplicas).To(Equal(*live.Spec.Replicas))
				g.Expect(live.Status.ObservedGeneration).To(Equal(live.Generation))
			})
		case *autoscalingv2.HorizontalPodAutoscaler:
			harness.Eventually(w, object.Name, &autoscalingv2.HorizontalPodAutoscaler{}, func(g Gomega, live *autoscalingv2.HorizontalPodAutoscaler) {
				g.Expect(live.Status.Conditions).NotTo(BeEmpty())
			})
		}
	}
}

// pods are the restarts of the pods of a Deployment by UID.
func (w *fixture) podsOf(name string) map[types.UID]int32 {
	w.T.Helper()
	var list corev1.PodList
	w.Expect(api.List(w.Ctx, &list, client.InNamespace(w.Namespace), client.MatchingLabels{"app.kubernetes.io/name": name})).To(Succeed())
	pods := map[types.UID]int32{}
	for i := range list.Items {
		pods[list.Items[i].UID] = list.Items[i].Status.ContainerStatuses[0].RestartCount
	}
	return pods
}

func TestAdoptKeepsThePods(t *testing.T) {
	w := newFixture(t)
	w.startManager(nil)
	r := w.newRunning("web")
	r.usesConfig(w)
	w.create(r.config, r.deployment, r.service, r.scaler)
	pods := w.podsOf("web")
	w.Expect(pods).To(HaveLen(2))
	adopt := []string{"adopt", "appservice/web", "--from", "deployment/web,svc/web", "--from", "cm/web", "--from", "hpa/web"}

	manifest := w.succeed(adopt...)
	w.Expect(manifest).To(SatisfyAll(
		HavePrefix("# Adopts Deployment/web, Service/web, ConfigMap/web, HorizontalPodAutoscaler/web. No pod is replaced.\n"),
		ContainSubstring("#   Deployment/web spec.revisionHistoryLimit: 3\n"),
		ContainSubstring(`#   Deployment/web ~ spec.strategy.rollingUpdate.maxUnavailable: "25%" -> 0`),
		ContainSubstring(`#   Service/web ~ spec.ports[port=8080].targetPort: 8080 -> "http"`),
		ContainSubstring("\n  adoptionPolicy: IfUnowned\n"), ContainSubstring("\n    targetCPUUtilizationPercent: 80\n"), ContainSubstring("\n    COLOR: green\n"),
	))
	w.Expect(harness.Gone(w.Ctx, api, w.Key("web"), &v1beta1.AppService{})).To(Succeed(), "nothing is written without --yes")
	planned := w.run(w.Ctx, w.kubeconfig, []byte(manifest), "plan", "-f", "-")
	w.Expect(planned.out).To(SatisfyAll(ContainSubstring("adopt Deployment/web"), Not(ContainSubstring("spec.template"))), planned.err)

	out := w.succeed(append(adopt, "--yes", waitLong)...)
	w.Expect(out).To(SatisfyAll(
		ContainSubstring("/web is Ready. It controls Deployment/web, Service/web, ConfigMap/web, HorizontalPodAutoscaler/web.\n"),
		ContainSubstring("The 2 pods are the same as before, and none has restarted.\n"),
	))
	w.Expect(w.podsOf("web")).To(Equal(pods))
	app := harness.Read(w, "web", &v1beta1.AppService{})
	for _, child := range []client.Object{r.config, r.deployment, r.service, r.scaler} {
		w.Expect(api.Get(w.Ctx, w.Key("web"), child)).To(Succeed())
		w.Expect(metav1.IsControlledBy(child, app)).To(BeTrue(), "%T", child)
		w.Expect(child.GetManagedFields()).To(ContainElement(HaveField("Manager", "fixpoint-appservice")), "%T", child)
	}
	w.shows(ContainSubstring("Plan: 0 to create, 0 to update, 0 to correct, 0 to adopt, 0 to delete, 0 steps."), "plan", "appservice/web")

	harness.Update(w, "kubectl-edit", "web", &corev1.Service{}, func(live *corev1.Service) {
		live.Spec.SessionAffinity = corev1.ServiceAffinityNone
		live.Spec.Selector = map[string]string{"app.kubernetes.io/name": "other"}
	})
	harness.Eventually(w, "web", &corev1.Service{}, func(g Gomega, live *corev1.Service) {
		g.Expect(live.Spec.Selector).To(Equal(map[string]string{"app.kubernetes.io/name": "web"}))
	})
	w.Expect(w.podsOf("web")).To(Equal(pods))
}

func TestAdoptRefusesWhatAnAppServiceCannotExpress(t *testing.T) {
	w := newFixture(t)
	r := w.newRunning("web")
	pod := &r.deployment.Spec.Template
	delete(pod.Labels, "app.kubernetes.io/managed-by")
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](60)
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpExists}}},
	}}}}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "proxy", Image: image})
	pod.Spec.Containers[0].Args = []string{"--color", "green"}
	r.service.Spec.Ports[0].Port = 80
	w.create(r.deployment, r.service)

	ended := w.kubectlFixpoint("adopt", "appservice/web", "--from", "deployment/web", "--from", "service/web", "--yes")

	w.Expect(ended.code).To(Equal(1), ended.out)
	w.Expect(ended.err).To(Equal("error: Deployment/web, Service/web cannot be adopted as they are: nothing was changed\n"))
	w.Expect(ended.out).To(SatisfyAll(
		ContainSubstring("Deployment/web spec.template.metadata.labels.\"app.kubernetes.io/managed-by\"\n  it is not set, and the manager sets it to \"fixpoint\"\n  remedy: set it to \"fixpoint\", which rolls the pods\n"),
		ContainSubstring("Deployment/web spec.template.spec.affinity\n  an AppService does not express it\n  remedy: remove it, which rolls the pods\n"),
		ContainSubstring("Deployment/web spec.template.spec.terminationGracePeriodSeconds\n  it is 60, and the manager sets it to 30\n"),
		ContainSubstring("Deployment/web spec.template.spec.containers[name=app].args\n"),
		ContainSubstring("Deployment/web spec.template.spec.containers[name=proxy]\n  an AppService does not express it\n  remedy: an AppService runs one container: run this one in a Deployment of its own\n"),
		ContainSubstring("Service/web spec.ports"), ContainSubstring("remedy: give the Service the port of the container and no other"),
	))
	w.Expect(harness.Gone(w.Ctx, api, w.Key("web"), &v1beta1.AppService{})).To(Succeed())
}

func TestAdoptRefusesObjectsOfOthers(t *testing.T) {
	w := newFixture(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: w.Namespace}}
	w.Expect(api.Create(w.Ctx, owner)).To(Succeed())
	r := w.newRunning("web")
	r.deployment.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	w.create(r.deployment, r.service)

	out := w.ends(1, "adopt", "appservice/web", "--from", "deployment/web", "--from", "service/web")
	w.Expect(out).To(ContainSubstring("Deployment/web metadata.ownerReferences\n  ConfigMap owner controls it\n"))

	free := w.newRunning("free")
	w.create(free.deployment, free.service)
	w.Expect(w.ends(1, "adopt", "appservice/free", "--from", "deployment/free")).To(ContainSubstring(
		"Service/free\n  it exists, and would be adopted too\n  remedy: add --from service/free, or delete it\n"))
	w.createApp("free")
	w.Expect(w.kubectlFixpoint("adopt", "appservice/free", "--from", "deployment/free").err).To(ContainSubstring("/free exists: this command creates one."))
	w.Expect(w.kubectlFixpoint("adopt", "appservice/gone", "--from", "deployment/gone").err).To(ContainSubstring("reading Deployment " + w.Namespace + "/gone"))
}
