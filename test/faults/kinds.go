package faults

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

// The kinds that Fixpoint reconciles.
const (
	AppService    = "AppService"
	MCPServer     = "MCPServer"
	SecureStorage = "SecureStorage"
)

// watchedKinds are the kinds whose versions the history records.
var watchedKinds = []schema.GroupVersionKind{
	v1alpha1.SchemeGroupVersion.WithKind(AppService),
	v1alpha1.SchemeGroupVersion.WithKind(MCPServer),
	v1alpha1.SchemeGroupVersion.WithKind(SecureStorage),
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Group: "discovery.k8s.io", Version: "v1", Kind: endpointSlice},
}

// resourceNames maps kinds to their resources.
var resourceNames = map[string]string{
	AppService: "appservices", MCPServer: "mcpservers", SecureStorage: "securestorages",
	"ConfigMap": "configmaps", "Secret": "secrets", "Service": "services", "ServiceAccount": "serviceaccounts",
	"Deployment": "deployments", "HorizontalPodAutoscaler": "horizontalpodautoscalers",
	"PodDisruptionBudget": "poddisruptionbudgets", "Ingress": "ingresses", "NetworkPolicy": "networkpolicies",
	endpointSlice: "endpointslices",
}

// ResourceOf returns the resource of a kind, such as deployments.
func ResourceOf(kind string) string { return resourceNames[kind] }

// endpointSlice is the one watched kind that managers never write.
const endpointSlice = "EndpointSlice"

// isOwnerKind reports whether Fixpoint reconciles the kind.
func isOwnerKind(kind string) bool {
	return kind == AppService || kind == MCPServer || kind == SecureStorage
}

// ID identifies an object in an environment.
type ID struct{ Kind, Name string }

// String returns, for example, "Deployment/web".
func (id ID) String() string { return id.Kind + "/" + id.Name }

func idOf(object *unstructured.Unstructured) ID {
	return ID{Kind: object.GetKind(), Name: object.GetName()}
}

// controllersOf returns the names of the controllers, as in the manager's flags.
func controllersOf(kinds []string) []string {
	var names []string
	for _, kind := range kinds {
		names = append(names, strings.ToLower(kind))
	}
	return names
}
