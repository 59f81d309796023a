package specs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// imageField is the one field that the seed with all options sets and that is no option.
const imageField = "image"

// options is the seed of an AppService with every option that adds a child.
var options = func() map[string]any {
	text, err := seeds.ReadFile("seeds/appservice-autoscaled.yaml")
	if err != nil {
		panic(err) // it is embedded
	}
	spec, err := Parse(string(text))
	if err != nil {
		panic(err) // the seed is wrong
	}
	return spec
}()

// Options are the fields of an AppService by which the seed adds children: a new optional phase is turned on in all
// suites by one line of the seed.
func Options() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(options)), func(field string) bool { return field == imageField })
}

// AllOptions sets every option of an AppService.
func AllOptions(s *v1beta1.AppServiceSpec) {
	s.Replicas = nil // an autoscaler is among the options
	for _, field := range Options() {
		SetOption(s, field)
	}
}

// NoOptions unsets every option of an AppService.
func NoOptions(s *v1beta1.AppServiceSpec) {
	for _, field := range Options() {
		UnsetOption(s, field)
	}
}

// SetOption sets one option as the seed does.
func SetOption(s *v1beta1.AppServiceSpec, field string) {
	UnsetOption(s, field) // maps would be merged
	convert(map[string]any{field: options[field]}, s)
}

// UnsetOption unsets one option.
func UnsetOption(s *v1beta1.AppServiceSpec, field string) {
	fields := map[string]any{}
	convert(s, &fields)
	delete(fields, field)
	var without v1beta1.AppServiceSpec
	convert(fields, &without)
	*s = without
}

// convert converts between a spec and its fields.
func convert(from, to any) {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		panic(fmt.Sprintf("converting %T to %T: %v", from, to, err)) // the seed does not match the Go types
	}
}
