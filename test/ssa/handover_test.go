package ssa_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

const replicasField = "spec.replicas"

func (s *scenario) scaled(name string, replicas int32) *appsv1ac.DeploymentApplyConfiguration {
	d := s.deployment(name)
	d.Spec.WithReplicas(replicas)
	return d
}

func replicasOf(result ssa.Result) int32 { return *as[*appsv1.Deployment](result.Live).Spec.Replicas }

func TestDroppedReplicasAreResetWithoutHandOver(t *testing.T) {
	s := newScenario(t, nil)
	live := s.done(s.scaled("d", 3), nil, ssa.ActionCreate).Live

	s.Expect(replicasOf(s.done(s.deployment("d"), live, ssa.ActionUpdate))).To(Equal(int32(1)), "the API server resets a field without a manager")
}

func TestHandOverKeepsReplicasThroughAnAutoscalerAndBack(t *testing.T) {
	s := newScenario(t, nil)
	hand := handOver(replicasField)
	live := s.done(s.scaled("d", 3), nil, ssa.ActionCreate, hand).Live

	for round := range 2 {
		handed := s.done(s.deployment("d"), live, ssa.ActionUpdate, hand)
		s.Expect(replicasOf(handed)).To(Equal(int32(3)))
		s.Expect(s.requests()).To(Equal(2), "one to hand over, one to apply")
		s.Expect(managers(handed.Live)).To(ContainElement(manager + "-handover Apply"))

		s.scale(handed.Live, 7, "kube-controller-manager")
		autoscaled := get(s, &appsv1.Deployment{}, "d")
		s.Expect(managers(autoscaled)).NotTo(ContainElement(manager + "-handover Apply"))
		s.isQuiet(s.deployment("d"), autoscaled, hand)

		back := s.done(s.scaled("d", 3), autoscaled, ssa.ActionUpdate, hand)
		s.Expect(replicasOf(back)).To(Equal(int32(3)), "round %d", round)
		s.Expect(back.Drifts).To(BeEmpty(), "the autoscaler owned it")
		live = back.Live
	}
}

func TestHandOverAfterTakingBackUnchangedReplicas(t *testing.T) {
	s := newScenario(t, nil)
	hand := handOver(replicasField)
	live := s.done(s.scaled("d", 3), nil, ssa.ActionCreate, hand).Live
	live = s.done(s.deployment("d"), live, ssa.ActionUpdate, hand).Live
	live = s.done(s.scaled("d", 3), live, ssa.ActionUpdate, hand).Live

	result := s.done(s.deployment("d"), live, ssa.ActionUpdate, hand)

	s.Expect(replicasOf(result)).To(Equal(int32(3)))
}

// A user scales, and in the same moment the configuration leaves the number to an autoscaler.
func TestHandOverKeepsTheValueOfAnotherManager(t *testing.T) {
	s := newScenario(t, nil)
	live := s.done(s.scaled("d", 3), nil, ssa.ActionCreate).Live
	s.scale(live, 7, "kubectl")

	result := s.done(s.deployment("d"), get(s, &appsv1.Deployment{}, "d"), ssa.ActionUpdate, handOver(replicasField))

	s.Expect(replicasOf(result)).To(Equal(int32(7)))
}

func TestHandOverWithALaggingCacheKeepsTheAutoscalersValue(t *testing.T) {
	s := newScenario(t, nil)
	cached := s.done(s.scaled("d", 3), nil, ssa.ActionCreate).Live
	s.scale(cached, 7, "kube-controller-manager")

	result := s.done(s.deployment("d"), cached, ssa.ActionUpdate, handOver(replicasField))

	s.Expect(replicasOf(result)).To(Equal(int32(7)))
}

func TestHandOverOfASecondFieldKeepsTheFirst(t *testing.T) {
	s := newScenario(t, nil)
	hand := handOver(replicasField, "spec.revisionHistoryLimit")
	both, one := s.scaled("d", 3), s.deployment("d")
	both.Spec.WithRevisionHistoryLimit(4)
	one.Spec.WithRevisionHistoryLimit(4)
	live := s.done(both, nil, ssa.ActionCreate, hand).Live
	live = s.done(one, live, ssa.ActionUpdate, hand).Live

	result := s.done(s.deployment("d"), live, ssa.ActionUpdate, hand)

	s.Expect(replicasOf(result)).To(Equal(int32(3)))
	s.Expect(*as[*appsv1.Deployment](result.Live).Spec.RevisionHistoryLimit).To(Equal(int32(4)))
	s.requests()
	changed := s.deployment("d").WithLabels(map[string]string{"x": "y"})
	s.done(changed, result.Live, ssa.ActionUpdate, hand)
	s.Expect(s.requests()).To(Equal(1), "what is handed over already is not handed over again")
}

// An earlier version of the operator wrote the number by Update.
func TestHandOverKeepsReplicasOfAFormerManager(t *testing.T) {
	s := newScenario(t, nil)
	old := plainDeployment("d")
	old.OwnerReferences = []metav1.OwnerReference{s.owner}
	old.Spec.Replicas = new(int32(5))
	s.create(manager, old)

	result := s.done(s.deployment("d"), get(s, &appsv1.Deployment{}, "d"), ssa.ActionUpdate, handOver(replicasField))

	s.Expect(replicasOf(result)).To(Equal(int32(5)))
}
