package workload

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// judgement is a verdict as tables write it.
type judgement struct {
	kind, reason, message string
}

func judgementOf(v phases.Verdict) judgement {
	j := judgement{reason: v.Reason(), message: v.Message()}
	switch {
	case v.IsDone():
		j.kind = "done"
	case v.IsWait():
		j.kind = "wait"
	case v.IsStalled():
		j.kind = "stalled"
	}
	return j
}

func TestDeploymentReady(t *testing.T) {
	rolledOut := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3}
	with := func(change func(*appsv1.DeploymentStatus)) appsv1.DeploymentStatus {
		status := rolledOut
		change(&status)
		return status
	}
	condition := func(of appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) func(*appsv1.DeploymentStatus) {
		return func(s *appsv1.DeploymentStatus) {
			s.Conditions = append(s.Conditions, appsv1.DeploymentCondition{Type: of, Status: status, Reason: reason, Message: message})
		}
	}
	both := func(changes ...func(*appsv1.DeploymentStatus)) func(*appsv1.DeploymentStatus) {
		return func(s *appsv1.DeploymentStatus) {
			for _, change := range changes {
				change(s)
			}
		}
	}
	const exceeded = "not all pods became available within spec.progressDeadlineSeconds (600); correct the spec, or see what their events and logs say: kubectl describe pods -l app.kubernetes.io/name=web"
	const refusal = `pods "web-6d4b9c7f5-x7k2p" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2`
	refused := condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", refusal)
	overdue := condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", "")

	cases := map[string]struct {
		replicas *int32
		status   appsv1.DeploymentStatus
		want     judgement
	}{
		"rolled out": {ptr.To[int32](3), rolledOut, judgement{"done", v1alpha1.ReasonReady, "all pods run the current version and are available"}},
		"rolled out, as its conditions say too": {ptr.To[int32](3), with(both(
			condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", ""),
			condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable", ""))),
			judgement{"done", v1alpha1.ReasonReady, "all pods run the current version and are available"}},
		"scaled to none": {ptr.To[int32](0), appsv1.DeploymentStatus{ObservedGeneration: 2},
			judgement{"done", v1alpha1.ReasonReady, "all pods run the current version and are available"}},
		"not seen by its controller": {ptr.To[int32](3), with(func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 1 }),
			judgement{"wait", v1alpha1.ReasonRolloutProgressing, "the Deployment controller has not seen the last change yet"}},
		"what an old generation failed at is history": {ptr.To[int32](3), with(both(overdue, refused, func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 1 })),
			judgement{"wait", v1alpha1.ReasonRolloutProgressing, "the Deployment controller has not seen the last change yet"}},
		"new pods are missing": {ptr.To[int32](3), with(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 1 }),
			judgement{"wait", v1alpha1.ReasonRolloutProgressing, "not all pods of the current version have been created yet"}},
		"new pods are not available": {ptr.To[int32](3), with(func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 2 }),
			judgement{"wait", v1alpha1.ReasonRolloutProgressing, "not all pods of the current version are available yet"}},
		"old pods are still there": {ptr.To[int32](3), with(func(s *appsv1.DeploymentStatus) { s.Replicas = 4 }),
			judgement{"wait", v1alpha1.ReasonRolloutProgressing, "pods of an earlier version are still terminating"}},
		"without a number it is one pod": {nil, appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1},
			judgement{"wait", v1alpha1.ReasonRolloutProgressing, "not all pods of the current version are available yet"}},
		"too slow": {ptr.To[int32](3), with(both(overdue, func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 2 })),
			judgement{"stalled", v1alpha1.ReasonRolloutStalled, exceeded}},
		"refused by a quota": {ptr.To[int32](3), with(refused), judgement{"wait", v1alpha1.ReasonQuotaExceeded,
			"pods are refused: exceeded quota: small, requested: pods=1, limited: pods=2; raise the quota, or lower spec.replicas or spec.resources"}},
		"refused, which is why it is too slow": {ptr.To[int32](3), with(both(overdue, refused)), judgement{"wait", v1alpha1.ReasonQuotaExceeded,
			"pods are refused: exceeded quota: small, requested: pods=1, limited: pods=2; raise the quota, or lower spec.replicas or spec.resources"}},
		"refused no more": {ptr.To[int32](3), with(condition(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "", refusal)),
			judgement{"done", v1alpha1.ReasonReady, "all pods run the current version and are available"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{Status: c.status}
			d.Name, d.Generation = "web", 2
			d.Spec.Replicas, d.Spec.ProgressDeadlineSeconds = c.replicas, ptr.To[int32](600)
			NewWithT(t).Expect(judgementOf(Ready(d))).To(Equal(c.want))
		})
	}
}

// A pod's name is generated anew on each try, and what a quota has left changes by the second:
// a condition that repeated them would be written again and again.
func TestPodsRefusedSaysNothingThatChangesFromTryToTry(t *testing.T) {
	cases := map[string]struct {
		message string
		want    judgement
	}{
		"quota": {`pods "web-6d4b9c7f5-x7k2p" is forbidden: exceeded quota: small, requested: limits.memory=128Mi,pods=1, used: limits.memory=256Mi,pods=2, limited: limits.memory=256Mi,pods=2`,
			judgement{"wait", v1alpha1.ReasonQuotaExceeded,
				"pods are refused: exceeded quota: small, requested: limits.memory=128Mi,pods=1, limited: limits.memory=256Mi,pods=2; raise the quota, or lower spec.replicas or spec.resources"}},
		"service account": {`pods "web-6d4b9c7f5-" is forbidden: error looking up service account shop/nobody: serviceaccount "nobody" not found`,
			judgement{"wait", v1alpha1.ReasonPodsFailing, `pods are refused: error looking up service account shop/nobody: serviceaccount "nobody" not found`}},
		"pod security": {`pods "web-6d4b9c7f5-x7k2p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true`,
			judgement{"wait", v1alpha1.ReasonPodsFailing, `pods are refused: violates PodSecurity "restricted:latest": runAsNonRoot != true`}},
		"invalid": {`Pod "web-6d4b9c7f5-x7k2p" is invalid: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`,
			judgement{"wait", v1alpha1.ReasonPodsFailing, `pods are refused: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`}},
		"webhook": {`admission webhook "pods.example.com" denied the request: no latest tags`,
			judgement{"wait", v1alpha1.ReasonPodsFailing, `pods are refused: admission webhook "pods.example.com" denied the request: no latest tags`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(judgementOf(podsRefused(c.message))).To(Equal(c.want))
		})
	}
}

func TestWithoutUsage(t *testing.T) {
	for name, c := range map[string]struct{ message, want string }{
		"one resource":  {"exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2", "exceeded quota: q, requested: pods=1, limited: pods=2"},
		"two resources": {"exceeded quota: q, requested: cpu=1,pods=1, used: cpu=1,pods=2, limited: cpu=2,pods=2", "exceeded quota: q, requested: cpu=1,pods=1, limited: cpu=2,pods=2"},
		"no limit":      {"exceeded quota: q, requested: pods=1, used: pods=2", "exceeded quota: q, requested: pods=1"},
		"no use":        {"exceeded quota: q", "exceeded quota: q"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(withoutUsage(c.message)).To(Equal(c.want))
		})
	}
}
