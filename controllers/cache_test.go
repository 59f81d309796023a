package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	autoscalingv2ac "k8s.io/client-go/applyconfigurations/autoscaling/v2"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

func controlledBy(apiVersion, kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: "uid-0", Controller: ptr.To(true)}}
}

func TestStrip(t *testing.T) {
	deletion := metav1.NewTime(time.Unix(1000, 0))
	meta := func(owners []metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "uid-1", ResourceVersion: "42", Generation: 2,
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"e.f/g"},
			OwnerReferences: owners, DeletionTimestamp: &deletion,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		}
	}
	remains := func(owners []metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "uid-1", ResourceVersion: "42", OwnerReferences: owners, DeletionTimestamp: &deletion,
		}
	}
	managed := controlledBy("fixpoint.dev/v1beta1", "AppService")
	managedByV1 := controlledBy("fixpoint.dev/v1", "AppService")
	helm := controlledBy("example.com/v1", "AppService")
	notController := controlledBy("fixpoint.dev/v1beta1", "AppService")
	notController[0].Controller = nil
	data := map[string]string{"key": "a large value"}

	cases := map[string]struct {
		cached any
		want   any // nil: cached itself, unchanged
	}{
		"an AppService":                          {&v1beta1.AppService{ObjectMeta: meta(nil)}, nil},
		"an ingress class":                       {&networkingv1.IngressClass{ObjectMeta: meta(nil)}, nil},
		"a managed child":                        {&corev1.ConfigMap{ObjectMeta: meta(managed), Data: data}, nil},
		"a child managed by a later API version": {&corev1.ConfigMap{ObjectMeta: meta(managedByV1), Data: data}, nil},
		"an object without owner":                {&corev1.ConfigMap{ObjectMeta: meta(nil), Data: data}, &corev1.ConfigMap{ObjectMeta: remains(nil)}},
		"an object of another controller":        {&corev1.ConfigMap{ObjectMeta: meta(helm), Data: data}, &corev1.ConfigMap{ObjectMeta: remains(helm)}},
		"an owner that is not the controller":    {&corev1.ConfigMap{ObjectMeta: meta(notController), Data: data}, &corev1.ConfigMap{ObjectMeta: remains(notController)}},
		"a Deployment without owner": {
			&appsv1.Deployment{ObjectMeta: meta(nil), Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}},
			&appsv1.Deployment{ObjectMeta: remains(nil)},
		},
		"not an object": {"a tombstone", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			stripped, err := strip(c.cached)
			g.Expect(err).NotTo(HaveOccurred())
			if c.want == nil {
				g.Expect(stripped).To(BeIdenticalTo(c.cached))
				return
			}
			g.Expect(stripped).To(Equal(c.want))
			again, err := strip(stripped)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(Equal(c.want), "stripping is idempotent")
		})
	}
}

// Cached objects may be shared, so the transform must not edit them.
func TestStripDoesNotModifyItsInput(t *testing.T) {
	g := NewWithT(t)
	original := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Data: map[string]string{"a": "b"}}
	_, err := strip(client.Object(original))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(original.Data).To(HaveLen(1))
}

// applied is the child as the API server stores it after an apply by the controller of the owner, and as edit
// changes it then. The cluster's controllers write a status.
func applied[T client.Object](t *testing.T, desired ssa.Configuration, edit func(T)) T {
	t.Helper()
	server := ssatest.NewServer(NewScheme(), ssatest.Options{})
	applier, err := ssa.New(ssa.Options{Client: server, FieldManager: appservice.FieldManager})
	if err != nil {
		t.Fatal(err)
	}
	result, err := applier.Apply(t.Context(), ssa.Request{Desired: desired, Owner: &controlledBy("fixpoint.dev/v1beta1", "AppService")[0]})
	if err != nil {
		t.Fatal(err)
	}
	child, ok := result.Live.(T)
	if !ok {
		t.Fatalf("the child is a %T", result.Live)
	}
	edit(child)
	return child
}

func TestStripKeepsWhatPhasesReadOfAJob(t *testing.T) {
	g := NewWithT(t)
	live := applied(t, batchv1ac.Job("web-1", "shop").WithSpec(batchv1ac.JobSpec().WithBackoffLimit(0)), func(job *batchv1.Job) {
		job.Status = batchv1.JobStatus{Active: 1, Ready: ptr.To[int32](1), Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}}
	})
	cached := live.DeepCopy()

	g.Expect(strip(cached)).To(BeIdenticalTo(cached))

	g.Expect(ssa.IsCompact(cached)).To(BeTrue())
	g.Expect(cached.Spec).To(BeZero())
	g.Expect(cached.Status).To(Equal(live.Status))
	g.Expect(cached.CreationTimestamp).To(Equal(live.CreationTimestamp))
	g.Expect(cached.OwnerReferences).To(Equal(live.OwnerReferences))
}

