package mcpserver

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

// Timings of the default probes.
const (
	startupPeriod, startupFailures = 2, 60
	probePeriod, probeFailures     = 10, 3
	probeTimeout                   = 2
)

// withProbes sets what the kubelet asks. By default that is whether somebody listens on the port:
// what the protocol's path answers to a stranger differs from server to server. The bridge has
// endpoints of its own. Liveness is not asked by default: a server that is busy is not dead, and
// killing it ends its sessions.
func withProbes(container *corev1ac.ContainerApplyConfiguration, server *v1alpha1.MCPServer) {
	given := server.Spec.Probes
	if given == nil {
		given = &v1alpha1.MCPServerProbes{}
	}
	listens := corev1ac.Probe().WithTCPSocket(corev1ac.TCPSocketAction().WithPort(intstr.FromString(portName)))
	ready, alive := listens, (*corev1ac.ProbeApplyConfiguration)(nil)
	if isStdio(server) {
		ready, alive = httpProbe("/readyz", intstr.FromString(portName)), httpProbe("/healthz", intstr.FromString(portName))
	}
	if probe := probeOf(server, given.Startup, copyProbe(ready), startupPeriod, startupFailures); probe != nil {
		container.WithStartupProbe(probe)
	}
	if probe := probeOf(server, given.Readiness, copyProbe(ready), probePeriod, probeFailures); probe != nil {
		container.WithReadinessProbe(probe)
	}
	if probe := probeOf(server, given.Liveness, alive, probePeriod, probeFailures); probe != nil {
		container.WithLivenessProbe(probe)
	}
}

func copyProbe(p *corev1ac.ProbeApplyConfiguration) *corev1ac.ProbeApplyConfiguration {
	clone := *p
	return &clone
}

func httpProbe(path string, port intstr.IntOrString) *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().WithHTTPGet(corev1ac.HTTPGetAction().WithPath(path).WithPort(port))
}

// speaks is the scheme of an HTTP probe: on the port of the server it is the server's, and nothing is
// known of others.
func speaks(server *v1alpha1.MCPServer, port *int32) corev1.URIScheme {
	if server.Spec.Protocol.TLS && (port == nil || *port == server.Spec.Port) {
		return corev1.URISchemeHTTPS
	}
	return ""
}

// probeOf lays what the spec says over the default; nil is no probe.
func probeOf(server *v1alpha1.MCPServer, given *v1alpha1.MCPServerProbe, probe *corev1ac.ProbeApplyConfiguration, period, failures int32) *corev1ac.ProbeApplyConfiguration {
	if given == nil {
		given = &v1alpha1.MCPServerProbe{}
	}
	port := intstr.FromString(portName)
	if given.Port != nil {
		port = intstr.FromInt32(*given.Port)
	}
	switch given.Type {
	case v1alpha1.ProbeOff:
		return nil
	case v1alpha1.ProbeHTTP:
		probe = httpProbe(given.Path, port)
		if scheme := speaks(server, given.Port); scheme != "" {
			probe.HTTPGet.WithScheme(scheme)
		}
	case v1alpha1.ProbeTCP:
		probe = corev1ac.Probe().WithTCPSocket(corev1ac.TCPSocketAction().WithPort(port))
	}
	if probe == nil {
		return nil
	}
	return probe.
		WithInitialDelaySeconds(or(given.InitialDelaySeconds, 0)).
		WithPeriodSeconds(or(given.PeriodSeconds, period)).
		WithTimeoutSeconds(or(given.TimeoutSeconds, probeTimeout)).
		WithFailureThreshold(or(given.FailureThreshold, failures))
}

func or(value *int32, otherwise int32) int32 {
	if value == nil {
		return otherwise
	}
	return *value
}
