package mcpserver

import (
	"context"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// deployment is the Deployment that runs the pods.
var deployment = phases.Child[*scope, *appsv1ac.DeploymentApplyConfiguration, *appsv1.Deployment]{
	Name:    "Deployment",
	Desired: desiredDeployment,
	Ready:   deploymentReady,
	Explain: func(ctx context.Context, s *scope, live *appsv1.Deployment, verdict phases.Verdict) phases.Verdict {
		return blameCommand(s.server, workload.Explain(ctx, s.uncached, s.clock, live, verdict))
	},
	Observed:     func(s *scope, live *appsv1.Deployment) { s.deployment = live },
	HandOver:     []string{"spec.replicas"},
	RemoveFields: []string{"spec.strategy.rollingUpdate"},
	UniqueFields: []string{"spec.template.spec.containers.ports.name"},
}

func desiredDeployment(s *scope) (*appsv1ac.DeploymentApplyConfiguration, error) {
	server := s.server
	template, err := podTemplate(server, s.settings, s.dependencies)
	if err != nil {
		return nil, err
	}
	spec := appsv1ac.DeploymentSpec().
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(selectorOf(server))).
		WithStrategy(strategy(server)).
		WithProgressDeadlineSeconds(server.Spec.ProgressDeadlineSeconds).
		WithTemplate(template)
	if server.Spec.Replicas != nil {
		spec.WithReplicas(*server.Spec.Replicas)
	}
	desired, err := withOverrides(appsv1ac.Deployment(server.Name, server.Namespace).WithLabels(labelsOf(server)).WithSpec(spec), server.Spec.PodOverrides)
	if err != nil {
		return nil, err
	}
	workload.DeclarePullPolicies(desired.Spec.Template.Spec)
	return desired, nil
}

// strategy never takes a pod away before another one serves: sessions live in pods.
func strategy(server *v1alpha1.MCPServer) *appsv1ac.DeploymentStrategyApplyConfiguration {
	if server.Spec.Strategy == v1alpha1.StrategyRecreate {
		return appsv1ac.DeploymentStrategy().WithType(appsv1.RecreateDeploymentStrategyType)
	}
	return appsv1ac.DeploymentStrategy().
		WithType(appsv1.RollingUpdateDeploymentStrategyType).
		WithRollingUpdate(appsv1ac.RollingUpdateDeployment().
			WithMaxUnavailable(intstr.FromInt32(0)).
			WithMaxSurge(intstr.FromString("25%")))
}

// commandFailed is how the bridge's termination message begins if the command is to blame.
const commandFailed = "mcp-bridge: the command "

// blameCommand tells a command that the bridge cannot run from pods that fail for other reasons.
func blameCommand(server *v1alpha1.MCPServer, verdict phases.Verdict) phases.Verdict {
	if !isStdio(server) || !strings.Contains(verdict.Message(), commandFailed) {
		return verdict
	}
	const remedy = "; correct spec.command, spec.args or spec.image"
	if verdict.Reason() == v1alpha1.ReasonPodsFailing {
		return phases.Wait(v1alpha1.ReasonBridgeCommandFailed, verdict.Message()+remedy, verdict.After()).AsTrouble()
	}
	return verdict.WithMessage(verdict.Message() + remedy)
}

// rolloutCheck is how often a rollout is looked at behind which old pods still serve. It is a little
// more than what passes before pods are asked why they do not start.
const rolloutCheck = 6 * time.Second

// deploymentReady lets the phases after it go on while the pods of the earlier version serve in full
// number, and says that it does, and what keeps the new ones back.
func deploymentReady(d *appsv1.Deployment) phases.Verdict {
	verdict := workload.Ready(d)
	if verdict.IsDone() || !oldPodsServe(d) {
		return verdict
	}
	const serves = "the rollout is not complete, and pods of the earlier version still serve"
	switch {
	case verdict.Reason() == v1alpha1.ReasonRolloutProgressing:
		return phases.DoneBecause(v1alpha1.ReasonOldReplicasServing, serves).LookAgainAfter(rolloutCheck).AndReconciling()
	case verdict.IsStalled():
		return phases.DoneBecause(v1alpha1.ReasonRolloutStalled, serves+": "+verdict.Message()).AndStalled()
	default: // pods are refused
		return phases.DoneBecause(v1alpha1.ReasonOldReplicasServing, serves+": "+verdict.Message()).LookAgainAfter(rolloutCheck).AndReconciling()
	}
}

// oldPodsServe: there are pods of an earlier version, and no fewer are available than are asked for.
func oldPodsServe(d *appsv1.Deployment) bool {
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	return d.Status.ObservedGeneration >= d.Generation &&
		d.Status.Replicas > d.Status.UpdatedReplicas &&
		d.Status.AvailableReplicas >= replicas && d.Status.AvailableReplicas > 0
}
