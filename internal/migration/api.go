package migration

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1ac "k8s.io/apiextensions-apiserver/pkg/client/applyconfiguration/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// client implements [API].
type client struct {
	definitions apiextensionsclient.CustomResourceDefinitionInterface
	metadata    metadata.Interface
	objects     dynamic.Interface
}

// NewAPI returns the API of an API server. Objects in namespaces of other releases are migrated as well, so the config
// must not depend on claims of namespaces.
func NewAPI(cfg *rest.Config) (API, error) {
	extensions, err := apiextensionsclient.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for CustomResourceDefinitions: %w", err)
	}
	lists, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for metadata: %w", err)
	}
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for objects: %w", err)
	}
	return &client{definitions: extensions.CustomResourceDefinitions(), metadata: lists, objects: objects}, nil
}

func (k Kind) definition() string { return k.Resource + "." + k.Group }

// Definition implements [API].
func (c *client) Definition(ctx context.Context, kind Kind) (*apiextensionsv1.CustomResourceDefinition, error) {
	return c.definitions.Get(ctx, kind.definition(), metav1.GetOptions{})
}

// List implements [API].
func (c *client) List(ctx context.Context, kind Kind, from string, limit int64) (*metav1.PartialObjectMetadataList, error) {
	return c.metadata.Resource(kind.GroupVersion().WithResource(kind.Resource)).List(ctx, metav1.ListOptions{Limit: limit, Continue: from})
}

// Apply implements [API].
func (c *client) Apply(ctx context.Context, kind Kind, configuration *unstructured.Unstructured, manager string) error {
	_, err := c.objects.Resource(kind.GroupVersion().WithResource(kind.Resource)).Namespace(configuration.GetNamespace()).
		Apply(ctx, configuration.GetName(), configuration, metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}

// SetStoredVersion implements [API].
func (c *client) SetStoredVersion(ctx context.Context, kind Kind, resourceVersion string) error {
	desired := apiextensionsv1ac.CustomResourceDefinition(kind.definition()).WithResourceVersion(resourceVersion).
		WithStatus(apiextensionsv1ac.CustomResourceDefinitionStatus().WithStoredVersions(kind.Version))
	_, err := c.definitions.ApplyStatus(ctx, desired, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// SetCondition implements [API].
func (c *client) SetCondition(ctx context.Context, kind Kind, condition apiextensionsv1.CustomResourceDefinitionCondition) error {
	desired := apiextensionsv1ac.CustomResourceDefinition(kind.definition()).
		WithStatus(apiextensionsv1ac.CustomResourceDefinitionStatus().WithConditions(
			apiextensionsv1ac.CustomResourceDefinitionCondition().WithType(condition.Type).WithStatus(condition.Status).
				WithReason(condition.Reason).WithMessage(condition.Message).WithLastTransitionTime(condition.LastTransitionTime)))
	// An apply without the stored versions would remove them, if the field manager held them.
	_, err := c.definitions.ApplyStatus(ctx, desired, metav1.ApplyOptions{FieldManager: conditionManager, Force: true})
	return err
}

// RemoveCondition implements [API].
func (c *client) RemoveCondition(ctx context.Context, kind Kind) error {
	desired := apiextensionsv1ac.CustomResourceDefinition(kind.definition())
	_, err := c.definitions.ApplyStatus(ctx, desired, metav1.ApplyOptions{FieldManager: conditionManager, Force: true})
	return err
}