func TestStripKeepsWhatPhasesReadOfADeployment(t *testing.T) {
	desired := func() ssa.Configuration {
		labels := map[string]string{"app": "web"}
		return appsv1ac.Deployment("web", "shop").WithLabels(labels).WithSpec(appsv1ac.DeploymentSpec().
			WithReplicas(2).WithProgressDeadlineSeconds(60).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).
				WithAnnotations(map[string]string{"fixpoint.dev/dependencies-hash": "h", "other": "x"}).
				WithSpec(corev1ac.PodSpec().WithContainers(corev1ac.Container().WithName("web").WithImage("web:1")))))
	}
	for name, status := range map[string]appsv1.DeploymentStatus{
		"rolled out":   {Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Reason: "NewReplicaSetAvailable"}}},
		"in a rollout": {Replicas: 2, UpdatedReplicas: 1, ReadyReplicas: 2, AvailableReplicas: 2},
		"stalled":      {Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Reason: "ProgressDeadlineExceeded"}}},
		"without pods": {Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := applied(t, desired(), func(d *appsv1.Deployment) { d.Status = status })
			cached := live.DeepCopy()

			g.Expect(strip(cached)).To(BeIdenticalTo(cached))

			g.Expect(ssa.IsCompact(cached)).To(BeTrue())
			g.Expect(workload.Ready(cached)).To(Equal(workload.Ready(live)))
			g.Expect(cached.Status.ReadyReplicas).To(Equal(live.Status.ReadyReplicas))
			g.Expect(cached.Spec.Replicas).To(Equal(live.Spec.Replicas))
			g.Expect(cached.Spec.Template).To(Equal(corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"fixpoint.dev/dependencies-hash": "h"}}}))
			g.Expect(cached.Labels).To(BeEmpty())
			if !workload.Ready(live).IsDone() {
				g.Expect(cached.Spec.Selector).To(Equal(live.Spec.Selector))
			}
			again := cached.DeepCopy()
			g.Expect(strip(again)).To(Equal(cached), "stripping is idempotent")
		})
	}
}

func TestStripKeepsWhatPhasesReadOfOtherChildren(t *testing.T) {
	g := NewWithT(t)
	scaler := applied(t, autoscalingv2ac.HorizontalPodAutoscaler("web", "shop").WithSpec(autoscalingv2ac.HorizontalPodAutoscalerSpec().WithMinReplicas(2).WithMaxReplicas(4).
		WithScaleTargetRef(autoscalingv2ac.CrossVersionObjectReference().WithKind("Deployment").WithName("web"))), func(h *autoscalingv2.HorizontalPodAutoscaler) {
		h.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionFalse, Reason: "InvalidMetricSourceType", Message: "m"}}
	})
	kept := scaler.DeepCopy()
	g.Expect(strip(kept)).To(BeIdenticalTo(kept))
	g.Expect(workload.AutoscalerReady(kept)).To(Equal(workload.AutoscalerReady(scaler)))
	deployment := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](9)}}
	g.Expect(workload.AutoscalerReadyOver(deployment, kept, workload.AutoscalerReady(kept))).To(Equal(workload.AutoscalerReadyOver(deployment, scaler, workload.AutoscalerReady(scaler))))

	for name, configuration := range map[string]*networkingv1ac.IngressApplyConfiguration{
		"a class":               networkingv1ac.Ingress("web", "shop").WithSpec(networkingv1ac.IngressSpec().WithIngressClassName("nginx")),
		"a class by annotation": networkingv1ac.Ingress("web", "shop").WithAnnotations(map[string]string{"kubernetes.io/ingress.class": "nginx", "a": "b"}),
		"no class":              networkingv1ac.Ingress("web", "shop").WithAnnotations(map[string]string{"a": "b"}),
	} {
		ingress := applied(t, configuration, func(*networkingv1.Ingress) {})
		kept := ingress.DeepCopy()
		g.Expect(strip(kept)).To(BeIdenticalTo(kept))
		g.Expect(workload.IngressReady(kept)).To(Equal(workload.IngressReady(ingress)), name)
		g.Expect(kept.Annotations).NotTo(HaveKey("a"))
	}

	for observed := range int64(2) {
		budget := applied(t, policyv1ac.PodDisruptionBudget("web", "shop").WithSpec(policyv1ac.PodDisruptionBudgetSpec().WithMaxUnavailable(intstr.FromInt32(1))),
			func(b *policyv1.PodDisruptionBudget) { b.Generation, b.Status.ObservedGeneration = 1, observed })
		kept := budget.DeepCopy()
		g.Expect(strip(kept)).To(BeIdenticalTo(kept))
		g.Expect(workload.DisruptionBudgetReady(kept)).To(Equal(workload.DisruptionBudgetReady(budget)))
	}
}

