package workload

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// outcome is a verdict in the form that tables use.
type outcome struct {
	kind, reason, message string
}

func outcomeOf(v phases.Verdict) outcome {
	j := outcome{reason: v.Reason(), message: v.Message()}
	switch {
	case v.IsDone():
		j.kind = "done"
	case v.IsStalled():
		j.kind = "stalled"
	default:
		j.kind = "wait"
	}
	return j
}

func TestRollingUpdatesKeepAllOldPodsUntilOneOfTheNewIsAvailable(t *testing.T) {
	g := NewWithT(t)
	rolling := Strategy(v1beta1.StrategyRollingUpdate)
	g.Expect(rolling.Type).To(HaveValue(Equal(appsv1.RollingUpdateDeploymentStrategyType)))
	g.Expect(rolling.RollingUpdate.MaxUnavailable).To(HaveValue(Equal(intstr.FromInt32(0))))
	g.Expect(rolling.RollingUpdate.MaxSurge).To(HaveValue(Equal(intstr.FromString("25%"))))

	recreate := Strategy(v1beta1.StrategyRecreate)
	g.Expect(recreate.Type).To(HaveValue(Equal(appsv1.RecreateDeploymentStrategyType)))
	g.Expect(recreate.RollingUpdate).To(BeNil())
}

func TestReady(t *testing.T) {
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
	const exceeded = "not all pods became available within spec.progressDeadlineSeconds (600); to find out why, run kubectl describe pods -l app.kubernetes.io/name=web"
	const refusal = `pods "web-6d4b9c7f5-x7k2p" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2`
	refused := condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", refusal)
	paused := condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentPaused", "Deployment is paused")
	const isPaused = "the Deployment is paused: resume it with kubectl rollout resume deployment web, or wait for who paused it"
	overdue := condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", "")

	cases := map[string]struct {
		replicas *int32
		status   appsv1.DeploymentStatus
		want     outcome
	}{
		"rolled out": {ptr.To[int32](3), rolledOut, outcome{"done", v1beta1.ReasonReady, "all pods are updated and available"}},
		"rolled out, with conditions": {ptr.To[int32](3), with(both(
			condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", ""),
			condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable", ""))),
			outcome{"done", v1beta1.ReasonReady, "all pods are updated and available"}},
		"scaled to 0": {ptr.To[int32](0), appsv1.DeploymentStatus{ObservedGeneration: 2},
			outcome{"done", v1beta1.ReasonReady, "all pods are updated and available"}},
		"rolled out, and paused": {ptr.To[int32](3), with(paused), outcome{"done", v1beta1.ReasonReady, "all pods are updated and available"}},
		"paused before updated pods are created": {ptr.To[int32](3), with(both(paused, func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 0 })),
			outcome{"wait", v1beta1.ReasonRolloutProgressing, isPaused}},
		"paused before old pods terminate": {ptr.To[int32](3), with(both(paused, func(s *appsv1.DeploymentStatus) { s.Replicas = 4 })),
			outcome{"wait", v1beta1.ReasonRolloutProgressing, isPaused}},
		"paused, and a pod is not available": {ptr.To[int32](3), with(both(paused, func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 2 })),
			outcome{"wait", v1beta1.ReasonRolloutProgressing, "waiting for updated pods to become available"}},
		"not observed": {ptr.To[int32](3), with(func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 1 }),
			outcome{"wait", v1beta1.ReasonRolloutProgressing, "waiting for the Deployment controller to observe the last change"}},
		"failures of an old generation are ignored": {ptr.To[int32](3), with(both(overdue, refused, func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 1 })),
			outcome{"wait", v1beta1.ReasonRolloutProgressing, "waiting for the Deployment controller to observe the last change"}},
		"updated pods are missing": {ptr.To[int32](3), with(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 1 }),
			outcome{"wait", v1beta1.ReasonRolloutProgressing, "waiting for updated pods to be created"}},
		"updated pods are not available": {ptr.To[int32](3), with(func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 2 }),
			outcome{"wait", v1beta1.ReasonRolloutProgressing, "waiting for updated pods to become available"}},
		"old pods still exist": {ptr.To[int32](3), with(func(s *appsv1.DeploymentStatus) { s.Replicas = 4 }),
			outcome{"wait", v1beta1.ReasonRolloutProgressing, "waiting for old pods to terminate"}},
		"replicas default to 1": {nil, appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1},
			outcome{"wait", v1beta1.ReasonRolloutProgressing, "waiting for updated pods to become available"}},
		"deadline exceeded": {ptr.To[int32](3), with(both(overdue, func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 2 })),
			outcome{"stalled", v1beta1.ReasonRolloutStalled, exceeded}},
		"quota exceeded": {ptr.To[int32](3), with(refused), outcome{"wait", v1beta1.ReasonQuotaExceeded,
			"pods cannot be created: exceeded quota: small, requested: pods=1, limited: pods=2; raise the ResourceQuota, or lower spec.replicas or spec.resources"}},
		"quota exceeded, then the deadline": {ptr.To[int32](3), with(both(overdue, refused)), outcome{"wait", v1beta1.ReasonQuotaExceeded,
			"pods cannot be created: exceeded quota: small, requested: pods=1, limited: pods=2; raise the ResourceQuota, or lower spec.replicas or spec.resources"}},
		"replica failure resolved": {ptr.To[int32](3), with(condition(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "", refusal)),
			outcome{"done", v1beta1.ReasonReady, "all pods are updated and available"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{Status: c.status}
			d.Name, d.Generation = "web", 2
			d.Spec.Replicas, d.Spec.ProgressDeadlineSeconds = c.replicas, ptr.To[int32](600)
			NewWithT(t).Expect(outcomeOf(Ready(d))).To(Equal(c.want))
		})
	}
}

// Pod names and quota usage change with each attempt; repeating them in a condition would cause a
// status write per attempt.
func TestPodCreationFailedOmitsGeneratedNamesAndUsage(t *testing.T) {
	cases := map[string]struct {
		message string
		want    outcome
	}{
		"quota": {`pods "web-6d4b9c7f5-x7k2p" is forbidden: exceeded quota: small, requested: limits.memory=128Mi,pods=1, used: limits.memory=256Mi,pods=2, limited: limits.memory=256Mi,pods=2`,
			outcome{"wait", v1beta1.ReasonQuotaExceeded,
				"pods cannot be created: exceeded quota: small, requested: limits.memory=128Mi,pods=1, limited: limits.memory=256Mi,pods=2; raise the ResourceQuota, or lower spec.replicas or spec.resources"}},
		"service account": {`pods "web-6d4b9c7f5-" is forbidden: error looking up service account shop/nobody: serviceaccount "nobody" not found`,
			outcome{"wait", v1beta1.ReasonPodsFailing, `pods cannot be created: error looking up service account shop/nobody: serviceaccount "nobody" not found`}},
		"pod security": {`pods "web-6d4b9c7f5-x7k2p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true`,
			outcome{"wait", v1beta1.ReasonPodsFailing, `pods cannot be created: violates PodSecurity "restricted:latest": runAsNonRoot != true`}},
		"invalid": {`Pod "web-6d4b9c7f5-x7k2p" is invalid: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`,
			outcome{"wait", v1beta1.ReasonPodsFailing, `pods cannot be created: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`}},
		"webhook": {`admission webhook "pods.example.com" denied the request: no latest tags`,
			outcome{"wait", v1beta1.ReasonPodsFailing, `pods cannot be created: admission webhook "pods.example.com" denied the request: no latest tags`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(outcomeOf(podCreationFailed(c.message))).To(Equal(c.want))
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
