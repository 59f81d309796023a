package ssa

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AdoptionPolicy says what to do with an existing object that no controller owns. One that another controller owns is
// never changed. An owner whose users choose the policy has it in spec.adoptionPolicy, which the message of
// ReasonNotOwned names; one that leaves it empty offers no adoption.
type AdoptionPolicy string

// The adoption policies.
const (
	AdoptNever     AdoptionPolicy = "Never" // fail with ReasonNotOwned; the default
	AdoptIfUnowned AdoptionPolicy = "IfUnowned"
)

// DriftPolicy says what to do about managed fields that another manager has changed.
type DriftPolicy string

// The drift policies.
const (
	CorrectDrift DriftPolicy = "Correct" // revert them; the default
	// ReportDrift leaves them, reports them for as long as they differ, and applies changes without them.
	// Kinds that are not in k8s.io/api need a schema in [Options.TypeConverters], or [ReasonInvalid] is the result.
	ReportDrift DriftPolicy = "Report"
)

// checkPolicies refuses unknown policies: a default in their place could revert what was to be left.
func checkPolicies(id identity, req Request) error {
	var problem string
	switch {
	case !slices.Contains([]AdoptionPolicy{"", AdoptNever, AdoptIfUnowned}, req.Adoption):
		problem = fmt.Sprintf("the adoption policy %q is unknown: use %s or %s", req.Adoption, AdoptNever, AdoptIfUnowned)
	case !slices.Contains([]DriftPolicy{"", CorrectDrift, ReportDrift}, req.Drift):
		problem = fmt.Sprintf("the drift policy %q is unknown: use %s or %s", req.Drift, CorrectDrift, ReportDrift)
	default:
		return nil
	}
	return &Error{Reason: ReasonInvalid, Object: id.String(), Message: problem}
}

// checkOwnership fails with an [*Error] if the object must not be written, and says whether writing it adopts it.
//
// An object without a controller is still the owner's if its record names the owner's UID and is the applier's own field:
// then the owner reference was removed. A copy made by another client carries the record, but not the field.
func checkOwnership(e evidence, req Request) (adopts bool, err error) {
	if req.Owner == nil {
		return false, nil
	}
	owner, controller := *req.Owner, metav1.GetControllerOf(e.live)
	refused := &Error{Reason: ReasonOwnedByAnother, Object: e.target.id.String()}
	switch {
	case controller == nil && e.record.owner == owner.UID && ownsRecord(e):
		return false, nil
	case controller == nil && req.Adoption == AdoptIfUnowned:
		return true, nil
	case controller == nil:
		refused.Reason = ReasonNotOwned
		refused.Message = "an object of this name exists and no controller owns it; delete or rename it"
		if req.Adoption == AdoptNever {
			refused.Message += ", or set spec.adoptionPolicy to IfUnowned to adopt it"
		}
	case controller.UID == owner.UID:
		return false, nil
	case groupKindOf(*controller) == groupKindOf(owner) && controller.Name == owner.Name:
		refused.Transient = true
		refused.Message = fmt.Sprintf("it is still owned by a deleted %s of the same name; it will be recreated once the garbage collector has deleted it. To keep it, remove its owner reference", owner.Kind)
		if req.Adoption == AdoptNever {
			refused.Message += ", and set spec.adoptionPolicy to IfUnowned"
		}
	default:
		refused.Message = fmt.Sprintf("it is controlled by %s %s, so it is not changed; rename one of the two objects, or delete this one there", controller.Kind, controller.Name)
	}
	return false, refused
}

// groupKindOf leaves out the version, which may have changed.
func groupKindOf(r metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).GroupKind()
}
