package ssa_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestDriftNamesEachManager(t *testing.T) {
	s := newScenario(t, nil)
	desired := s.deployment("d").WithLabels(map[string]string{"tier": "web"})
	desired.Spec.WithReplicas(3)
	live := as[*appsv1.Deployment](s.done(desired, nil, ssa.ActionCreate).Live)
	s.scale(live, 5, "kubectl")
	live = editAs(s, "kubectl-edit", get(s, &appsv1.Deployment{}, "d"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "web:9" })
	live = editAs(s, "robot", live, func(d *appsv1.Deployment) { delete(d.Labels, "tier") })

	result := s.done(desired, live, ssa.ActionCorrect)

	s.Expect(s.requests()).To(Equal(1))
	s.Expect(result.Left).To(BeFalse())
	s.Expect(result.Drifts).To(ConsistOf(
		ssa.Drift{Path: ".spec.replicas", Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "scale", Desired: "3", Actual: "5"},
		ssa.Drift{Path: `.spec.template.spec.containers[name="web"].image`, Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate, Desired: `"web:1"`, Actual: `"web:9"`},
		ssa.Drift{Path: ".metadata.labels.tier", Desired: `"web"`},
	))
	s.Expect(descriptions(result.Drifts)).To(ConsistOf(
		"kubectl changed .spec.replicas from 3 to 5",
		`kubectl-edit changed .spec.template.spec.containers[name="web"].image from "web:1" to "web:9"`,
		`an unknown field manager removed .metadata.labels.tier (was "web")`,
	))
}

func TestDriftIsToldApartFromAChangedConfiguration(t *testing.T) {
	s := newScenario(t, nil)
	live := as[*corev1.ConfigMap](s.done(s.configMap("c", map[string]string{"a": "1", "b": "1"}), nil, ssa.ActionCreate).Live)
	live = editAs(s, "robot", live, func(c *corev1.ConfigMap) { c.Data["a"] = "9" })
	s.restart()

	result := s.done(s.configMap("c", map[string]string{"a": "1", "b": "2", "c": "new"}), live, ssa.ActionUpdate)

	s.Expect(descriptions(result.Drifts)).To(ConsistOf(`robot changed .data.a from "1" to "9"`))
	s.Expect(as[*corev1.ConfigMap](result.Live).Data).To(Equal(map[string]string{"a": "1", "b": "2", "c": "new"}))
}

