package ssa

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// compactFieldsType is the type of the only entry in the managed fields of a compact object. The API server knows
// no such type.
const compactFieldsType = "Digest"

// Compact makes an object of a cache smaller, in place: in a cache transform, it replaces managed fields and
// annotations by a digest of what the applier of the field manager compares. It returns false, and leaves the
// object as it is, unless the applier holds exactly the fields that it applied last. So an object that has drifted
// stays whole, and a repair needs no read past the cache.
//
// What else nobody reads can be dropped from a compact object. [Applier.Decide] finds that it is as desired, or
// fails with an error for which [IsStale] is true: a change of the configuration needs the whole object.
func Compact(cached client.Object, fieldManager string) bool {
	if IsCompact(cached) {
		return true
	}
	entry := appliedEntry(cached, fieldManager, "")
	if entry == nil {
		return false
	}
	fields, record := entry.FieldsV1.GetRawString(), parseRecord(cached.GetAnnotations()[RecordAnnotationPrefix+fieldManager])
	if recorded, ok := record.rawFields(); !ok || recorded != fields {
		return false
	}
	sum := compactDigest(entry.APIVersion, digestOf([]byte(fields)), record.config, record.owner)
	cached.SetAnnotations(nil)
	cached.SetManagedFields([]metav1.ManagedFieldsEntry{{FieldsType: compactFieldsType, FieldsV1: metav1.NewFieldsV1(sum)}})
	return true
}

// IsCompact says whether [Compact] has been here.
func IsCompact(object client.Object) bool {
	entries := object.GetManagedFields()
	return len(entries) == 1 && entries[0].FieldsType == compactFieldsType
}

func compactDigest(apiVersion string, fields, config digest, owner types.UID) string {
	sum := digestOf([]byte(strings.Join([]string{apiVersion, string(fields[:]), string(config[:]), string(owner)}, "\x00")))
	return string(sum[:])
}
