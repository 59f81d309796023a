package mcpserver

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// protocol waits until MCP handshakes succeed on all serving pods. The prober makes the handshakes in
// the background; a reconcile only sets its target and reads the latest result.
var protocol = protocolPhase{phases.Step[*scope]{
	Name:    "Protocol",
	Observe: observeProtocol,
}}

// protocolPhase also keeps the target of the prober as it should be while an earlier phase waits.
type protocolPhase struct{ phases.Step[*scope] }

// Declare implements [phases.Phase].
func (p protocolPhase) Declare(scheme *runtime.Scheme) (phases.Declaration[*scope], error) {
	d, err := p.Step.Declare(scheme)
	d.Observe = func(ctx context.Context, r phases.Reconcile[*scope]) (phases.Next, error) {
		return nil, r.Scope.followPods(ctx)
	}
	return d, err
}

// followPods is for a reconcile that does not reach the phase: the address of a pod that is gone may be that of another pod
// by now, which must not receive the token. An MCPServer that is not probed yet still waits for the phase. The phase Contract
// has already set the target if contracts are pinned.
func (s *scope) followPods(ctx context.Context) error {
	if s.plans || s.pinned != nil {
		return nil
	}
	if _, isProbed := s.prober.Result(client.ObjectKeyFromObject(s.server)); !isProbed {
		return nil // nor is an MCPServer that is suspended or deleted
	}
	_, err := s.aim(ctx)
	return err
}

// aim sets the target of the prober, and returns the pods. Without pods, nothing is probed. Neither is it if the pods, or what
// the probes send, are not known, because what was known of them may be wrong by now.
func (s *scope) aim(ctx context.Context) (servingPods, error) {
	key := client.ObjectKeyFromObject(s.server)
	if s.server.Spec.Protocol.Probe == v1beta1.ProbeDisabled {
		s.forget(key)
		return servingPods{}, nil
	}
	pods, err := s.servingPods(ctx)
	if err != nil {
		s.prober.Forget(key) // what has been read is kept for the next reconcile
		return servingPods{}, err
	}
	if len(pods.addresses) == 0 && (!pinsContract(s.server) || len(pods.unready) == 0) {
		s.forget(key)
		return pods, nil
	}
	target, err := s.target(ctx, pods)
	if err != nil && !s.references.Ignores(err) {
		s.prober.Forget(key)
		return servingPods{}, err
	}
	s.prober.Set(key, target)
	return pods, nil
}

func observeProtocol(ctx context.Context, s *scope) (phases.Observation, error) {
	pods, err := s.aim(ctx)
	switch {
	case err != nil:
		return nil, err
	case s.server.Spec.Protocol.Probe == v1beta1.ProbeDisabled:
		return phases.DoneBecause(v1beta1.ReasonProbeDisabled, "probes are disabled by spec.protocol.probe"), nil
	case len(pods.addresses) == 0:
		return unprobedVerdict(pods), nil
	}
	result, ok := s.prober.Result(client.ObjectKeyFromObject(s.server))
	if !ok {
		return phases.Wait(v1beta1.ReasonProtocolPending, "waiting for the first MCP handshake", 0), nil
	}
	s.probed = &result
	if result.State == prober.Unknown {
		return pendingVerdict(s.server, pods, result), nil
	}
	s.probedVersions = pods.versions
	return withWarnings(resultVerdict(s.server, result), s.server, result), nil
}

// unprobedVerdict is the verdict without a pod that can be probed. Pods in the host network are not probed,
// because their address is that of the node, where a probe could reach any port.
func unprobedVerdict(pods servingPods) phases.Verdict {
	switch {
	case pods.hostNetwork:
		return phases.DoneBecause(v1beta1.ReasonProbeDisabled,
			"the pods are not probed, because they use the network of their nodes: remove hostNetwork from spec.podOverrides.spec, or set spec.protocol.probe to Disabled")
	case pods.unknown:
		return phases.Wait(v1beta1.ReasonProtocolPending,
			"waiting for a ready pod behind the Service; addresses in its EndpointSlices that no pod of the MCPServer has are ignored", 0)
	default:
		return phases.Wait(v1beta1.ReasonProtocolPending, "waiting for a ready pod behind the Service", 0)
	}
}

