package conversion

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
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

// shape is what the generator needs of a schema. It has fields in the order of their names, so that a seed replays the same
// objects.
type shape struct {
	kind       string
	enum       []string // in JSON
	intOrText  bool
	isTime     bool
	least      int
	fields     []member
	items      *shape
	additional *shape
	// keepsUnknown is set if fields that are not in the schema are kept.
	keepsUnknown bool
}

// member is a field of an object.
type member struct {
	name     string
	required bool
	*shape
}

func shapeOf(schema *apiextensionsv1.JSONSchemaProps) *shape {
	s := &shape{
		kind: schema.Type, intOrText: schema.XIntOrString, isTime: schema.Format == "date-time",
		keepsUnknown: ptr.Deref(schema.XPreserveUnknownFields, false), least: int(ptr.Deref(schema.Minimum, 0)),
	}
	for _, value := range schema.Enum {
		s.enum = append(s.enum, string(value.Raw))
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		s.fields = append(s.fields, member{name, slices.Contains(schema.Required, name), shapeOf(ptr.To(schema.Properties[name]))})
	}
	if schema.Items != nil {
		s.items = shapeOf(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		s.additional = shapeOf(schema.AdditionalProperties.Schema)
	}
	return s
}

// generator makes random values that a schema permits. It does not evaluate patterns and rules, which conversions do
// not depend on.
type generator struct{ *rand.Rand }

// object returns the JSON of a random object, in the form in which the API server sends it.
func (r generator) object(kind, apiVersion string, s *shape) []byte {
	b := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"annotations":{"fixpoint.dev/v1beta1":%s,"spec.protocol.tls":"x","tls":"true"},`+
		`"generation":%d,"managedFields":[{"apiVersion":%q,"fieldsV1":{"f:spec":{"f:protocol":{"f:tls":{}}}},"manager":"a"}],`+
		`"name":"web","namespace":"shop","uid":"%d"}`, apiVersion, kind, r.text(40), r.IntN(9), v1alpha1, r.Uint64())
	for _, f := range s.fields {
		if f.name > "metadata" && r.occurs(f, 0) {
			b = r.value(fmt.Appendf(b, ",%q:", f.name), f.shape, 1)
		}
	}
	return append(b, '}')
}

// occurs decides whether an object has a field. Explicit zeros and empty objects and lists occur, as well as omitted
// fields. Types of Kubernetes are deep, and rarely filled.
func (r generator) occurs(f member, depth int) bool {
	return f.required || r.IntN(3+max(0, depth-4)*4) > 0 == (depth < 4)
}

// value appends the JSON of a random value.
func (r generator) value(b []byte, s *shape, depth int) []byte {
	if len(s.enum) > 0 {
		return append(b, s.enum[r.IntN(len(s.enum))]...)
	}
	if s.intOrText {
		if r.IntN(2) == 0 {
			return strconv.AppendInt(b, int64(r.IntN(1000)), 10)
		}
		return append(b, `"1000m"`...)
	}
	switch s.kind {
	case "object":
		return r.properties(b, s, depth)
	case "array":
		b = append(b, '[')
		for i := range r.IntN(4) {
			if i > 0 {
				b = append(b, ',')
			}
			b = r.value(b, s.items, depth+1)
		}
		return append(b, ']')
	case "boolean":
		return strconv.AppendBool(b, r.IntN(2) == 0)
	case "integer", "number":
		return strconv.AppendInt(b, int64(s.least+r.IntN(100)), 10)
	default:
		if s.isTime {
			return append(b, `"2026-05-01T12:00:00Z"`...)
		}
		return append(b, r.text(30)...)
	}
}

func (r generator) properties(b []byte, s *shape, depth int) []byte {
	b = append(b, '{')
	begun := len(b)
	name := func(encoded string) {
		if len(b) > begun {
			b = append(b, ',')
		}
		b = append(append(b, encoded...), ':')
	}
	for _, f := range s.fields {
		if r.occurs(f, depth) {
			name(strconv.Quote(f.name))
			b = r.value(b, f.shape, depth+1)
		}
	}
	if s.additional != nil {
		names := map[string]bool{}
		for range r.IntN(4) {
			names[r.text(10)] = true
		}
		for _, encoded := range slices.Sorted(maps.Keys(names)) {
			name(encoded)
			b = r.value(b, s.additional, depth+1)
		}
	}
	if s.keepsUnknown {
		name(`"protocol"`)
		b = append(append(append(b, `{"disabled":[`...), r.text(5)...), `],"tls":true}`...)
	}
	return append(b, '}')
}

// pieces are characters that JSON escapes, and what looks like fields.
var pieces = []string{`"`, `\`, `{`, `}`, `[`, `,`, `:`, "\n", "\u2028", "é", "𝄞", "<", `"tls":true`, "apiVersion", "a", "0", " "}

// text returns the JSON of a string of [pieces].
func (r generator) text(limit int) string {
	var b strings.Builder
	for range r.IntN(limit) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	encoded, err := json.Marshal(b.String())
	if err != nil {
		panic(err)
	}
	return string(encoded)
}
