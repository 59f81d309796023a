// Package kubeschema has the schemas of the kinds of Kubernetes that the controllers apply. Those of client-go are of
// all kinds: they take five times the memory, and 20 MB for a moment.
package kubeschema

import (
	_ "embed" // the schema
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

//go:embed schema.yaml
var schema typed.YAMLObject

var parser = sync.OnceValue(func() *typed.Parser {
	parsed, err := typed.NewParser(schema)
	if err != nil {
		panic(fmt.Sprintf("schema.yaml, which is generated, cannot be parsed: %v", err))
	}
	return parsed
})

// NewTypeConverter is for the TypeConverters of ssa.Options. It fails for other kinds.
func NewTypeConverter(scheme *runtime.Scheme) managedfields.TypeConverter {
	return managedfields.NewSchemeTypeConverter(scheme, parser())
}
