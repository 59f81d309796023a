package validation

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// kindCases are the cases of a kind, which the tests here hold against its schema.
type kindCases struct {
	kind        string
	refusals    map[string]refusal
	limits      map[string]limitRefusal
	acceptances map[string]acceptance
}

var kinds = []kindCases{
	{"AppService", ruleRefusals, limitRefusals, acceptances},
	{"MCPServer", mcpServerRefusals, mcpServerLimits, mcpServerAcceptances},
	{"SecureStorage", secureStorageRefusals, secureStorageLimits, secureStorageAcceptances},
}

// borrowed are the fields whose types come from Kubernetes, and their rules with them.
var borrowed = []string{
	"spec.env[]", "spec.envFrom[]", "spec.imagePullSecrets[]", "spec.resources", "status.conditions[]",
	"spec.podSecurityContext", "spec.containerSecurityContext", "spec.hooks.preDeploy.env[]", "spec.hooks.preDeploy.resources",
	"spec.scheduling.affinity", "spec.scheduling.tolerations[]", "spec.scheduling.topologySpreadConstraints[]",
	"spec.networkPolicy.ingress.from[]", "spec.networkPolicy.egress.rules[].to[]",
}

// forEachKind runs a test for each kind, with its schema.
func forEachKind(t *testing.T, test func(*testing.T, kindCases, apiextensionsv1.JSONSchemaProps)) {
	for _, cases := range kinds {
		t.Run(cases.kind, func(t *testing.T) {
			test(t, cases, readSchema(NewWithT(t), crdFolder+"/fixpoint.dev_"+plural(cases.kind)+".yaml"))
		})
	}
}

// A kind that is not among them would go unguarded.
func TestEveryKindIsGuarded(t *testing.T) {
	g := NewWithT(t)
	var want, got []string
	for _, cases := range kinds {
		want = append(want, "fixpoint.dev_"+plural(cases.kind)+".yaml")
	}
	files, err := os.ReadDir(crdFolder)
	g.Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		got = append(got, file.Name())
	}
	g.Expect(got).To(ConsistOf(want))
}

// walk visits the schema of every field of the project, with its path: list items end
// in [] and map values in {}.
func walk(path string, schema apiextensionsv1.JSONSchemaProps, visit func(string, apiextensionsv1.JSONSchemaProps)) {
	if slices.Contains(borrowed, path) {
		return
	}
	visit(path, schema)
	for name, property := range schema.Properties {
		walk(strings.TrimPrefix(path+"."+name, "."), property, visit)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		walk(path+"[]", *schema.Items.Schema, visit)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		walk(path+"{}", *schema.AdditionalProperties.Schema, visit)
	}
}

func readSchema(g *WithT, crdFile string) apiextensionsv1.JSONSchemaProps {
	text, err := os.ReadFile(crdFile)
	g.Expect(err).NotTo(HaveOccurred())
	var definition apiextensionsv1.CustomResourceDefinition
	g.Expect(yaml.UnmarshalStrict(text, &definition)).To(Succeed())
	stored := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	g.Expect(stored).NotTo(Equal(-1), "%s has no storage version", crdFile)
	return *definition.Spec.Versions[stored].Schema.OpenAPIV3Schema
}

// limitsOf names the limits that a field's schema sets beside its type and its rules.
func limitsOf(path string, schema apiextensionsv1.JSONSchemaProps) []string {
	var limits []string
	for keyword, isSet := range map[string]bool{
		"minimum":       schema.Minimum != nil,
		"maximum":       schema.Maximum != nil,
		"minLength":     schema.MinLength != nil,
		"maxLength":     schema.MaxLength != nil,
		"minItems":      schema.MinItems != nil,
		"maxItems":      schema.MaxItems != nil,
		"minProperties": schema.MinProperties != nil,
		"maxProperties": schema.MaxProperties != nil,
		"multipleOf":    schema.MultipleOf != nil,
		"pattern":       schema.Pattern != "",
		"enum":          schema.Enum != nil,
	} {
		if isSet {
			limits = append(limits, path+" "+keyword)
		}
	}
	for _, name := range schema.Required {
		limits = append(limits, strings.TrimPrefix(path+"."+name, ".")+" required")
	}
	return limits
}

// anyIndex is where a user is pointed to in a list.
var anyIndex = regexp.MustCompile(`\[\d+\]`)

