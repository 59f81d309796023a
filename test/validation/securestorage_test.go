package validation

import (
	"fmt"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// leastStorage is the least that a SecureStorage has to declare.
const leastStorage = `
provider: {subscriptionID: 00000000-0000-0000-0000-000000000001, resourceGroup: demo, location: westeurope}
key: {vault: {name: demo-vault}, name: demo-key}`

// storageDefaults are what the API server adds to it.
const storageDefaults = `{sku: Standard_LRS, access: {type: RoleAssignment}, managementPolicy: Manage, deletionPolicy: Retain, adoptionPolicy: Never,
	accountLossPolicy: Stall, pollInterval: 5m, propagationDeadline: 15m}`

// secureStorage builds a SecureStorage that differs from the least one.
func secureStorage(g *WithT, name, difference string) *unstructured.Unstructured {
	return build(g, "SecureStorage", name, storage(difference))
}

// storage is the least spec with differences, in YAML. A null takes a field out.
func storage(differences ...string) string {
	spec := read(leastStorage)
	for _, difference := range differences {
		merge(spec, read(difference))
	}
	text, err := yaml.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("writing a spec: %v", err))
	}
	return string(text)
}

func read(text string) map[string]any {
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
		panic(fmt.Sprintf("parsing %s: %v", text, err))
	}
	return fields
}

func merge(into, difference map[string]any) {
	for key, value := range difference {
		nested, isMap := value.(map[string]any)
		old, wasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && wasMap:
			merge(old, nested)
		default:
			into[key] = value
		}
	}
}
