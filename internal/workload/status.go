package workload

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// PhaseOf is the one-word summary in status.phase. The Deployment is nil if it does not exist.
func PhaseOf(d *appsv1.Deployment, summary phases.Summary) v1beta1.Phase {
	serves := d != nil && d.Status.ReadyReplicas > 0
	switch {
	case summary.Deleting:
		return v1beta1.PhaseDeleting
	case summary.Suspended:
		return v1beta1.PhaseSuspended
	case summary.Ready && !summary.Stalled:
		return v1beta1.PhaseRunning
	case summary.Stalled && !serves:
		return v1beta1.PhaseFailed
	case serves && (summary.Stalled || isProblem(summary)):
		return v1beta1.PhaseDegraded
	default:
		return v1beta1.PhaseProvisioning
	}
}

// isProblem reports whether a wait needs attention, unlike one that resolves by itself.
func isProblem(summary phases.Summary) bool {
	switch summary.ReadyReason {
	case v1beta1.ReasonRolloutProgressing, v1beta1.ReasonProgressing, v1beta1.ReasonRecreating,
		v1beta1.ReasonPruning, v1beta1.ReasonProtocolPending, v1beta1.ReasonContractPending:
		return false
	default:
		return true
	}
}
