package mcpserver

import (
	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// FieldManager is the name under which everything is applied. It is stable for ever.
const FieldManager = "fixpoint-mcpserver"

// Finalizer keeps an MCPServer until its children are gone.
const Finalizer = "fixpoint.dev/teardown"

// Annotations of the pods' template: a change of what they stand for rolls the pods.
const (
	filesHashAnnotation        = "fixpoint.dev/files-hash"
	dependenciesHashAnnotation = "fixpoint.dev/dependencies-hash"
)

// Names within the pods. Those with the reserved prefix cannot be taken by mounts.
const (
	containerName   = "server"
	portName        = "mcp"
	filesVolume     = v1alpha1.MCPReservedPrefix + "files"
	bridgeVolume    = v1alpha1.MCPReservedPrefix + "bridge"
	bridgeContainer = v1alpha1.MCPReservedPrefix + "bridge"
	bridgeProgram   = v1alpha1.MCPReservedPath + "/mcp-bridge"
)

func labelsOf(server *v1alpha1.MCPServer) map[string]string {
	return map[string]string{workload.LabelName: server.Name, workload.LabelManagedBy: workload.ManagedBy, kindLabel: kindValue}
}

// The kind is among the labels of the selector, so that an AppService of the same name in the same
// namespace does not select our pods, nor we its.
const (
	kindLabel = "fixpoint.dev/kind"
	kindValue = "mcpserver"
)

// selectorOf finds the pods. A Deployment's selector never changes, so neither may this.
func selectorOf(server *v1alpha1.MCPServer) map[string]string {
	return map[string]string{workload.LabelName: server.Name, kindLabel: kindValue}
}

// pathOf is the path of the endpoint.
func pathOf(server *v1alpha1.MCPServer) string {
	switch {
	case server.Spec.Path != "":
		return server.Spec.Path
	case server.Spec.Transport == v1alpha1.TransportSSE:
		return v1alpha1.MCPPathDefaultSSE
	default:
		return v1alpha1.MCPPathDefault
	}
}

// isStdio says whether the bridge speaks for the server.
func isStdio(server *v1alpha1.MCPServer) bool {
	return server.Spec.Transport == v1alpha1.TransportStdio
}