func TestEveryRuleHasACase(t *testing.T) {
	forEachKind(t, func(t *testing.T, cases kindCases, schema apiextensionsv1.JSONSchemaProps) {
		g := NewWithT(t)
		tested := map[string]bool{}
		for _, c := range cases.refusals {
			tested[c.message+" @ "+anyIndex.ReplaceAllString(c.field, "[]")] = true
		}
		walk("", schema, func(path string, schema apiextensionsv1.JSONSchemaProps) {
			for _, rule := range schema.XValidations {
				field := path + rule.FieldPath
				if path == "" {
					field = "<nil>"
				}
				g.Expect(rule.Message).NotTo(BeEmpty(), "the rule %s at %q shows its code to the user", rule.Rule, path)
				if !tested[rule.Message+" @ "+field] {
					t.Errorf("no refusal breaks the rule of %s that says: %s", field, rule.Message)
				}
			}
		})
	})
}

func TestEveryLimitHasACase(t *testing.T) {
	forEachKind(t, func(t *testing.T, cases kindCases, schema apiextensionsv1.JSONSchemaProps) {
		var limits []string
		walk("", schema, func(path string, schema apiextensionsv1.JSONSchemaProps) {
			limits = append(limits, limitsOf(path, schema)...)
		})
		for _, limit := range limits {
			if _, tested := cases.limits[limit]; !tested {
				t.Errorf("no case breaks %q", limit)
			}
		}
		for limit := range cases.limits {
			if !slices.Contains(limits, limit) {
				t.Errorf("there is a case for %q, which the schema does not set", limit)
			}
		}
	})
}

// A field without a bound lets one object fill the API server's storage.
func TestEveryTextAndListHasALimit(t *testing.T) {
	forEachKind(t, func(t *testing.T, _ kindCases, schema apiextensionsv1.JSONSchemaProps) {
		for _, part := range []string{"spec", "status"} {
			walk(part, schema.Properties[part], func(path string, schema apiextensionsv1.JSONSchemaProps) {
				if !isBounded(path, schema) {
					t.Errorf("%s has no limit", path)
				}
			})
		}
	})
}

// isBounded reads the schema. The rules of a map bound its keys and
// values, and a rule that calls duration bounds its text.
func isBounded(path string, schema apiextensionsv1.JSONSchemaProps) bool {
	switch {
	case strings.HasSuffix(path, "{}"), schema.XIntOrString, schema.Format != "":
		return true
	case schema.Type == "array":
		return schema.MaxItems != nil
	case schema.AdditionalProperties != nil:
		return schema.MaxProperties != nil
	case schema.Type == "string":
		return schema.MaxLength != nil || schema.Enum != nil || slices.ContainsFunc(schema.XValidations,
			func(rule apiextensionsv1.ValidationRule) bool { return strings.Contains(rule.Rule, "duration(self)") })
	}
	return true
}

func TestMessagesNameTheFieldAndTheRemedy(t *testing.T) {
	forEachKind(t, func(t *testing.T, _ kindCases, schema apiextensionsv1.JSONSchemaProps) {
		walk("", schema, func(path string, schema apiextensionsv1.JSONSchemaProps) {
			for _, rule := range schema.XValidations {
				field := strings.TrimSuffix(path[strings.LastIndex(path, ".")+1:], "[]")
				if rule.FieldPath != "" {
					field = rule.FieldPath[1:]
				}
				if !strings.Contains(rule.Message, field) {
					t.Errorf("the message does not name the field %s: %s", field, rule.Message)
				}
				if _, remedy, found := strings.Cut(rule.Message, ": "); !found || remedy == "" {
					t.Errorf("the message of %s says no remedy after a colon: %s", field, rule.Message)
				}
			}
		})
	})
}

func TestAcceptedSpecsSetEveryField(t *testing.T) {
	forEachKind(t, func(t *testing.T, cases kindCases, schema apiextensionsv1.JSONSchemaProps) {
		set := map[string]bool{}
		for _, c := range cases.acceptances {
			collect("spec", parse(NewWithT(t), c.spec), set)
		}
		for _, seed := range seedsOf(NewWithT(t), cases.kind) {
			collect("spec", seed["spec"], set)
		}
		walk("", schema, func(path string, _ apiextensionsv1.JSONSchemaProps) {
			if strings.HasPrefix(path, "spec") && !strings.HasSuffix(path, "{}") && !set[path] {
				t.Errorf("no accepted spec sets %s", path)
			}
		})
	})
}

// collect notes the paths of all fields that a value sets.
func collect(path string, value any, set map[string]bool) {
	set[path] = true
	switch value := value.(type) {
	case map[string]any:
		for key, element := range value {
			collect(path+"."+key, element, set)
		}
	case []any:
		for _, element := range value {
			collect(path+"[]", element, set)
		}
	}
}
