package phases

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What SetupWithManager uses, for the tests of it that need no manager.
var (
	AtOnce        = atOnce
	AfterInterval = afterInterval
)

// FinalizersOf is what a message says of what a deletion waits for.
var FinalizersOf = finalizersOf

// DriftedField is what the Event about a drift relates to.
var DriftedField = driftedField

// DefaultPropagation is how a child of a kind is deleted whose phase does not say.
var DefaultPropagation = defaultPropagation

func WatchesOf[O client.Object, S any](e *Engine[O, S], mapper meta.RESTMapper) []ChildWatch {
	return e.watches(mapper)
}

// PutOff is of how many objects the engine keeps since when a status is put off.
func PutOff[O client.Object, S any](e *Engine[O, S]) (count int) {
	e.due.Range(func(any, any) bool {
		count++
		return true
	})
	return count
}
