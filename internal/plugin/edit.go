package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/config/crd"
)

// editManager is the field manager of edits in the console.
const editManager = "fixpoint-console"

// Edit changes the spec of an object to that of a document, and returns the object as it is then. It applies the fields
// that differ and those that earlier edits have set, so that all others stay with their field managers. It refuses a
// document with another UID, resourceVersion or generation than the object has: another object, or changes made since, would
// be overwritten.
func (c *Client) Edit(ctx context.Context, resource string, document *unstructured.Unstructured, dryRun bool) (result *unstructured.Unstructured, err error) {
	err = unlessChanged(func() error {
		live, o, err := c.get(ctx, resource, document.GetNamespace(), document.GetName())
		if err == nil {
			result, err = c.edit(ctx, live, o, document, dryRun)
		}
		return err
	})
	return result, err
}

// unlessChanged makes a change, again if the object has changed meanwhile, such as its status.
func unlessChanged(change func() error) error {
	for attempt := 1; ; attempt++ {
		err := change()
		var changed *changedMeanwhile
		if !errors.As(err, &changed) {
			return err
		}
		if attempt == changeAttempts {
			return changed.error
		}
	}
}

// changeAttempts is how often a change is tried if the object changes meanwhile.
const changeAttempts = 5

// changedMeanwhile is the error of a change of an object that has changed since it was read.
type changedMeanwhile struct{ error }

// edit is one attempt of [Client.Edit].
func (c *Client) edit(ctx context.Context, live *unstructured.Unstructured, o object, document *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	// A document that was parsed has a float64.
	generation, _, _ := unstructured.NestedFieldNoCopy(document.Object, "metadata", "generation")
	if err := isAsRead(o, document.GetUID(), generation, "edit"); err != nil {
		return nil, err
	}
	if version := document.GetResourceVersion(); version != "" && version != live.GetResourceVersion() {
		return nil, conflict(o, "the object has changed since it was read: read it again, and repeat the edit")
	}
	held, err := heldByEdits(o)
	if err != nil {
		return nil, err
	}
	before, _ := live.Object["spec"].(map[string]any)
	after, ok := document.Object["spec"].(map[string]any)
	if !ok {
		return nil, apierrors.NewBadRequest("spec is missing: set the spec that the object should have")
	}
	schema, err := specSchema(o.kind)
	if err != nil {
		return nil, err
	}
	configuration := &unstructured.Unstructured{Object: map[string]any{"spec": editedFields(schema, held, before, after)}}
	configuration.SetGroupVersionKind(live.GroupVersionKind())
	configuration.SetNamespace(live.GetNamespace())
	configuration.SetName(live.GetName())
	configuration.SetUID(live.GetUID())
	configuration.SetResourceVersion(live.GetResourceVersion()) // what was compared above
	removed := removedFields(before, after, nil)
	if dryRun || len(removed) > 0 {
		result, err := c.applyEdit(ctx, configuration, client.DryRunAll)
		if err != nil {
			return nil, err
		}
		if err := refuseRemaining(o, result, removed); dryRun || err != nil {
			return result, err
		}
	}
	return c.applyEdit(ctx, configuration)
}

func (c *Client) applyEdit(ctx context.Context, configuration *unstructured.Unstructured, options ...client.ApplyOption) (*unstructured.Unstructured, error) {
	result := configuration.DeepCopy()
	options = append(options, client.FieldOwner(editManager), client.ForceOwnership)
	err := c.clients.Apply(ctx, client.ApplyConfigurationFromUnstructured(result), options...)
	if apierrors.IsConflict(err) { // not about fields, which the apply takes over
		return nil, &changedMeanwhile{err}
	}
	return result, err
}

// isAsRead returns an error if the object is another one than was read, or its spec has changed since. An empty UID and a nil
// generation are not compared.
func isAsRead(o object, uid types.UID, generation any, action string) error {
	switch {
	case uid != "" && uid != o.GetUID():
		return conflict(o, "the object was deleted and created again since it was read: read it again, and repeat the "+action)
	case generation != nil && !sameJSON(generation, o.GetGeneration()):
		return conflict(o, "the spec has changed since it was read: read the object again, and repeat the "+action)
	}
	return nil
}

func conflict(o object, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: fmt.Sprintf("%s: %s", o, message),
	}}
}