// A drift is reverted without a read past the cache, and reported with who did what.
func TestStripLeavesChildrenThatHaveDrifted(t *testing.T) {
	g := NewWithT(t)
	desired := func() ssa.Configuration {
		return corev1ac.ConfigMap("web", "shop").WithData(map[string]string{"a": "1"})
	}
	asApplied := applied(t, desired(), func(*corev1.ConfigMap) {})
	g.Expect(strip(asApplied)).To(HaveField("Data", BeEmpty()))

	drifted := applied(t, desired(), func(c *corev1.ConfigMap) {
		c.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:ssa.fixpoint.dev/fixpoint-appservice":{}}}}`)
	})
	whole := drifted.DeepCopy()
	g.Expect(strip(drifted)).To(Equal(whole))
}

func TestStripDropsTheKeysOfExportedSecrets(t *testing.T) {
	g := NewWithT(t)
	secret := applied(t, corev1ac.Secret("web", "shop").WithData(map[string][]byte{"key1": []byte("k")}), func(*corev1.Secret) {})
	g.Expect(secret.Data).NotTo(BeEmpty())
	g.Expect(strip(secret)).To(HaveField("Data", BeEmpty()))
}

func TestStripDropsTheManifestOfKubectl(t *testing.T) {
	g := NewWithT(t)
	app := &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "a": "b"}}}
	g.Expect(strip(app)).To(HaveField("Annotations", map[string]string{"a": "b"}))
}

func TestStripSharesEqualFieldSets(t *testing.T) {
	g := NewWithT(t)
	app := func(fields string) *v1beta1.AppService {
		return &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(fields)}, {}}}}
	}
	one, same, other, empty := app(`{"f:spec":{}}`), app(`{"f:spec":{}}`), app(`{"f:status":{}}`), app("")
	for _, cached := range []*v1beta1.AppService{one, same, other, empty} {
		before := cached.DeepCopy()
		g.Expect(strip(cached)).To(Equal(before))
	}
	g.Expect(same.ManagedFields[0].FieldsV1).To(BeIdenticalTo(one.ManagedFields[0].FieldsV1))
	g.Expect(other.ManagedFields[0].FieldsV1).NotTo(BeIdenticalTo(one.ManagedFields[0].FieldsV1))

	// The memory for sharing is bounded.
	for i := range 256 {
		_, err := strip(app(fmt.Sprintf(`{"f:spec":{"f:field%d":{}}}`, i)))
		g.Expect(err).NotTo(HaveOccurred())
	}
	late := app(`{"f:spec":{}}`)
	_, err := strip(late)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(late.ManagedFields[0].FieldsV1).NotTo(BeIdenticalTo(one.ManagedFields[0].FieldsV1))
}

