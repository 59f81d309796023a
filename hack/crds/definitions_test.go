package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// What kubectl shows is the same in all versions: columns, short names, categories, and what kubectl explain says about
// each field.
func TestKubectlShowsTheSameInAllVersions(t *testing.T) {
	for plural, want := range map[string]struct {
		short   string
		columns []string
	}{
		"appservices":    {"asvc", []string{"Ready", "Reason", "Pods", "URL", "Phase", "Image", "Age"}},
		"mcpservers":     {"mcp", []string{"Ready", "Reason", "Endpoint", "Tools", "Pods", "Transport", "External", "Phase", "Image", "Age"}},
		"securestorages": {"sst", []string{"Ready", "Reason", "Account", "Key Version", "Phase", "Location", "Age"}},
	} {
		definition := read(t, plural)
		t.Run(plural, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(definition.Spec.Names.ShortNames).To(ConsistOf(want.short))
			g.Expect(definition.Spec.Names.Categories).To(ConsistOf("fixpoint"))
			g.Expect(definition.Spec.Versions).To(HaveLen(2))
		})
		for _, version := range definition.Spec.Versions {
			t.Run(plural+" "+version.Name, func(t *testing.T) {
				g := NewWithT(t)
				g.Expect(version.Served).To(BeTrue())
				g.Expect(version.Deprecated).To(Equal(version.Name == "v1alpha1"))
				g.Expect(version.DeprecationWarning != nil && strings.Contains(*version.DeprecationWarning, "fixpoint.dev/v1beta1")).To(Equal(version.Deprecated))
				g.Expect(version.AdditionalPrinterColumns).To(Equal(definition.Spec.Versions[0].AdditionalPrinterColumns))
				var columns []string
				for _, column := range version.AdditionalPrinterColumns {
					columns = append(columns, column.Name)
					g.Expect(column.Name == "Age" || column.Description != "").To(BeTrue(), "%s has no description", column.Name)
					g.Expect(fieldOf(*version.Schema.OpenAPIV3Schema, column.JSONPath)).To(BeTrue(), "%s of the column %s is no field", column.JSONPath, column.Name)
				}
				g.Expect(columns).To(Equal(want.columns))

				undescribed, count := undescribed(*version.Schema.OpenAPIV3Schema, "", version.Deprecated)
				g.Expect(count).To(BeNumerically(">", 50))
				g.Expect(undescribed).To(ConsistOf(".metadata"), "fields without a description; the API server describes the metadata")
			})
		}
	}
}

// A definition must fit into the annotation of kubectl apply without --server-side.
func TestDefinitionsFitIntoAnAnnotation(t *testing.T) {
	const limit = 256 << 10
	for _, plural := range []string{"appservices", "mcpservers", "securestorages"} {
		text, err := json.Marshal(read(t, plural))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(len(text)).To(BeNumerically("<", limit), plural)
	}
}

func read(t *testing.T, plural string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "fixpoint.dev_"+plural+".yaml"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	definition := &apiextensionsv1.CustomResourceDefinition{}
	NewWithT(t).Expect(yaml.UnmarshalStrict(text, definition)).To(Succeed())
	return definition
}

// fieldOf reports whether a path leads to a field. What follows a filter of a list is not followed.
func fieldOf(schema apiextensionsv1.JSONSchemaProps, path string) bool {
	path, _, _ = strings.Cut(path, "[")
	for _, name := range strings.Split(strings.TrimPrefix(path, "."), ".") {
		if name == "creationTimestamp" {
			return true // the API server has the schema of the metadata
		}
		next, found := schema.Properties[name]
		if !found {
			return false
		}
		schema = next
	}
	return true
}

// undescribed are the fields without a description, and count is the number of all. In a deprecated version, only those of
// spec and status have one.
func undescribed(schema apiextensionsv1.JSONSchemaProps, path string, deprecated bool) (missing []string, count int) {
	depth := strings.Count(path, ".") + strings.Count(path, "[]")
	if schema.Description == "" && (!deprecated || depth <= describedDepth) {
		missing = append(missing, path)
	}
	count = 1
	for name, field := range schema.Properties {
		below, fields := undescribed(field, fmt.Sprintf("%s.%s", path, name), deprecated)
		missing, count = append(missing, below...), count+fields
	}
	for _, item := range []*apiextensionsv1.JSONSchemaProps{itemOf(schema), valueOf(schema)} {
		if item != nil && len(item.Properties) > 0 { // kubectl explain shows the fields of the item below those of the list
			below, fields := undescribed(*item, path+"[]", deprecated)
			missing, count = append(missing, below...), count+fields
		}
	}
	return missing, count
}

func itemOf(schema apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if schema.Items == nil {
		return nil
	}
	return schema.Items.Schema
}

func valueOf(schema apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if schema.AdditionalProperties == nil {
		return nil
	}
	return schema.AdditionalProperties.Schema
}
