package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// neverReady is an image whose pods never become ready, and with which a Job fails.
const neverReady = "registry.test/never-ready:1"

// children returns objects of the kinds that the controllers create.
func children() []client.Object {
	return []client.Object{
		&appsv1.Deployment{}, &corev1.Service{}, &corev1.ConfigMap{}, &corev1.Secret{}, &corev1.ServiceAccount{}, &batchv1.Job{},
		&autoscalingv2.HorizontalPodAutoscaler{}, &policyv1.PodDisruptionBudget{},
		&networkingv1.Ingress{}, &networkingv1.NetworkPolicy{}, &gatewayv1.HTTPRoute{},
	}
}

// childKinds returns the kinds of the children.
func childKinds() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, child := range children() {
		gvk, err := apiutil.GVKForObject(child, api.Scheme())
		if err != nil {
			panic(fmt.Sprintf("finding the kind of %T: %v", child, err)) // children is wrong
		}
		kinds = append(kinds, gvk)
	}
	return kinds
}

// kubeControllers simulates the Kubernetes controllers: Deployments roll out, Jobs end, autoscalers and disruption budgets
// get a status, Services get endpoints, and foreground deletion completes.
type kubeControllers struct {
	t   *testing.T
	api client.Client
}

// startKubeControllers runs the simulated controllers for the duration of a test.
func startKubeControllers(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	watched, err := cache.New(shared.Admin(), cache.Options{Scheme: controllers.NewScheme()})
	g.Expect(err).NotTo(HaveOccurred())
	p := &kubeControllers{t: t, api: client.WithFieldOwner(api, "simulated-controllers")}
	for _, kind := range children() {
		informer, err := watched.GetInformer(ctx, kind)
		g.Expect(err).NotTo(HaveOccurred())
		todo := make(chan client.Object, 10000)
		for range 2 {
			go func() {
				for {
					select {
					case <-ctx.Done():
						return
					case object := <-todo:
						p.reconcile(ctx, object)
					}
				}
			}()
		}
		see := func(object any) {
			if object, ok := object.(client.Object); ok {
				todo <- object
			}
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: see, UpdateFunc: func(_, object any) { see(object) }, DeleteFunc: func(object any) { p.deleteEndpoints(ctx, object) },
		})
		g.Expect(err).NotTo(HaveOccurred())
	}
	go func() { _ = watched.Start(ctx) }()
	g.Expect(watched.WaitForCacheSync(ctx)).To(BeTrue())
}

