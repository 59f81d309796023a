package mcpserver

import (
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// FieldManager is the field manager of all applies. It must never change.
const FieldManager = "fixpoint-mcpserver"

// Finalizer blocks the deletion of an MCPServer until its children are deleted.
const Finalizer = "fixpoint.dev/teardown"

// Annotations of the pod template. A change of their values replaces the pods.
const (
	filesHashAnnotation        = "fixpoint.dev/files-hash"
	dependenciesHashAnnotation = "fixpoint.dev/dependencies-hash"
)

// Names within the pods. Mounts cannot use names with the reserved prefix.
const (
	containerName   = "server"
	portName        = "mcp"
	bridgePortName  = "bridge-metrics"
	peerPortName    = "mcp-peers"
	filesVolume     = v1beta1.MCPReservedPrefix + "files"
	bridgeVolume    = v1beta1.MCPReservedPrefix + "bridge"
	bridgeContainer = v1beta1.MCPReservedPrefix + "bridge"
	bridgeProgram   = v1beta1.MCPReservedPath + "/mcp-bridge"
)

func labelsOf(server *v1beta1.MCPServer) map[string]string {
	return map[string]string{workload.LabelName: server.Name, workload.LabelManagedBy: workload.ManagedBy, kindLabel: kindValue}
}

// EndpointLabels select the EndpointSlices of all MCPServers, which have the labels of their Services.
func EndpointLabels() map[string]string {
	return map[string]string{workload.LabelManagedBy: workload.ManagedBy, kindLabel: kindValue}
}

// The selector contains the kind, so that an AppService and an MCPServer of the same name do not select
// each other's pods.
const (
	kindLabel = "fixpoint.dev/kind"
	kindValue = "mcpserver"
)

// selectorOf selects the pods. It must never change, because the selector of a Deployment is immutable.
func selectorOf(server *v1beta1.MCPServer) map[string]string {
	return map[string]string{workload.LabelName: server.Name, kindLabel: kindValue}
}

// pathOf is the URL path of the server.
func pathOf(server *v1beta1.MCPServer) string {
	switch {
	case server.Spec.Path != "":
		return server.Spec.Path
	case server.Spec.Transport == v1beta1.TransportSSE:
		return v1beta1.MCPPathDefaultSSE
	default:
		return v1beta1.MCPPathDefault
	}
}

// isStdio reports whether the bridge serves HTTP for the server.
func isStdio(server *v1beta1.MCPServer) bool {
	return server.Spec.Transport == v1beta1.TransportStdio
}
