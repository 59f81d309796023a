package plugin

import (
	"io"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

var now = time.Date(2026, time.January, 2, 10, 0, 0, 0, time.UTC)

func before(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func mustKind(name string) *kind {
	k, err := kindOf(name)
	if err != nil {
		panic(err)
	}
	return k
}

// condition has changed five minutes ago.
func condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message, LastTransitionTime: before(5 * time.Minute), ObservedGeneration: 2}
}

func done(phase, message string) metav1.Condition {
	return condition(phases.ConditionOf(phase), metav1.ConditionTrue, v1beta1.ReasonReady, message)
}

func blocked(phase, by string) metav1.Condition {
	return condition(phases.ConditionOf(phase), metav1.ConditionUnknown, phases.ReasonBlocked, "waiting for phase "+by)
}

func app(name string, edits ...func(*v1beta1.AppService)) object {
	a := &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "shop", UID: types.UID("uid-" + name), Generation: 2, CreationTimestamp: before(3 * time.Hour), Finalizers: []string{"fixpoint.dev/teardown"},
	}}
	a.Spec = v1beta1.AppServiceSpec{Image: "registry.example.com/shop:2", Replicas: ptr.To[int32](3)}
	a.Status.ObservedGeneration = 2
	for _, edit := range edits {
		edit(a)
	}
	return mustKind("appservice").object(a)
}

func isRunning(a *v1beta1.AppService) {
	a.Status.Phase = v1beta1.PhaseRunning
	a.Status.Conditions = []metav1.Condition{
		condition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady, "all phases are ready"),
		done("Config", "ConfigMap web applied"), done("Service", "Service web applied"), done("Deployment", "all pods are updated and available"),
	}
}

func hasDrifted(a *v1beta1.AppService) {
	a.Status.Drifts = []v1beta1.Drift{
		{Time: before(2 * time.Minute), Kind: "Deployment", Name: "web", Field: ".spec.replicas", Manager: "kubectl", Desired: "3", Found: "5", Action: v1beta1.DriftCorrected},
		{Time: before(time.Hour), Kind: "ConfigMap", Name: "web", Action: v1beta1.DriftCorrected},
		{Time: before(26 * time.Hour), Kind: "Service", Name: "web", Field: ".spec.sessionAffinity", Desired: `"None"`, Action: v1beta1.DriftReported},
	}
}

func cannotPull(a *v1beta1.AppService) {
	const message = "container app cannot pull image registry.example.com/shop:2 (ImagePullBackOff); correct spec.image or spec.imagePullSecrets"
	a.Status.Phase = v1beta1.PhaseDegraded
	a.Status.Conditions = []metav1.Condition{
		condition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonPodsFailing, "Deployment: "+message),
		condition(v1beta1.ConditionReconciling, metav1.ConditionTrue, v1beta1.ReasonPodsFailing, message),
		done("Service", "Service web applied"),
		condition(v1beta1.ConditionDeploymentReady, metav1.ConditionFalse, v1beta1.ReasonPodsFailing, message),
		blocked("Ingress", "Deployment"),
	}
	a.Spec.Ingress = &v1beta1.Ingress{Host: "shop.example.com"}
}

func isStalled(a *v1beta1.AppService) {
	const message = "IngressClass nginx does not exist; correct spec.ingress.ingressClassName, or install the ingress controller that provides it"
	isRunning(a)
	a.Status.Phase = v1beta1.PhaseDegraded
	a.Status.Conditions[0] = condition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonIngressClassMissing, "Ingress: "+message)
	a.Status.Conditions = append(a.Status.Conditions,
		condition(v1beta1.ConditionIngressReady, metav1.ConditionFalse, v1beta1.ReasonIngressClassMissing, message),
		condition(v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonIngressClassMissing, message))
}

func hasFailedHook(a *v1beta1.AppService) {
	const message = "Job web-0123456789 has failed: container app ended with exit code 3: the table users is locked; an existing Deployment and its pods are left unchanged. Correct what the Job runs, or run it again with kubectl delete job web-0123456789"
	a.Status.Phase = v1beta1.PhaseDegraded
	a.Status.Conditions = []metav1.Condition{
		condition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonHookFailed, "PreDeploy: "+message),
		condition(v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonHookFailed, message),
		done("Dependencies", "all referenced objects exist"), done("Service", "Service web applied"),
		condition(v1beta1.ConditionPreDeployReady, metav1.ConditionFalse, v1beta1.ReasonHookFailed, message),
		blocked("Deployment", "PreDeploy"),
	}
}

func isSuspended(a *v1beta1.AppService) {
	a.Spec.Suspend = true
	a.Annotations = map[string]string{v1beta1.AnnotationReason: "the database is migrated"}
	a.Status.Phase = v1beta1.PhaseSuspended
	const message = "reconciliation is suspended"
	a.Status.Conditions = []metav1.Condition{
		condition(v1beta1.ConditionReady, metav1.ConditionUnknown, v1beta1.ReasonSuspended, message),
		condition(v1beta1.ConditionSuspended, metav1.ConditionTrue, v1beta1.ReasonSuspended, message),
		condition(v1beta1.ConditionServiceReady, metav1.ConditionUnknown, v1beta1.ReasonSuspended, message),
		condition(v1beta1.ConditionDeploymentReady, metav1.ConditionUnknown, v1beta1.ReasonSuspended, message),
	}
}

