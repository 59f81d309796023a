package harness

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// JobStatus is what the Job controller writes when the only pod of a Job has ended.
func JobStatus(succeeded bool) batchv1.JobStatus {
	now := metav1.Now()
	ended := func(types ...batchv1.JobConditionType) []batchv1.JobCondition {
		var conditions []batchv1.JobCondition
		for _, conditionType := range types {
			conditions = append(conditions, batchv1.JobCondition{
				Type: conditionType, Status: corev1.ConditionTrue, LastProbeTime: now, LastTransitionTime: now,
				Reason: map[bool]string{true: batchv1.JobReasonCompletionsReached, false: batchv1.JobReasonBackoffLimitExceeded}[succeeded],
			})
		}
		return conditions
	}
	status := batchv1.JobStatus{StartTime: &now, Ready: ptr.To[int32](0), Terminating: ptr.To[int32](0), UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}}
	if succeeded {
		status.Succeeded, status.CompletionTime = 1, &now
		status.Conditions = ended(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
		return status
	}
	status.Failed = 1
	status.Conditions = ended(batchv1.JobFailureTarget, batchv1.JobFailed)
	return status
}
