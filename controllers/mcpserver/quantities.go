package mcpserver

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// A quantity takes the longer to be read the smaller it is: 1e-999999999 takes a day. The schema lets
// through only what is read at once, with the same pattern; spec.podOverrides.spec has no schema.
var readableQuantity = regexp.MustCompile(`^[+-]?([0-9]{1,32}(\.[0-9]{0,32})?|\.[0-9]{1,32})(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`)

// Where a pod has quantities: in fields of their own, and as the values of maps.
var (
	quantityFields = []string{"divisor", "sizeLimit"}
	quantityMaps   = []string{"limits", "requests", "overhead"}
)

// checkQuantities finds texts in a part of a pod that are no quantity, or none that is to be read.
func checkQuantities(path string, part any) error {
	switch part := part.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(part)) { // the first mistake has to be the same each time
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
	if text, isText := value.(string); isText && !readableQuantity.MatchString(text) {
		return fmt.Errorf("%s: %.40q is no quantity: write for example 100m or 64Mi", path, text)
	}
	return nil
}
