package workload

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestJobReady(t *testing.T) {
	created := time.Unix(1000, 0)
	job := func(ready int32, conditions ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "uid", CreationTimestamp: metav1.NewTime(created)},
			Status:     batchv1.JobStatus{Ready: ptr.To(ready), Conditions: conditions},
		}
	}
	is := func(conditionType batchv1.JobConditionType, reason, message string) batchv1.JobCondition {
		return batchv1.JobCondition{Type: conditionType, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	}
	backoff := is(batchv1.JobFailed, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
	ended := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: reason, Message: message}},
		}}}
	}
	container := func(state corev1.ContainerState) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "sidecar", State: state}
	}
	const remedy = "; an existing Deployment and its pods are left unchanged. Correct what the Job runs, or run it again with kubectl delete job web-1"
	active, started := job(0), job(0)
	active.Status = batchv1.JobStatus{Active: 1, StartTime: &metav1.Time{}}
	started.Status.StartTime = &metav1.Time{}
	cases := map[string]struct {
		job   *batchv1.Job
		after time.Duration
		pod   *corev1.PodStatus
		// controller is the UID of the Job of that name that controls the pod, or "none"; by default that of the job.
		controller types.UID
		// unlisted is true if the pods cannot be listed.
		unlisted bool
		want     string
	}{
		"succeeded": {job: job(0, is(batchv1.JobComplete, "", "")), want: "done (Ready: Job web-1 has succeeded)"},
		"running":   {job: job(1), after: time.Hour, want: "wait (Progressing: waiting for Job web-1 to succeed)"},
		"new":       {job: job(0), after: time.Second, want: "wait (Progressing: waiting for Job web-1 to succeed)"},
		"a condition that is not true": {job: job(1, batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionFalse}),
			want: "wait (Progressing: waiting for Job web-1 to succeed)"},
		"failed, with the message of the container": {job: job(0, backoff), pod: ptr.To(ended("Error", "relation\x1b[31m \"users\"\n exists")),
			want: `stalled (HookFailed: Job web-1 has failed: container app ended with exit code 3: relation[31m "users" exists` + remedy + ")"},
		"failed, out of memory": {job: job(0, backoff), pod: ptr.To(ended("OOMKilled", "")),
			want: "stalled (HookFailed: Job web-1 has failed: container app ended with exit code 3 (OOMKilled)" + remedy + ")"},
		"failed, without a reason": {job: job(0, backoff), pod: ptr.To(ended("", "boom")),
			want: "stalled (HookFailed: Job web-1 has failed: container app ended with exit code 3: boom" + remedy + ")"},
		"failed, one of several containers": {job: job(0, backoff), pod: &corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
			container(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}),
			ended("Error", "boom").ContainerStatuses[0],
		}}, want: "stalled (HookFailed: Job web-1 has failed: container app ended with exit code 3: boom" + remedy + ")"},
		"failed, a pod that has not": {job: job(0, backoff), pod: &corev1.PodStatus{Phase: corev1.PodRunning, Reason: "NodeLost"},
			want: "stalled (HookFailed: Job web-1 has failed: Job has reached the specified backoff limit" + remedy + ")"},
		"failed, a pod without a reason": {job: job(0, backoff), pod: &corev1.PodStatus{Phase: corev1.PodFailed},
			want: "stalled (HookFailed: Job web-1 has failed: Job has reached the specified backoff limit" + remedy + ")"},
		"an active pod that is not listed yet": {job: active, after: time.Minute, want: "wait (Progressing: waiting for Job web-1 to succeed)"},
		"no pod within five seconds":           {job: job(0), after: 5 * time.Second, want: "wait (Progressing: waiting for Job web-1 to succeed)"},
		"failed, evicted": {job: job(0, backoff), pod: &corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."},
			want: "stalled (HookFailed: Job web-1 has failed: its pod has failed (Evicted): The node was low on resource: memory." + remedy + ")"},
		"failed, the pod is gone": {job: job(0, backoff), want: "stalled (HookFailed: Job web-1 has failed: Job has reached the specified backoff limit" + remedy + ")"},
		"failed, the pod of no Job": {job: job(0, backoff), pod: ptr.To(ended("Error", "not this one")), controller: "none",
			want: "stalled (HookFailed: Job web-1 has failed: Job has reached the specified backoff limit" + remedy + ")"},
		"failed, the pod of a deleted Job of the same name": {job: job(0, backoff), pod: ptr.To(ended("Error", "not this one")), controller: "former",
			want: "stalled (HookFailed: Job web-1 has failed: Job has reached the specified backoff limit" + remedy + ")"},
		"failed, too late": {job: job(0, is(batchv1.JobFailed, "DeadlineExceeded", "Job was active longer than specified deadline")),
			want: "stalled (HookFailed: Job web-1 has failed: it ran longer than spec.hooks.preDeploy.activeDeadlineSeconds" + remedy + ")"},
		"failed, too late, and its pod was stopped": {job: job(0, is(batchv1.JobFailed, "DeadlineExceeded", "Job was active longer than specified deadline")),
			pod:  ptr.To(ended("Error", "terminated")),
			want: "stalled (HookFailed: Job web-1 has failed: it ran longer than spec.hooks.preDeploy.activeDeadlineSeconds" + remedy + ")"},
		"suspended": {job: job(0, is(batchv1.JobSuspended, "", "")), after: time.Hour,
			want: "wait (Progressing: Job web-1 is suspended: resume it, or wait for who suspended it)"},
		"the image cannot be pulled": {job: job(0), after: time.Minute,
			pod:  &corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("app", "shop:404", "ErrImagePull", "")}},
			want: "wait (PodsFailing: Job web-1: container app cannot pull image shop:404 (ImagePullBackOff); correct spec.hooks.preDeploy.image or spec.imagePullSecrets)"},
		"no pod": {job: started, after: time.Minute, want: "wait (PodsFailing: Job web-1 has no pod; to find out why, run kubectl describe job web-1)"},
		"no pod, because the Job controller has not tried yet": {job: job(0), after: time.Minute, want: "wait (Progressing: waiting for Job web-1 to succeed)"},
		"the pods cannot be listed":                            {job: started, after: time.Minute, unlisted: true, want: "wait (Progressing: waiting for Job web-1 to succeed)"},
		"a pod that is being created": {job: started, after: time.Minute, pod: &corev1.PodStatus{Phase: corev1.PodPending},
			want: "wait (Progressing: waiting for Job web-1 to succeed)"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
			if c.pod != nil {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1-x7k2p", Labels: map[string]string{batchv1.JobNameLabel: "web-1"}}, Status: *c.pod}
				if c.controller != "none" {
					pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c.job, batchv1.SchemeGroupVersion.WithKind("Job"))}
					pod.OwnerReferences[0].UID = cmp.Or(c.controller, c.job.UID)
				}
				reader.WithObjects(pod)
			}
			if c.unlisted {
				reader.WithInterceptorFuncs(interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
					return errors.New("the server is currently unable to handle the request")
				}})
			}
			verdict := JobReady(t.Context(), reader.Build(), clocktesting.NewFakePassiveClock(created.Add(c.after)), c.job, "spec.hooks.preDeploy.image")
			g.Expect(verdict.String()).To(Equal(c.want))
		})
	}
}
