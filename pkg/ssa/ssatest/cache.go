package ssatest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Cache reads as the cache of a manager does. It follows the Server at once, unless it is frozen.
type Cache struct {
	server *Server
	frozen objects
}

// Cache returns a new cache of all objects.
func (s *Server) Cache() *Cache { return &Cache{server: s} }

// Freeze keeps the cache at what it shows now, as a watch that lags does.
func (c *Cache) Freeze() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.frozen = maps.Clone(c.shown())
}

// Thaw lets the cache follow the Server again.
func (c *Cache) Thaw() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.frozen = nil
}

func (c *Cache) shown() objects {
	if c.frozen != nil {
		return c.frozen
	}
	return c.server.objects
}

// Get implements client.Reader.
func (c *Cache) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return c.server.get(key, into, true, c.shown)
}

// List implements client.Reader. Field selectors need an index, see [Server.IndexField].
func (c *Cache) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return c.server.list(into, true, c.shown, opts)
}

type indexKey struct {
	kind  schema.GroupKind
	field string
}

// IndexField implements client.FieldIndexer for all caches.
func (s *Server) IndexField(_ context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	kind, err := apiutil.GVKForObject(object, s.scheme)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexes[indexKey{kind.GroupKind(), field}] = extract
	return nil
}

func (s *Server) get(key client.ObjectKey, into client.Object, cached bool, shown func() objects) error {
	kind, err := apiutil.GVKForObject(into, s.scheme)
	if err != nil {
		return err
	}
	call := Call{Verb: "get", Kind: kind, Key: key, Cached: cached}
	return s.carryOut(call, func() error {
		object, ok := shown()[keyOf(kind, key)]
		if !ok {
			return apierrors.NewNotFound(call.resource(), key.Name)
		}
		return s.decode(object, into)
	})
}

func (s *Server) list(into client.ObjectList, cached bool, shown func() objects, opts []client.ListOption) error {
	kind, err := apiutil.GVKForObject(into, s.scheme)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	options := (&client.ListOptions{}).ApplyOptions(opts)
	call := Call{Verb: "list", Kind: kind, Key: client.ObjectKey{Namespace: options.Namespace}, Cached: cached}
	return s.carryOut(call, func() error {
		var items []runtime.Object
		from := shown()
		for _, key := range from.in(kind.GroupKind(), options.Namespace) {
			item, err := s.newItem(from[key], kind)
			if err != nil {
				return err
			}
			selected, err := s.selects(options, item, kind, cached)
			if err != nil {
				return err
			}
			if selected {
				items = append(items, item)
			}
		}
		into.SetResourceVersion(strconv.Itoa(s.version))
		return meta.SetList(into, items)
	})
}

func (s *Server) newItem(stored *unstructured.Unstructured, kind schema.GroupVersionKind) (client.Object, error) {
	created, err := s.scheme.New(kind)
	if err != nil {
		return nil, err
	}
	item, ok := created.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not an object with metadata", created)
	}
	return item, s.decode(stored, item)
}

func (s *Server) selects(options *client.ListOptions, item client.Object, kind schema.GroupVersionKind, cached bool) (bool, error) {
	if options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(item.GetLabels())) {
		return false, nil
	}
	if options.FieldSelector == nil {
		return true, nil
	}
	for _, requirement := range options.FieldSelector.Requirements() {
		values, err := s.valuesOf(requirement, item, kind, cached)
		if err != nil || !slices.Contains(values, requirement.Value) {
			return false, err
		}
	}
	return true, nil
}

func (s *Server) valuesOf(requirement fields.Requirement, item client.Object, kind schema.GroupVersionKind, cached bool) ([]string, error) {
	extract, indexed := s.indexes[indexKey{kind.GroupKind(), requirement.Field}]
	switch {
	case cached && indexed:
		return extract(item), nil
	case cached:
		return nil, fmt.Errorf("Index with name field:%s does not exist", requirement.Field)
	case requirement.Field == "metadata.name":
		return []string{item.GetName()}, nil
	default:
		return nil, apierrors.NewBadRequest("field label not supported: " + requirement.Field)
	}
}
