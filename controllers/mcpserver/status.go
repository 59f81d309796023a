package mcpserver

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1alpha1/applyconfiguration/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// desiredStatus is the whole status, from what the pass found out.
func desiredStatus(s *scope, summary phases.Summary) *fixpointac.MCPServerApplyConfiguration {
	status := fixpointac.MCPServerStatus().
		WithObservedGeneration(summary.ObservedGeneration).
		WithPhase(phaseOf(s, summary)).
		WithConditions(phases.ConditionConfigurations(summary.Conditions)...).
		WithEndpoint(endpointOf(s.server)).
		WithAskedVersions(askedVersions(s)...).
		WithReplicas(0).
		WithReadyReplicas(0).
		WithSelector(labels.Set(selectorOf(s.server)).String())
	if url, _ := externalEndpoint(s); url != "" {
		status.WithExternalEndpoint(url)
	}
	if s.deployment != nil {
		status.WithReplicas(s.deployment.Status.Replicas).WithReadyReplicas(s.deployment.Status.ReadyReplicas)
	}
	if info := serverInfo(s); info != nil {
		status.WithServer(info)
	}
	for _, drift := range workload.Drifts(s.server.Status.Drifts, summary) {
		status.WithDrifts(workload.DriftConfiguration(drift))
	}
	return fixpointac.MCPServer(s.server.Name, s.server.Namespace).WithStatus(status)
}

// askedVersions are those that the last answer is of. Until there is another one, that stands.
func askedVersions(s *scope) []string {
	switch {
	case s.server.Spec.Protocol.Disabled:
		return nil
	case s.asked != nil:
		return s.asked
	default:
		return s.server.Status.AskedVersions
	}
}

// serverInfo is what the server said of itself. Until it has been asked anew, what it said last
// stands: it describes, and nothing hangs on it.
func serverInfo(s *scope) *fixpointac.MCPServerInfoApplyConfiguration {
	old := s.server.Status.Server
	if s.answer != nil && s.answer.Server != nil {
		return infoOf(withCounts(*s.answer.Server, old))
	}
	if old == nil || s.server.Spec.Protocol.Disabled {
		return nil
	}
	return fixpointac.MCPServerInfo().
		WithName(old.Name).WithVersion(old.Version).WithProtocolVersion(old.ProtocolVersion).
		WithCapabilities(old.Capabilities...).
		WithTools(old.Tools).WithPrompts(old.Prompts).WithResources(old.Resources)
}

// withCounts keeps the numbers that the status has of what has not been counted yet: after a restart
// of the manager a server says first who it is, and only then what it has.
func withCounts(server prober.Server, old *v1alpha1.MCPServerInfo) prober.Server {
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
		WithTools(counted(server.Tools)).
		WithPrompts(counted(server.Prompts)).
		WithResources(counted(server.Resources))
}

// maxInfo is how long, in bytes, what a server says of itself may be: it is a stranger's word.
const maxInfo = 128

// capabilities keeps to the schema: 32 of 64 characters.
func capabilities(names []string) []string {
	const most, longest = 32, 64
	kept := make([]string, 0, min(len(names), most))
	for _, name := range names[:min(len(names), most)] {
		kept = append(kept, workload.Cut(name, longest))
	}
	return kept
}

func counted(n int) int32 {
	const most = 1 << 30
	return int32(max(0, min(n, most))) //nolint:gosec // it is bounded
}

// phaseOf sums up in one word, for people.
func phaseOf(s *scope, summary phases.Summary) v1alpha1.MCPServerPhase {
	serves := s.deployment != nil && s.deployment.Status.ReadyReplicas > 0
	switch {
	case summary.Deleting:
		return v1alpha1.MCPServerDeleting
	case summary.Suspended:
		return v1alpha1.MCPServerSuspended
	case summary.Ready && !summary.Stalled:
		return v1alpha1.MCPServerRunning
	case summary.Stalled && !serves:
		return v1alpha1.MCPServerFailed
	case serves && (summary.Stalled || isTrouble(summary)):
		return v1alpha1.MCPServerDegraded
	default:
		return v1alpha1.MCPServerProvisioning
	}
}

// isTrouble tells a wait that something has gone wrong behind from one that is only a matter of time.
func isTrouble(summary phases.Summary) bool {
	switch summary.ReadyReason {
	case v1alpha1.ReasonRolloutProgressing, v1alpha1.ReasonProgressing, v1alpha1.ReasonRecreating,
		v1alpha1.ReasonPruning, v1alpha1.ReasonProtocolPending:
		return false
	default:
		return true
	}
}
