package ssa

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Configuration is a typed apply configuration: a pointer to a struct that embeds metav1ac.TypeMetaApplyConfiguration
// and *metav1ac.ObjectMetaApplyConfiguration, as those of client-go and of the generators do.
type Configuration interface {
	runtime.ApplyConfiguration
	GetName() *string
	GetNamespace() *string
	GetKind() *string
	GetAPIVersion() *string
}

type statusConfiguration[S any] struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`
	Status                                 S `json:"status"`
}

// IsApplyConfiguration implements [Configuration].
func (statusConfiguration[S]) IsApplyConfiguration() {}

// StatusOf builds the configuration that [Applier.ApplyStatus] takes, for kinds without generated
// apply configurations. Fields that the status leaves unset should have omitempty, or else they become managed.
func StatusOf[S any](object client.Object, kind schema.GroupVersionKind, status S) Configuration {
	c := &statusConfiguration[S]{ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName(object.GetName()), Status: status}
	c.WithKind(kind.Kind).WithAPIVersion(kind.GroupVersion().String())
	if object.GetNamespace() != "" {
		c.WithNamespace(object.GetNamespace())
	}
	return c
}

// identity is what a configuration is about.
type identity struct {
	gvk schema.GroupVersionKind
	key types.NamespacedName
}

func (id identity) apiVersion() string { return id.gvk.GroupVersion().String() }

func (id identity) String() string {
	if id.key.Namespace == "" {
		return id.gvk.Kind + " " + id.key.Name
	}
	return id.gvk.Kind + " " + id.key.String()
}

// identityOf checks a configuration, and returns what it is about and its metadata, which it creates if none exists.
func identityOf(c Configuration) (identity, *metav1ac.ObjectMetaApplyConfiguration, error) {
	if reflect.ValueOf(c).Kind() != reflect.Pointer || reflect.ValueOf(c).IsNil() {
		return identity{}, nil, errors.New("the apply configuration is nil: build it with its constructor, such as appsv1.Deployment(name, namespace)")
	}
	// Configurations embed their metadata under this name, without a common interface.
	field := reflect.ValueOf(c).Elem().FieldByName("ObjectMetaApplyConfiguration")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*metav1ac.ObjectMetaApplyConfiguration]() {
		return identity{}, nil, fmt.Errorf("%T does not embed *metav1ac.ObjectMetaApplyConfiguration", c)
	}
	if field.IsNil() {
		field.Set(reflect.ValueOf(metav1ac.ObjectMeta()))
	}
	meta, _ := field.Interface().(*metav1ac.ObjectMetaApplyConfiguration)
	kind, apiVersion, name := ptr.Deref(c.GetKind(), ""), ptr.Deref(c.GetAPIVersion(), ""), ptr.Deref(c.GetName(), "")
	if kind == "" || apiVersion == "" {
		return identity{}, nil, fmt.Errorf("the apply configuration %T has no kind or apiVersion: build it with its constructor", c)
	}
	if name == "" {
		return identity{}, nil, fmt.Errorf("the apply configuration %T (%s) has no metadata.name: Server-Side Apply needs one", c, kind)
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return identity{}, nil, fmt.Errorf("parsing the apiVersion of the apply configuration %T: %w", c, err)
	}
	return identity{gvk: gv.WithKind(kind), key: types.NamespacedName{Namespace: ptr.Deref(c.GetNamespace(), ""), Name: name}}, meta, nil
}

// setController makes owner the controller, in place. An object has at most one, so another is refused.
func setController(meta *metav1ac.ObjectMetaApplyConfiguration, owner metav1.OwnerReference) error {
	if owner.UID == "" {
		return errors.New("the owner has no UID: it must have been read from the API server")
	}
	meta.OwnerReferences = slices.DeleteFunc(meta.OwnerReferences, func(r metav1ac.OwnerReferenceApplyConfiguration) bool {
		return r.UID != nil && *r.UID == owner.UID
	})
	for _, r := range meta.OwnerReferences {
		if ptr.Deref(r.Controller, false) {
			return fmt.Errorf("its owner references name a controller beside the owner of the request, %s %s: name only one", owner.Kind, owner.Name)
		}
	}
	reference := metav1ac.OwnerReference().
		WithAPIVersion(owner.APIVersion).WithKind(owner.Kind).WithName(owner.Name).WithUID(owner.UID).WithController(true)
	reference.BlockOwnerDeletion = owner.BlockOwnerDeletion
	meta.WithOwnerReferences(reference)
	return nil
}
