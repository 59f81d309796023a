// Command crds completes the CustomResourceDefinitions that controller-gen has generated, in place:
//
//   - Objects of several versions need the webhook of the manager. Without it, the API server would drop the fields
//     that only one version has. The name and the namespace of the Service depend on the installation: config/default
//     and the chart replace them.
//   - The deprecated version describes only the fields of spec and status, and not what is in them a second time:
//     kubectl apply without --server-side keeps a definition in an annotation, which is limited to 256 KiB.
//   - The quantity pattern of controller-gen accepts values that cannot be parsed, such as 1e1.5, and values that take
//     hours to parse, such as 1e-999999999. One object with such a value would block the watch of a manager for all
//     objects of the kind.
package main

import (
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const (
	quantity = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	readable = `^(\+|-)?(([0-9]{1,32}(\.[0-9]{0,32})?)|(\.[0-9]{1,32}))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`
)

// describedDepth is the depth of the fields of spec and status.
const describedDepth = 2

func main() {
	for _, file := range os.Args[1:] {
		if err := complete(file); err != nil {
			fmt.Fprintln(os.Stderr, "crds:", err)
			os.Exit(1)
		}
	}
}

func complete(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading a CustomResourceDefinition: %w", err)
	}
	// A map keeps what is not set unset.
	var fields map[string]any
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return fmt.Errorf("parsing %s: %w", file, err)
	}
	if err := yaml.UnmarshalStrict(text, &definition); err != nil {
		return fmt.Errorf("parsing %s: %w", file, err)
	}
	for i := range definition.Spec.Versions {
		version := &definition.Spec.Versions[i]
		replaceQuantities(version.Schema.OpenAPIV3Schema)
		if version.Deprecated {
			shorten(version.Schema.OpenAPIV3Schema, 0)
		}
	}
	spec, _ := fields["spec"].(map[string]any)
	spec["versions"] = definition.Spec.Versions
	if len(definition.Spec.Versions) > 1 {
		spec["conversion"] = apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig:             &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Name: "webhook", Namespace: "system", Path: ptr.To("/convert")}},
				ConversionReviewVersions: []string{"v1"},
			},
		}
	}
	text, err = yaml.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", file, err)
	}
	if err := os.WriteFile(file, append([]byte("---\n"), text...), 0o644); err != nil { //nolint:gosec // a file of the repository
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return nil
}

// children calls visit with the schemas of all values within a value.
func children(schema *apiextensionsv1.JSONSchemaProps, visit func(name string, child *apiextensionsv1.JSONSchemaProps)) {
	for name, property := range schema.Properties {
		visit(name, &property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		visit("", schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		visit("", schema.AdditionalProperties.Schema)
	}
}

func replaceQuantities(schema *apiextensionsv1.JSONSchemaProps) {
	if schema.Pattern == quantity {
		schema.Pattern = readable
	}
	children(schema, func(_ string, child *apiextensionsv1.JSONSchemaProps) { replaceQuantities(child) })
}

// shorten drops the descriptions below the fields of spec and status.
func shorten(schema *apiextensionsv1.JSONSchemaProps, depth int) {
	children(schema, func(_ string, child *apiextensionsv1.JSONSchemaProps) {
		if depth >= describedDepth {
			child.Description = ""
		}
		shorten(child, depth+1)
	})
}