// heldByEdits is the part of the spec that earlier edits have set.
func heldByEdits(o object) (map[string]any, error) {
	var configuration any
	var err error
	switch live := o.Object.(type) {
	case *v1beta1.AppService:
		configuration, err = fixpointac.ExtractAppService(live, editManager)
	case *v1beta1.MCPServer:
		configuration, err = fixpointac.ExtractMCPServer(live, editManager)
	case *v1beta1.SecureStorage:
		configuration, err = fixpointac.ExtractSecureStorage(live, editManager)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the managed fields of %s: %w", o, err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(configuration)
	if err != nil {
		return nil, fmt.Errorf("reading the managed fields of %s: %w", o, err)
	}
	spec, _ := fields["spec"].(map[string]any)
	return spec, nil
}

// editedFields are the fields of after that differ from before, and those of them that are held. Lists and atomic maps that
// differ are applied as a whole: an apply replaces all of an atomic map, so that the keys that it does not have are lost.
func editedFields(schema *apiextensionsv1.JSONSchemaProps, held, before, after map[string]any) map[string]any {
	fields := map[string]any{}
	for name, value := range after {
		was, existed := before[name]
		inner, isMap := value.(map[string]any)
		wasInner, wasMap := was.(map[string]any)
		below := schemaOf(schema, name)
		switch {
		case isMap && wasMap && len(inner) > 0 && !isAtomic(below):
			heldInner, _ := held[name].(map[string]any)
			if edited := editedFields(below, heldInner, wasInner, inner); len(edited) > 0 {
				fields[name] = edited
			}
		case !existed || !sameJSON(was, value):
			fields[name] = value
		case held[name] != nil:
			fields[name] = held[name]
		}
	}
	return fields
}

// isAtomic is true for maps and objects that have one field manager, as opposed to one for each of their fields.
func isAtomic(schema *apiextensionsv1.JSONSchemaProps) bool {
	return schema.XMapType != nil && *schema.XMapType == "atomic"
}

// removedFields are the paths of the fields of before that after does not have. The path of a list stands for its items.
func removedFields(before, after map[string]any, path []string) [][]string {
	var removed [][]string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		below := append(slices.Clone(path), name)
		value, exists := after[name]
		inner, isMap := before[name].(map[string]any)
		afterInner, alsoMap := value.(map[string]any)
		_, isList := before[name].([]any)
		switch {
		case !exists, isList && !sameJSON(before[name], value):
			removed = append(removed, below)
		case isMap && alsoMap:
			removed = append(removed, removedFields(inner, afterInner, below)...)
		}
	}
	return removed
}

// refuseRemaining names the fields that an edit has removed and that remain, because other field managers hold them.
// What remains by its default is no remainder: who creates an object holds the defaults too.
func refuseRemaining(o object, result *unstructured.Unstructured, removed [][]string) error {
	spec, _ := result.Object["spec"].(map[string]any)
	for _, path := range removed {
		is, exists, _ := unstructured.NestedFieldNoCopy(spec, path...)
		if !exists {
			continue
		}
		if _, isList := is.([]any); isList || sameJSON(is, defaultOf(o.kind, path)) {
			continue // items of lists are merged, and the answer shows them
		}
		if holders := holdersOfField(result, append([]string{"spec"}, path...)); len(holders) > 0 {
			return conflict(o, fmt.Sprintf("spec.%s cannot be removed by an edit, because %s holds it: remove it with that field manager, or set another value",
				strings.Join(path, "."), strings.Join(holders, " and ")))
		}
	}
	return nil
}

// defaultOf is the default of a field of the spec, by the CustomResourceDefinition of this version; nil if it has none.
func defaultOf(k *kind, path []string) any {
	schema, err := specSchema(k)
	if err != nil {
		return nil
	}
	for _, name := range path {
		schema = schemaOf(schema, name)
	}
	var value any
	if schema.Default == nil || json.Unmarshal(schema.Default.Raw, &value) != nil {
		return nil
	}
	return value
}

