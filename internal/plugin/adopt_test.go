package plugin

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// toAdopt are objects that an AppService describes.
func toAdopt() map[string]client.Object {
	meta := metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"app.kubernetes.io/name": "web"}}
	d := &appsv1.Deployment{ObjectMeta: *meta.DeepCopy()}
	d.Spec = appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](3), RevisionHistoryLimit: ptr.To[int32](3), ProgressDeadlineSeconds: ptr.To[int32](600),
		Selector: &metav1.LabelSelector{MatchLabels: meta.Labels}, Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType},
	}
	d.Spec.Template.Labels = map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/managed-by": "fixpoint"}
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "app", Image: "registry.example.com/shop:2", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http")}},
			PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3,
		},
	}}
	s := &corev1.Service{ObjectMeta: *meta.DeepCopy(), Spec: corev1.ServiceSpec{
		Selector: meta.Labels, Ports: []corev1.ServicePort{{Name: "http", Port: 8080, TargetPort: intstr.FromString("http")}},
	}}
	return map[string]client.Object{"Deployment": d, "Service": s}
}

func newAdoption(objects map[string]client.Object) *adoption {
	return &adoption{name: "web", namespace: "shop", objects: objects}
}

// adopts is the part of a plan that adopts an object and sets fields.
func adopts(object string, fields ...fieldChange) plannedPhase {
	kind, _, _ := strings.Cut(object, "/")
	return plannedPhase{Phase: kind, Verdict: verdictDone, Changes: []plannedChange{{Action: ssa.ActionAdopt, Object: object, Fields: fields}}}
}

// exampleAdoption is of objects that can be adopted. The manager would create them with other settings of rollouts.
func exampleAdoption(t *testing.T) *adoption {
	t.Helper()
	live, created := toAdopt(), toAdopt()
	d, _ := created["Deployment"].(*appsv1.Deployment)
	d.Spec.RevisionHistoryLimit = nil
	a := newAdoption(live)
	a.derive()
	label := fieldChange{Field: `metadata.labels."app.kubernetes.io/managed-by"`, To: `"fixpoint"`}
	surge := fieldChange{Field: "spec.strategy.rollingUpdate.maxUnavailable", From: `"25%"`, To: "0"}
	NewWithT(t).Expect(a.decide(objectPlan{Phases: []plannedPhase{adopts("Service/web", label), adopts("Deployment/web", label, surge)}}, nil, created)).To(Succeed())
	return a
}

func adoptionText(t *testing.T, a *adoption) string {
	t.Helper()
	text, err := a.manifest()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return text
}

// refusedAdoption is of a Deployment with more than an AppService expresses.
func refusedAdoption(t *testing.T) string {
	t.Helper()
	live := toAdopt()
	created := toAdopt()
	d, _ := live["Deployment"].(*appsv1.Deployment)
	delete(d.Spec.Template.Labels, "app.kubernetes.io/managed-by")
	d.Spec.Template.Spec.Containers[0].Name = "server"
	d.Spec.Template.Spec.Containers[0].Args = []string{"--color", "green"}
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "proxy", Image: "proxy:1"})
	d.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1}}}}
	s, _ := live["Service"].(*corev1.Service)
	s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	a := newAdoption(live)
	a.derive()
	NewWithT(t).Expect(a.decide(objectPlan{}, nil, created)).To(Succeed())
	return a.refusal()
}

// ownedAdoption is of objects of another controller.
func ownedAdoption(t *testing.T) string {
	t.Helper()
	live := toAdopt()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "release", UID: "other"}}
	live["Deployment"].SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))})
	a := newAdoption(live)
	a.derive()
	return a.refusal()
}

// usedAdoption leaves out a Service of the name.
func usedAdoption(t *testing.T) string {
	t.Helper()
	live, created := toAdopt(), toAdopt()
	delete(live, "Service")
	a := newAdoption(live)
	a.derive()
	NewWithT(t).Expect(a.decide(objectPlan{Phases: []plannedPhase{adopts("Service/web")}}, nil, created)).To(Succeed())
	return a.refusal()
}

func adoptedExample(podsText string, same bool, owned ...ownedObject) string {
	text, _ := adoptedText(app("web", isRunning), owned, podsText, same)
	return text
}

