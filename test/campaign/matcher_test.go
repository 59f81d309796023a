package campaign

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

var (
	unknownField = regexp.MustCompile(`unknown field "([^"]*)"`)
	formatError  = regexp.MustCompile(`^Invalid value: "": Checked value must be of type .* in (spec\S*)$`)
)

// cause is one cause of a refusal.
type cause struct{ field, message string }

// causesOf returns the causes of a refusal.
func causesOf(err error) []cause {
	status := statusOf(err)
	if status == nil {
		return nil
	}
	var causes []cause
	if details := status.ErrStatus.Details; details != nil {
		for _, c := range details.Causes {
			causes = append(causes, cause{c.Field, c.Message})
			// The API server reports format errors without a field.
			if match := formatError.FindStringSubmatch(c.Message); match != nil {
				causes = append(causes, cause{match[1], c.Message})
			}
		}
	}
	for _, match := range unknownField.FindAllStringSubmatch(status.ErrStatus.Message, -1) {
		causes = append(causes, cause{match[1], match[0]})
	}
	return causes
}

// refusalNames reports whether a refusal names exactly the field that a mutation makes invalid.
func refusalNames(err error, t trial, m specs.Mutation) bool {
	if isTypedPatchError(err) {
		return strings.Contains(statusOf(err).ErrStatus.Message, " "+m.TypedPath(t.kind.Schema, t.tree())+": ")
	}
	return slices.ContainsFunc(causesOf(err), func(c cause) bool { return c.field == m.Field().String() })
}

// refusalRelates reports whether a refusal by a rule concerns a field: the rule reports the field, a field that contains
// it or that it contains, or a sibling. A rule of the whole spec must mention the field's top-level name.
func refusalRelates(err error, path specs.Path) bool {
	text := path.String()
	return slices.ContainsFunc(causesOf(err), func(c cause) bool {
		if c.field == "spec" {
			return mentions(c.message, fmt.Sprint(path[min(1, len(path)-1)]))
		}
		return isBelow(text, c.field) || isBelow(c.field, text) || parentOf(c.field) == parentOf(text) || isBelow(c.field, parentOf(text))
	})
}

// refusalRelates reports whether a refusal concerns a field that the trial sets or changes.
func (t trial) refusalRelates(err error) bool {
	return isTypedPatchError(err) || slices.ContainsFunc(changedFields(t), func(c changedField) bool { return refusalRelates(err, c.path) })
}

