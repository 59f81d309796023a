package appservice

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/conditionstest"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestConditionsContract(t *testing.T) {
	conditionstest.Contract{
		Own:      []string{"apis/v1beta1/conditions.go", "apis/v1beta1/appservice_types.go"},
		Packages: []string{"controllers/appservice", "internal/references", "internal/workload"},
		Phases:   conditionstest.Names(Phases()),
		Page:     "docs/appservice.md",
		Fields: map[string]any{
			"":                  v1beta1.AppServiceSpec{},
			"probes.":           v1beta1.AppServiceProbes{},
			"probes.*.":         v1beta1.AppServiceProbe{},
			"autoscaling.":      v1beta1.AppServiceAutoscaling{},
			"disruptionBudget.": v1beta1.DisruptionBudget{},
			"ingress.":          v1beta1.Ingress{},
			"hooks.":            v1beta1.AppServiceHooks{},
			"hooks.preDeploy.":  v1beta1.AppServiceHook{},
			"status.":           v1beta1.AppServiceStatus{},
			"status.hooks.":     v1beta1.AppServiceHooksStatus{},
			"status.drifts[].":  v1beta1.Drift{},

			"status.hooks.preDeploy.": v1beta1.AppServiceHookStatus{},
		},
	}.Run(t)
}

func TestPoliciesMatchTheLibraries(t *testing.T) {
	g := NewWithT(t)
	g.Expect(string(v1beta1.AdoptionNever)).To(Equal(string(ssa.AdoptNever)))
	g.Expect(string(v1beta1.AdoptionIfUnowned)).To(Equal(string(ssa.AdoptIfUnowned)))
	g.Expect(string(v1beta1.DriftCorrect)).To(Equal(string(ssa.CorrectDrift)))
	g.Expect(string(v1beta1.DriftReport)).To(Equal(string(ssa.ReportDrift)))
}
