package ssa

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AdoptionPolicy says what to do with an object that exists under the desired name and is not ours.
type AdoptionPolicy string

const (
	// AdoptNever leaves such an object alone and reports it. It is the default.
	AdoptNever AdoptionPolicy = "Never"
	// AdoptIfUnowned takes over an object that no controller owns. One that another controller
	// owns is never touched, whatever the policy.
	AdoptIfUnowned AdoptionPolicy = "IfUnowned"
)

// DriftPolicy says what to do about fields of ours that another manager has changed.
type DriftPolicy string

const (
	// CorrectDrift puts our values back. It is the default.
	CorrectDrift DriftPolicy = "Correct"
	// ReportDrift changes nothing that has drifted, and reports it for as long as it stands.
	// A change of the configuration is applied around the drifted fields.
	ReportDrift DriftPolicy = "Report"
)

// ControllerReference is the owner reference with which owner controls a child. It is what
// [Request.Owner] takes.
func ControllerReference(owner client.Object, gvk schema.GroupVersionKind) metav1.OwnerReference {
	return *metav1.NewControllerRef(owner, gvk)
}

// belonging is the answer to whose an object is.
type belonging int

const (
	ours belonging = iota
	unowned
)

// belongs decides whose the live object is, by UID. It fails with an [*Error] if the object
// belongs to another controller.
//
// An object without a controller is still ours if our record names the owner's UID and the API
// server says that the record is our own applied field: then somebody removed the owner
// reference. A copy of the object made by another client carries the record, but not the entry.
func belongs(id identity, live metav1.Object, owner metav1.OwnerReference, rec record, recordIsApplied bool) (belonging, error) {
	controller := metav1.GetControllerOf(live)
	switch {
	case controller == nil && recordIsApplied && rec.owner == owner.UID:
		return ours, nil
	case controller == nil:
		return unowned, nil
	case controller.UID == owner.UID:
		return ours, nil
	case sameKind(*controller, owner) && controller.Name == owner.Name:
		return ours, &Error{
			Reason:    ReasonOwnedByAnother,
			Object:    id.String(),
			Message:   fmt.Sprintf("it still belongs to an earlier %s named %s, which was deleted; the garbage collector removes it, and then it is created anew. If it is to be kept, remove its owner reference", owner.Kind, owner.Name),
			Transient: true,
		}
	default:
		return ours, &Error{
			Reason:  ReasonOwnedByAnother,
			Object:  id.String(),
			Message: fmt.Sprintf("it is controlled by %s %s and is left alone; rename one of the two, or delete it there", controller.Kind, controller.Name),
		}
	}
}

// sameKind compares group and kind; the version may have moved on.
func sameKind(a, b metav1.OwnerReference) bool {
	return schema.FromAPIVersionAndKind(a.APIVersion, a.Kind).GroupKind() == schema.FromAPIVersionAndKind(b.APIVersion, b.Kind).GroupKind()
}

func notOwned(id identity) *Error {
	return &Error{
		Reason:  ReasonNotOwned,
		Object:  id.String(),
		Message: "an object of this name exists and is not ours, so it is left alone; delete or rename it, or set the adoption policy to IfUnowned to take it over",
	}
}
