package ssa

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// record is what the applier writes into an annotation of every object that it applies. It lets a
// manager that starts anew know, without a request, what was applied last:
//
//   - config tells a change of our own configuration from everything else;
//   - fields tells, when the configuration has changed as well, whether the object had drifted;
//   - owner proves by UID whose object it is, if somebody has taken the owner reference away.
//
// The annotation is itself an applied field: an edit of it shows in the managed fields.
type record struct {
	config digest
	fields digest
	owner  types.UID
}

// digest is a truncated SHA-256 in URL-safe base64: 128 bits, 22 characters.
type digest string

func digestOf(raw []byte) digest {
	sum := sha256.Sum256(raw)
	return digest(base64.RawURLEncoding.EncodeToString(sum[:16]))
}

const recordVersion = "v1"

func (r record) String() string {
	return strings.Join([]string{recordVersion, string(r.config), string(r.fields), string(r.owner)}, "/")
}

// parseRecord reads a record; anything else than a record of this version is the empty one.
func parseRecord(annotation string) record {
	version, rest, _ := strings.Cut(annotation, "/")
	if version != recordVersion {
		return record{}
	}
	config, rest, _ := strings.Cut(rest, "/")
	fields, owner, _ := strings.Cut(rest, "/")
	return record{config: digest(config), fields: digest(fields), owner: types.UID(owner)}
}

// appliedEntry finds the entry that the API server keeps for our applies, or nil.
func appliedEntry(live metav1.Object, manager, subresource string) *metav1.ManagedFieldsEntry {
	entries := live.GetManagedFields()
	for i := range entries {
		entry := &entries[i]
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == subresource {
			return entry
		}
	}
	return nil
}
