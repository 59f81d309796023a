package plugin

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// fieldChange is one field that differs. From is empty if the field is added, and To if it is removed; both are JSON.
type fieldChange struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// String reads like "~ spec.replicas: 3 -> 5".
func (c fieldChange) String() string {
	switch {
	case c.From == "":
		return "+ " + c.Field + ": " + c.To
	case c.To == "":
		return "- " + c.Field + ": " + c.From
	default:
		return "~ " + c.Field + ": " + c.From + " -> " + c.To
	}
}

// diff compares two objects field by field. Either may be nil. What the API server keeps books with, the status and
// the records of the applier are left out.
func diff(before, after client.Object) ([]fieldChange, error) {
	one, err := substanceOf(before)
	if err != nil {
		return nil, err
	}
	other, err := substanceOf(after)
	if err != nil {
		return nil, err
	}
	if _, isService := after.(*corev1.Service); isService && before == nil {
		withoutAllocated(other)
	}
	return diffValues("", one, other), nil
}

// withoutAllocated leaves out what the API server allocates for a new Service: a dry run is answered with other values.
func withoutAllocated(service any) {
	tree, _ := service.(map[string]any)
	spec, _ := tree["spec"].(map[string]any)
	for _, field := range []string{"clusterIP", "clusterIPs", "healthCheckNodePort"} {
		delete(spec, field)
	}
	ports, _ := spec["ports"].([]any)
	for _, item := range ports {
		if port, ok := item.(map[string]any); ok {
			delete(port, "nodePort")
		}
	}
}

// substanceOf is what of an object is compared; nil for nil.
func substanceOf(o client.Object) (any, error) {
	if o == nil {
		return nil, nil
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("comparing %s %s: %w", kindName(o), o.GetName(), err)
	}
	for _, field := range []string{"apiVersion", "kind", "status"} {
		delete(tree, field)
	}
	if metadata, ok := tree["metadata"].(map[string]any); ok {
		for _, field := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "name", "namespace"} {
			delete(metadata, field)
		}
		annotations, _ := metadata["annotations"].(map[string]any)
		maps.DeleteFunc(annotations, func(key string, _ any) bool { return strings.HasPrefix(key, ssa.RecordAnnotationPrefix) })
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
		if owners, ok := metadata["ownerReferences"].([]any); ok {
			for _, owner := range owners {
				if reference, ok := owner.(map[string]any); ok {
					delete(reference, "uid") // that of an object that does not exist yet is made up
				}
			}
		}
	}
	return tree, nil
}

func diffValues(path string, before, after any) []fieldChange {
	one, isMap := before.(map[string]any)
	other, alsoMap := after.(map[string]any)
	switch {
	case isMap && alsoMap, isMap && after == nil, alsoMap && before == nil:
		return diffMaps(path, one, other)
	}
	ones, isList := before.([]any)
	others, alsoList := after.([]any)
	if isList && alsoList || isList && after == nil || alsoList && before == nil {
		if changes, ok := diffLists(path, ones, others); ok {
			return changes
		}
	}
	if sameJSON(before, after) {
		return nil
	}
	return []fieldChange{{strings.TrimPrefix(path, "."), asJSON(before), asJSON(after)}}
}

func diffMaps(path string, before, after map[string]any) []fieldChange {
	var changes []fieldChange
	names := slices.Sorted(maps.Keys(before))
	for name := range after {
		if _, both := before[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		changes = append(changes, diffValues(path+"."+quoted(name), before[name], after[name])...)
	}
	return changes
}

// quoted keeps the dots of a key, such as that of an annotation, apart from those of the path.
func quoted(name string) string {
	if strings.ContainsAny(name, "./") {
		return `"` + name + `"`
	}
	return name
}

// listKeys are fields that tell the items of lists apart, the most telling first.
var listKeys = []string{"name", "mountPath", "containerPort", "port", "type", "ip", "uid", "host", "topologyKey"}

// diffLists compares lists whose items have a key in common item by item.
func diffLists(path string, before, after []any) ([]fieldChange, bool) {
	for _, key := range listKeys {
		ones, ok := byKey(before, key)
		others, alsoOK := byKey(after, key)
		if !ok || !alsoOK {
			continue
		}
		var changes []fieldChange
		for _, value := range unionOf(before, after, key) {
			changes = append(changes, diffValues(fmt.Sprintf("%s[%s=%s]", path, key, strings.Trim(value, `"`)), ones[value], others[value])...)
		}
		return changes, true
	}
	return nil, false
}

func byKey(list []any, key string) (map[string]any, bool) {
	found := map[string]any{}
	for _, item := range list {
		fields, ok := item.(map[string]any)
		value, has := fields[key]
		if !ok || !has || found[asJSON(value)] != nil {
			return nil, false
		}
		found[asJSON(value)] = item
	}
	return found, true
}

// unionOf are the values of the key in the order of the lists.
func unionOf(before, after []any, key string) []string {
	var values []string
	for _, item := range slices.Concat(before, after) {
		if fields, ok := item.(map[string]any); ok && !slices.Contains(values, asJSON(fields[key])) {
			values = append(values, asJSON(fields[key]))
		}
	}
	return values
}

func asJSON(value any) string {
	if value == nil {
		return ""
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return strconv.Quote(fmt.Sprint(value))
	}
	return string(raw)
}
