package harness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

var scheme = controllers.NewScheme()

// Phase is what the suites need to know of a phase.
type Phase struct {
	// Name such as Deployment.
	Name string
	// Kind of the child, or "" for a phase that has none.
	Kind  string
	child client.Object
}

// Condition is the type of the phase's condition.
func (p Phase) Condition() string { return p.Name + "Ready" }

// NewChild is an empty object of the child's type.
func (p Phase) NewChild() client.Object { return clone(p.child) }

// Phases are those of a controller, in their order.
func Phases(controller string) []Phase {
	switch controller {
	case appservice.Name:
		return describe(appservice.Phases())
	case mcpserver.Name:
		return describe(mcpserver.Phases())
	case securestorage.Name:
		return describe(securestorage.Phases())
	}
	panic(fmt.Sprintf("the phases of the controller %q are not known: add them here", controller))
}

func describe[S any](list []phases.Phase[S]) []Phase {
	var described []Phase
	for _, phase := range list {
		declaration, err := phase.Declare(scheme)
		if err != nil {
			panic(fmt.Sprintf("declaring phase %s: %v", phase.PhaseName(), err)) // phases.New would fail too
		}
		p := Phase{Name: phase.PhaseName(), child: declaration.Child}
		if p.child != nil {
			p.Kind = kindOf(p.child).Kind
		}
		described = append(described, p)
	}
	return described
}

func kindOf(object runtime.Object) schema.GroupVersionKind {
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		panic(fmt.Sprintf("finding the kind of %T: %v", object, err)) // the scheme is the manager's
	}
	return kind
}

// Children are the phases of a controller that have a child.
func Children(controller string) []Phase {
	return slices.DeleteFunc(Phases(controller), func(p Phase) bool { return p.child == nil })
}

// ChildKinds are the kinds of a controller's children, with a function that returns an empty object.
func ChildKinds(controller string) map[string]func() client.Object {
	kinds := map[string]func() client.Object{}
	for _, p := range Children(controller) {
		kinds[p.Kind] = p.NewChild
	}
	return kinds
}

// DeletionOrder names the resources of a controller's children in the order in which they are deleted with
// their owner: the reverse of the order of the phases.
func (s *Suite) DeletionOrder(controller string) ([]string, error) {
	var order []string
	for _, p := range slices.Backward(Children(controller)) {
		kind := kindOf(p.child)
		mapping, err := s.API.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, fmt.Errorf("finding the resource of %s: %w", kind, err)
		}
		order = append(order, mapping.Resource.Resource)
	}
	return order, nil
}

// ChildLists are empty lists of the kinds of all controllers' children, each once.
func ChildLists() []client.ObjectList {
	lists := map[schema.GroupVersionKind]client.ObjectList{}
	for _, controller := range controllers.Names() {
		for _, p := range Children(controller) {
			kind := kindOf(p.child)
			lists[kind] = newList(kind)
		}
	}
	return sortedLists(lists)
}

// KindLists are empty lists of the project's own kinds.
func KindLists() []client.ObjectList {
	lists := map[schema.GroupVersionKind]client.ObjectList{}
	for name := range scheme.KnownTypes(v1beta1.SchemeGroupVersion) {
		kind := v1beta1.SchemeGroupVersion.WithKind(name)
		if scheme.Recognizes(v1beta1.SchemeGroupVersion.WithKind(name + "List")) {
			lists[kind] = newList(kind)
		}
	}
	return sortedLists(lists)
}

func newList(kind schema.GroupVersionKind) client.ObjectList {
	object, err := scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		panic(fmt.Sprintf("the scheme has no list of %s: %v", kind, err))
	}
	list, ok := object.(client.ObjectList)
	if !ok {
		panic(fmt.Sprintf("%T is no list", object))
	}
	return list
}

func sortedLists(lists map[schema.GroupVersionKind]client.ObjectList) []client.ObjectList {
	var sorted []client.ObjectList
	for _, kind := range slices.SortedFunc(maps.Keys(lists), func(a, b schema.GroupVersionKind) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind))
	}) {
		sorted = append(sorted, lists[kind])
	}
	return sorted
}
