package workload

import (
	"encoding/json"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Convert turns a value into one of another type that has the same JSON.
func Convert(from, into any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// MustConvert is [Convert] from an API type to its apply configuration, or back. It cannot fail, since both have the same
// JSON, and returns what it has filled in.
func MustConvert[T any](from any, into T) T {
	utilruntime.Must(Convert(from, into))
	return into
}
