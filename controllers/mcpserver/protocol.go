package mcpserver

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// protocol is the answer of the server in its own protocol, from every pod that takes traffic. The
// asking is done elsewhere and never here: a reconcile only says what to ask, and reads what was
// answered last.
var protocol = phases.Step[*scope]{
	Name:    "Protocol",
	Observe: observeProtocol,
}

func observeProtocol(ctx context.Context, s *scope) (phases.Verdict, error) {
	key := client.ObjectKeyFromObject(s.server)
	if s.server.Spec.Protocol.Disabled {
		s.forget(key)
		return phases.DoneBecause(v1alpha1.ReasonProbeDisabled, "spec.protocol.disabled is true, so the server is not asked"), nil
	}
	pods, err := s.traffic(ctx)
	if err != nil {
		return phases.Verdict{}, err
	}
	if len(pods.addresses) == 0 {
		s.forget(key)
		return phases.Wait(v1alpha1.ReasonProtocolPending, "no pod takes traffic yet", 0), nil
	}
	target, err := s.target(ctx, pods)
	if err != nil {
		return phases.Verdict{}, err
	}
	s.prober.Set(key, target)
	result, ok := s.prober.Result(key)
	if !ok {
		return phases.Wait(v1alpha1.ReasonProtocolPending, "the server has not been asked yet", 0), nil
	}
	s.answer = &result
	if result.State == prober.Unknown {
		return judgeSilence(s.server, pods, result), nil
	}
	s.asked = pods.versions
	return judgeAnswer(result), nil
}

func (s *scope) forget(key client.ObjectKey) {
	s.prober.Forget(key)
	s.keys.forget(key)
}

// judgeAnswer turns what the probes have come to into a verdict.
func judgeAnswer(result prober.Result) phases.Verdict {
	switch result.State {
	case prober.Answering:
		return phases.Done("the server answers in its protocol, from every pod that takes traffic")
	case prober.Closed:
		return phases.DoneBecause(v1alpha1.ReasonCredentialsRequired,
			"the server is there and wants credentials: "+result.Err.Error()+"; set spec.protocol.credentialsSecretRef to see what it offers")
	default:
		return failing("the server does not answer in its protocol: " + result.Err.Error() + "; " + remedy(result.Err))
	}
}

func failing(message string) phases.Verdict {
	return phases.Wait(v1alpha1.ReasonProtocolFailing, message, 0).AsTrouble()
}

// judgeSilence is for pods that have not all been judged. What is not known speaks neither for nor
// against anybody, so after a restart of the manager what was said last stands. But it was said of
// certain pods, and never stands for those of another version.
func judgeSilence(server *v1alpha1.MCPServer, pods traffic, result prober.Result) phases.Verdict {
	last := lastJudged(server)
	switch {
	case last == nil:
		return pending("the server has not answered yet", result)
	case slices.Equal(server.Status.AskedVersions, pods.versions):
		return repeated(*last)
	case last.Reason == v1alpha1.ReasonProtocolFailing:
		return pending("the pods of the new version have not answered yet", result)
	case result.Judged > 0 || slices.ContainsFunc(pods.versions, func(v string) bool { return slices.Contains(server.Status.AskedVersions, v) }):
		return phases.DoneBecause(v1alpha1.ReasonOldReplicasServing, because("pods that take traffic answer, and those of the new version have not all answered yet", result))
	case pods.lingers:
		return phases.DoneBecause(v1alpha1.ReasonOldReplicasServing, because("pods of the earlier version still serve, and those of the new version have not answered yet", result))
	default:
		return pending("the pods of the new version have not answered yet", result)
	}
}

func pending(message string, result prober.Result) phases.Verdict {
	return phases.Wait(v1alpha1.ReasonProtocolPending, because(message, result), 0)
}

// because adds what the first of them has met, if one was asked.
func because(message string, result prober.Result) string {
	if result.Err == nil {
		return message
	}
	return message + ": " + result.Err.Error()
}

func repeated(last metav1.Condition) phases.Verdict {
	switch last.Reason {
	case v1alpha1.ReasonProtocolFailing:
		return failing(last.Message)
	case v1alpha1.ReasonCredentialsRequired:
		return phases.DoneBecause(v1alpha1.ReasonCredentialsRequired, last.Message)
	case v1alpha1.ReasonOldReplicasServing:
		return phases.DoneBecause(v1alpha1.ReasonOldReplicasServing, last.Message)
	default:
		return phases.Done(last.Message)
	}
}

// lastJudged is the condition that the server's last answer led to, or nil if there is none that
// still says something: another endpoint may be another server, and one that was not asked has not
// answered.
func lastJudged(server *v1alpha1.MCPServer) *metav1.Condition {
	condition := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionProtocolReady)
	if condition == nil || server.Status.Endpoint != endpointOf(server) {
		return nil
	}
	switch condition.Reason {
	case v1alpha1.ReasonReady, v1alpha1.ReasonOldReplicasServing, v1alpha1.ReasonCredentialsRequired, v1alpha1.ReasonProtocolFailing:
		return condition
	default:
		return nil
	}
}

// remedy is what to do about a server that does not answer.
func remedy(err *prober.Error) string {
	switch err.Kind {
	case prober.TLS:
		return "see whether spec.protocol.tls is what the server speaks, and whether its certificate is valid, for the host of the endpoint and by spec.protocol.caRef"
	case prober.Refused, prober.Unreachable:
		return "see its log, whether it listens on spec.port and not on the loopback address alone, and whether network policies let the manager through"
	case prober.Invalid:
		return "correct what spec.protocol names"
	default:
		return "see its log, and whether port, path and transport are what it serves"
	}
}

// target is what to ask, and where.
func (s *scope) target(ctx context.Context, pods traffic) (prober.Target, error) {
	spec := s.server.Spec.Protocol
	target := prober.Target{
		URL:        endpointOf(s.server),
		Transport:  prober.StreamableHTTP,
		Addresses:  pods.addresses,
		Identities: pods.identities,
		Version:    joined(pods.versions),
		Interval:   spec.Interval.Duration,
		Timeout:    spec.Timeout.Duration,
		Token:      string(s.server.UID),
	}
	if s.server.Spec.Transport == v1alpha1.TransportSSE {
		target.Transport = prober.SSE
	}
	key := client.ObjectKeyFromObject(s.server)
	var used []origin
	var err error
	if ref := spec.CredentialsSecretRef; ref != nil {
		from := origin{string(v1alpha1.CAKindSecret), ref.Name, credentialsKey(ref)}
		used = append(used, from)
		if target.Bearer, err = s.keys.read(ctx, key, from); err != nil {
			return prober.Target{}, err
		}
	}
	if ref := spec.CARef; ref != nil {
		from := origin{string(caKind(ref)), ref.Name, caKey(ref)}
		used = append(used, from)
		if target.CA, err = s.keys.read(ctx, key, from); err != nil {
			return prober.Target{}, err
		}
	}
	s.keys.forget(key, used...)
	return target, nil
}

func caKind(ref *v1alpha1.MCPServerCARef) v1alpha1.MCPServerCAKind {
	if ref.Kind == "" {
		return v1alpha1.CAKindConfigMap
	}
	return ref.Kind
}

func caKey(ref *v1alpha1.MCPServerCARef) string {
	if ref.Key == "" {
		return "ca.crt"
	}
	return ref.Key
}

func credentialsKey(ref *v1alpha1.MCPServerCredentialsSecretRef) string {
	if ref.Key == "" {
		return "token"
	}
	return ref.Key
}
