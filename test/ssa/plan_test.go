package ssa_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// step is a change that an apply would send, for an object that may exist or not.
type step struct {
	given   func(s *scenario) client.Object
	desired func(s *scenario) ssa.Configuration
	change  func(*ssa.Request)
	action  ssa.Action
	drifts  []string
}

// A dry run and an apply are the same code: a dry run predicts the result, and changes nothing.
func TestDryRunPredictsTheApply(t *testing.T) {
	applied := func(s *scenario) client.Object {
		return s.done(s.configMap("c", map[string]string{"a": "1"}), nil, ssa.ActionCreate).Live
	}
	same := func(*ssa.Request) {}
	for name, p := range map[string]step{
		"create": {
			given:   func(*scenario) client.Object { return nil },
			desired: func(s *scenario) ssa.Configuration { return s.configMap("c", nil) }, change: same, action: ssa.ActionCreate,
		},
		"nothing": {
			given:   applied,
			desired: func(s *scenario) ssa.Configuration { return s.configMap("c", map[string]string{"a": "1"}) }, change: same, action: ssa.ActionNone,
		},
		"update": {
			given:   applied,
			desired: func(s *scenario) ssa.Configuration { return s.configMap("c", map[string]string{"a": "2"}) }, change: same, action: ssa.ActionUpdate,
		},
		"correct": {
			given: func(s *scenario) client.Object {
				return editAs(s, "robot", as[*corev1.ConfigMap](applied(s)), func(c *corev1.ConfigMap) { c.Data["a"] = "9" })
			},
			desired: func(s *scenario) ssa.Configuration { return s.configMap("c", map[string]string{"a": "1"}) }, change: same, action: ssa.ActionCorrect,
			drifts: []string{`robot changed .data.a from "1" to "9"`},
		},
		"adopt": {
			given: func(s *scenario) client.Object {
				s.create("kubectl-create", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
				return get(s, &corev1.ConfigMap{}, "c")
			},
			desired: func(s *scenario) ssa.Configuration { return s.configMap("c", nil) }, change: adopt, action: ssa.ActionAdopt,
		},
		"displace": {
			given: func(s *scenario) client.Object { return s.done(s.deployment("c"), nil, ssa.ActionCreate).Live },
			desired: func(s *scenario) ssa.Configuration {
				d := s.deployment("c")
				d.Spec.WithStrategy(appsv1ac.DeploymentStrategy().WithType(appsv1.RecreateDeploymentStrategyType))
				return d
			},
			change: removeFields("spec.strategy.rollingUpdate"), action: ssa.ActionUpdate,
		},
		"hand over": {
			given:   func(s *scenario) client.Object { return s.done(s.scaled("c", 3), nil, ssa.ActionCreate).Live },
			desired: func(s *scenario) ssa.Configuration { return s.deployment("c") }, change: handOver(replicasField), action: ssa.ActionUpdate,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, nil)
			live := p.given(s)
			request := ssa.Request{Desired: p.desired(s), Owner: &s.owner, Live: live}
			p.change(&request)

			planned, err := s.applier.DryRun().Apply(s, request)

			s.Expect(err).NotTo(HaveOccurred())
			s.Expect(planned.Action).To(Equal(p.action))
			s.Expect(descriptions(planned.Drifts)).To(Equal(p.drifts))
			if live == nil {
				s.Expect(api.Get(s, client.ObjectKey{Namespace: s.namespace, Name: "c"}, &corev1.ConfigMap{})).NotTo(Succeed())
			} else {
				version := live.GetResourceVersion()
				s.Expect(api.Get(s, client.ObjectKeyFromObject(live), live)).To(Succeed())
				s.Expect(live.GetResourceVersion()).To(Equal(version))
			}
			done := s.done(p.desired(s), live, p.action, p.change)
			s.Expect(descriptions(done.Drifts)).To(Equal(p.drifts))
		})
	}
}

func TestDryRunReportsRefusals(t *testing.T) {
	s := newScenario(t, nil)

	_, err := s.applier.DryRun().Apply(s, ssa.Request{Desired: s.scaled("d", -1), Owner: &s.owner})

	s.Expect(err).To(MatchError(ContainSubstring("must be greater than or equal to 0")))
}