func adoptGoldens(t *testing.T) map[string]golden {
	t.Helper()
	const command = "adopt appservice/web --from deployment/web,service/web"
	before := evidence{pods: []corev1.Pod{*pod("web-7d4b-abcde"), *pod("web-7d4b-fghij")}}
	restarted := pod("web-7d4b-abcde", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 })
	same, _ := comparePods(before, before)
	changed, _ := comparePods(before, evidence{pods: []corev1.Pod{*restarted}})
	both := []ownedObject{{"Deployment/web", true}, {"Service/web", true}}
	return map[string]golden{
		"adopt":           {command, true, adoptionText(t, exampleAdoption(t))},
		"adopt-refused":   {command, true, refusedAdoption(t)},
		"adopt-owned":     {command, false, ownedAdoption(t)},
		"adopt-used":      {"adopt appservice/web --from deployment/web", false, usedAdoption(t)},
		"adopt-yes":       {command + " --yes", true, adoptedExample(same, true, both...)},
		"adopt-restarted": {command + " --yes", false, adoptedExample(changed, false, both...)},
		"adopt-missing":   {command + " --yes", false, adoptedExample(same, true, both[0], ownedObject{"Service/web", false})},
	}
}

func TestAdoptDescribesTheObjects(t *testing.T) {
	objects := toAdopt()
	d, _ := objects["Deployment"].(*appsv1.Deployment)
	pod, container := &d.Spec.Template.Spec, &d.Spec.Template.Spec.Containers[0]
	container.Ports = []corev1.ContainerPort{{ContainerPort: 9000}, {Name: "http", ContainerPort: 9090}}
	container.Env = []corev1.EnvVar{{Name: "A", Value: "x"}}
	container.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/live", Port: intstr.FromInt32(1)}}}
	container.VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/etc/shop"}}
	pod.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}}}}
	pod.SecurityContext = &corev1.PodSecurityContext{}
	pod.ServiceAccountName, pod.NodeSelector = "web", map[string]string{"disk": "ssd"}
	d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	meta := metav1.ObjectMeta{Name: "web"}
	objects["ConfigMap"] = &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"COLOR": "green"}}
	objects["HorizontalPodAutoscaler"] = &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		MinReplicas: ptr.To[int32](2), MaxReplicas: 5, Metrics: []autoscalingv2.MetricSpec{{Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceMemory, Target: autoscalingv2.MetricTarget{AverageUtilization: ptr.To[int32](70)},
		}}},
	}}
	objects["PodDisruptionBudget"] = &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1))}}
	objects["Ingress"] = &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"a.example.com/b": "c", corev1.LastAppliedConfigAnnotation: "{}"}},
		Spec: networkingv1.IngressSpec{
			IngressClassName: ptr.To("nginx"), TLS: []networkingv1.IngressTLS{{SecretName: "tls"}},
			Rules: []networkingv1.IngressRule{{Host: "shop.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/shop"}},
			}}}},
		},
	}
	a := newAdoption(objects)

	a.derive()

	g := NewWithT(t)
	g.Expect(a.refused).To(BeEmpty())
	g.Expect(a.spec).To(Equal(v1beta1.AppServiceSpec{
		Image: "registry.example.com/shop:2", Port: 9090, Strategy: v1beta1.StrategyRecreate,
		Config: map[string]string{"COLOR": "green"}, ConfigMountPath: "/etc/shop", Env: []corev1.EnvVar{{Name: "A", Value: "x"}},
		Probes: &v1beta1.AppServiceProbes{
			Readiness: &v1beta1.AppServiceProbe{Path: "/ready", PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3},
			Liveness:  &v1beta1.AppServiceProbe{Path: "/live", Port: ptr.To[int32](1)},
		},
		Autoscaling:      &v1beta1.AppServiceAutoscaling{MinReplicas: 2, MaxReplicas: 5, TargetMemoryUtilizationPercent: ptr.To[int32](70)},
		DisruptionBudget: &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))},
		Ingress: &v1beta1.Ingress{
			Host: "shop.example.com", Path: "/shop", IngressClassName: ptr.To("nginx"), TLSSecretName: "tls", Annotations: map[string]string{"a.example.com/b": "c"},
		},
		ServiceAccountName: "web", PodSecurityStandard: v1beta1.PodSecurityBaseline, NodeSelector: map[string]string{"disk": "ssd"}, ProgressDeadlineSeconds: 600, AdoptionPolicy: v1beta1.AdoptionIfUnowned,
	}))
}