// Nothing but the memory changes: what controllers read of an object of a kind of Fixpoint is the same.
func TestStripSharesStringsOfOwners(t *testing.T) {
	decoded := func() (metav1.ObjectMeta, []metav1.Condition) {
		return metav1.ObjectMeta{Namespace: strings.Clone("shop"), ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: strings.Clone(appservice.FieldManager), Operation: metav1.ManagedFieldsOperationType(strings.Clone("Apply")),
				APIVersion: strings.Clone("fixpoint.dev/v1beta1"), FieldsType: strings.Clone("FieldsV1"), Subresource: strings.Clone("status"),
			}}}, []metav1.Condition{{
				Type: strings.Clone("Ready"), Status: metav1.ConditionStatus(strings.Clone("True")), Reason: strings.Clone("Ready"), Message: "all phases are ready",
			}}
	}
	kinds := map[string]func() (client.Object, *[]metav1.Condition){
		"AppService": func() (client.Object, *[]metav1.Condition) {
			o := &v1beta1.AppService{}
			o.ObjectMeta, o.Status.Conditions = decoded()
			return o, &o.Status.Conditions
		},
		"MCPServer": func() (client.Object, *[]metav1.Condition) {
			o := &v1beta1.MCPServer{}
			o.ObjectMeta, o.Status.Conditions = decoded()
			return o, &o.Status.Conditions
		},
		"SecureStorage": func() (client.Object, *[]metav1.Condition) {
			o := &v1beta1.SecureStorage{}
			o.ObjectMeta, o.Status.Conditions = decoded()
			return o, &o.Status.Conditions
		},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			one, conditions := kind()
			other, otherConditions := kind()
			before := one.DeepCopyObject()

			g.Expect(strip(one)).To(Equal(before))
			g.Expect(strip(other)).To(Equal(before))

			entry, otherEntry := one.GetManagedFields()[0], other.GetManagedFields()[0]
			condition, otherCondition := (*conditions)[0], (*otherConditions)[0]
			for what, pair := range map[string][2]string{
				"namespace":   {one.GetNamespace(), other.GetNamespace()},
				"manager":     {entry.Manager, otherEntry.Manager},
				"operation":   {string(entry.Operation), string(otherEntry.Operation)},
				"apiVersion":  {entry.APIVersion, otherEntry.APIVersion},
				"fieldsType":  {entry.FieldsType, otherEntry.FieldsType},
				"subresource": {entry.Subresource, otherEntry.Subresource},
				"type":        {condition.Type, otherCondition.Type},
				"status":      {string(condition.Status), string(otherCondition.Status)},
				"reason":      {condition.Reason, otherCondition.Reason},
			} {
				g.Expect(unsafe.StringData(pair[0]) == unsafe.StringData(pair[1])).To(BeTrue(), what)
			}
		})
	}
}

// cachedMetadata shows the metadata of one object.
type cachedMetadata struct {
	client.Reader
	metadata *metav1.PartialObjectMetadata
}

func (c cachedMetadata) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	metadata, ok := into.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("%T is not metadata", into)
	}
	c.metadata.DeepCopyInto(metadata)
	return nil
}

// Every ConfigMap that Fixpoint applies is cached a second time as the metadata of an object that a spec may refer to.
func TestStripKeepsWhatControllersReadOfMetadata(t *testing.T) {
	g := NewWithT(t)
	deletion := metav1.NewTime(time.Unix(1000, 0))
	whole := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "shop", UID: "uid-1", ResourceVersion: "42", DeletionTimestamp: &deletion, Finalizers: []string{securestorage.SecretFinalizer},
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, OwnerReferences: controlledBy("fixpoint.dev/v1beta1", "AppService"),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}}
	stripped := whole.DeepCopy()

	g.Expect(strip(stripped)).To(Equal(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "shop", UID: "uid-1", ResourceVersion: "42", DeletionTimestamp: &deletion, Finalizers: []string{securestorage.SecretFinalizer},
	}}))

	data := ssatest.NewServer(NewScheme(), ssatest.Options{})
	g.Expect(data.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}, Data: map[string]string{"key": "value"}})).To(Succeed())
	find := func(metadata *metav1.PartialObjectMetadata) references.Finding {
		reader := &references.Reader{Metadata: cachedMetadata{metadata: metadata}, Data: data}
		finding, err := reader.Find(t.Context(), "shop", []references.Reference{{Kind: references.ConfigMap, Name: "web", Keys: []string{"key", "other"}, Rolls: true}})
		g.Expect(err).NotTo(HaveOccurred())
		return finding
	}
	g.Expect(find(stripped)).To(Equal(find(whole)))
	g.Expect(find(stripped).Missing).To(Equal([]string{"key other of ConfigMap web"}))
}

func TestStripKeepsWhatControllersReadOfEndpointSlices(t *testing.T) {
	g := NewWithT(t)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}, Annotations: map[string]string{"c": "d"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager"}},
		},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
	want := slice.DeepCopy()
	want.Annotations, want.ManagedFields = nil, nil
	g.Expect(strip(slice)).To(Equal(want))
}

