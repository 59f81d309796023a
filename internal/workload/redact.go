package workload

import (
	"encoding/json"
	"regexp"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Redacted replaces values that may be confidential, and redacted in the report of a drift, as JSON.
const (
	Redacted = "(redacted)"
	redacted = `"` + Redacted + `"`
)

// confidential are the fields of children whose values, and all values below them, may be confidential.
var confidential = map[string]bool{
	"annotations":            true,
	"args":                   true,
	"binaryData":             true,
	"command":                true,
	"data":                   true,
	"env":                    true,
	"httpHeaders":            true,
	"requestHeaderModifier":  true,
	"responseHeaderModifier": true,
	"stringData":             true,
	"volumeAttributes":       true,
}

// pathElement matches the names of fields and of map keys in a path.
var pathElement = regexp.MustCompile(`\.([^.\[]+)`)

// Policies are those of an object, with a function that removes values that may be confidential from the drifts of
// its children: what another client has written to an environment variable, an argument or a ConfigMap. Status,
// Events and logs have more readers than the children. The annotation [v1beta1.DriftValuesAnnotation] turns it off.
func Policies(object client.Object, adoption v1beta1.AdoptionPolicy, drift v1beta1.DriftPolicy) phases.Policies {
	policies := phases.Policies{Adoption: ssa.AdoptionPolicy(adoption), Drift: ssa.DriftPolicy(drift)}
	if object.GetAnnotations()[v1beta1.DriftValuesAnnotation] != v1beta1.DriftValuesShow {
		policies.Redact = redact
	}
	return policies
}

// RedactDrift redacts all values of a drift of a child that holds only confidential data.
func RedactDrift(drift *ssa.Drift) {
	drift.Desired, drift.Actual = redactedIfAny(drift.Desired), redactedIfAny(drift.Actual)
}

func redact(drift *ssa.Drift) {
	for _, element := range pathElement.FindAllStringSubmatch(drift.Path, -1) {
		if confidential[element[1]] {
			RedactDrift(drift)
			return
		}
	}
	drift.Desired, drift.Actual = redactWithin(drift.Desired), redactWithin(drift.Actual)
}

// redactedIfAny keeps an empty value: the field does not exist.
func redactedIfAny(value string) string {
	if value == "" {
		return ""
	}
	return redacted
}

// redactWithin redacts confidential fields of a JSON value, such as the env of a removed container.
func redactWithin(value string) string {
	var tree any
	if err := json.Unmarshal([]byte(value), &tree); err != nil {
		return redactedIfAny(value)
	}
	if !redactTree(tree) {
		return value
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return redacted
	}
	return string(raw)
}

// RedactValues redacts the fields of an object whose values may be confidential, in place.
func RedactValues(object map[string]any) { redactTree(object) }

// redactTree redacts in place, and reports whether it changed anything.
func redactTree(tree any) bool {
	changed := false
	switch at := tree.(type) {
	case map[string]any:
		for key, value := range at {
			if confidential[key] {
				at[key], changed = Redacted, true
				continue
			}
			changed = redactTree(value) || changed
		}
	case []any:
		for _, item := range at {
			changed = redactTree(item) || changed
		}
	}
	return changed
}