// withWarnings adds to a verdict that is done what does not affect it, and what to do.
func withWarnings(verdict phases.Verdict, server *v1beta1.MCPServer, result prober.Result) phases.Verdict {
	if !verdict.IsDone() {
		return verdict
	}
	message := verdict.Message()
	// Other errors may pass, such as a timeout: to report them would change the status back and forth.
	if err := result.ListErr; err != nil && err.Kind == prober.TooLarge {
		message += "; tools, prompts and resources cannot be counted: " + err.Error() + "; shorten the lists that the server returns, or their items"
	}
	// It depends only on the lists.
	if err := result.ContractErr; err != nil && (err.Kind == prober.TooLarge || err.Kind == prober.NotMCP) {
		message += "; status.contract is not updated: " + err.Error() + "; correct the lists that the server returns, or set spec.contract.policy to Disabled"
	}
	if spec := server.Spec.Protocol; spec.CredentialsSecretRef != nil && spec.Scheme != v1beta1.SchemeHTTPS {
		message += "; the token of spec.protocol.credentialsSecretRef is sent unencrypted: " + plainTokenRemedy(server)
	}
	return verdict.WithMessage(message)
}

// plainTokenRemedy differs for the bridge, which does not support TLS.
func plainTokenRemedy(server *v1beta1.MCPServer) string {
	if server.Spec.Authorization != nil {
		return "use a token that is valid only briefly and has only the scopes of spec.authorization.scopes, or remove spec.protocol.credentialsSecretRef"
	}
	if server.Spec.Transport == v1beta1.TransportStdio {
		return "remove spec.protocol.credentialsSecretRef, because the bridge requires no token"
	}
	return "serve TLS and set spec.protocol.scheme to HTTPS, or remove spec.protocol.credentialsSecretRef"
}

func (s *scope) forget(key client.ObjectKey) {
	s.prober.Forget(key)
	s.readers.forget(key)
}

// resultVerdict converts the result of the probes to a verdict.
func resultVerdict(server *v1beta1.MCPServer, result prober.Result) phases.Verdict {
	switch result.State {
	case prober.Answering:
		return phases.Done("MCP handshake succeeded on all serving pods")
	case prober.Closed:
		return phases.DoneBecause(v1beta1.ReasonCredentialsRequired,
			"the server requires credentials: "+result.Err.Error()+"; "+remedy(server, result.Err))
	default:
		return protocolFailing("MCP handshake failed: " + result.Err.Error() + "; " + remedy(server, result.Err))
	}
}

func protocolFailing(message string) phases.Verdict {
	return phases.Wait(v1beta1.ReasonProtocolFailing, message, 0).AsWarning()
}

// pendingVerdict is the verdict while some pods have no result yet. The last result in the status stays,
// for example after a restart of the manager, but only for pods of the versions that it covers.
func pendingVerdict(server *v1beta1.MCPServer, pods servingPods, result prober.Result) phases.Verdict {
	last := lastResult(server)
	switch {
	case last == nil:
		return protocolPending("waiting for the first MCP handshake", result)
	case slices.Equal(server.Status.ProbedVersions, pods.versions):
		return lastVerdict(*last)
	case last.Reason == v1beta1.ReasonProtocolFailing:
		return protocolPending("waiting for an MCP handshake with the new pods", result)
	case result.Decided > 0 || slices.ContainsFunc(pods.versions, func(v string) bool { return slices.Contains(server.Status.ProbedVersions, v) }):
		return phases.DoneBecause(v1beta1.ReasonOldReplicasServing, withError("MCP handshake succeeded on some serving pods; waiting for the other new pods", result))
	case pods.oldServing:
		return phases.DoneBecause(v1beta1.ReasonOldReplicasServing, withError("old pods still serve; waiting for an MCP handshake with the new pods", result))
	default:
		return protocolPending("waiting for an MCP handshake with the new pods", result)
	}
}

func protocolPending(message string, result prober.Result) phases.Verdict {
	return phases.Wait(v1beta1.ReasonProtocolPending, withError(message, result), 0)
}

// withError adds the error of the last probe that failed, if any.
func withError(message string, result prober.Result) string {
	if result.Err == nil {
		return message
	}
	return message + ": " + result.Err.Error()
}

func lastVerdict(last metav1.Condition) phases.Verdict {
	switch last.Reason {
	case v1beta1.ReasonProtocolFailing:
		return protocolFailing(last.Message)
	case v1beta1.ReasonCredentialsRequired:
		return phases.DoneBecause(v1beta1.ReasonCredentialsRequired, last.Message)
	case v1beta1.ReasonOldReplicasServing:
		return phases.DoneBecause(v1beta1.ReasonOldReplicasServing, last.Message)
	default:
		return phases.Done(last.Message)
	}
}

