package mcpserver

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// Parsing a quantity with a large negative exponent takes very long: 1e-999999999 takes a day. The CRD
// schema rejects such quantities with the same pattern, but spec.podOverrides.spec has no schema.
var quantityPattern = regexp.MustCompile(`^[+-]?([0-9]{1,32}(\.[0-9]{0,32})?|\.[0-9]{1,32})(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`)

// Fields of a pod that are quantities, and maps whose values are.
var (
	quantityFields = []string{"divisor", "sizeLimit"}
	quantityMaps   = []string{"limits", "requests", "overhead"}
)

// checkQuantities returns an error for the first string of a partial pod that is not an allowed quantity.
func checkQuantities(path string, part any) error {
	switch part := part.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(part)) { // sorted, so that the first error is deterministic
			if err := checkQuantitiesOf(path+"."+name, name, part[name]); err != nil {
				return err
			}
		}
	case []any:
		for i, item := range part {
			if err := checkQuantities(fmt.Sprintf("%s[%d]", path, i), item); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkQuantitiesOf(path, name string, value any) error {
	if slices.Contains(quantityFields, name) {
		return checkQuantity(path, value)
	}
	if quantities, isMap := value.(map[string]any); isMap && slices.Contains(quantityMaps, name) {
		for _, of := range slices.Sorted(maps.Keys(quantities)) {
			if err := checkQuantity(path+"."+of, quantities[of]); err != nil {
				return err
			}
		}
		return nil
	}
	return checkQuantities(path, value)
}

func checkQuantity(path string, value any) error {
	if text, isText := value.(string); isText && !quantityPattern.MatchString(text) {
		return fmt.Errorf("%s: %.40q is not a quantity such as 100m or 64Mi", path, text)
	}
	return nil
}
