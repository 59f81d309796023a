package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

const generated = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    controller-gen.kubebuilder.io/version: v0.23.0
  name: shops.example.com
spec:
  group: example.com
  names: {kind: Shop, listKind: ShopList, plural: shops, singular: shop}
  scope: Namespaced
  versions:
  - name: v1alpha1
    deprecated: true
    served: true
    storage: false
    schema: &schema
      openAPIV3Schema:
        description: A shop.
        type: object
        properties:
          spec:
            description: The spec.
            type: object
            properties:
              env:
                description: The variables.
                type: array
                items:
                  description: A variable.
                  type: object
                  properties:
                    name: {description: The name., type: string}
              size:
                description: The size.
                anyOf: [{type: integer}, {type: string}]
                pattern: ` + quantity + `
                x-kubernetes-int-or-string: true
  - name: v1beta1
    served: true
    storage: true
    schema: *schema
`

func TestCompletesADefinition(t *testing.T) {
	g, file := NewWithT(t), filepath.Join(t.TempDir(), "crd.yaml")
	g.Expect(os.WriteFile(file, []byte(generated), 0o600)).To(Succeed())

	g.Expect(complete(file)).To(Succeed())

	text, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	var got struct {
		Metadata any
		Spec     struct {
			Conversion any
			Versions   []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema any }
			}
		}
		Status any
	}
	g.Expect(yaml.Unmarshal(text, &got)).To(Succeed())
	g.Expect(got.Metadata).To(Equal(map[string]any{"name": "shops.example.com", "annotations": map[string]any{"controller-gen.kubebuilder.io/version": "v0.23.0"}}))
	g.Expect(got.Status).To(BeNil(), "nothing is added")
	g.Expect(got.Spec.Conversion).To(Equal(map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"clientConfig":             map[string]any{"service": map[string]any{"name": "webhook", "namespace": "system", "path": "/convert"}},
		"conversionReviewVersions": []any{"v1"},
	}}))
	schema := func(item, name map[string]any) any {
		item["type"], item["properties"] = "object", map[string]any{"name": name}
		name["type"] = "string"
		return map[string]any{"description": "A shop.", "type": "object", "properties": map[string]any{"spec": map[string]any{
			"description": "The spec.", "type": "object", "properties": map[string]any{
				"env":  map[string]any{"description": "The variables.", "type": "array", "items": item},
				"size": map[string]any{"description": "The size.", "anyOf": []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}, "pattern": readable, "x-kubernetes-int-or-string": true},
			}}}}
	}
	g.Expect(got.Spec.Versions).To(HaveLen(2))
	g.Expect(got.Spec.Versions[0].Schema.OpenAPIV3Schema).To(Equal(schema(map[string]any{}, map[string]any{})), "the deprecated version")
	g.Expect(got.Spec.Versions[1].Schema.OpenAPIV3Schema).To(Equal(schema(map[string]any{"description": "A variable."}, map[string]any{"description": "The name."})))

	// A second run changes nothing.
	g.Expect(complete(file)).To(Succeed())
	again, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(again)).To(Equal(string(text)))
}

func TestRefusesWhatIsNoDefinition(t *testing.T) {
	g, file := NewWithT(t), filepath.Join(t.TempDir(), "crd.yaml")
	g.Expect(complete(file)).To(MatchError(ContainSubstring("reading a CustomResourceDefinition")))
	g.Expect(os.WriteFile(file, []byte("spec: {versoins: []}"), 0o600)).To(Succeed())
	g.Expect(complete(file)).To(MatchError(ContainSubstring("versoins")))
}