// An AppService may have been created by a run that was interrupted, or whose response was lost.
func TestAdoptRefusesAnAppServiceThatExists(t *testing.T) {
	for policy, want := range map[v1beta1.AdoptionPolicy]string{
		v1beta1.AdoptionNever:     "To adopt objects by it, set its spec.adoptionPolicy to IfUnowned",
		v1beta1.AdoptionIfUnowned: "It adopts objects: to see how far it is, run kubectl fixpoint status appservice/web -n shop",
	} {
		t.Run(string(policy), func(t *testing.T) {
			live := app("web", func(a *v1beta1.AppService) { a.Spec.AdoptionPolicy = policy })
			planned := adoption{kind: live.kind, name: "web", namespace: "shop"}
			err := clientOf(live.Object).planAdoption(t.Context(), &planned, nil)
			NewWithT(t).Expect(err).To(MatchError("AppService shop/web exists: this command creates one. " + want))
		})
	}
}

// Ctrl-C, or an API server that does not respond any more, must not hide that the AppService was created, nor that it was not.
func TestAdoptSaysWhetherItHasCreatedTheAppService(t *testing.T) {
	for name, c := range map[string]struct {
		applied error
		said    string
		err     string
	}{
		"it has": {nil, "AppService shop/web is created. Waiting until it is Ready.\n", "connection refused"},
		"another client has": {apierrors.NewConflict(schema.GroupResource{Resource: "appservices"}, "web", errors.New("it exists")), "",
			"AppService shop/web exists by now, and is left as it is: run kubectl fixpoint status appservice/web -n shop"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects, isApplied := toAdopt(), false
			api := interceptor.NewClient(clientOf(objects["Deployment"], objects["Service"]).WithWatch, interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
					return nil // there are no pods
				},
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					isApplied = true
					return c.applied
				},
				Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
					if isApplied {
						return errors.New("connection refused")
					}
					return api.Get(ctx, key, into, options...)
				},
			})
			streams, said := testStreams(), &bytes.Buffer{}
			streams.ErrOut = said
			planned := newAdoption(toAdopt())
			planned.kind = mustKind("appservice")
			err := (&options{IOStreams: streams}).carryOutAdoption(t.Context(), &clients{WithWatch: api, namespace: "shop"}, *planned, time.Minute)
			g.Expect(err).To(MatchError(ContainSubstring(c.err)))
			g.Expect(said.String()).To(Equal(c.said))
		})
	}
}

// The manager would revert a rollout that begins between the plan and the creation of the AppService.
func TestAdoptRefusesWhatHasChangedSinceItWasPlanned(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*appsv1.Deployment)
		err       string
	}{
		"nothing":        {func(*appsv1.Deployment) {}, ""},
		"the status":     {func(d *appsv1.Deployment) { d.Status.AvailableReplicas, d.Generation = 1, 2 }, ""},
		"the image":      {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "registry.example.com/shop:3" }, "repeat the command"},
		"another object": {func(d *appsv1.Deployment) { d.UID = "uid-of-a-new-one" }, "repeat the command"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects := toAdopt()
			d, ok := objects["Deployment"].(*appsv1.Deployment)
			g.Expect(ok).To(BeTrue())
			c.meanwhile(d)
			err := clientOf(d, objects["Service"]).confirmUnchanged(t.Context(), *newAdoption(toAdopt()))
			if c.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(And(HavePrefix("Deployment/web has changed since the adoption was planned"), HaveSuffix(c.err))))
		})
	}
}

