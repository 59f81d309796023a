package specs

import (
	"maps"
	"slices"
)

// Site is a place in an object where a schema says what may stand.
type Site struct {
	Path   Path
	Schema Schema
	// Value is what the seed has there, if Present.
	Value   any
	Present bool
}

// anyKey is the key at which a map is tried that has none.
const anyKey = "campaign"

// Sites lists the places of a spec, those that the seed sets and all others that its schema knows. Of
// a list, what the first item does not set is listed once.
func Sites(schema Schema, seed map[string]any) []Site {
	spec, present := seed["spec"]
	w := &walker{}
	w.walk(Site{Path: Path{"spec"}, Schema: schema.Properties["spec"], Value: spec, Present: present}, false)
	return w.sites
}

type walker struct{ sites []Site }

func (w *walker) walk(site Site, presentOnly bool) {
	if presentOnly && !site.Present {
		return
	}
	w.sites = append(w.sites, site)
	for _, name := range slices.Sorted(maps.Keys(site.Schema.Properties)) {
		w.below(site, name, site.Schema.Properties[name], presentOnly)
	}
	if hasItems(site.Schema) {
		items, _ := site.Value.([]any)
		for i := range max(1, len(items)) {
			w.below(site, i, *site.Schema.Items.Schema, presentOnly || i > 0)
		}
	}
	if isMap(site.Schema) {
		keys := []string{anyKey}
		if entries, isMap := site.Value.(map[string]any); isMap && len(entries) > 0 {
			keys = slices.Sorted(maps.Keys(entries))
		}
		for _, key := range keys {
			w.below(site, key, *site.Schema.AdditionalProperties.Schema, presentOnly)
		}
	}
}

func (w *walker) below(site Site, to any, schema Schema, presentOnly bool) {
	value, present := Get(site.Value, Path{to})
	w.walk(Site{Path: site.Path.Child(to), Schema: schema, Value: value, Present: present}, presentOnly)
}