// The cluster's controllers write a status, which no phase reads.
func TestStripKeepsLittleOfChildrenThatAreReadyOnceTheyExist(t *testing.T) {
	g := NewWithT(t)
	service := applied(t, corev1ac.Service("web", "shop").WithLabels(map[string]string{"a": "b"}).WithSpec(corev1ac.ServiceSpec().WithType(corev1.ServiceTypeLoadBalancer)),
		func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.0.0.1"}}
		})
	policy := applied(t, networkingv1ac.NetworkPolicy("web", "shop").WithLabels(map[string]string{"a": "b"}).WithSpec(networkingv1ac.NetworkPolicySpec().WithPolicyTypes(networkingv1.PolicyTypeIngress)),
		func(*networkingv1.NetworkPolicy) {})
	config := applied(t, corev1ac.ConfigMap("web", "shop").WithData(map[string]string{"a": "1"}).WithBinaryData(map[string][]byte{"b": []byte("2")}), func(*corev1.ConfigMap) {})
	for _, child := range []client.Object{service, policy, config} {
		g.Expect(strip(child)).To(BeIdenticalTo(child))
		g.Expect(ssa.IsCompact(child)).To(BeTrue())
		g.Expect(child.GetLabels()).To(BeEmpty())
	}
	g.Expect(service.Spec).To(BeZero())
	g.Expect(service.Status).To(BeZero())
	g.Expect(policy.Spec).To(BeZero())
	g.Expect(config.Data).To(BeEmpty())
	g.Expect(config.BinaryData).To(BeEmpty())

	ingress := applied(t, networkingv1ac.Ingress("web", "shop").WithSpec(networkingv1ac.IngressSpec().WithIngressClassName("nginx")),
		func(i *networkingv1.Ingress) {
			i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "10.0.0.1"}}
		})
	g.Expect(strip(ingress)).To(BeIdenticalTo(ingress))
	g.Expect(ingress.Status).To(BeZero())
	g.Expect(ingress.Spec).To(Equal(networkingv1.IngressSpec{IngressClassName: ptr.To("nginx")}))

	budget := applied(t, policyv1ac.PodDisruptionBudget("web", "shop").WithSpec(policyv1ac.PodDisruptionBudgetSpec().WithMaxUnavailable(intstr.FromInt32(1))),
		func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy, b.Status.ObservedGeneration = 3, 7 })
	g.Expect(strip(budget)).To(BeIdenticalTo(budget))
	g.Expect(budget.Spec).To(BeZero())
	g.Expect(budget.Status).To(Equal(policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 7}))

	scaler := applied(t, autoscalingv2ac.HorizontalPodAutoscaler("web", "shop").WithSpec(autoscalingv2ac.HorizontalPodAutoscalerSpec().WithMinReplicas(2).WithMaxReplicas(4).
		WithScaleTargetRef(autoscalingv2ac.CrossVersionObjectReference().WithKind("Deployment").WithName("web"))), func(h *autoscalingv2.HorizontalPodAutoscaler) {
		h.Status.CurrentReplicas = 3
	})
	g.Expect(strip(scaler)).To(BeIdenticalTo(scaler))
	g.Expect(scaler.Spec).To(Equal(autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: ptr.To[int32](2), MaxReplicas: 4}))
	g.Expect(scaler.Status).To(BeZero())
}

func TestStripDropsTheStatusOfARolloutThatIsDone(t *testing.T) {
	g := NewWithT(t)
	deployment := applied(t, appsv1ac.Deployment("web", "shop").WithSpec(appsv1ac.DeploymentSpec().WithReplicas(1).WithProgressDeadlineSeconds(60).
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{"a": "b"}))), func(d *appsv1.Deployment) {
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Reason: "NewReplicaSetAvailable"}}}
	})
	g.Expect(strip(deployment)).To(BeIdenticalTo(deployment))
	g.Expect(deployment.Status.Conditions).To(BeEmpty())
	g.Expect(deployment.Spec).To(Equal(appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), ProgressDeadlineSeconds: ptr.To[int32](60)}))
}

// A child of a kind whose readers are not known keeps its spec and its labels.
func TestStripKeepsChildrenOfOtherKinds(t *testing.T) {
	g := NewWithT(t)
	account := applied(t, corev1ac.ServiceAccount("web", "shop").WithLabels(map[string]string{"a": "b"}).WithAutomountServiceAccountToken(false), func(*corev1.ServiceAccount) {})
	g.Expect(strip(account)).To(BeIdenticalTo(account))
	g.Expect(account.Labels).To(Equal(map[string]string{"a": "b"}))
	g.Expect(account.AutomountServiceAccountToken).To(Equal(ptr.To(false)))
}

// Their phase keeps the keys that exist.
func TestStripKeepsSessionKeys(t *testing.T) {
	g := NewWithT(t)
	secret := applied(t, corev1ac.Secret("web", "shop").WithType(v1beta1.SecretTypeSessionKeys).WithData(map[string][]byte{"key": []byte("k")}), func(*corev1.Secret) {})
	g.Expect(strip(secret)).To(HaveField("Data", HaveKeyWithValue("key", []byte("k"))))
}

