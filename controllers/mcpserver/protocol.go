package mcpserver

import (
	"context"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
		s.prober.Forget(key)
		return phases.DoneBecause(v1alpha1.ReasonProbeDisabled, "spec.protocol.disabled is true, so the server is not asked"), nil
	}
	target, err := s.target(ctx)
	if err != nil {
		return phases.Verdict{}, err
	}
	if len(target.Addresses) == 0 {
		s.prober.Forget(key)
		return phases.Wait(v1alpha1.ReasonProtocolPending, "no pod takes traffic yet", 0), nil
	}
	s.prober.Set(key, target)
	result, ok := s.prober.Result(key)
	if !ok {
		return phases.Wait(v1alpha1.ReasonProtocolPending, "the server has not been asked yet", 0), nil
	}
	s.answer = &result
	return judgeAnswer(result, lastJudged(s.server)), nil
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
	case v1alpha1.ReasonReady, v1alpha1.ReasonCredentialsRequired, v1alpha1.ReasonProtocolFailing:
		return condition
	default:
		return nil
	}
}

// judgeAnswer turns what the probes have come to into a verdict. What is not known speaks neither for
// nor against anybody: after a restart of the manager, what was said last stands until there is an
// answer.
func judgeAnswer(result prober.Result, last *metav1.Condition) phases.Verdict {
	switch result.State {
	case prober.Answering:
		return phases.Done("the server answers in its protocol, from every pod that takes traffic")
	case prober.Closed:
		return phases.DoneBecause(v1alpha1.ReasonCredentialsRequired,
			"the server is there and wants credentials: "+result.Err.Error()+"; set spec.protocol.credentialsSecretRef to see what it offers")
	case prober.Failing:
		return phases.Wait(v1alpha1.ReasonProtocolFailing,
			"the server does not answer in its protocol: "+result.Err.Error()+"; see its log, and whether port, path and transport are what it serves", 0)
	}
	if last == nil {
		return phases.Wait(v1alpha1.ReasonProtocolPending, "the server has not answered yet", 0)
	}
	switch last.Reason {
	case v1alpha1.ReasonReady:
		return phases.Done(last.Message)
	case v1alpha1.ReasonCredentialsRequired:
		return phases.DoneBecause(v1alpha1.ReasonCredentialsRequired, last.Message)
	default:
		return phases.Wait(v1alpha1.ReasonProtocolFailing, last.Message, 0)
	}
}

// target is what to ask, and where.
func (s *scope) target(ctx context.Context) (prober.Target, error) {
	spec := s.server.Spec.Protocol
	addresses, err := s.addresses(ctx)
	if err != nil {
		return prober.Target{}, err
	}
	target := prober.Target{
		URL:       endpointOf(s.server),
		Transport: prober.StreamableHTTP,
		Addresses: addresses,
		Interval:  spec.Interval.Duration,
		Timeout:   spec.Timeout.Duration,
		Token:     s.revision(),
	}
	if s.server.Spec.Transport == v1alpha1.TransportSSE {
		target.Transport = prober.SSE
	}
	if ref := spec.CredentialsSecretRef; ref != nil {
		data, err := s.secretKey(ctx, ref.Name, credentialsKey(ref))
		if err != nil {
			return prober.Target{}, err
		}
		target.Bearer = prober.Credential(data)
	}
	if ref := spec.CARef; ref != nil {
		if target.CA, err = s.bundle(ctx, ref); err != nil {
			return prober.Target{}, err
		}
	}
	return target, nil
}

// revision says which rollout the pods are of: after the next one everything is asked anew.
func (s *scope) revision() string {
	if s.deployment == nil {
		return ""
	}
	return string(s.deployment.UID) + "/" + s.deployment.Annotations["deployment.kubernetes.io/revision"]
}

// addresses lists the pods that take traffic, by the Service's own account.
func (s *scope) addresses(ctx context.Context) ([]string, error) {
	var slices discoveryv1.EndpointSliceList
	err := s.reader.List(ctx, &slices, client.InNamespace(s.server.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: s.server.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the endpoints of Service %s: %w", s.server.Name, err)
	}
	var addresses []string
	for _, slice := range slices.Items {
		addresses = append(addresses, addressesOf(slice)...)
	}
	return addresses, nil
}

// addressesOf takes the port from the slice: while a change of it is rolled out, the pods of the
// earlier version still listen on the old one, and that is where the Service leads to.
func addressesOf(slice discoveryv1.EndpointSlice) []string {
	var addresses []string
	for _, port := range slice.Ports {
		if port.Port == nil || port.Name == nil || *port.Name != portName {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready || len(endpoint.Addresses) == 0 {
				continue
			}
			addresses = append(addresses, net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*port.Port))))
		}
	}
	return addresses
}

func (s *scope) secretKey(ctx context.Context, name, key string) ([]byte, error) {
	var secret corev1.Secret
	if err := s.uncached.Get(ctx, client.ObjectKey{Namespace: s.server.Namespace, Name: name}, &secret); err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return secret.Data[key], nil
}

// bundle is what the server's certificate is checked against.
func (s *scope) bundle(ctx context.Context, ref *v1alpha1.MCPServerCARef) ([]byte, error) {
	if caKind(ref) == v1alpha1.CAKindSecret {
		return s.secretKey(ctx, ref.Name, caKey(ref))
	}
	var configMap corev1.ConfigMap
	if err := s.uncached.Get(ctx, client.ObjectKey{Namespace: s.server.Namespace, Name: ref.Name}, &configMap); err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", ref.Name, err)
	}
	return []byte(configMap.Data[caKey(ref)]), nil
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

// endpointOf is where clients within the cluster reach the server.
func endpointOf(server *v1alpha1.MCPServer) string {
	scheme := "http"
	if server.Spec.Protocol.TLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s.%s.svc:%d%s", scheme, server.Name, server.Namespace, server.Spec.Port, pathOf(server))
}