func (p *kubeControllers) reconcile(ctx context.Context, object client.Object) {
	if object.GetDeletionTimestamp() != nil {
		if slices.Contains(object.GetFinalizers(), metav1.FinalizerDeleteDependents) {
			p.patch(ctx, object, "", map[string]any{"metadata": map[string]any{"finalizers": nil}})
		}
		return
	}
	switch object := object.(type) {
	case *appsv1.Deployment:
		if status := deploymentStatus(object); object.Status.ObservedGeneration != object.Generation || object.Status.Replicas != status["replicas"] {
			p.patch(ctx, object, "status", map[string]any{"status": status})
		}
		p.scaleDeployment(ctx, object)
	case *batchv1.Job:
		if len(object.Status.Conditions) == 0 {
			p.patch(ctx, object, "status", map[string]any{"status": harness.JobStatus(!runs(neverReady, object.Spec.Template))})
		}
	case *autoscalingv2.HorizontalPodAutoscaler:
		p.scaleTarget(ctx, object)
		if len(object.Status.Conditions) == 0 {
			p.patch(ctx, object, "status", map[string]any{"status": map[string]any{
				"desiredReplicas": 1, "currentReplicas": 1, "currentMetrics": []any{},
				"conditions": []any{map[string]any{"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "lastTransitionTime": metav1.Now()}},
			}})
		}
	case *policyv1.PodDisruptionBudget:
		if object.Status.ObservedGeneration != object.Generation {
			p.patch(ctx, object, "status", map[string]any{"status": map[string]any{
				"observedGeneration": object.Generation, "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
			}})
		}
	case *corev1.Service:
		p.createEndpoints(ctx, object)
	}
}

// scaleTarget scales the Deployment of an autoscaler into its bounds.
func (p *kubeControllers) scaleTarget(ctx context.Context, h *autoscalingv2.HorizontalPodAutoscaler) {
	d := &appsv1.Deployment{}
	if p.get(ctx, h.Namespace, h.Spec.ScaleTargetRef.Name, d) {
		p.scaleDeployment(ctx, d)
	}
}

// scaleDeployment scales a Deployment into the bounds of its autoscaler, if it has one.
func (p *kubeControllers) scaleDeployment(ctx context.Context, d *appsv1.Deployment) {
	h := &autoscalingv2.HorizontalPodAutoscaler{}
	if d.DeletionTimestamp != nil || !p.get(ctx, d.Namespace, d.Name, h) || h.DeletionTimestamp != nil {
		return
	}
	replicas := ptr.Deref(d.Spec.Replicas, 1)
	if wanted := min(max(replicas, ptr.Deref(h.Spec.MinReplicas, 1)), h.Spec.MaxReplicas); wanted != replicas {
		p.patch(ctx, d, "scale", map[string]any{"spec": map[string]any{"replicas": wanted}})
	}
}

// get reads an object from the API server and reports whether it exists.
func (p *kubeControllers) get(ctx context.Context, namespace, name string, into client.Object) bool {
	err := p.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
		p.t.Errorf("simulating the controller of %T %s: %v", into, name, err)
	}
	return err == nil
}

// deploymentStatus returns the status of a Deployment whose rollout is complete or, with neverReady, has failed.
func deploymentStatus(d *appsv1.Deployment) map[string]any {
	replicas := ptr.Deref(d.Spec.Replicas, 1)
	progress, updated := "NewReplicaSetAvailable", replicas
	if runs(neverReady, d.Spec.Template) {
		progress, updated = "ProgressDeadlineExceeded", 0
	}
	return map[string]any{
		"observedGeneration": d.Generation, "replicas": replicas, "updatedReplicas": updated, "readyReplicas": replicas, "availableReplicas": replicas,
		"conditions": []any{map[string]any{
			"type": "Progressing", "status": map[bool]string{true: "True", false: "False"}[updated > 0], "reason": progress, "lastTransitionTime": metav1.Now(), "lastUpdateTime": metav1.Now(),
		}},
	}
}

// runs reports whether a container of a pod template has an image.
func runs(image string, template corev1.PodTemplateSpec) bool {
	return slices.ContainsFunc(template.Spec.Containers, func(c corev1.Container) bool { return c.Image == image })
}

// patch sends a merge patch with the observed resource version. A conflict is resolved by the next event.
func (p *kubeControllers) patch(ctx context.Context, object client.Object, subresource string, patch map[string]any) {
	metadata, ok := patch["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
	}
	metadata["resourceVersion"] = object.GetResourceVersion()
	patch["metadata"] = metadata
	text, err := json.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("encoding a patch: %v", err)) // the patch is always encodable
	}
	copied, ok := object.DeepCopyObject().(client.Object) // Patch overwrites it with the response
	if !ok {
		return
	}
	raw := client.RawPatch(types.MergePatchType, text)
	if subresource != "" {
		err = p.api.SubResource(subresource).Patch(ctx, copied, raw)
	} else {
		err = p.api.Patch(ctx, copied, raw)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		p.t.Errorf("simulating the controller of %T %s: %v", object, object.GetName(), err)
	}
}

// createEndpoints creates an EndpointSlice for the Service of an MCPServer.
func (p *kubeControllers) createEndpoints(ctx context.Context, service *corev1.Service) {
	if service.Labels["fixpoint.dev/kind"] != "mcpserver" || len(service.Spec.Ports) == 0 {
		return
	}
	slice := slice(service.Namespace, service.Name)
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: service.Name}
	for key, value := range service.Labels {
		slice.Labels[key] = value
	}
	slice.AddressType = discoveryv1.AddressTypeIPv4
	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}
	port := service.Spec.Ports[0]
	slice.Ports = []discoveryv1.EndpointPort{{Name: &port.Name, Port: &port.Port, Protocol: ptr.To(corev1.ProtocolTCP)}}
	err := p.api.Create(ctx, slice)
	if apierrors.IsAlreadyExists(err) {
		err = p.api.Update(ctx, slice)
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		p.t.Errorf("simulating the endpoints of Service %s: %v", service.Name, err)
	}
}

func slice(namespace, service string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service}}
}

// deleteEndpoints deletes the EndpointSlice of a deleted Service.
func (p *kubeControllers) deleteEndpoints(ctx context.Context, gone any) {
	if tombstone, ok := gone.(toolscache.DeletedFinalStateUnknown); ok {
		gone = tombstone.Obj
	}
	if service, ok := gone.(*corev1.Service); ok && !strings.HasPrefix(service.Namespace, "kube-") && service.Name != "kubernetes" {
		_ = p.api.Delete(ctx, slice(service.Namespace, service.Name)) // most Services have none
	}
}
