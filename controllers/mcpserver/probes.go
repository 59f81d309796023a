package mcpserver

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// Timings of the default probes.
const (
	startupPeriod, startupFailures = 2, 60
	probePeriod, probeFailures     = 10, 3
	probeTimeout                   = 2
)

// withProbes sets the probes of the kubelet. By default they check that the port accepts connections,
// because servers respond differently to requests without a session. The bridge has its own port for probes.
// There is no default liveness probe: restarting a busy server would end its sessions.
func withProbes(container *corev1ac.ContainerApplyConfiguration, server *v1beta1.MCPServer) {
	given := server.Spec.Probes
	if given == nil {
		given = &v1beta1.MCPServerProbes{}
	}
	ready := corev1ac.Probe().WithTCPSocket(corev1ac.TCPSocketAction().WithPort(intstr.FromString(portName)))
	alive := (*corev1ac.ProbeApplyConfiguration)(nil)
	switch {
	case hasProxy(server):
		// The server may listen only on localhost, where the proxy reaches it, and not the kubelet.
		ready = nil
	case isStdio(server):
		ready, alive = httpProbe("/readyz", intstr.FromString(bridgePortName)), httpProbe("/healthz", intstr.FromString(bridgePortName))
	}
	container.
		WithStartupProbe(probeOf(server, given.Startup, copyProbe(ready), startupPeriod, startupFailures)).
		WithReadinessProbe(probeOf(server, given.Readiness, copyProbe(ready), probePeriod, probeFailures)).
		WithLivenessProbe(probeOf(server, given.Liveness, alive, probePeriod, probeFailures))
}

func copyProbe(p *corev1ac.ProbeApplyConfiguration) *corev1ac.ProbeApplyConfiguration {
	if p == nil {
		return nil
	}
	clone := *p
	return &clone
}

func httpProbe(path string, port intstr.IntOrString) *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().WithHTTPGet(corev1ac.HTTPGetAction().WithPath(path).WithPort(port))
}

// probeScheme is the scheme of an HTTP probe: HTTPS on the port of a TLS server, else the default.
func probeScheme(server *v1beta1.MCPServer, port *int32) corev1.URIScheme {
	if server.Spec.Protocol.Scheme == v1beta1.SchemeHTTPS && (port == nil || *port == server.Spec.Port) {
		return corev1.URISchemeHTTPS
	}
	return ""
}

// probeOf merges the spec into the default probe; nil means no probe.
func probeOf(server *v1beta1.MCPServer, given *v1beta1.MCPServerProbe, probe *corev1ac.ProbeApplyConfiguration, period, failures int32) *corev1ac.ProbeApplyConfiguration {
	if given == nil {
		given = &v1beta1.MCPServerProbe{}
	}
	port := intstr.FromString(containerPortName(server))
	if given.Port != nil {
		port = intstr.FromInt32(*given.Port)
	}
	switch given.Type {
	case v1beta1.ProbeOff:
		return nil
	case v1beta1.ProbeHTTP:
		if isStdio(server) && given.Port == nil {
			port = intstr.FromString(bridgePortName) // the other port serves only MCP
		}
		probe = httpProbe(given.Path, port)
		if scheme := probeScheme(server, given.Port); scheme != "" {
			probe.HTTPGet.WithScheme(scheme)
		}
	case v1beta1.ProbeTCP:
		probe = corev1ac.Probe().WithTCPSocket(corev1ac.TCPSocketAction().WithPort(port))
	}
	if probe == nil {
		return nil
	}
	return probe.
		WithInitialDelaySeconds(ptr.Deref(given.InitialDelaySeconds, 0)).
		WithPeriodSeconds(ptr.Deref(given.PeriodSeconds, period)).
		WithTimeoutSeconds(ptr.Deref(given.TimeoutSeconds, probeTimeout)).
		WithFailureThreshold(ptr.Deref(given.FailureThreshold, failures))
}
