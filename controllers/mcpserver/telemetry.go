package mcpserver

import (
	"cmp"
	"strconv"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/references"
)

const (
	otlpVolume = v1beta1.MCPReservedPrefix + "otlp"
	// otlpPath is not below MCPReservedPath, where a read-only volume is mounted.
	otlpPath = v1beta1.MCPReservedPath + "-otlp"
	// otlpFile is the file with the headers for the collector.
	otlpFile = "headers"
)

// telemetryArguments are the arguments of the proxy and the bridge for spec.telemetry.
func telemetryArguments(server *v1beta1.MCPServer) []string {
	telemetry := server.Spec.Telemetry
	if telemetry == nil {
		return nil
	}
	arguments := []string{"--server-name", server.Name, "--server-namespace", server.Namespace}
	if audit := telemetry.Audit; audit != nil {
		arguments = append(arguments, "--audit", string(cmp.Or(audit.Arguments, v1beta1.AuditDigest)))
	}
	otlp := telemetry.OTLP
	if otlp == nil {
		return arguments
	}
	arguments = append(arguments, "--otlp-endpoint", otlp.Endpoint)
	if otlp.HeadersSecretRef != nil {
		arguments = append(arguments, "--otlp-headers", otlpPath+"/"+otlpFile)
	}
	if otlp.SamplePercent != nil {
		arguments = append(arguments, "--otlp-sample-percent", strconv.Itoa(int(*otlp.SamplePercent)))
	}
	if isStdio(server) {
		arguments = append(arguments, "--otlp-ca", certificatesPath)
	}
	return arguments
}

// headersOf is the Secret with headers for the collector; nil if there is none.
func headersOf(server *v1beta1.MCPServer) *v1beta1.MCPServerHeadersSecretRef {
	if telemetry := server.Spec.Telemetry; telemetry != nil && telemetry.OTLP != nil {
		return telemetry.OTLP.HeadersSecretRef
	}
	return nil
}

// needsCertificates reports whether the bridge connects to hosts outside of the pod, for which the image of the server may
// have no CA certificates.
func needsCertificates(server *v1beta1.MCPServer) bool {
	return server.Spec.Authorization != nil || server.Spec.Telemetry != nil && server.Spec.Telemetry.OTLP != nil
}

func headersKey(ref *v1beta1.MCPServerHeadersSecretRef) string { return cmp.Or(ref.Key, "headers") }

// fromTelemetry are the references of spec.telemetry. They do not roll the pods, which read the headers again.
func fromTelemetry(server *v1beta1.MCPServer) []references.Reference {
	ref := headersOf(server)
	if ref == nil {
		return nil
	}
	return []references.Reference{{Kind: references.Secret, Name: ref.Name, Keys: []string{headersKey(ref)}}}
}

// withHeaders mounts the headers for the collector in the container that exports.
func withHeaders(pod *corev1ac.PodSpecApplyConfiguration, exports *corev1ac.ContainerApplyConfiguration, server *v1beta1.MCPServer) {
	ref := headersOf(server)
	if ref == nil {
		return
	}
	pod.WithVolumes(corev1ac.Volume().WithName(otlpVolume).WithSecret(corev1ac.SecretVolumeSource().WithSecretName(ref.Name).
		WithItems(corev1ac.KeyToPath().WithKey(headersKey(ref)).WithPath(otlpFile))))
	exports.WithVolumeMounts(corev1ac.VolumeMount().WithName(otlpVolume).WithMountPath(otlpPath).WithReadOnly(true))
}
