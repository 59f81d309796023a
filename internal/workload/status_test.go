package workload

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

func TestPhaseOf(t *testing.T) {
	serves := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 3, ReadyReplicas: 1}}
	starts := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 3}}
	cases := map[string]struct {
		deployment *appsv1.Deployment
		summary    phases.Summary
		want       v1beta1.Phase
	}{
		"ready":                         {serves, phases.Summary{Ready: true, ReadyReason: "Ready"}, v1beta1.PhaseRunning},
		"ready without pods":            {starts, phases.Summary{Ready: true, ReadyReason: "Ready"}, v1beta1.PhaseRunning},
		"deleted":                       {serves, phases.Summary{Deleting: true, ReadyReason: "Terminating"}, v1beta1.PhaseDeleting},
		"deleted while it is stalled":   {nil, phases.Summary{Deleting: true, Stalled: true}, v1beta1.PhaseDeleting},
		"deleted while it is suspended": {nil, phases.Summary{Deleting: true, Suspended: true}, v1beta1.PhaseDeleting},
		"suspended":                     {serves, phases.Summary{Suspended: true, ReadyReason: "Suspended"}, v1beta1.PhaseSuspended},
		"before the Deployment":         {nil, phases.Summary{ReadyReason: "DependencyMissing"}, v1beta1.PhaseProvisioning},
		"first pods are starting":       {starts, phases.Summary{ReadyReason: "RolloutProgressing"}, v1beta1.PhaseProvisioning},
		"first pods fail":               {starts, phases.Summary{ReadyReason: "PodsFailing"}, v1beta1.PhaseProvisioning},
		"a rollout":                     {serves, phases.Summary{ReadyReason: "RolloutProgressing"}, v1beta1.PhaseProvisioning},
		"not probed yet":                {serves, phases.Summary{ReadyReason: "ProtocolPending"}, v1beta1.PhaseProvisioning},
		"a contract is not known yet":   {serves, phases.Summary{ReadyReason: "ContractPending"}, v1beta1.PhaseProvisioning},
		"an option is turned off":       {serves, phases.Summary{ReadyReason: "Pruning"}, v1beta1.PhaseProvisioning},
		"a child is applied":            {serves, phases.Summary{ReadyReason: "Progressing"}, v1beta1.PhaseProvisioning},
		"a child was deleted":           {serves, phases.Summary{ReadyReason: "Recreating"}, v1beta1.PhaseProvisioning},
		"a rollout with failing pods":   {serves, phases.Summary{ReadyReason: "PodsFailing"}, v1beta1.PhaseDegraded},
		"a rollout without quota":       {serves, phases.Summary{ReadyReason: "QuotaExceeded"}, v1beta1.PhaseDegraded},
		"does not answer":               {serves, phases.Summary{ReadyReason: "ProtocolFailing"}, v1beta1.PhaseDegraded},
		"a reference is removed":        {serves, phases.Summary{ReadyReason: "DependencyMissing"}, v1beta1.PhaseDegraded},
		"ready, with a stalled rollout": {serves, phases.Summary{Ready: true, Stalled: true, ReadyReason: "Ready"}, v1beta1.PhaseDegraded},
		"stalled for a passing reason":  {serves, phases.Summary{Stalled: true, ReadyReason: "Progressing"}, v1beta1.PhaseDegraded},
		"stalled, pods serve":           {serves, phases.Summary{Stalled: true, ReadyReason: "RolloutStalled"}, v1beta1.PhaseDegraded},
		"stalled, no pods serve":        {starts, phases.Summary{Stalled: true, ReadyReason: "RolloutStalled"}, v1beta1.PhaseFailed},
		"stalled before the Deployment": {nil, phases.Summary{Stalled: true, ReadyReason: "Invalid"}, v1beta1.PhaseFailed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(PhaseOf(c.deployment, c.summary)).To(Equal(c.want))
		})
	}
}
