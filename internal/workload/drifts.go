package workload

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1alpha1/applyconfiguration/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Drifts puts the drifts of this pass before the ones that were corrected earlier. One that is
// only reported stands for as long as it is found, with the time at which it was first.
func Drifts(before []v1alpha1.AppServiceDrift, summary phases.Summary) []v1alpha1.AppServiceDrift {
	var drifts []v1alpha1.AppServiceDrift
	for _, observed := range summary.Drifts {
		drift := newDrift(observed, summary.Now)
		if old := reportedBefore(before, drift); old != nil {
			drift.Time = old.Time
		}
		drifts = append(drifts, drift)
	}
	for _, old := range before {
		// While nothing is looked at, what was reported has not gone away.
		if old.Action == v1alpha1.DriftCorrected || summary.Suspended {
			drifts = append(drifts, old)
		}
	}
	return drifts[:min(len(drifts), v1alpha1.MaxDrifts)]
}

func newDrift(observed phases.ObservedDrift, now metav1.Time) v1alpha1.AppServiceDrift {
	kind, name, _ := strings.Cut(observed.Child, " ")
	action := v1alpha1.DriftReported
	if observed.Corrected {
		action = v1alpha1.DriftCorrected
	}
	return v1alpha1.AppServiceDrift{
		Time:    now.Rfc3339Copy(),
		Kind:    kind,
		Name:    name,
		Field:   Cut(observed.Path, maxField),
		Manager: Cut(observed.Manager, maxManager),
		From:    Cut(observed.Desired, v1alpha1.MaxDriftValueLength),
		To:      Cut(observed.Actual, v1alpha1.MaxDriftValueLength),
		Action:  action,
	}
}

// Limits of the schema, in bytes.
const (
	maxField   = 1024
	maxManager = 128
)

// Cut shortens to a number of bytes without cutting a character in two.
func Cut(s string, length int) string {
	const mark = "…"
	if len(s) <= length {
		return s
	}
	return strings.ToValidUTF8(s[:length-len(mark)], "") + mark
}

func reportedBefore(before []v1alpha1.AppServiceDrift, drift v1alpha1.AppServiceDrift) *v1alpha1.AppServiceDrift {
	for i := range before {
		old := before[i]
		old.Time = drift.Time
		if old == drift && drift.Action == v1alpha1.DriftReported {
			return &before[i]
		}
	}
	return nil
}

// DriftConfiguration leaves out what there is nothing to say about, as the schema promises: a child
// that was deleted as a whole has no field, and the API server does not tell who did it.
func DriftConfiguration(drift v1alpha1.AppServiceDrift) *fixpointac.AppServiceDriftApplyConfiguration {
	configuration := fixpointac.AppServiceDrift().
		WithTime(drift.Time).
		WithKind(drift.Kind).
		WithName(drift.Name).
		WithAction(drift.Action)
	configuration.Field = unlessEmpty(drift.Field)
	configuration.Manager = unlessEmpty(drift.Manager)
	configuration.From = unlessEmpty(drift.From)
	configuration.To = unlessEmpty(drift.To)
	return configuration
}

func unlessEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