// lastResult is the condition with the last result of the probes, or nil if it has none or is about
// another endpoint.
func lastResult(server *v1beta1.MCPServer) *metav1.Condition {
	condition := meta.FindStatusCondition(server.Status.Conditions, v1beta1.ConditionProtocolReady)
	if condition == nil || server.Status.Endpoint != endpointOf(server) {
		return nil
	}
	switch condition.Reason {
	case v1beta1.ReasonReady, v1beta1.ReasonOldReplicasServing, v1beta1.ReasonCredentialsRequired, v1beta1.ReasonProtocolFailing:
		return condition
	default:
		return nil
	}
}

// remedy says how to fix a failing handshake.
func remedy(server *v1beta1.MCPServer, err *prober.Error) string {
	switch err.Kind {
	case prober.Unauthorized:
		return credentialsRemedy(server)
	case prober.Forbidden: // servers also refuse a Host that they do not know
		return credentialsRemedy(server) + ", or let the server accept the host of status.endpoint"
	case prober.Timeout: // network policies usually drop packets
		return "check the server log, that spec.port, spec.path and spec.transport match the server, " +
			"that network policies admit the manager, and that spec.protocol.timeout is long enough"
	case prober.TLS:
		return "check that spec.protocol.scheme matches the server, and that its certificate is valid for the host of status.endpoint and trusted by spec.protocol.caRef"
	case prober.Refused, prober.Unreachable:
		return "check the server log, that the server listens on spec.port on all interfaces, and that network policies admit the manager"
	case prober.NotForwarded:
		return "the manager runs outside of the cluster, so its user needs permission to list pods, and to get and create pods/portforward; check with kubectl port-forward"
	case prober.Invalid:
		return "correct spec.protocol and the objects that it refers to"
	case prober.TooLarge:
		return "reduce what the server returns: see Limits of the probes in docs/mcpserver.md"
	default:
		return "check the server log, and that spec.port, spec.path, spec.transport and spec.protocol.scheme match the server"
	}
}

// credentialsRemedy says how to get access to the server.
func credentialsRemedy(server *v1beta1.MCPServer) string {
	if server.Spec.Protocol.CredentialsSecretRef != nil {
		return "it does not accept the token of spec.protocol.credentialsSecretRef: renew the token, or correct its permissions"
	}
	return "to probe it with a token, set spec.protocol.credentialsSecretRef"
}

// target is the target of the prober.
func (s *scope) target(ctx context.Context, pods servingPods) (prober.Target, error) {
	spec := s.server.Spec.Protocol
	target := prober.Target{
		URL:        endpointOf(s.server),
		Transport:  prober.StreamableHTTP,
		Addresses:  pods.addresses,
		Identities: pods.identities,
		Version:    strings.Join(pods.versions, ","),
		Interval:   spec.Interval.Duration,
		Timeout:    spec.Timeout.Duration,
		Contract:   observesContract(s.server),
		Token:      string(s.server.UID),
	}
	if pinsContract(s.server) {
		target.Unready, target.Verify = pods.unready, true
	}
	if s.server.Spec.Transport == v1beta1.TransportSSE {
		target.Transport = prober.SSE
	}
	key := client.ObjectKeyFromObject(s.server)
	var used []keyRef
	var err error
	if ref := spec.CredentialsSecretRef; ref != nil {
		from := keyRef{string(v1beta1.CAKindSecret), ref.Name, credentialsKey(ref)}
		used = append(used, from)
		if target.Bearer, err = s.keys.read(ctx, key, from); err != nil {
			return prober.Target{}, err
		}
	}
	if ref := spec.CARef; ref != nil {
		from := keyRef{string(caKind(ref)), ref.Name, caKey(ref)}
		used = append(used, from)
		if target.CA, err = s.keys.read(ctx, key, from); err != nil {
			return prober.Target{}, err
		}
	}
	s.keys.forget(key, used...)
	return target, nil
}

func caKind(ref *v1beta1.MCPServerCARef) v1beta1.MCPServerCAKind {
	return cmp.Or(ref.Kind, v1beta1.CAKindConfigMap)
}

func caKey(ref *v1beta1.MCPServerCARef) string { return cmp.Or(ref.Key, "ca.crt") }

func credentialsKey(ref *v1beta1.MCPServerCredentialsSecretRef) string {
	return cmp.Or(ref.Key, "token")
}