func TestManagerOfIsTheFieldManagerOfTheOwner(t *testing.T) {
	for name, c := range map[string]struct {
		owners []metav1.OwnerReference
		want   string
	}{
		"AppService":            {controlledBy("fixpoint.dev/v1beta1", "AppService"), appservice.FieldManager},
		"MCPServer":             {controlledBy("fixpoint.dev/v1beta1", "MCPServer"), mcpserver.FieldManager},
		"SecureStorage":         {controlledBy("fixpoint.dev/v1beta1", "SecureStorage"), securestorage.FieldManager},
		"no owner":              {nil, ""},
		"another group":         {controlledBy("apps/v1", "AppService"), ""},
		"malformed API version": {controlledBy("fixpoint.dev/v1/x", "AppService"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(managerOf(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{OwnerReferences: c.owners}})).To(Equal(c.want))
		})
	}
}

// What many children have in common is in memory once.
func TestStripSharesStringsOfChildren(t *testing.T) {
	g := NewWithT(t)
	child := func(controls, blocks *bool) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: strings.Clone("web"), Namespace: strings.Clone("shop"),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: strings.Clone("fixpoint.dev/v1beta1"), Kind: strings.Clone("AppService"), Name: strings.Clone("web"), Controller: controls, BlockOwnerDeletion: blocks,
			}},
		}}
	}
	one, other := child(ptr.To(true), ptr.To(true)), child(ptr.To(true), ptr.To(true))
	before := one.DeepCopy()
	shareStrings(one)
	shareStrings(other)
	g.Expect(one).To(Equal(before))
	owner, otherOwner := one.OwnerReferences[0], other.OwnerReferences[0]
	for what, pair := range map[string][2]string{
		"namespace":   {one.Namespace, other.Namespace},
		"apiVersion":  {owner.APIVersion, otherOwner.APIVersion},
		"kind":        {owner.Kind, otherOwner.Kind},
		"owner":       {owner.Name, one.Name},
		"other owner": {otherOwner.Name, other.Name},
	} {
		g.Expect(unsafe.StringData(pair[0]) == unsafe.StringData(pair[1])).To(BeTrue(), what)
	}
	g.Expect(owner.Controller).To(BeIdenticalTo(otherOwner.Controller))
	g.Expect(owner.BlockOwnerDeletion).To(BeIdenticalTo(otherOwner.BlockOwnerDeletion))
	for _, c := range [][2]*bool{{nil, nil}, {ptr.To(true), nil}, {nil, ptr.To(true)}, {ptr.To(true), ptr.To(false)}, {ptr.To(false), ptr.To(true)}} {
		kept := child(c[0], c[1])
		kept.OwnerReferences[0].Name = "other"
		before := kept.DeepCopy()
		shareStrings(kept)
		g.Expect(kept).To(Equal(before))
	}
}

// Decoding leaves slices with room for more entries, which would stay in memory.
func TestStripTrimsTheSlicesOfOwners(t *testing.T) {
	g := NewWithT(t)
	app := &v1beta1.AppService{}
	app.ManagedFields = make([]metav1.ManagedFieldsEntry, 1, 64)
	app.Status.Conditions = make([]metav1.Condition, 1, 64)
	_, err := strip(app)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cap(app.ManagedFields)).To(BeNumerically("<", 64))
	g.Expect(cap(app.Status.Conditions)).To(BeNumerically("<", 64))
}

func TestStripSharesTheNamespaceOfMetadata(t *testing.T) {
	g := NewWithT(t)
	var all []*metav1.PartialObjectMetadata
	for range 2 {
		metadata := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Clone("shop")}}
		_, err := strip(metadata)
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, metadata)
	}
	g.Expect(unsafe.StringData(all[0].Namespace) == unsafe.StringData(all[1].Namespace)).To(BeTrue())
}

func TestStripSharesTheStringsOfWhatItKeepsOfAChild(t *testing.T) {
	g := NewWithT(t)
	child := applied(t, batchv1ac.Job("web", "shop").WithSpec(batchv1ac.JobSpec().WithBackoffLimit(0)), func(j *batchv1.Job) { j.OwnerReferences[0].Name = strings.Clone("web") })
	g.Expect(strip(child)).To(BeIdenticalTo(child))
	g.Expect(unsafe.StringData(child.OwnerReferences[0].Name) == unsafe.StringData(child.Name)).To(BeTrue())
}