// isBelow reports whether a path equals another one or leads through it.
func isBelow(path, ancestor string) bool {
	rest, ok := strings.CutPrefix(path, ancestor)
	return ok && ancestor != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func parentOf(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

// mentions reports whether a text contains a word.
func mentions(text, word string) bool {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`).MatchString(text)
}

// childPaths maps fields of a spec to the fields of the children that are set from them.
var childPaths = []struct{ spec, child string }{
	{"spec.env", "spec.template.spec.containers[0].env"},
	{"spec.envFrom", "spec.template.spec.containers[0].envFrom"},
	{"spec.resources", "spec.template.spec.containers[0].resources"},
	{"spec.image", "spec.template.spec.containers[0].image"},
	{"spec.containerSecurityContext", "spec.template.spec.containers[0].securityContext"},
	{"spec.podSecurityContext", "spec.template.spec.securityContext"},
	{"spec.nodeSelector", "spec.template.spec.nodeSelector"},
	{"spec.scheduling", "spec.template.spec"},
	{"spec.podOverrides.metadata", "spec.template"},
	{"spec.podOverrides.spec", "spec.template.spec"},
	{"spec.podOverrides.spec", "spec"}, // the manager's own checks
	{"spec.hooks.preDeploy", "spec.template.spec.containers[0]"},
	{"spec.networkPolicy.ingress.from", "spec.ingress[0].from"},
	{"spec.networkPolicy.egress.rules", "spec.egress"},
	{"spec.ingress.annotations", "metadata.annotations"},
	{"spec.serviceAccount.annotations", "metadata.annotations"},
	{"spec.httpRoute.parentRefs", "spec.parentRefs"},
	{"spec.httpRoute.hostnames", "spec.hostnames"},
}

// reportedFor maps fields to the fields that Kubernetes reports in their place.
var reportedFor = []struct {
	field    *regexp.Regexp
	reported string
}{
	{regexp.MustCompile(`(\.resources)\.(limits|requests)[.\[].+$`), "$1.requests"},
	{regexp.MustCompile(`(\.fieldRef)\.apiVersion$`), "$1.fieldPath"},
	{regexp.MustCompile(`(\.tolerations\[\d+\])\.value$`), "$1.operator"},
	{regexp.MustCompile(`(\.claims\[\d+\])\.name$`), "$1"},
	{regexp.MustCompile(`(\.matchLabelKeys)\[\d+\]$`), "$1"},
	{regexp.MustCompile(`(\.pod(?:Anti)?Affinity\..*\.namespace)s\[\d+\]$`), "$1"},
	// The constraints of the manager come first.
	{regexp.MustCompile(`^(spec\.template\.spec\.topologySpreadConstraints)\[0\]`), "$1[1]"},
	{regexp.MustCompile(`^(spec\.template\.spec)\.terminationGracePeriodSeconds$`), "$1.containers[0].lifecycle.preStop.sleep"},
	{regexp.MustCompile(`^(spec\.template\.spec)\..*\.windowsOptions\.hostProcess$`), "$1.hostNetwork"},
}

// referenceTexts maps fields that refer to other objects to the text with which conditions name the object.
var referenceTexts = []struct {
	field *regexp.Regexp
	text  string
}{
	{regexp.MustCompile(`\.secret(Key)?Ref\.name$|\.credentials(Secret)?Ref\.name$|\.clientSecretRef\.name$|\.secret\.name$|^spec\.imagePullSecrets\[\d+\]\.name$`), "Secret %v"},
	{regexp.MustCompile(`\.configMap(Key)?Ref\.name$|\.(jwksConfigMapRef|configMap)\.name$`), "ConfigMap %v"},
	{regexp.MustCompile(`\.(secretKeyRef|configMapKeyRef|jwksConfigMapRef|credentialsSecretRef|caRef)\.key$|\.items\[\d+\]\.key$`), "key %v of"},
	{regexp.MustCompile(`\.persistentVolumeClaim\.claimName$`), "PersistentVolumeClaim %v"},
	{regexp.MustCompile(`^spec\.serviceAccount(\.name|Name)$|\.workloadIdentity\.serviceAccountName$`), "ServiceAccount %v"},
	{regexp.MustCompile(`\.caRef\.name$`), "%v"},
	{regexp.MustCompile(`^spec\.(provider|key\.vault)\.resourceGroup$`), "resource group %v"},
	{regexp.MustCompile(`^spec\.key\.vault\.name$`), "vault %v"},
	{regexp.MustCompile(`^spec\.provider\.location$`), "location '%v'"},
}

// conditionNames reports whether the Ready condition names the field of a trial: its path in the spec, the path of the
// child's field that is set from it, or the object that it refers to.
func conditionNames(live *unstructured.Unstructured, t trial) bool {
	ready := conditions(live)["Ready"]
	m := t.mutations[0]
	if ready.Reason == v1beta1.ReasonSuspended {
		return m.Path.String() == "spec.suspend"
	}
	if ready.Reason == v1beta1.ReasonNotPermitted {
		// The message names the field of the spec, and what of it the Pod Security Standard forbids.
		return slices.ContainsFunc([]string{"spec.podSecurityContext", "spec.containerSecurityContext"}, func(field string) bool {
			return isBelow(m.Path.String(), field) && strings.Contains(ready.Message, field)
		})
	}
	for _, reference := range referenceTexts {
		if reference.field.MatchString(m.Path.String()) && strings.Contains(ready.Message, fmt.Sprintf(reference.text, m.Value)) {
			return true
		}
	}
	for _, changed := range changedFields(t) {
		for _, name := range namesOf(t.kind, changed) {
			if containsPath(ready.Message, name, changed.isObject) {
				return true
			}
		}
	}
	return false
}

// changedField is a field that a trial sets or changes.
type changedField struct {
	path specs.Path
	// isObject is true for an object, of which a required field can be missing.
	isObject bool
}

// changedFields returns the field of the mutation and all other fields that differ from the seed.
func changedFields(t trial) []changedField {
	var changed []changedField
	before := t.kind.Seeds[t.seed]
	var walk func(path specs.Path, value any)
	walk = func(path specs.Path, value any) {
		was, existed := specs.Get(before, path)
		if existed && equality.Semantic.DeepEqual(was, value) {
			return
		}
		fields, isObject := value.(map[string]any)
		for key, inner := range fields {
			walk(path.Child(key), inner)
		}
		items, isList := value.([]any)
		for i, inner := range items {
			walk(path.Child(i), inner)
		}
		if !existed || t.mutations[0].Path.Covers(path) || !isObject && !isList {
			changed = append(changed, changedField{path, isObject})
		}
	}
	walk(specs.Path{"spec"}, t.tree()["spec"])
	return append(changed, changedField{path: t.mutations[0].Path})
}

// namesOf returns the names under which the API server and the manager report a field of a spec.
func namesOf(kind specs.Kind, changed changedField) []string {
	var names []string
	for _, name := range specs.Renderings(kind.Schema, changed.path) {
		names = append(names, name)
		for _, mapping := range childPaths {
			if isBelow(name, mapping.spec) {
				names = append(names, mapping.child+strings.TrimPrefix(name, mapping.spec))
			}
		}
	}
	for _, name := range slices.Clone(names) {
		for _, r := range reportedFor {
			if r.field.MatchString(name) {
				names = append(names, r.field.ReplaceAllString(name, r.reported))
			}
		}
	}
	return names
}

// mergedList matches the index of an item of a list into which the manager merges items of other origin.
var mergedList = regexp.MustCompile(`((?:env|volumes|volumeMounts|containers|initContainers|egress)\\)\[\d+\\\]`)

// containsPath reports whether a message contains exactly this path. Of an object it can also name a missing field.
func containsPath(message, path string, isObject bool) bool {
	pattern := mergedList.ReplaceAllString(regexp.QuoteMeta(path), `$1[\d+\]`)
	if isObject {
		pattern += `(\.\w+)?`
	}
	return regexp.MustCompile(`(^|[^\w.\]])` + pattern + `($|[^\w.\[]|\.(\s|$))`).MatchString(message)
}

func TestContainsPathMatchesWholePaths(t *testing.T) {
	const message = `Deployment web: spec.template.spec.containers[0].env[3].name: Invalid value: ""; correct spec.key.name.`
	for path, want := range map[string]bool{
		"spec.template.spec.containers[0].env[3].name": true,
		"spec.template.spec.containers[0].env[1].name": true, // the manager merges other variables into the list
		"spec.key.name": true,
		"spec.template.spec.containers[0].env[3]": false,
		"spec.template.spec.containers":           false,
		"spec.containers[0].env[3].name":          false,
		"key.name":                                false,
		"spec.key":                                false,
	} {
		NewWithT(t).Expect(containsPath(message, path, false)).To(Equal(want), path)
	}
	NewWithT(t).Expect(containsPath(message, "spec.key", true)).To(BeTrue(), "an object can lack a field")
}

func TestRefusalRelatesToTheFieldOrItsRule(t *testing.T) {
	path := specs.Path{"spec", "key", "vault", "name"}
	for field, want := range map[string]bool{
		"spec.key.vault.name": true, "spec.key.vault": true, "spec.key": true, "spec.key.vault.other": true,
		"spec.access": false, "spec.keys": false, "": false,
	} {
		err := apierrors.NewInvalid(schema.GroupKind{}, "name", invalid(field))
		NewWithT(t).Expect(refusalRelates(err, path)).To(Equal(want), field)
	}
}

func invalid(path string) field.ErrorList {
	return field.ErrorList{field.Invalid(field.NewPath(path), nil, "wrong")}
}