// specSchema is the schema of the spec, by the CustomResourceDefinition of this version.
func specSchema(k *kind) (*apiextensionsv1.JSONSchemaProps, error) {
	raw, err := crd.Bases.ReadFile("bases/" + v1beta1.SchemeGroupVersion.Group + "_" + k.resource + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the CustomResourceDefinition of %s: %w", k.name, err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(raw, &definition); err != nil {
		return nil, fmt.Errorf("reading the CustomResourceDefinition of %s: %w", k.name, err)
	}
	at := slices.IndexFunc(definition.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return version.Name == v1beta1.SchemeGroupVersion.Version
	})
	return schemaOf(definition.Spec.Versions[at].Schema.OpenAPIV3Schema, "spec"), nil
}

// schemaOf is the schema of a field of an object or of a value of a map; an empty one if the schema does not have it.
func schemaOf(schema *apiextensionsv1.JSONSchemaProps, name string) *apiextensionsv1.JSONSchemaProps {
	if below, isField := schema.Properties[name]; isField {
		return &below
	}
	if values := schema.AdditionalProperties; values != nil && values.Schema != nil {
		return values.Schema
	}
	return &apiextensionsv1.JSONSchemaProps{}
}

// holdersOfField are the field managers of a field or of a field below it.
func holdersOfField(live *unstructured.Unstructured, path []string) []string {
	claims := claimsOf(live)
	for _, name := range path {
		claims = descend(claims, func(element string) bool { return element == fieldPrefix+name })
	}
	var names []string
	for _, c := range claims {
		if !slices.Contains(names, c.entry.Manager) {
			names = append(names, c.entry.Manager)
		}
	}
	return names
}

// Delete deletes an object, and returns what is deleted with it. It refuses if the object has another UID or generation than
// this one has: what was shown to the user was another object, or of another spec. Empty ones are not compared.
func (c *Client) Delete(ctx context.Context, resource string, shown metav1.ObjectMeta, dryRun bool) (goes []Child, err error) {
	err = unlessChanged(func() (err error) {
		goes, err = c.delete(ctx, resource, shown, dryRun)
		return err
	})
	return goes, err
}

func (c *Client) delete(ctx context.Context, resource string, shown metav1.ObjectMeta, dryRun bool) ([]Child, error) {
	namespace := shown.Namespace
	_, o, err := c.get(ctx, resource, namespace, shown.Name)
	if err != nil {
		return nil, err
	}
	uid, version := o.GetUID(), o.GetResourceVersion()
	preconditions := client.Preconditions{UID: &uid}
	var generation any
	if shown.Generation != 0 {
		generation, preconditions.ResourceVersion = shown.Generation, &version // for the generation, there is no precondition
	}
	if err := isAsRead(o, shown.UID, generation, "deletion"); err != nil {
		return nil, err
	}
	tree, notes, err := c.clients.in(namespace).tree(ctx, o)
	if err != nil {
		return nil, err
	}
	goes := below(nodeValue(tree))
	if storage, ok := o.Object.(*v1beta1.SecureStorage); ok {
		goes = append(goes, cloudResources(storage)...)
	}
	for _, note := range notes {
		goes = append(goes, Child{Kind: "Unknown", Namespace: namespace, Message: note})
	}
	options := []client.DeleteOption{preconditions}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	err = c.clients.Delete(ctx, o.Object, options...)
	if apierrors.IsConflict(err) {
		return nil, &changedMeanwhile{err}
	}
	return goes, explain(err)
}

func below(n Node) []Child {
	all := []Child{}
	for _, child := range n.Children {
		all = append(all, Child{Kind: child.Kind, Namespace: child.Namespace, Name: child.Name, Message: child.Message})
		all = append(all, below(child)...)
	}
	return all
}

// cloudResources are what the policies say about the storage account.
func cloudResources(storage *v1beta1.SecureStorage) []Child {
	if storage.Status.AccountID == "" {
		return nil
	}
	message := "is deleted with its data, because spec.deletionPolicy is Delete"
	switch {
	case storage.Spec.ManagementPolicy == v1beta1.ManagementObserve: // the deletion policy has no effect then
		message = "is left unchanged with its data, because spec.managementPolicy is Observe"
	case storage.Spec.DeletionPolicy == v1beta1.DeletionRetain:
		message = "is retained with its data, because spec.deletionPolicy is Retain"
	}
	return []Child{{Kind: "StorageAccount", Name: storage.Status.AccountID[strings.LastIndex(storage.Status.AccountID, "/")+1:], Message: message}}
}
