package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestConvertRenamesFieldsAndValues(t *testing.T) {
	drifts := func(desired, found string) string {
		return fmt.Sprintf(`"status":{"drifts":[{"%[1]s":"3","%[2]s":"5"},{"name":"from"},{"%[1]s":"to"}]}`, desired, found)
	}
	for name, c := range map[string]struct{ alpha, beta string }{
		"only the version":          {`"spec":{"image":"a"}`, `"spec":{"image":"a"}`},
		"drifts":                    {drifts("from", "to"), drifts("desired", "found")},
		"TLS":                       {`"spec":{"protocol":{"tls":true,"timeout":"5s"}}`, `"spec":{"protocol":{"scheme":"HTTPS","timeout":"5s"}}`},
		"no TLS":                    {`"spec":{"protocol":{"tls":false}}`, `"spec":{"protocol":{"scheme":"HTTP"}}`},
		"no probes":                 {`"spec":{"protocol":{"disabled":true}}`, `"spec":{"protocol":{"probe":"Disabled"}}`},
		"probes":                    {`"spec":{"protocol":{"disabled":false}}`, `"spec":{"protocol":{"probe":"Periodic"}}`},
		"DNS":                       {`"spec":{"networkPolicy":{"egress":{"allowDNS":true}}}`, `"spec":{"networkPolicy":{"egress":{"dns":"Allowed"}}}`},
		"no DNS":                    {`"spec":{"networkPolicy":{"egress":{"allowDNS":false}}}`, `"spec":{"networkPolicy":{"egress":{"dns":"Denied"}}}`},
		"probed versions":           {`"status":{"askedVersions":["a"]}`, `"status":{"probedVersions":["a"]}`},
		"SecureStorage":             {`"spec":{"key":{"keyName":"k"},"onAccountLoss":"Stall","provider":{"credentialsRef":{"name":"c"}}}`, `"spec":{"key":{"name":"k"},"accountLossPolicy":"Stall","provider":{"credentialsSecretRef":{"name":"c"}}}`},
		"quantities and durations":  {`"spec":{"pollInterval":"5m","limits":{"cpu":"1000m"},"suspend":false,"env":[]}`, `"spec":{"pollInterval":"5m","limits":{"cpu":"1000m"},"suspend":false,"env":[]}`},
		"spaces":                    {" \"spec\" : { \"protocol\" :\n{ \"tls\" : true } } ", " \"spec\" : { \"protocol\" :\n{ \"scheme\" : \"HTTPS\" } } "},
		"the same names elsewhere":  {`"spec":{"labels":{"tls":"true","from":"x"},"podOverrides":{"spec":{"protocol":{"tls":1}}},"mounts":[{"tls":2}]}`, `"spec":{"labels":{"tls":"true","from":"x"},"podOverrides":{"spec":{"protocol":{"tls":1}}},"mounts":[{"tls":2}]}`},
		"null":                      {`"spec":{"protocol":{"tls":null}},"status":null`, `"spec":{"protocol":{"scheme":null}},"status":null`},
		"items that are no objects": {`"status":{"drifts":[[{"from":"a"}],1,null,"from",[],{"from":"b"}]}`, `"status":{"drifts":[[{"from":"a"}],1,null,"from",[],{"desired":"b"}]}`},
		"a stored list that is not": {`"status":{"drifts":{}}`, `"status":{"drifts":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			alpha := `{"apiVersion":"fixpoint.dev/v1alpha1","kind":"X","metadata":{},` + c.alpha + `}`
			beta := `{"apiVersion":"fixpoint.dev/v1beta1","kind":"X","metadata":{},` + c.beta + `}`
			up, err := Convert([]byte(alpha), v1beta1)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(up)).To(Equal(beta))
			down, err := Convert([]byte(beta), v1alpha1)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(down)).To(Equal(alpha))
			same, err := Convert([]byte(beta), v1beta1)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(same)).To(Equal(beta))
		})
	}
}

func TestConvertReadsEscapedNames(t *testing.T) {
	g := NewWithT(t)
	converted, err := Convert([]byte(`{"\u0061piVersion":"fixpoint.dev\/v1beta1","spec":{"\u0070rotocol":{"sch\u0065me":"HT\u0054PS"}}}`), v1alpha1)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(converted).To(MatchJSON(`{"apiVersion":"fixpoint.dev/v1alpha1","spec":{"protocol":{"tls":true}},"metadata":{}}`))
}

// Whoever may send an object chooses how deep its lists are, and the manager must not need memory for each of them.
func TestConvertNeedsNoMemoryForTheDepthOfLists(t *testing.T) {
	for from, to := range map[string]string{v1alpha1: v1beta1, v1beta1: v1alpha1} {
		// The lower depth comes first, so that a conversion that needs much memory fails before it takes all of it.
		for _, depth := range []int{1_000, 100_000} {
			g, lists := NewWithT(t), strings.Repeat("[", depth)+strings.Repeat("]", depth)
			object := func(version string) string {
				return `{"apiVersion":"` + version + `","metadata":{},"spec":` + lists + `,"status":{"drifts":` + lists + `}}`
			}
			given, converted := []byte(object(from)), []byte(nil)
			allocations := testing.AllocsPerRun(1, func() {
				var err error
				converted, err = Convert(given, to)
				g.Expect(err).NotTo(HaveOccurred())
			})
			g.Expect(allocations).To(BeNumerically("<", 100), "%d lists", depth)
			g.Expect(string(converted) == object(to)).To(BeTrue(), "%d lists", depth)
		}
	}
}

// The API server refuses a converted object without metadata, and sends some.
func TestConvertAddsMetadata(t *testing.T) {
	for object, want := range map[string]string{
		`{"apiVersion":"fixpoint.dev/v1alpha1"}`:                          `{"apiVersion":"fixpoint.dev/v1beta1","metadata":{}}`,
		`{"apiVersion":"fixpoint.dev/v1alpha1","spec":{"metadata":{}} }`:  `{"apiVersion":"fixpoint.dev/v1beta1","spec":{"metadata":{}} ,"metadata":{}}`,
		`{"apiVersion":"fixpoint.dev/v1alpha1","metadata":{"name":"a"}}`:  `{"apiVersion":"fixpoint.dev/v1beta1","metadata":{"name":"a"}}`,
		`{"apiVersion":"fixpoint.dev/v1beta1","spec":{"image":"a"}}`:      `{"apiVersion":"fixpoint.dev/v1beta1","spec":{"image":"a"}}`,
		`{"metadata":{},"kind":"a","apiVersion":"fixpoint.dev/v1alpha1"}`: `{"metadata":{},"kind":"a","apiVersion":"fixpoint.dev/v1beta1"}`,
	} {
		converted, err := Convert([]byte(object), v1beta1)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(string(converted)).To(Equal(want))
	}
}

func TestConvertNamesTheFieldThatFails(t *testing.T) {
	for name, c := range map[string]struct{ object, to, path, problem string }{
		"a value of another type":      {`{"apiVersion":"fixpoint.dev/v1alpha1","spec":{"protocol":{"tls":"yes"}}}`, v1beta1, "spec.protocol.tls", `is "yes": set one of false, true`},
		"a value of a later release":   {`{"apiVersion":"fixpoint.dev/v1beta1","spec":{"protocol":{"probe":"Once"}}}`, v1alpha1, "spec.protocol.probe", `is "Once": set one of "Disabled", "Periodic"`},
		"a field of the other version": {`{"apiVersion":"fixpoint.dev/v1alpha1","spec":{"protocol":{"scheme":"HTTP"}}}`, v1beta1, "spec.protocol.scheme", "is not a field of this version: remove it"},
		"an item":                      {`{"apiVersion":"fixpoint.dev/v1beta1","status":{"drifts":[{},{"from":"a"}]}}`, v1alpha1, "status.drifts[1].from", "is not a field of this version: remove it"},
		"another group":                {`{"apiVersion":"example.com/v1"}`, v1beta1, "apiVersion", `"example.com/v1" is not a version of fixpoint.dev: use fixpoint.dev/v1alpha1 or fixpoint.dev/v1beta1`},
		"no version":                   {`{"kind":"AppService"}`, v1beta1, "apiVersion", "is missing: set a version such as fixpoint.dev/v1beta1"},
		"a version that is no text":    {`{"apiVersion":1}`, v1beta1, "apiVersion", "set a version such as fixpoint.dev/v1beta1"},
		"to another version":           {`{"apiVersion":"fixpoint.dev/v1alpha1"}`, "fixpoint.dev/v2", "desiredAPIVersion", `"fixpoint.dev/v2" is not a version of fixpoint.dev: request fixpoint.dev/v1alpha1 or fixpoint.dev/v1beta1`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Convert([]byte(c.object), c.to)
			var failure *FieldError
			NewWithT(t).Expect(errors.As(err, &failure)).To(BeTrue(), "%v", err)
			NewWithT(t).Expect(*failure).To(Equal(FieldError{Path: c.path, Problem: c.problem}))
		})
	}
}

func TestConvertRefusesBrokenJSON(t *testing.T) {
	whole := `{"apiVersion":"fixpoint.dev/v1beta1","spec":{"protocol":{"scheme":"HTTP"},"a":[1,{"b":"c\""}]}}`
	for end := range len(whole) {
		_, err := Convert([]byte(whole[:end]), v1alpha1)
		NewWithT(t).Expect(err).To(HaveOccurred(), whole[:end])
	}
}

// Every object is the same after a conversion to the other version and back, byte for byte.
func TestConversionsRoundTrip(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	for _, d := range definitions(t) {
		for from, to := range map[string]string{v1alpha1: v1beta1, v1beta1: v1alpha1} {
			t.Run(d.kind+" from "+from[len(group)+1:], func(t *testing.T) {
				t.Parallel()
				g, random := NewWithT(t), generator{rand.New(rand.NewPCG(*seed, 0))}
				converter, properties := conversions[to], d.versions[from]
				schema := shapeOf(&properties)
				for i := range *samples {
					object := random.object(d.kind, from, schema)
					converted, err := Convert(object, to)
					g.Expect(err).NotTo(HaveOccurred(), "%s", object)
					if i%20 == 0 { // the reference takes fifty times as long
						if want := reference(converter, object, to); !equalJSON(converted, want) {
							t.Fatalf("converting %s\nreturned %s\nnot      %s", object, converted, want)
						}
					}
					if back, err := Convert(converted, from); err != nil || string(back) != string(object) {
						t.Fatalf("%s\nbecame %s\nand then %s (%v)", object, converted, back, err)
					}
				}
			})
		}
	}
}

// reference converts a decoded object, as slowly and as simply as possible.
func reference(f *field, object []byte, to string) []byte {
	var decoded map[string]any
	if err := json.Unmarshal(object, &decoded); err != nil {
		panic(err)
	}
	decoded["apiVersion"] = to
	referenceFields(f, decoded)
	encoded, err := json.Marshal(decoded)
	if err != nil {
		panic(err)
	}
	return encoded
}

func referenceFields(f *field, value any) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			referenceFields(f, item)
		}
	case map[string]any:
		for name, below := range f.fields {
			member, found := value[name]
			if !found {
				continue
			}
			referenceFields(below, member)
			if below.rename == "" {
				continue
			}
			delete(value, name)
			if below.values != nil {
				text, _ := json.Marshal(member)
				if err := json.Unmarshal([]byte(below.values[string(text)]), &member); err != nil {
					panic(err)
				}
			}
			value[strings.Trim(below.rename, `"`)] = member
		}
	}
}

