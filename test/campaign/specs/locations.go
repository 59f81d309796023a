package specs

import (
	"maps"
	"slices"
)

// Location is a location in an object, with its schema.
type Location struct {
	Path   Path
	Schema Schema
	// Value is the value in the seed, if Present.
	Value   any
	Present bool
}

// exampleKey is the key that is tried in empty maps.
const exampleKey = "campaign"

// Locations returns all locations of a spec: those that the seed sets, and all others in the schema. Locations that the
// first item of a list does not set are returned once.
func Locations(schema Schema, seed map[string]any) []Location {
	spec, present := seed["spec"]
	w := &walker{}
	w.walk(Location{Path: Path{"spec"}, Schema: schema.Properties["spec"], Value: spec, Present: present}, false)
	return w.locations
}

type walker struct{ locations []Location }

func (w *walker) walk(location Location, presentOnly bool) {
	if presentOnly && !location.Present {
		return
	}
	w.locations = append(w.locations, location)
	for _, name := range slices.Sorted(maps.Keys(location.Schema.Properties)) {
		w.below(location, name, location.Schema.Properties[name], presentOnly)
	}
	if hasItems(location.Schema) {
		items, _ := location.Value.([]any)
		for i := range max(1, len(items)) {
			w.below(location, i, *location.Schema.Items.Schema, presentOnly || i > 0)
		}
	}
	if isMap(location.Schema) {
		keys := []string{exampleKey}
		if entries, isMap := location.Value.(map[string]any); isMap && len(entries) > 0 {
			keys = slices.Sorted(maps.Keys(entries))
		}
		for _, key := range keys {
			w.below(location, key, *location.Schema.AdditionalProperties.Schema, presentOnly)
		}
	}
}

func (w *walker) below(location Location, to any, schema Schema, presentOnly bool) {
	value, present := Get(location.Value, Path{to})
	w.walk(Location{Path: location.Path.Child(to), Schema: schema, Value: value, Present: present}, presentOnly)
}