func isNew(a *v1beta1.AppService) { a.Status.ObservedGeneration = -1 }

func isBehind(a *v1beta1.AppService) {
	isRunning(a)
	a.Generation = 3
}

func isDeleted(a *v1beta1.AppService) {
	at := before(10 * time.Minute)
	a.DeletionTimestamp = &at
	a.Status.Phase = v1beta1.PhaseDeleting
	const message = "waiting for Deployment web to be deleted (finalizers: example.com/backup)"
	a.Status.Conditions = []metav1.Condition{
		condition(v1beta1.ConditionReady, metav1.ConditionFalse, phases.ReasonTerminating, "Deployment: "+message),
		condition(v1beta1.ConditionDeploymentReady, metav1.ConditionFalse, phases.ReasonTerminating, message),
		condition(v1beta1.ConditionServiceReady, metav1.ConditionUnknown, phases.ReasonBlocked, "kept until phase Deployment is deleted"),
	}
}

func storage() object {
	s := &v1beta1.SecureStorage{ObjectMeta: metav1.ObjectMeta{Name: "invoices", Namespace: "shop", UID: "uid-invoices", Generation: 2}}
	s.Spec.PropagationDeadline = metav1.Duration{Duration: 15 * time.Minute}
	s.Status.ObservedGeneration, s.Status.Phase = 2, v1beta1.PhaseProvisioning
	const message = "the grant exists, and Azure has not propagated it yet"
	s.Status.Conditions = []metav1.Condition{
		condition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonPropagating, "Encryption: "+message),
		condition(v1beta1.ConditionReconciling, metav1.ConditionTrue, v1beta1.ReasonPropagating, message),
		done("StorageAccount", "storage account invoices exists"), done("Identity", "the identity has a principal"), done("KeyAccess", "the identity has access to the key"),
		condition(v1beta1.ConditionEncryptionReady, metav1.ConditionFalse, v1beta1.ReasonPropagating, message),
	}
	return mustKind("securestorage").object(s)
}

func mcpServer() object {
	s := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Name: "tools", Namespace: "agents", UID: "uid-tools", Generation: 2}}
	s.Status.ObservedGeneration, s.Status.Phase = 2, v1beta1.PhaseDegraded
	const message = "missing: Secret tools-token; create the missing objects and keys, or mark the references optional"
	s.Status.Conditions = []metav1.Condition{
		condition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonDependencyMissing, "Dependencies: "+message),
		condition(v1beta1.ConditionReconciling, metav1.ConditionTrue, v1beta1.ReasonDependencyMissing, message),
		condition(v1beta1.ConditionDependenciesReady, metav1.ConditionFalse, v1beta1.ReasonDependencyMissing, message),
		blocked("Service", "Dependencies"), blocked("Deployment", "Dependencies"), blocked("Protocol", "Dependencies"),
	}
	return mustKind("mcpserver").object(s)
}

func managed(manager, subresource, fields string, at metav1.Time) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Subresource: subresource, Time: &at, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func deployment(ready int32) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "shop", UID: "uid-deployment", CreationTimestamp: before(3 * time.Hour),
		ManagedFields: []metav1.ManagedFieldsEntry{
			managed("fixpoint-appservice", "", `{"f:spec":{"f:replicas":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:image":{},"f:name":{}}}}}}}`, before(3*time.Hour)),
			managed("kubectl-edit", "", `{"f:spec":{"f:template":{"f:metadata":{"f:labels":{"f:team":{}}}}}}`, before(2*time.Minute)),
		},
	}}
	d.Spec.Replicas, d.Spec.ProgressDeadlineSeconds = ptr.To[int32](3), ptr.To[int32](600)
	d.Status.AvailableReplicas, d.Status.UpdatedReplicas = ready, ready
	d.Status.Conditions = []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated", LastUpdateTime: before(time.Minute),
	}}
	if ready == *d.Spec.Replicas {
		d.Status.Conditions[0].Reason = "NewReplicaSetAvailable"
	}
	return d
}

func replicaSet(name string, ready, replicas int32, age time.Duration) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID("uid-" + name), CreationTimestamp: before(age)}}
	set.Spec.Replicas, set.Status.AvailableReplicas = &replicas, ready
	return set
}

func pod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID("uid-" + name), CreationTimestamp: before(4 * time.Minute)}}
	p.Spec.Containers = []corev1.Container{{Name: "app"}}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Ready: true, Image: "registry.example.com/shop:2"}}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func waits(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.Status.ContainerStatuses[0].Ready = false
		p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	}
}

func event(about client.Object, reason, note string) eventsv1.Event {
	e := eventsv1.Event{Reason: reason, Note: note, Type: corev1.EventTypeWarning}
	e.Regarding = corev1.ObjectReference{Kind: kindName(about), Name: about.GetName(), UID: about.GetUID()}
	e.DeprecatedLastTimestamp = before(time.Minute)
	return e
}

// failedJob is that of a hook.
func failedJob() *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "web-0123456789", Namespace: "shop", UID: "uid-job"}}
	job.Spec.Completions = ptr.To[int32](1)
	job.Status.Failed, job.Status.Conditions = 1, []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonBackoffLimitExceeded}}
	return job
}

// service and configMap are children without a readiness of their own.
func service() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", CreationTimestamp: before(3 * time.Hour)}}
}

func testStreams() genericiooptions.IOStreams {
	return genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}
}
