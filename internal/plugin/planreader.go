package plugin

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// planReader reads from the API server what a plan goes by. It stands in for the cache of a manager: it finds objects
// by their controller. Lists are read once, page by page, so that a plan for many objects costs one list of each kind.
type planReader struct {
	api client.Reader
	// fleet: the plan is for many objects. Single objects are then read from the lists too.
	fleet bool
	// namespace of the lists; empty is all.
	namespace string
	lists     map[schema.GroupVersionKind]*snapshot
}

// snapshot are all objects of one kind as they were listed.
type snapshot struct {
	all []client.Object
	// byKey and byController index the same objects.
	byKey        map[client.ObjectKey]client.Object
	byController map[string][]client.Object
}

func (s *snapshot) add(live client.Object) {
	s.all = append(s.all, live)
	s.byKey[client.ObjectKeyFromObject(live)] = live
	if owner := metav1.GetControllerOfNoCopy(live); owner != nil {
		s.byController[string(owner.UID)] = append(s.byController[string(owner.UID)], live)
	}
}

// Get implements [client.Reader].
func (r *planReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if !r.fleet || !isListed(into) {
		return r.api.Get(ctx, key, into)
	}
	gvk, err := listKindOf(into)
	if err != nil {
		return err
	}
	objects, err := r.list(ctx, gvk)
	if err != nil {
		return err
	}
	if live, ok := objects.byKey[key]; ok {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(live.DeepCopyObject()).Elem())
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
}

// List implements [client.Reader].
func (r *planReader) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	wanted := client.ListOptions{}
	wanted.ApplyOptions(options)
	controller, byController, err := controllerOf(wanted.FieldSelector)
	if err != nil {
		return err
	}
	if !byController && !r.fleet {
		return r.api.List(ctx, into, &client.ListOptions{Namespace: wanted.Namespace, LabelSelector: wanted.LabelSelector, Limit: wanted.Limit})
	}
	gvks, _, err := scheme.ObjectKinds(into)
	if err != nil {
		return fmt.Errorf("planning: %w", err)
	}
	objects, err := r.list(ctx, gvks[0])
	if err != nil {
		return err
	}
	candidates := objects.all
	if byController {
		candidates = objects.byController[controller]
	}
	items := []runtime.Object{}
	for _, live := range candidates {
		switch {
		case wanted.Namespace != "" && live.GetNamespace() != "" && live.GetNamespace() != wanted.Namespace:
		case wanted.LabelSelector != nil && !wanted.LabelSelector.Matches(labels.Set(live.GetLabels())):
		default:
			items = append(items, live.DeepCopyObject())
		}
	}
	return meta.SetList(into, items)
}

// list lists the objects of a kind, given that of its list, once.
func (r *planReader) list(ctx context.Context, kind schema.GroupVersionKind) (*snapshot, error) {
	if known, ok := r.lists[kind]; ok {
		return known, nil
	}
	empty, err := scheme.New(kind)
	if err != nil {
		return nil, fmt.Errorf("planning: %w", err)
	}
	list, ok := empty.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("planning: %T is not a list", empty)
	}
	found := &snapshot{byKey: map[client.ObjectKey]client.Object{}, byController: map[string][]client.Object{}}
	if err := listPages(ctx, r.api, list, found.add, client.InNamespace(r.namespace)); err != nil {
		return nil, err
	}
	if r.lists == nil {
		r.lists = map[schema.GroupVersionKind]*snapshot{}
	}
	r.lists[kind] = found
	return found, nil
}

// isListed is false for what is read one by one: metadata, and Secrets, which a plan does not read without need.
func isListed(o client.Object) bool {
	switch o.(type) {
	case *metav1.PartialObjectMetadata, *corev1.Secret:
		return false
	default:
		return true
	}
}

func listKindOf(o client.Object) (schema.GroupVersionKind, error) {
	gvks, _, err := scheme.ObjectKinds(o)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("planning: %w", err)
	}
	return gvks[0].GroupVersion().WithKind(gvks[0].Kind + "List"), nil
}

// controllerOf is the UID that a selector of the [ssa.ControllerIndex] names.
func controllerOf(selector fields.Selector) (uid string, ok bool, err error) {
	if selector == nil || selector.Empty() {
		return "", false, nil
	}
	if uid, ok := selector.RequiresExactMatch(ssa.ControllerIndex); ok {
		return uid, true, nil
	}
	return "", false, errors.New("planning: the field selector " + selector.String() + " is not supported")
}