// The API server records a field for an Update only if the Update changes it, so the manager that changed
// it is known even if others have applied or repeated the same value since.
func TestDriftNamesTheManagerThatChangedTheFieldAndNoneThatAgrees(t *testing.T) {
	s := newScenario(t, nil)
	desired := s.configMap("c", map[string]string{"a": "1"})
	live := as[*corev1.ConfigMap](s.done(desired, nil, ssa.ActionCreate).Live)
	editAs(s, "robot", live, func(c *corev1.ConfigMap) { c.Data["a"] = "9" })
	s.applyAs("argo", s.blankConfigMap("c"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: \"9\"}")
	live = editAs(s, "kubectl-edit", get(s, &corev1.ConfigMap{}, "c"), func(c *corev1.ConfigMap) { c.Data["a"], c.Data["z"] = "9", "1" })

	result := s.done(desired, live, ssa.ActionCorrect)

	s.Expect(descriptions(result.Drifts)).To(ConsistOf(`robot changed .data.a from "1" to "9"`))
}

// Dropped fields that other managers took are removed too; or they would stay permanently.
func TestRemovesDroppedFieldThatAnotherManagerTook(t *testing.T) {
	s := newScenario(t, nil)
	live := as[*corev1.ConfigMap](s.done(s.configMap("c", map[string]string{"a": "1", "b": "1"}), nil, ssa.ActionCreate).Live)
	live = editAs(s, "robot", live, func(c *corev1.ConfigMap) { c.Data["a"] = "9" })

	result := s.done(s.configMap("c", map[string]string{"b": "1"}), live, ssa.ActionUpdate)

	s.Expect(as[*corev1.ConfigMap](result.Live).Data).To(Equal(map[string]string{"b": "1"}))
}

func TestRestoredValueIsNoDrift(t *testing.T) {
	s := newScenario(t, nil)
	desired := s.configMap("c", map[string]string{"a": "1"})
	live := as[*corev1.ConfigMap](s.done(desired, nil, ssa.ActionCreate).Live)
	live = editAs(s, "robot", live, func(c *corev1.ConfigMap) { c.Data["a"] = "9" })
	live = editAs(s, "kubectl-edit", live, func(c *corev1.ConfigMap) { c.Data["a"] = "1" })

	result := s.done(desired, live, ssa.ActionCorrect) // the field is taken up again

	s.Expect(result.Drifts).To(BeEmpty())
}

func TestDriftOfASecretIsRedacted(t *testing.T) {
	s := newScenario(t, nil)
	desired := corev1ac.Secret("s", s.namespace).WithData(map[string][]byte{"password": []byte("desired")})
	live := as[*corev1.Secret](s.done(desired, nil, ssa.ActionCreate).Live)
	live = editAs(s, "robot", live, func(o *corev1.Secret) { o.Data["password"] = []byte("unmanaged") })

	result := s.done(desired, live, ssa.ActionCorrect)

	s.Expect(descriptions(result.Drifts)).To(ConsistOf(`robot changed .data.password from "(redacted)" to "(redacted)"`))
}

func TestRestoresWipedManagedFields(t *testing.T) {
	for name, policy := range map[string]ssa.DriftPolicy{"correcting": ssa.CorrectDrift, "reporting": ssa.ReportDrift} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, nil)
			withPolicy := func(r *ssa.Request) { r.Drift = policy }
			full := s.deployment("d").WithLabels(map[string]string{"tier": "web"})
			full.Spec.Template.Spec.WithContainers(container("helper", "helper:1"))
			live := as[*appsv1.Deployment](s.done(full, nil, ssa.ActionCreate).Live)
			live = editAs(s, "robot", live, func(d *appsv1.Deployment) { d.Labels["foreign"] = "x" })
			s.wipeManagedFields(live)

			result := s.done(full, get(s, &appsv1.Deployment{}, "d"), ssa.ActionCorrect, withPolicy)

			s.Expect(descriptions(result.Drifts)).To(ConsistOf("an unknown field manager removed .metadata.managedFields"))
			s.Expect(result.Left).To(BeFalse())
			dropped := as[*appsv1.Deployment](s.done(s.deployment("d"), result.Live, ssa.ActionUpdate, withPolicy).Live)
			s.Expect(dropped.Spec.Template.Spec.Containers).To(HaveLen(1))
			s.Expect(dropped.Labels).To(Equal(map[string]string{"foreign": "x"}))
		})
	}
}

func TestRemovesDroppedPartsAfterManagedFieldsWereWiped(t *testing.T) {
	s := newScenario(t, nil)
	full := s.deployment("d").WithLabels(map[string]string{"tier": "web"})
	full.Spec.Template.Spec.WithContainers(container("helper", "helper:1"))
	live := as[*appsv1.Deployment](s.done(full, nil, ssa.ActionCreate).Live)
	live = editAs(s, "robot", live, func(d *appsv1.Deployment) { d.Labels["foreign"] = "x" })
	s.wipeManagedFields(live)
	s.restart()

	result := s.done(s.deployment("d"), get(s, &appsv1.Deployment{}, "d"), ssa.ActionUpdate)

	left := as[*appsv1.Deployment](result.Live)
	s.Expect(left.Spec.Template.Spec.Containers).To(HaveLen(1))
	s.Expect(left.Labels).To(Equal(map[string]string{"foreign": "x"}))
}

func TestRemoveFieldsAllowsRecreateStrategy(t *testing.T) {
	s := newScenario(t, nil)
	rolling := s.deployment("d")
	live := s.done(rolling, nil, ssa.ActionCreate).Live
	recreate := s.deployment("d")
	recreate.Spec.WithStrategy(appsv1ac.DeploymentStrategy().WithType(appsv1.RecreateDeploymentStrategyType))
	s.Expect(s.fails(recreate, live).Reason).To(Equal(ssa.ReasonInvalid))

	result := s.done(recreate, live, ssa.ActionUpdate, removeFields("spec.strategy.rollingUpdate"))

	s.Expect(s.requests()).To(Equal(2))
	s.Expect(as[*appsv1.Deployment](result.Live).Spec.Strategy).To(Equal(appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}))
	back := s.done(rolling, result.Live, ssa.ActionUpdate)
	s.Expect(as[*appsv1.Deployment](back.Live).Spec.Strategy.RollingUpdate).NotTo(BeNil())
}