func TestAdoptLeavesOutTheNumberOfPodsThatAnAppServiceDoesNotManage(t *testing.T) {
	for name, c := range map[string]struct {
		replicas int32
		scaler   string
		want     *int32
		note     string
	}{
		"two pods":           {2, "", ptr.To[int32](2), ""},
		"one pod":            {1, "", nil, "an AppService has at least 2 replicas"},
		"another autoscaler": {3, "other", nil, "HorizontalPodAutoscaler other sets the number of pods"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects := toAdopt()
			d, _ := objects["Deployment"].(*appsv1.Deployment)
			d.Spec.Replicas = &c.replicas
			a := newAdoption(objects)
			a.scaler = c.scaler
			a.derive()
			g.Expect(a.spec.Replicas).To(Equal(c.want))
			g.Expect(strings.Join(a.notes, "\n")).To(ContainSubstring(c.note))
			g.Expect(a.isHarmless("Deployment", fieldChange{Field: "spec.replicas", From: "1"})).To(Equal(c.want == nil))
		})
	}
}

func TestAdoptRefusesArgumentsBeforeAnythingIsRead(t *testing.T) {
	for arguments, want := range map[string]string{
		"adopt appservice/web":                                           "no Deployment to adopt is given: set --from deployment/web",
		"adopt mcpserver/web --from deployment/web":                      "a new MCPServer cannot adopt objects with this command, only an AppService can: write the manifest",
		"adopt securestorage/web --from deployment/web":                  "only an AppService can: set spec.accountName",
		"adopt appservice/web --from deployment/shop":                    "the Deployment of an AppService has its name: run kubectl fixpoint adopt appservice/shop --from deployment/shop",
		"adopt appservice/web --from deploy/web,svc/shop":                "the Service of AppService web is named web: leave out --from svc/shop",
		"adopt appservice/web --from deployment.apps/web,deployment/web": "--from deployment/web is given twice",
		"adopt appservice/web --from statefulset/web":                    "an AppService has no child of this kind: use deployment, service, configmap",
		"adopt appservice/web --from deployment":                         "names no object: give it as KIND/NAME",
		"adopt appservice --from deployment/web":                         "no object is named: give it as KIND/NAME",
	} {
		t.Run(arguments, func(t *testing.T) {
			k := strings.Fields(arguments)
			var from []string
			if len(k) > 2 {
				from = strings.Split(k[3], ",")
			}
			parsed, err := parseTarget(k[1:2])
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			kind, name, err := parsed.one()
			if err == nil {
				_, err = parseSources(kind, name, from)
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)))
		})
	}
}

func TestOnlyAnAutoscalerOfTheDeploymentIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		namespace, kind, scales, want string
	}{
		"of the Deployment":    {"shop", "Deployment", "web", "scaler"},
		"of another one":       {"shop", "Deployment", "api", ""},
		"of a StatefulSet":     {"shop", "StatefulSet", "web", ""},
		"in another namespace": {"factory", "Deployment", "web", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "scaler"}}
			scaler.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{Kind: c.kind, Name: c.scales}
			planned := newAdoption(toAdopt())
			g.Expect(clientOf(scaler).findScaler(t.Context(), planned)).To(Succeed())
			g.Expect(planned.scaler).To(Equal(c.want))
		})
	}
}

func TestAnObjectThatAnotherOneReplacedIsNotAdopted(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*appsv1.Deployment)
		want bool
	}{
		"adopted":                              {func(*appsv1.Deployment) {}, true},
		"by an earlier AppService of the name": {func(d *appsv1.Deployment) { d.OwnerReferences[0].UID = "uid-of-a-deleted-one" }, false},
		"by nobody":                            {func(d *appsv1.Deployment) { d.OwnerReferences = nil }, false},
		"without a field":                      {func(d *appsv1.Deployment) { d.ManagedFields[0].Manager = "kubectl" }, false},
		"created since":                        {func(d *appsv1.Deployment) { d.UID = "uid-of-a-new-one" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			owner, live := app("web"), deployment(3)
			live.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1beta1.SchemeGroupVersion.WithKind("AppService"))}
			c.edit(live)
			api := clientOf()
			api.WithWatch = interceptor.NewClient(api.WithWatch, interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
					d, ok := into.(*appsv1.Deployment)
					g.Expect(ok).To(BeTrue(), "%T", into)
					live.DeepCopyInto(d)
					return nil
				}})
			owned, err := api.adoptedBy(t.Context(), owner, *newAdoption(map[string]client.Object{"Deployment": deployment(3)}))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(owned).To(Equal([]ownedObject{{"Deployment/web", c.want}}))
		})
	}
}