func equalJSON(a, b []byte) bool {
	var decoded any
	if err := json.Unmarshal(a, &decoded); err != nil {
		return false
	}
	sorted, err := json.Marshal(decoded)
	return err == nil && string(sorted) == string(b)
}

// otherDefaults are the defaults, as JSON, that differ between the versions. The API server sets the one of the version
// in which it decodes an object before it converts it, so each field must have one in both.
var otherDefaults = map[string]map[string]struct{ alpha, beta string }{
	"AppService": {".spec.podSecurityStandard": {`"Baseline"`, `"Restricted"`}},
}

// A field, limit or default that only one version has would be lost, or would make a stored object invalid in the
// other version.
func TestEveryFieldHasACounterpart(t *testing.T) {
	for _, d := range definitions(t) {
		t.Run(d.kind, func(t *testing.T) {
			alpha, beta := map[string]string{}, map[string]string{}
			describe(conversions[v1beta1], "", d.versions[v1alpha1], alpha)
			describe(&field{}, "", d.versions[v1beta1], beta)
			for path, defaults := range otherDefaults[d.kind] {
				NewWithT(t).Expect(alpha[path]).To(ContainSubstring(`"default":` + defaults.alpha))
				NewWithT(t).Expect(beta[path]).To(ContainSubstring(`"default":` + defaults.beta))
				alpha[path] = strings.Replace(alpha[path], `"default":`+defaults.alpha, `"default":`+defaults.beta, 1)
			}
			for path := range merged(alpha, beta) {
				if alpha[path] != beta[path] {
					t.Errorf("%s differs between apis/v1alpha1 and apis/v1beta1: declare it in both, or list it in renames\nv1alpha1, converted: %s\nv1beta1: %s",
						path, alpha[path], beta[path])
				}
			}
			NewWithT(t).Expect(len(alpha)).To(BeNumerically(">", 50))
		})
	}
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// describe lists the fields of a schema by their paths after a conversion, with all that the schema says about them,
// but for texts, and rules that mention a renamed field.
func describe(f *field, path string, schema apiextensionsv1.JSONSchemaProps, into map[string]string) {
	says := schema
	says.Description, says.Properties, says.Items, says.AdditionalProperties, says.XValidations = "", nil, nil, nil, nil
	if f.values != nil {
		says.Type, says.Enum = "string", nil
		for _, value := range f.values {
			says.Enum = append(says.Enum, apiextensionsv1.JSON{Raw: []byte(value)})
		}
		if says.Default != nil {
			says.Default = &apiextensionsv1.JSON{Raw: []byte(f.values[string(says.Default.Raw)])}
		}
	}
	slices.SortFunc(says.Enum, func(a, b apiextensionsv1.JSON) int { return strings.Compare(string(a.Raw), string(b.Raw)) })
	says.Required = nil
	for _, name := range schema.Required {
		says.Required = append(says.Required, f.renamed(name))
	}
	slices.Sort(says.Required)
	text, err := json.Marshal(says)
	if err != nil {
		panic(err)
	}
	into[path] = string(text)
	for _, rule := range schema.XValidations {
		if !renamedInRule(rule.Rule + rule.FieldPath + rule.Message) {
			into[path+" rule "+rule.Rule] = rule.Message + " at " + rule.FieldPath
		}
	}
	for name, property := range schema.Properties {
		below := f.fields[name]
		if below == nil {
			below = &field{}
		}
		describe(below, path+"."+f.renamed(name), property, into)
	}
	if schema.Items != nil {
		describe(f, path+"[]", *schema.Items.Schema, into)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		describe(&field{}, path+"{}", *schema.AdditionalProperties.Schema, into)
	}
}

func (f *field) renamed(name string) string {
	if below := f.fields[name]; below != nil && below.rename != "" {
		return strings.Trim(below.rename, `"`)
	}
	return name
}

// renamedInRule says whether a rule mentions a renamed field: its two versions differ, and test/validation tests them.
func renamedInRule(rule string) bool {
	for _, word := range []string{"tls", "scheme", "protocol.disabled", "protocol.probe", "keyName", "credentialsRef", "credentialsSecretRef", "127 letters"} {
		if strings.Contains(rule, word) {
			return true
		}
	}
	return false
}

// The table is for all kinds, so a path must mean the same in all of them.
func TestRenamesBelongToTheirKinds(t *testing.T) {
	all := definitions(t)
	for _, r := range renames {
		owners := 0
		for _, d := range all {
			paths := map[string]string{}
			describe(&field{}, "", d.versions[v1alpha1], paths)
			if _, found := paths["."+r.path]; found {
				owners++
			}
		}
		NewWithT(t).Expect(owners).To(BeNumerically(">", 0), "no kind has %s in v1alpha1", r.path)
	}
}

func FuzzConvert(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"fixpoint.dev/v1beta1","spec":{"protocol":{"scheme":"HTTP"}},"status":{"drifts":[{"desired":"\\"}]}}`))
	f.Add([]byte(`{"\u0061piVersion":"fixpoint.dev\/v1beta1" , "spec" : [ ] }`))
	f.Fuzz(func(t *testing.T, object []byte) {
		converted, err := Convert(object, v1alpha1)
		if err != nil || !json.Valid(object) {
			return
		}
		if !json.Valid(converted) {
			t.Fatalf("%s became %s, which is not JSON", object, converted)
		}
		if _, err := Convert(converted, v1beta1); err != nil {
			t.Fatalf("%s became %s, which cannot be converted back: %v", object, converted, err)
		}
	})
}
