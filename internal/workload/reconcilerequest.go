package workload

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// HandledReconcile is the value of status.lastHandledReconcileAt after a reconcile of the object.
func HandledReconcile(object metav1.Object) string {
	return Cut(object.GetAnnotations()[v1beta1.AnnotationReconcileRequest], v1beta1.MaxReconcileRequestLength)
}
