package harness

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KStatus is what tools such as Flux and Argo CD compute from an object, by sigs.k8s.io/cli-utils:
// InProgress, Failed, Current or Terminating.
func KStatus(object client.Object) string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(fmt.Sprintf("converting a %T: %v", object, err))
	}
	result, err := status.Compute(&unstructured.Unstructured{Object: content})
	if err != nil {
		panic(fmt.Sprintf("computing the status of a %T: %v", object, err))
	}
	return result.Status.String()
}
