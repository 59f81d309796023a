package mcpserver

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// desiredStatus is the complete status, from what the reconcile observed.
func desiredStatus(s *scope, summary phases.Summary) *fixpointac.MCPServerApplyConfiguration {
	status := fixpointac.MCPServerStatus().
		WithObservedGeneration(summary.ObservedGeneration).
		WithPhase(workload.PhaseOf(s.deployment, summary)).
		WithConditions(phases.ConditionConfigurations(summary.Conditions)...).
		WithEndpoint(endpointOf(s.server)).
		WithProbedVersions(probedVersions(s)...).
		WithServer(serverInfo(s)).
		WithReplicas(0).
		WithReadyReplicas(0).
		WithSelector(labels.Set(selectorOf(s.server)).String())
	if handled := workload.HandledReconcile(s.server); handled != "" {
		status.WithLastHandledReconcileAt(handled)
	}
	if url, _ := externalEndpoint(s); url != "" {
		status.WithExternalEndpoint(url)
	}
	if s.deployment != nil {
		status.WithReplicas(s.deployment.Status.Replicas).WithReadyReplicas(s.deployment.Status.ReadyReplicas)
	}
	if contract, _ := s.contract(summary.Now); contract != nil {
		status.WithContract(contractConfiguration(contract))
	}
	if pending := s.pendingContract(summary.Now); pending != nil {
		status.WithPendingContract(workload.MustConvert(pending, fixpointac.MCPServerPendingContract()))
	}
	for _, drift := range workload.Drifts(s.server.Status.Drifts, summary, s.server.Spec.DriftHistoryLimit) {
		status.WithDrifts(workload.DriftConfiguration(drift))
	}
	return fixpointac.MCPServer(s.server.Name, s.server.Namespace).WithStatus(status)
}

// probedVersions are the versions that the last result covers; the previous ones until a new result.
func probedVersions(s *scope) []string {
	switch {
	case s.server.Spec.Protocol.Probe == v1beta1.ProbeDisabled:
		return nil
	case s.probedVersions != nil:
		return s.probedVersions
	default:
		return s.server.Status.ProbedVersions
	}
}

// serverInfo is the description that the server returned in its handshake; the previous one until it is
// probed again. It is informational only.
func serverInfo(s *scope) *fixpointac.MCPServerInfoApplyConfiguration {
	old := s.server.Status.Server
	if s.probed != nil && s.probed.Server != nil {
		return infoOf(withCounts(*s.probed.Server, old))
	}
	if old == nil || s.server.Spec.Protocol.Probe == v1beta1.ProbeDisabled {
		return nil
	}
	return fixpointac.MCPServerInfo().
		WithName(old.Name).WithVersion(old.Version).WithProtocolVersion(old.ProtocolVersion).
		WithCapabilities(old.Capabilities...).
		WithTools(old.Tools).WithPrompts(old.Prompts).WithResources(old.Resources)
}

// withCounts keeps the numbers of the status that have not been counted again yet. After a restart of
// the manager the first handshake comes before the lists.
func withCounts(server prober.Server, old *v1beta1.MCPServerInfo) prober.Server {
	if old == nil || old.Name != workload.Cut(server.Name, maxInfo) || old.Version != workload.Cut(server.Version, maxInfo) {
		return server
	}
	for number, before := range map[*int]int32{&server.Tools: old.Tools, &server.Prompts: old.Prompts, &server.Resources: old.Resources} {
		if *number == prober.NotCounted {
			*number = int(before)
		}
	}
	return server
}

func infoOf(server prober.Server) *fixpointac.MCPServerInfoApplyConfiguration {
	return fixpointac.MCPServerInfo().
		WithName(workload.Cut(server.Name, maxInfo)).
		WithVersion(workload.Cut(server.Version, maxInfo)).
		WithProtocolVersion(workload.Cut(server.ProtocolVersion, maxInfo)).
		WithCapabilities(capabilities(server.Capabilities)...).
		WithTools(boundedCount(server.Tools)).
		WithPrompts(boundedCount(server.Prompts)).
		WithResources(boundedCount(server.Resources))
}

// maxInfo bounds, in bytes, each text from a server, which is untrusted.
const maxInfo = 128

// capabilities applies the limits of the schema: 32 names of 64 characters.
func capabilities(names []string) []string {
	const maxItems, maxLength = 32, 64
	names = names[:min(len(names), maxItems)]
	kept := make([]string, 0, len(names))
	for _, name := range names {
		kept = append(kept, workload.Cut(name, maxLength))
	}
	return kept
}

func boundedCount(n int) int32 {
	const limit = 1 << 30
	return int32(max(0, min(n, limit))) //nolint:gosec // it is bounded
}
