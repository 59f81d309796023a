package mcpserver

import (
	"context"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// deployment is the Deployment that runs the pods.
var deployment = phases.Child[*scope, *appsv1ac.DeploymentApplyConfiguration, *appsv1.Deployment]{
	Name:    "Deployment",
	Desired: desiredDeployment,
	Health:  deploymentReady,
	Ready: func(ctx context.Context, s *scope, live *appsv1.Deployment) phases.Verdict {
		return withHeldPods(s, withCommandFailure(s.server, workload.Explain(ctx, s.uncached, s.clock, live, deploymentReady(live))))
	},
	Observed:     func(s *scope, live *appsv1.Deployment) { s.deployment = live },
	HandOver:     []string{"spec.replicas"},
	RemoveFields: workload.DeploymentRemoveFields,
	UniqueFields: []string{"spec.template.spec.containers.ports.name"},
}

func desiredDeployment(s *scope) (*appsv1ac.DeploymentApplyConfiguration, error) {
	server := s.server
	template := podTemplate(server, s.settings, s.dependencies, resourcesOf(s)...)
	spec := appsv1ac.DeploymentSpec().
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(selectorOf(server))).
		WithStrategy(workload.Strategy(server.Spec.Strategy)).
		WithProgressDeadlineSeconds(server.Spec.ProgressDeadlineSeconds).
		WithTemplate(template)
	if server.Spec.Replicas != nil {
		spec.WithReplicas(*server.Spec.Replicas)
	}
	desired, err := withOverrides(appsv1ac.Deployment(server.Name, server.Namespace).WithLabels(labelsOf(server)).WithSpec(spec), server.Spec.PodOverrides)
	if err != nil {
		return nil, err
	}
	if err := checkTemplate(server, s.settings, template, desired.Spec.Template); err != nil {
		return nil, err
	}
	withContractGate(desired.Spec.Template.Spec, server)
	workload.DeclarePullPolicies(desired.Spec.Template.Spec)
	return desired, nil
}

// commandFailed is the prefix of the bridge's termination message if the command cannot be run.
const commandFailed = "mcp-bridge: the command "

// withCommandFailure reports pods that fail because the bridge cannot run the command.
func withCommandFailure(server *v1beta1.MCPServer, verdict phases.Verdict) phases.Verdict {
	if !isStdio(server) || !strings.Contains(verdict.Message(), commandFailed) {
		return verdict
	}
	const remedy = "; correct spec.command, spec.args or spec.image"
	if verdict.Reason() == v1beta1.ReasonPodsFailing {
		return phases.Wait(v1beta1.ReasonBridgeCommandFailed, verdict.Message()+remedy, verdict.After()).AsWarning()
	}
	return verdict.WithMessage(verdict.Message() + remedy)
}

// rolloutRecheckInterval is how often an incomplete rollout is read again while old pods serve. It is
// a little longer than the time after which [workload.Explain] lists pods.
const rolloutRecheckInterval = 6 * time.Second

// deploymentReady is Done during a rollout as long as enough old pods serve; the message then says so,
// and what keeps the rollout from completing.
func deploymentReady(d *appsv1.Deployment) phases.Verdict {
	verdict := workload.Ready(d)
	if verdict.IsDone() || !oldReplicasAvailable(d) {
		return verdict
	}
	const serves = "the rollout is incomplete; old pods still serve"
	switch {
	case verdict.Reason() == v1beta1.ReasonRolloutProgressing && !workload.IsPaused(d):
		return phases.DoneBecause(v1beta1.ReasonOldReplicasServing, serves).RecheckAfter(rolloutRecheckInterval).WhileReconciling()
	case verdict.IsStalled():
		return phases.DoneBecause(v1beta1.ReasonRolloutStalled, serves+": "+verdict.Message()).
			RecheckAfter(verdict.After()).WhileStalled()
	default: // pods cannot be created, or the Deployment is paused
		return phases.DoneBecause(v1beta1.ReasonOldReplicasServing, serves+": "+verdict.Message()).RecheckAfter(rolloutRecheckInterval).WhileReconciling()
	}
}

// oldReplicasAvailable reports whether old pods exist and at least the desired number of pods is available.
func oldReplicasAvailable(d *appsv1.Deployment) bool {
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	return d.Status.ObservedGeneration >= d.Generation &&
		d.Status.Replicas > d.Status.UpdatedReplicas &&
		d.Status.AvailableReplicas >= replicas && d.Status.AvailableReplicas > 0
}
