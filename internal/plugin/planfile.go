package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/conversion"
)

// objectsOf are the objects of a file as they would be after kubectl apply, by a dry run.
func (o *options) objectsOf(ctx context.Context, c *clients, p planOptions) (objects []object, notes []string, err error) {
	documents, err := o.readFile(p.file)
	if err != nil {
		return nil, nil, err
	}
	for _, document := range documents {
		gvk := document.GroupVersionKind()
		if gvk.Group != v1beta1.SchemeGroupVersion.Group {
			notes = append(notes, fmt.Sprintf("%s %s of the file is not planned, because it is not of a kind of Fixpoint", gvk.Kind, document.GetName()))
			continue
		}
		k, err := kindOf(gvk.Kind)
		if err != nil {
			return nil, nil, err
		}
		if document.GetNamespace() == "" {
			document.SetNamespace(c.namespace)
		}
		planned, err := c.dryApply(ctx, document, p.serverSide)
		if err != nil {
			return nil, nil, fmt.Errorf("applying %s %s/%s as a dry run: %w", gvk.Kind, document.GetNamespace(), document.GetName(), err)
		}
		typed := k.empty()
		if err := convertInto(typed, planned); err != nil {
			return nil, nil, fmt.Errorf("reading %s %s: %w", gvk.Kind, document.GetName(), err)
		}
		objects = append(objects, k.object(typed))
	}
	if len(objects) == 0 {
		return nil, nil, fmt.Errorf("%s has no AppService, MCPServer or SecureStorage", p.file)
	}
	return objects, notes, nil
}

// convertInto reads an object of any version into the Go type of v1beta1.
func convertInto(typed client.Object, live *unstructured.Unstructured) error {
	raw, err := json.Marshal(live)
	if err != nil {
		return err
	}
	if raw, err = conversion.Convert(raw, v1beta1.SchemeGroupVersion.String()); err != nil {
		return err
	}
	return json.Unmarshal(raw, typed)
}

func (o *options) readFile(name string) ([]*unstructured.Unstructured, error) {
	in := o.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading --filename: %w", err)
		}
		defer file.Close()
		in = file
	}
	documents, err := readDocuments(in)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", name, err)
	}
	return documents, nil
}

// readDocuments parses YAML or JSON.
func readDocuments(in io.Reader) ([]*unstructured.Unstructured, error) {
	const buffer = 4096
	decoder := utilyaml.NewYAMLOrJSONDecoder(bufio.NewReader(in), buffer)
	var documents []*unstructured.Unstructured
	for {
		document := &unstructured.Unstructured{}
		err := decoder.Decode(&document.Object)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		if len(document.Object) > 0 {
			documents = append(documents, document)
		}
	}
}

// kubectlManager is the field manager of kubectl apply --server-side.
const kubectlManager = "kubectl"

// dryApply is what kubectl apply of the document would result in. Objects that an earlier kubectl apply without
// --server-side has written are patched as it would patch them.
func (c *clients) dryApply(ctx context.Context, document *unstructured.Unstructured, serverSide bool) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(document.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(document), live)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if last, ok := live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; ok && !serverSide {
		return c.dryPatch(ctx, live, document, last)
	}
	planned := document.DeepCopy()
	options := []client.ApplyOption{client.FieldOwner(kubectlManager), client.DryRunAll}
	if apierrors.IsNotFound(err) || !serverSide {
		options = append(options, client.ForceOwnership)
	}
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(planned), options...)
	return planned, err
}

func (c *clients) dryPatch(ctx context.Context, live, document *unstructured.Unstructured, last string) (*unstructured.Unstructured, error) {
	modified, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	current, err := json.Marshal(live)
	if err != nil {
		return nil, err
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch([]byte(last), modified, current)
	if err != nil {
		return nil, err
	}
	planned := live.DeepCopy()
	err = c.Patch(ctx, planned, client.RawPatch(types.MergePatchType, patch), client.DryRunAll)
	return planned, err
}
