package ssa

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
)

// Configuration is a typed apply configuration: those of k8s.io/client-go/applyconfigurations and
// those that controller-gen and applyconfiguration-gen generate are all of this form.
type Configuration interface {
	runtime.ApplyConfiguration
	GetName() *string
	GetNamespace() *string
	GetKind() *string
	GetAPIVersion() *string
}

// identity is what a configuration is about.
type identity struct {
	gvk schema.GroupVersionKind
	key types.NamespacedName
}

func (id identity) String() string {
	if id.key.Namespace == "" {
		return id.gvk.Kind + " " + id.key.Name
	}
	return id.gvk.Kind + " " + id.key.String()
}

func identityOf(c Configuration) (identity, error) {
	if c == nil || reflect.ValueOf(c).Kind() != reflect.Pointer || reflect.ValueOf(c).IsNil() {
		return identity{}, errors.New("the apply configuration is nil: build it with its constructor, such as appsv1.Deployment(name, namespace)")
	}
	kind, apiVersion, name := c.GetKind(), c.GetAPIVersion(), c.GetName()
	if kind == nil || *kind == "" || apiVersion == nil || *apiVersion == "" {
		return identity{}, fmt.Errorf("the apply configuration %T has no kind or apiVersion: build it with its constructor", c)
	}
	if name == nil || *name == "" {
		return identity{}, fmt.Errorf("the apply configuration %T (%s) has no metadata.name: Server-Side Apply needs one", c, *kind)
	}
	gv, err := schema.ParseGroupVersion(*apiVersion)
	if err != nil {
		return identity{}, fmt.Errorf("parsing the apiVersion of the apply configuration %T: %w", c, err)
	}
	id := identity{gvk: gv.WithKind(*kind), key: types.NamespacedName{Name: *name}}
	if namespace := c.GetNamespace(); namespace != nil {
		id.key.Namespace = *namespace
	}
	return id, nil
}

// metadataOf returns the metadata of a configuration, made if it is not there. Generated
// configurations embed it under this name and offer no common interface for it.
func metadataOf(c Configuration) (*metav1ac.ObjectMetaApplyConfiguration, error) {
	field := reflect.ValueOf(c).Elem().FieldByName("ObjectMetaApplyConfiguration")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*metav1ac.ObjectMetaApplyConfiguration]() {
		return nil, fmt.Errorf("%T embeds no *ObjectMetaApplyConfiguration: it is not a generated apply configuration", c)
	}
	if field.IsNil() {
		field.Set(reflect.ValueOf(&metav1ac.ObjectMetaApplyConfiguration{}))
	}
	meta, _ := field.Interface().(*metav1ac.ObjectMetaApplyConfiguration)
	return meta, nil
}

// setController makes owner the controller in the configuration's owner references, in place.
// An object has one controller at most, so a configuration that names another is refused.
func setController(meta *metav1ac.ObjectMetaApplyConfiguration, owner metav1.OwnerReference) error {
	reference := metav1ac.OwnerReference().
		WithAPIVersion(owner.APIVersion).
		WithKind(owner.Kind).
		WithName(owner.Name).
		WithUID(owner.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
	meta.OwnerReferences = slices.DeleteFunc(meta.OwnerReferences, func(r metav1ac.OwnerReferenceApplyConfiguration) bool {
		return r.UID != nil && *r.UID == owner.UID
	})
	for _, r := range meta.OwnerReferences {
		if r.Controller != nil && *r.Controller {
			return fmt.Errorf("its owner references name a controller beside the owner of the request, %s %s: name only one", owner.Kind, owner.Name)
		}
	}
	meta.OwnerReferences = append(meta.OwnerReferences, *reference)
	return nil
}

// preconditions are the fields of a request that bind it to one object and are never owned.
type preconditions struct {
	// uid is the object that the writer believes in; the server refuses to apply to another or
	// to create one anew.
	uid types.UID
	// resourceVersion is the version that the writer judged, where it must not have moved.
	resourceVersion string
}

// neverExisting is a resourceVersion that no object has: etcd's first revision is spent before
// the first object is written. The API server compares a resourceVersion on update and ignores
// it on create, so an apply that carries this one creates or fails, and never touches what is there.
const neverExisting = "1"

// body is the request body for a configuration: a shallow copy with the annotation and the
// preconditions added, so that the caller's value stays as it is.
func body(c Configuration, annotationKey, annotation string, pre preconditions) ([]byte, error) {
	original := reflect.ValueOf(c).Elem()
	copied := reflect.New(original.Type())
	copied.Elem().Set(original)
	clone, _ := copied.Interface().(Configuration)

	meta, err := metadataOf(clone)
	if err != nil {
		return nil, err
	}
	metaCopy := *meta
	if annotationKey != "" {
		metaCopy.Annotations = maps.Clone(meta.Annotations)
		metaCopy.WithAnnotations(map[string]string{annotationKey: annotation})
	}
	if pre.uid != "" {
		metaCopy.WithUID(pre.uid)
	}
	if pre.resourceVersion != "" {
		metaCopy.WithResourceVersion(pre.resourceVersion)
	}
	copied.Elem().FieldByName("ObjectMetaApplyConfiguration").Set(reflect.ValueOf(&metaCopy))

	raw, err := json.Marshal(clone)
	if err != nil {
		return nil, fmt.Errorf("serialising the apply configuration %T: %w", c, err)
	}
	return raw, nil
}
