package conversion

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

var (
	seed    = flag.Uint64("seed", uint64(time.Now().UnixNano()), "Seed of the random objects.")
	samples = flag.Int("samples", 10000, "Number of random objects of each kind and version.")
)

// definition is the CustomResourceDefinition of a kind.
type definition struct {
	kind     string
	versions map[string]apiextensionsv1.JSONSchemaProps
}

func definitions(t *testing.T) []definition {
	t.Helper()
	g := NewWithT(t)
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "bases", "*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).NotTo(BeEmpty())
	var all []definition
	for _, file := range files {
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		var crd apiextensionsv1.CustomResourceDefinition
		g.Expect(yaml.UnmarshalStrict(text, &crd)).To(Succeed())
		d := definition{kind: crd.Spec.Names.Kind, versions: map[string]apiextensionsv1.JSONSchemaProps{}}
		for _, version := range crd.Spec.Versions {
			d.versions[crd.Spec.Group+"/"+version.Name] = *version.Schema.OpenAPIV3Schema
		}
		all = append(all, d)
	}
	return all
}

// generator makes random values that a schema permits. It does not evaluate patterns and rules, which conversions do
// not depend on.
type generator struct{ *rand.Rand }

// object returns the JSON of a random object, in the form in which the API server sends it.
func (r generator) object(kind, apiVersion string, schema apiextensionsv1.JSONSchemaProps) []byte {
	object, _ := r.value(schema, 0).(map[string]any)
	object["apiVersion"], object["kind"] = apiVersion, kind
	object["metadata"] = map[string]any{
		"name": "web", "namespace": "shop", "uid": fmt.Sprint(r.Uint64()), "generation": r.IntN(9),
		"annotations":   map[string]any{"tls": "true", "spec.protocol.tls": "x", "fixpoint.dev/v1beta1": r.text(40)},
		"managedFields": []any{map[string]any{"manager": "a", "apiVersion": v1alpha1, "fieldsV1": map[string]any{"f:spec": map[string]any{"f:protocol": map[string]any{"f:tls": map[string]any{}}}}}},
	}
	encoded, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return encoded
}

func (r generator) value(schema apiextensionsv1.JSONSchemaProps, depth int) any {
	if len(schema.Enum) > 0 {
		var chosen any
		if err := json.Unmarshal(schema.Enum[r.IntN(len(schema.Enum))].Raw, &chosen); err != nil {
			panic(err)
		}
		return chosen
	}
	if schema.XIntOrString {
		if r.IntN(2) == 0 {
			return r.IntN(1000)
		}
		return "1000m"
	}
	switch schema.Type {
	case "object":
		return r.properties(schema, depth)
	case "array":
		items := []any{}
		for range r.IntN(4) {
			items = append(items, r.value(*schema.Items.Schema, depth+1))
		}
		return items
	case "boolean":
		return r.IntN(2) == 0
	case "integer", "number":
		least := int64(0)
		if schema.Minimum != nil {
			least = int64(*schema.Minimum)
		}
		return least + int64(r.IntN(100))
	default:
		if schema.Format == "date-time" {
			return "2026-05-01T12:00:00Z"
		}
		return r.text(30)
	}
}

func (r generator) properties(schema apiextensionsv1.JSONSchemaProps, depth int) any {
	object := map[string]any{}
	for name, property := range schema.Properties {
		// Explicit zeros and empty objects and lists occur, as well as omitted fields. Types of Kubernetes are deep, and
		// rarely filled.
		if slices.Contains(schema.Required, name) || r.IntN(3+max(0, depth-4)*4) > 0 == (depth < 4) {
			object[name] = r.value(property, depth+1)
		}
	}
	if additional := schema.AdditionalProperties; additional != nil && additional.Schema != nil {
		for range r.IntN(4) {
			object[r.text(10)] = r.value(*additional.Schema, depth+1)
		}
	}
	if schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields {
		object["protocol"] = map[string]any{"tls": true, "disabled": []any{r.text(5)}}
	}
	return object
}

// pieces are characters that JSON escapes, and what looks like fields.
var pieces = []string{`"`, `\`, `{`, `}`, `[`, `,`, `:`, "\n", "\u2028", "é", "𝄞", "<", `"tls":true`, "apiVersion", "a", "0", " "}

// text returns a string of [pieces].
func (r generator) text(limit int) string {
	var b strings.Builder
	for range r.IntN(limit) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}
