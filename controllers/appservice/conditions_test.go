package appservice

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/conditionstest"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestConditionsContract(t *testing.T) {
	conditionstest.Contract{
		Packages: []string{"controllers/appservice", "internal/workload"},
		Phases:   conditionstest.Names(Phases()),
		Page:     "docs/appservice.md",
		Fields: map[string]any{
			"":                  v1alpha1.AppServiceSpec{},
			"probes.":           v1alpha1.AppServiceProbes{},
			"probes.*.":         v1alpha1.AppServiceProbe{},
			"autoscaling.":      v1alpha1.AppServiceAutoscaling{},
			"disruptionBudget.": v1alpha1.AppServiceDisruptionBudget{},
			"ingress.":          v1alpha1.AppServiceIngress{},
			"status.":           v1alpha1.AppServiceStatus{},
			"status.drifts[].":  v1alpha1.AppServiceDrift{},
		},
	}.Run(t)
}

func TestPoliciesMatchTheLibraries(t *testing.T) {
	g := NewWithT(t)
	g.Expect(string(v1alpha1.AdoptionNever)).To(Equal(string(ssa.AdoptNever)))
	g.Expect(string(v1alpha1.AdoptionIfUnowned)).To(Equal(string(ssa.AdoptIfUnowned)))
	g.Expect(string(v1alpha1.DriftCorrect)).To(Equal(string(ssa.CorrectDrift)))
	g.Expect(string(v1alpha1.DriftReport)).To(Equal(string(ssa.ReportDrift)))
}
