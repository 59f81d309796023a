package faults

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// The kinds that Fixpoint reconciles.
const (
	AppService    = "AppService"
	MCPServer     = "MCPServer"
	SecureStorage = "SecureStorage"
)

// Kinds lists the kinds that Fixpoint reconciles.
var Kinds = []string{AppService, MCPServer, SecureStorage}

// childKinds are the kinds of the children in this package's cluster. It does not have the Gateway API.
var childKinds = func() []schema.GroupVersionKind {
	kinds := slices.Concat(childrenOf(appservice.Phases()), childrenOf(mcpserver.Phases()), childrenOf(securestorage.Phases()))
	var unique []schema.GroupVersionKind
	for _, kind := range kinds {
		if kind.Group != "gateway.networking.k8s.io" && !slices.Contains(unique, kind) {
			unique = append(unique, kind)
		}
	}
	return unique
}()

// childrenOf returns the kinds of the children of phases.
func childrenOf[S any](list []phases.Phase[S]) []schema.GroupVersionKind {
	scheme := controllers.NewScheme()
	var kinds []schema.GroupVersionKind
	for _, phase := range list {
		declaration, err := phase.Declare(scheme)
		if err != nil {
			panic(fmt.Sprintf("declaring phase %s: %v", phase.PhaseName(), err)) // phases.New would fail too
		}
		if declaration.Child == nil {
			continue
		}
		kind, err := apiutil.GVKForObject(declaration.Child, scheme)
		if err != nil {
			panic(fmt.Sprintf("finding the kind of %T: %v", declaration.Child, err)) // the scheme is the manager's
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// IsChildKind reports whether managers create objects of the kind.
func IsChildKind(kind string) bool {
	return slices.ContainsFunc(childKinds, func(child schema.GroupVersionKind) bool { return child.Kind == kind })
}

// watchedKinds are the kinds whose versions the history records: every namespaced kind that managers cache.
// TestHistoryRecordsEveryCachedKind notices a missing one.
var watchedKinds = slices.Concat([]schema.GroupVersionKind{
	v1beta1.SchemeGroupVersion.WithKind(AppService),
	v1beta1.SchemeGroupVersion.WithKind(MCPServer),
	v1beta1.SchemeGroupVersion.WithKind(SecureStorage),
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Group: "discovery.k8s.io", Version: "v1", Kind: endpointSlice},
	{Group: "batch", Version: "v1", Kind: "Job"}, // of a hook: no child, since it is not kept as declared
}, childKinds)

// ResourceOf returns the resource of a watched kind, such as deployments, or an empty string.
func ResourceOf(kind string) string {
	for _, watched := range watchedKinds {
		if watched.Kind == kind {
			resource, _ := meta.UnsafeGuessKindToResource(watched)
			return resource.Resource
		}
	}
	return ""
}

// WatchedResources returns the resources of the watched kinds.
func WatchedResources() []string {
	var all []string
	for _, kind := range watchedKinds {
		all = append(all, ResourceOf(kind.Kind))
	}
	return all
}

// PhaseNames returns the phases of a kind that run in this package's cluster. It does not have the Gateway API.
func PhaseNames(kind string) []string {
	switch kind {
	case AppService:
		return namesOf(appservice.Phases())
	case MCPServer:
		return slices.DeleteFunc(namesOf(mcpserver.Phases()), func(name string) bool { return name == "Route" })
	case SecureStorage:
		return namesOf(securestorage.Phases())
	default:
		return nil
	}
}

func namesOf[S any](list []phases.Phase[S]) []string {
	var names []string
	for _, phase := range list {
		names = append(names, phase.PhaseName())
	}
	return names
}

// endpointSlice is the one watched kind that managers never write.
const endpointSlice = "EndpointSlice"

// isOwnerKind reports whether Fixpoint reconciles the kind.
func isOwnerKind(kind string) bool {
	return slices.Contains(Kinds, kind)
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
