package mcpserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// networkPolicy is the NetworkPolicy from spec.networkPolicy.
var networkPolicy = phases.Child[*scope, *networkingv1ac.NetworkPolicyApplyConfiguration, *networkingv1.NetworkPolicy]{
	Name: "NetworkPolicy",
	Desired: func(s *scope) (*networkingv1ac.NetworkPolicyApplyConfiguration, error) {
		return desiredNetworkPolicy(s.server, s.settings), nil
	},
	Health: func(*networkingv1.NetworkPolicy) phases.Verdict { return phases.Done(policyApplied) },
	Ready: func(_ context.Context, s *scope, _ *networkingv1.NetworkPolicy) phases.Verdict {
		if restrictsProbes(s.server) && s.settings.ManagerNamespace == "" {
			return phases.Done(policyApplied + "; the manager probes the pods but does not know its own namespace: add the manager to spec.networkPolicy.ingress.from, or start it with --pod-namespace")
		}
		return phases.Done(policyApplied)
	},
}

const policyApplied = "NetworkPolicy applied; enforcement requires a network plugin that supports it"

// restrictsProbes reports whether the policy would block the probes of the manager.
func restrictsProbes(server *v1beta1.MCPServer) bool {
	return server.Spec.Protocol.Probe != v1beta1.ProbeDisabled && server.Spec.NetworkPolicy != nil && server.Spec.NetworkPolicy.Ingress != nil
}

// managerPeer selects the pods of the manager.
func managerPeer(settings Settings) *networkingv1ac.NetworkPolicyPeerApplyConfiguration {
	peer := networkingv1ac.NetworkPolicyPeer().WithNamespaceSelector(
		metav1ac.LabelSelector().WithMatchLabels(map[string]string{corev1.LabelMetadataName: settings.ManagerNamespace}))
	if len(settings.ManagerLabels) > 0 {
		peer.WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(settings.ManagerLabels))
	}
	return peer
}

const dnsPort = 53

func desiredNetworkPolicy(server *v1beta1.MCPServer, settings Settings) *networkingv1ac.NetworkPolicyApplyConfiguration {
	policy := server.Spec.NetworkPolicy
	if policy == nil {
		return nil
	}
	spec := networkingv1ac.NetworkPolicySpec().
		WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(selectorOf(server)))
	if policy.Ingress != nil {
		spec.WithPolicyTypes(networkingv1.PolicyTypeIngress)
		peers := peersOf(policy.Ingress.From)
		if restrictsProbes(server) && settings.ManagerNamespace != "" {
			peers = append(peers, managerPeer(settings))
		}
		// A rule without peers would allow all traffic. The port is given by name, because during a
		// rollout that changes the port old pods still listen on the old one.
		if len(peers) > 0 {
			spec.WithIngress(networkingv1ac.NetworkPolicyIngressRule().WithFrom(peers...).
				WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromString(portName))))
		}
	}
	if policy.Egress != nil {
		spec.WithPolicyTypes(networkingv1.PolicyTypeEgress)
		withEgress(spec, policy.Egress)
	}
	admitPeers(spec, server)
	return networkingv1ac.NetworkPolicy(server.Name, server.Namespace).WithLabels(labelsOf(server)).WithSpec(spec)
}

func withEgress(spec *networkingv1ac.NetworkPolicySpecApplyConfiguration, egress *v1beta1.MCPServerNetworkEgress) {
	if egress.DNS != v1beta1.DNSDenied {
		spec.WithEgress(networkingv1ac.NetworkPolicyEgressRule().WithPorts(
			portRule(corev1.ProtocolUDP, dnsPort, nil), portRule(corev1.ProtocolTCP, dnsPort, nil)))
	}
	for _, rule := range egress.Rules {
		allowed := networkingv1ac.NetworkPolicyEgressRule().WithTo(peersOf(rule.To)...)
		for _, port := range rule.Ports {
			protocol := corev1.ProtocolTCP
			if port.Protocol != "" {
				protocol = corev1.Protocol(port.Protocol)
			}
			allowed.WithPorts(portRule(protocol, port.Port, port.EndPort))
		}
		spec.WithEgress(allowed)
	}
}

func peersOf(peers []networkingv1.NetworkPolicyPeer) []*networkingv1ac.NetworkPolicyPeerApplyConfiguration {
	configurations := make([]*networkingv1ac.NetworkPolicyPeerApplyConfiguration, 0, len(peers))
	for i := range peers {
		configurations = append(configurations, workload.MustConvert(peers[i], networkingv1ac.NetworkPolicyPeer()))
	}
	return configurations
}

func portRule(protocol corev1.Protocol, port int32, end *int32) *networkingv1ac.NetworkPolicyPortApplyConfiguration {
	rule := networkingv1ac.NetworkPolicyPort().WithProtocol(protocol).WithPort(intstr.FromInt32(port))
	if end != nil {
		rule.WithEndPort(*end)
	}
	return rule
}
