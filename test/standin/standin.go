// Package standin stands in for the controller manager, the scheduler and the nodes where thousands of pods would need
// far more machine than the manager that is measured. Every rollout is complete as soon as it is seen, and every
// PodDisruptionBudget is observed. Pods exist for the Deployments of MCPServers alone, since Fixpoint reads the pods that
// it probes: one for each replica, with an endpoint of the Service of the same name.
package standin

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/controllers"
)

// workers is how many objects are worked on at a time.
const workers = 10

// Run runs the stand-in until ctx is done.
func Run(ctx context.Context, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:  controllers.NewScheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{
			MaxConcurrentReconciles: workers,
			SkipNameValidation:      ptr.To(true), // a process may run several, one after the other
		},
	})
	if err != nil {
		return fmt.Errorf("building the stand-in: %w", err)
	}
	s := &standIn{Client: mgr.GetClient()}
	if err := ctrl.NewControllerManagedBy(mgr).Named("deployments").For(&appsv1.Deployment{}).
		Complete(reconcile.Func(s.reconcileDeployment)); err != nil {
		return fmt.Errorf("building the stand-in: %w", err)
	}
	if err := ctrl.NewControllerManagedBy(mgr).Named("budgets").For(&policyv1.PodDisruptionBudget{}).
		Complete(reconcile.Func(s.reconcileBudget)); err != nil {
		return fmt.Errorf("building the stand-in: %w", err)
	}
	// The Service and the Deployment of an MCPServer have the same name, and either may be seen first.
	if err := ctrl.NewControllerManagedBy(mgr).Named("endpoints").For(&appsv1.Deployment{}).
		Watches(&corev1.Service{}, &handler.EnqueueRequestForObject{}).
		Complete(reconcile.Func(s.reconcileEndpoints)); err != nil {
		return fmt.Errorf("building the stand-in: %w", err)
	}
	return mgr.Start(ctx)
}

type standIn struct {
	client.Client
	// pods is the number of pods so far.
	pods atomic.Int32
	// complete has the UIDs of the Deployments whose pods and endpoints exist.
	complete sync.Map
}

func (s *standIn) reconcileDeployment(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	deployment := &appsv1.Deployment{}
	if err := s.Get(ctx, request.NamespacedName, deployment); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if deployment.Status.ObservedGeneration == deployment.Generation || deployment.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	before := deployment.DeepCopy()
	deployment.Status = completed(deployment)
	return ctrl.Result{}, client.IgnoreNotFound(s.Status().Patch(ctx, deployment, client.MergeFrom(before)))
}

func completed(d *appsv1.Deployment) appsv1.DeploymentStatus {
	replicas := ptr.Deref(d.Spec.Replicas, 1)
	now := metav1.Now()
	condition := func(kind appsv1.DeploymentConditionType, reason, message string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now}
	}
	return appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation,
		Replicas:           replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{
			condition(appsv1.DeploymentAvailable, "MinimumReplicasAvailable", "Deployment has minimum availability."),
			condition(appsv1.DeploymentProgressing, "NewReplicaSetAvailable", "ReplicaSet has successfully progressed."),
		},
	}
}

func (s *standIn) reconcileBudget(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	budget := &policyv1.PodDisruptionBudget{}
	if err := s.Get(ctx, request.NamespacedName, budget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if budget.Status.ObservedGeneration == budget.Generation {
		return ctrl.Result{}, nil
	}
	before := budget.DeepCopy()
	budget.Status.ObservedGeneration = budget.Generation
	return ctrl.Result{}, client.IgnoreNotFound(s.Status().Patch(ctx, budget, client.MergeFrom(before)))
}

// reconcileEndpoints creates the pods of a Deployment of an MCPServer, and their endpoints.
func (s *standIn) reconcileEndpoints(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	deployment, service := &appsv1.Deployment{}, &corev1.Service{}
	for _, object := range []client.Object{deployment, service} {
		if err := s.Get(ctx, request.NamespacedName, object); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	if owner := metav1.GetControllerOf(deployment); owner == nil || owner.Kind != "MCPServer" {
		return ctrl.Result{}, nil
	}
	if _, done := s.complete.Load(deployment.UID); done {
		return ctrl.Result{}, nil
	}
	slice := endpoints(service)
	for i := range ptr.Deref(deployment.Spec.Replicas, 1) {
		pod := newPod(deployment, i)
		if err := s.Create(ctx, pod); err != nil {
			return ctrl.Result{}, err
		}
		before := pod.DeepCopy()
		pod.Status = running(s.pods.Add(1))
		if err := s.Status().Patch(ctx, pod, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, err
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{pod.Status.PodIP},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		})
	}
	if err := s.Create(ctx, slice); err != nil {
		return ctrl.Result{}, err
	}
	s.complete.Store(deployment.UID, nil)
	return ctrl.Result{}, nil
}

func newPod(deployment *appsv1.Deployment, i int32) *corev1.Pod {
	const hashOfReplicaSet = "5b949cfb66"
	template := deployment.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = deployment.Namespace, fmt.Sprintf("%s-%s-%05d", deployment.Name, hashOfReplicaSet, i)
	return pod
}

// running is the status of the nth pod.
func running(n int32) corev1.PodStatus {
	const node = "10.0.0.1"
	address := fmt.Sprintf("10.%d.%d.%d", 1+n>>16, n>>8&255, n&255)
	return corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: node, HostIPs: []corev1.HostIP{{IP: node}}, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
}

// endpoints has the labels of its Service, as the controller manager sets them.
func endpoints(service *corev1.Service) *discoveryv1.EndpointSlice {
	labels := map[string]string{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	maps.Copy(labels, service.Labels)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: service.Name + "-abcde", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID, Controller: ptr.To(true)}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, port := range service.Spec.Ports {
		number := port.TargetPort.IntVal
		if number == 0 {
			number = port.Port // a named port
		}
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To(port.Name), Port: ptr.To(number), Protocol: ptr.To(corev1.ProtocolTCP)})
	}
	return slice
}
