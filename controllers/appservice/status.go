package appservice

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1alpha1/applyconfiguration/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// desiredStatus is the whole status, from what the pass found out.
func desiredStatus(s *scope, summary phases.Summary) *fixpointac.AppServiceApplyConfiguration {
	status := fixpointac.AppServiceStatus().
		WithObservedGeneration(summary.ObservedGeneration).
		WithPhase(phaseOf(s, summary)).
		WithConditions(phases.ConditionConfigurations(summary.Conditions)...).
		WithReplicas(0).
		WithReadyReplicas(0).
		WithSelector(labels.Set(selectorOf(s.app)).String()).
		WithURL(urlOf(s.app))
	if s.deployment != nil {
		status.WithReplicas(s.deployment.Status.Replicas).WithReadyReplicas(s.deployment.Status.ReadyReplicas)
	}
	for _, drift := range driftsOf(s.app.Status.Drifts, summary) {
		status.WithDrifts(driftConfiguration(drift))
	}
	return fixpointac.AppService(s.app.Name, s.app.Namespace).WithStatus(status)
}

// phaseOf sums up in one word, for people.
func phaseOf(s *scope, summary phases.Summary) v1alpha1.AppServicePhase {
	serves := s.deployment != nil && s.deployment.Status.ReadyReplicas > 0
	switch {
	case summary.Deleting:
		return v1alpha1.AppServiceDeleting
	case summary.Suspended:
		return v1alpha1.AppServiceSuspended
	case summary.Ready:
		return v1alpha1.AppServiceRunning
	case summary.Stalled && !serves:
		return v1alpha1.AppServiceFailed
	case serves && (summary.Stalled || isTrouble(summary)):
		return v1alpha1.AppServiceDegraded
	default:
		return v1alpha1.AppServiceProvisioning
	}
}

// isTrouble tells a wait that something has gone wrong behind from one that is only a matter of time.
func isTrouble(summary phases.Summary) bool {
	switch summary.ReadyReason {
	case v1alpha1.ReasonRolloutProgressing, v1alpha1.ReasonProgressing, v1alpha1.ReasonRecreating, v1alpha1.ReasonPruning:
		return false
	default:
		return true
	}
}

// urlOf is where the application is reached.
func urlOf(app *v1alpha1.AppService) string {
	in := app.Spec.Ingress
	if in == nil {
		return fmt.Sprintf("http://%s.%s.svc:%d", app.Name, app.Namespace, app.Spec.Port)
	}
	scheme := "http"
	if in.TLSSecretName != "" {
		scheme = "https"
	}
	return scheme + "://" + in.Host + strings.TrimSuffix(in.Path, "/")
}

// driftsOf puts the drifts of this pass before the ones that were corrected earlier. One that is
// only reported stands for as long as it is found, with the time at which it was first.
func driftsOf(before []v1alpha1.AppServiceDrift, summary phases.Summary) []v1alpha1.AppServiceDrift {
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
		Field:   cut(observed.Path, maxField),
		Manager: cut(observed.Manager, maxManager),
		From:    cut(observed.Desired, v1alpha1.MaxDriftValueLength),
		To:      cut(observed.Actual, v1alpha1.MaxDriftValueLength),
		Action:  action,
	}
}

// Limits of the schema, in bytes.
const (
	maxField   = 1024
	maxManager = 128
)

// cut shortens to a number of bytes without cutting a character in two.
func cut(s string, length int) string {
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

// driftConfiguration leaves out what there is nothing to say about, as the schema promises: a child
// that was deleted as a whole has no field, and the API server does not tell who did it.
func driftConfiguration(drift v1alpha1.AppServiceDrift) *fixpointac.AppServiceDriftApplyConfiguration {
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
