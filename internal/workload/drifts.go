package workload

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Drifts returns the drifts of this reconcile, followed by those that were corrected earlier. A drift
// that is only reported stays as long as it exists, with the time at which it was first found. The limit is
// spec.driftHistoryLimit.
func Drifts(before []v1beta1.Drift, summary phases.Summary, limit *int32) []v1beta1.Drift {
	var drifts []v1beta1.Drift
	for _, observed := range summary.Drifts {
		drift := newDrift(observed, summary.Now)
		if old := reportedBefore(before, drift); old != nil {
			drift.Time = old.Time
		}
		drifts = append(drifts, drift)
	}
	for _, old := range before {
		// While reconciliation is suspended, reported drifts are not observed again, so they stay.
		if old.Action == v1beta1.DriftCorrected || summary.Suspended {
			drifts = append(drifts, old)
		}
	}
	return drifts[:min(len(drifts), int(ptr.Deref(limit, v1beta1.DefaultDriftHistoryLimit)), v1beta1.MaxDrifts)]
}

func newDrift(observed phases.ObservedDrift, now metav1.Time) v1beta1.Drift {
	kind, name, _ := strings.Cut(observed.Child, " ")
	action := v1beta1.DriftReported
	if observed.Corrected {
		action = v1beta1.DriftCorrected
	}
	return v1beta1.Drift{
		Time:    now.Rfc3339Copy(),
		Kind:    kind,
		Name:    name,
		Field:   Cut(observed.Path, maxField),
		Manager: Cut(observed.Manager, maxManager),
		Desired: Cut(observed.Desired, v1beta1.MaxDriftValueLength),
		Found:   Cut(observed.Actual, v1beta1.MaxDriftValueLength),
		Action:  action,
	}
}

// Limits of the schema, in bytes.
const (
	maxField   = 1024
	maxManager = 128
)

// Cut truncates s to a number of bytes without splitting a character.
func Cut(s string, length int) string {
	const mark = "…"
	if len(s) <= length {
		return s
	}
	return strings.ToValidUTF8(s[:length-len(mark)], "") + mark
}

func reportedBefore(before []v1beta1.Drift, drift v1beta1.Drift) *v1beta1.Drift {
	for i := range before {
		old := before[i]
		old.Time = drift.Time
		if old == drift && drift.Action == v1beta1.DriftReported {
			return &before[i]
		}
	}
	return nil
}

// DriftConfiguration omits empty fields: the drift of a deleted child has no field, and the API server
// does not record who deleted it. It does not go by JSON, because each reconcile calls it for each drift of the history.
func DriftConfiguration(drift v1beta1.Drift) *fixpointac.DriftApplyConfiguration {
	configuration := fixpointac.Drift().
		WithTime(drift.Time).
		WithKind(drift.Kind).
		WithName(drift.Name).
		WithAction(drift.Action)
	configuration.Field = nilIfEmpty(drift.Field)
	configuration.Manager = nilIfEmpty(drift.Manager)
	configuration.Desired = nilIfEmpty(drift.Desired)
	configuration.Found = nilIfEmpty(drift.Found)
	return configuration
}

func nilIfEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
