package harness

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Status is the part of a status that all kinds have.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration"`
	Conditions         []metav1.Condition `json:"conditions"`
}

// StatusOf is the common part of an object's status.
func StatusOf(object client.Object) Status {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(fmt.Sprintf("converting a %T: %v", object, err))
	}
	var status Status
	if found, ok, _ := unstructured.NestedMap(content, "status"); ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found, &status); err != nil {
			panic(fmt.Sprintf("reading the status of a %T: %v", object, err))
		}
	}
	return status
}

// Conditions are the status and the reason of each, such as "True Ready".
func Conditions(object client.Object) map[string]string {
	all := map[string]string{}
	for _, c := range StatusOf(object).Conditions {
		all[c.Type] = string(c.Status) + " " + c.Reason
	}
	return all
}

// Message is that of a condition, or "".
func Message(object client.Object, conditionType string) string {
	for _, c := range StatusOf(object).Conditions {
		if c.Type == conditionType {
			return c.Message
		}
	}
	return ""
}

// IsObserved says whether the status is about the spec that the object has.
func IsObserved(object client.Object) bool {
	return StatusOf(object).ObservedGeneration == object.GetGeneration()
}

// IsReady says whether the object is Ready for the spec that it has.
func IsReady(object client.Object) bool {
	return IsObserved(object) && Conditions(object)["Ready"] == "True Ready"
}
