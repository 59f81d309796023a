// Package textbook is the AppService controller that a kubebuilder tutorial leads to. Benchmarks compare Fixpoint
// with it. It reads each child from the cache and creates or updates it, and reports one condition. It neither
// attributes drift nor deletes children that the spec no longer configures, and leaves deletion to the garbage
// collector. Of the spec, it implements what the benchmarks use: image, port, replicas and config.
package textbook

import (
	"context"
	"crypto/sha256"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// Reconciler reconciles AppServices.
type Reconciler struct {
	client.Client
	Scheme *runtime.Scheme
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, workers int) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1beta1.AppService{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&corev1.Service{}).
		Owns(&appsv1.Deployment{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// Reconcile creates or updates the children of an AppService, and updates its status.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	app := &v1beta1.AppService{}
	if err := r.Get(ctx, request.NamespacedName, app); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !app.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the garbage collector deletes the children
	}
	if len(app.Spec.Config) > 0 {
		config := &corev1.ConfigMap{ObjectMeta: childMeta(app)}
		if err := r.apply(ctx, app, config, func() { setConfig(app, config) }); err != nil {
			return ctrl.Result{}, err
		}
	}
	service := &corev1.Service{ObjectMeta: childMeta(app)}
	if err := r.apply(ctx, app, service, func() { setService(app, service) }); err != nil {
		return ctrl.Result{}, err
	}
	deployment := &appsv1.Deployment{ObjectMeta: childMeta(app)}
	if err := r.apply(ctx, app, deployment, func() { setDeployment(app, deployment) }); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.updateStatus(ctx, app, deployment)
}

// apply creates a child, or updates it if it differs from what set sets.
func (r *Reconciler) apply(ctx context.Context, app *v1beta1.AppService, child client.Object, set func()) error {
	result, err := controllerutil.CreateOrUpdate(ctx, r.Client, child, func() error {
		set()
		return ctrl.SetControllerReference(app, child, r.Scheme)
	})
	if err != nil {
		return fmt.Errorf("creating or updating %T %s: %w", child, client.ObjectKeyFromObject(child), err)
	}
	if result != controllerutil.OperationResultNone {
		log.FromContext(ctx).Info("Reconciled child", "type", fmt.Sprintf("%T", child), "operation", result)
	}
	return nil
}

// updateStatus updates the status if it has changed.
func (r *Reconciler) updateStatus(ctx context.Context, app *v1beta1.AppService, deployment *appsv1.Deployment) error {
	before := app.Status.DeepCopy()
	app.Status.ObservedGeneration = app.Generation
	app.Status.Replicas = deployment.Status.Replicas
	app.Status.ReadyReplicas = deployment.Status.ReadyReplicas
	meta.SetStatusCondition(&app.Status.Conditions, readyCondition(app, deployment))
	if equality.Semantic.DeepEqual(*before, app.Status) {
		return nil
	}
	if err := r.Status().Update(ctx, app); err != nil {
		return fmt.Errorf("updating the status: %w", err)
	}
	return nil
}

func readyCondition(app *v1beta1.AppService, deployment *appsv1.Deployment) metav1.Condition {
	desired := ptr.Deref(deployment.Spec.Replicas, 1)
	available := deployment.Status.AvailableReplicas
	condition := metav1.Condition{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: app.Generation,
		Reason: "Progressing", Message: fmt.Sprintf("%d of %d replicas are available", available, desired),
	}
	status := deployment.Status
	if status.ObservedGeneration >= deployment.Generation && status.UpdatedReplicas == desired && status.Replicas == desired && available == desired {
		condition.Status, condition.Reason = metav1.ConditionTrue, "Available"
	}
	return condition
}

func childMeta(app *v1beta1.AppService) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}
}

func labelsOf(app *v1beta1.AppService) map[string]string {
	return map[string]string{"app.kubernetes.io/name": app.Name, "app.kubernetes.io/managed-by": "textbook"}
}

func selectorOf(app *v1beta1.AppService) map[string]string {
	return map[string]string{"app.kubernetes.io/name": app.Name}
}

func setConfig(app *v1beta1.AppService, config *corev1.ConfigMap) {
	config.Labels = labelsOf(app)
	config.Data = app.Spec.Config
}

const portName = "http"

func setService(app *v1beta1.AppService, service *corev1.Service) {
	service.Labels = labelsOf(app)
	service.Spec.Selector = selectorOf(app)
	if len(service.Spec.Ports) != 1 {
		service.Spec.Ports = []corev1.ServicePort{{}}
	}
	port := &service.Spec.Ports[0]
	port.Name, port.Protocol, port.Port, port.TargetPort = portName, corev1.ProtocolTCP, app.Spec.Port, intstr.FromString(portName)
}

// setDeployment sets the whole spec of a new Deployment, and what changes of an existing one, since the API server
// adds defaults to the other fields.
func setDeployment(app *v1beta1.AppService, deployment *appsv1.Deployment) {
	deployment.Labels = labelsOf(app)
	if deployment.CreationTimestamp.IsZero() {
		deployment.Spec = newDeploymentSpec(app)
	}
	deployment.Spec.Replicas = app.Spec.Replicas
	template := &deployment.Spec.Template
	if len(app.Spec.Config) > 0 {
		if template.Annotations == nil {
			template.Annotations = map[string]string{}
		}
		template.Annotations["textbook/config-hash"] = configHash(app)
	}
	container := &template.Spec.Containers[0]
	container.Image = app.Spec.Image
	container.Ports[0].ContainerPort = app.Spec.Port
}

func newDeploymentSpec(app *v1beta1.AppService) appsv1.DeploymentSpec {
	container := corev1.Container{
		Name:  "app",
		Image: app.Spec.Image,
		Ports: []corev1.ContainerPort{{Name: portName, ContainerPort: app.Spec.Port, Protocol: corev1.ProtocolTCP}},
	}
	if len(app.Spec.Config) > 0 {
		container.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: app.Name}}}}
	}
	return appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: selectorOf(app)},
		Strategy: appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromString("25%")),
			},
		},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labelsOf(app)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{container}},
		},
	}
}

func configHash(app *v1beta1.AppService) string {
	// fmt prints maps in key order.
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, app.Spec.Config)))[:16]
}
