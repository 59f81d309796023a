package ssa_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

var since = metav1.Unix(1_700_000_000, 0)

// status is one with these conditions, all true.
func (s *scenario) status(replicas int32, conditions ...string) *fixpointac.AppServiceApplyConfiguration {
	status := fixpointac.AppServiceStatus().WithReplicas(replicas)
	for _, name := range conditions {
		status.WithConditions(metav1ac.Condition().WithType(name).WithStatus(metav1.ConditionTrue).WithReason("AsDeclared").WithMessage("").WithLastTransitionTime(since))
	}
	return fixpointac.AppService("a", s.namespace).WithStatus(status)
}

// report applies a status and expects an action.
func (s *scenario) report(desired ssa.Configuration, live client.Object, action ssa.Action) *v1beta1.AppService {
	result, err := s.applier.ApplyStatus(s, desired, live)
	s.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	s.ExpectWithOffset(1, result.Action).To(Equal(action))
	want := 1
	if action == ssa.ActionNone {
		want = 0
	}
	s.ExpectWithOffset(1, s.requests()).To(Equal(want))
	return as[*v1beta1.AppService](result.Live)
}

func TestQuietStatusSendsNothing(t *testing.T) {
	s := newScenario(t, nil)
	live := s.appService("kubectl-create")
	live = s.report(s.status(2, "Ready", "ConfigReady"), live, ssa.ActionUpdate)

	s.report(s.status(2, "Ready", "ConfigReady"), live, ssa.ActionNone)
	s.restart()
	s.report(s.status(2, "Ready", "ConfigReady"), live, ssa.ActionNone)
	moved := editAs(s, "kubectl-edit", live, func(a *v1beta1.AppService) { a.Labels = map[string]string{"x": "y"} })
	s.report(s.status(2, "Ready", "ConfigReady"), moved, ssa.ActionNone)

	s.report(s.status(3, "Ready", "ConfigReady"), moved, ssa.ActionUpdate)
}

func TestConditionsOfOtherManagersStay(t *testing.T) {
	s := newScenario(t, nil)
	live := s.appService("kubectl-create")
	meta.SetStatusCondition(&live.Status.Conditions, metav1.Condition{Type: "Unmanaged", Status: metav1.ConditionTrue, Reason: "X"})
	s.Expect(api.Status().Update(s, live, client.FieldOwner("other"))).To(Succeed())

	live = s.report(s.status(2, "Ready", "Stalled"), live, ssa.ActionUpdate)
	s.Expect(meta.IsStatusConditionTrue(live.Status.Conditions, "Unmanaged")).To(BeTrue())
	live = s.report(s.status(2, "Ready"), live, ssa.ActionUpdate)

	s.Expect(live.Status.Conditions).To(HaveLen(2))
	s.Expect(meta.FindStatusCondition(live.Status.Conditions, "Stalled")).To(BeNil())
	s.Expect(meta.IsStatusConditionTrue(live.Status.Conditions, "Unmanaged")).To(BeTrue())
	s.report(s.status(2, "Ready"), live, ssa.ActionNone)
}

func TestRevertsStatusChangedByAnotherManager(t *testing.T) {
	for name, mutate := range map[string]func(*v1beta1.AppService){
		"a value":     func(a *v1beta1.AppService) { a.Status.Replicas = 9 },
		"a condition": func(a *v1beta1.AppService) { a.Status.Conditions[0].Status = metav1.ConditionFalse },
		"all of it":   func(a *v1beta1.AppService) { a.Status = v1beta1.AppServiceStatus{} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, nil)
			live := s.report(s.status(2, "Ready"), s.appService("kubectl-create"), ssa.ActionUpdate)
			mutate(live)
			s.Expect(api.Status().Update(s, live, client.FieldOwner("robot"))).To(Succeed())

			live = s.report(s.status(2, "Ready"), live, ssa.ActionUpdate)

			s.Expect(live.Status.Replicas).To(Equal(int32(2)))
			s.Expect(meta.IsStatusConditionTrue(live.Status.Conditions, "Ready")).To(BeTrue())
			s.report(s.status(2, "Ready"), live, ssa.ActionNone)
		})
	}
}

func TestStatusOfAnOldVersionIsStale(t *testing.T) {
	s := newScenario(t, nil)
	old := s.appService("kubectl-create")
	editAs(s, "kubectl-edit", old, func(a *v1beta1.AppService) { a.Spec.Image = "registry.example/a:2" })

	_, err := s.applier.ApplyStatus(s, s.status(2), old)

	s.Expect(ssa.IsStale(err)).To(BeTrue(), "%v", err)
	s.Expect(get(s, &v1beta1.AppService{}, "a").Status.Replicas).To(BeZero())
}

func TestStatusOfADeletedObjectIsStale(t *testing.T) {
	s := newScenario(t, nil)
	live := s.appService("kubectl-create")
	s.delete(live)

	_, err := s.applier.ApplyStatus(s, s.status(2), live)

	s.Expect(ssa.IsStale(err)).To(BeTrue(), "%v", err)
}

// An earlier version of the operator wrote the status by Update.
func TestStatusMigrationRemovesFormerFields(t *testing.T) {
	s := newScenario(t, nil)
	live := s.appService("kubectl-create")
	live.Status.URL = "http://old.example"
	meta.SetStatusCondition(&live.Status.Conditions, metav1.Condition{Type: "Old", Status: metav1.ConditionTrue, Reason: "X"})
	s.Expect(api.Status().Update(s, live, client.FieldOwner(manager))).To(Succeed())

	result, err := s.applier.ApplyStatus(s, s.status(2, "Ready"), live)

	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(s.requests()).To(Equal(2))
	applied := as[*v1beta1.AppService](result.Live)
	s.Expect(applied.Status.URL).To(BeEmpty())
	s.Expect(applied.Status.Conditions).To(HaveLen(1))
	s.report(s.status(2, "Ready"), applied, ssa.ActionNone)
}

func TestRefusesStatusInAnApply(t *testing.T) {
	s := newScenario(t, nil)

	_, err := s.apply(s.status(2), nil)

	s.Expect(err).To(MatchError(ContainSubstring("apply it with ApplyStatus")))
	s.Expect(s.requests()).To(BeZero())
}
