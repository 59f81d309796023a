package ssa

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// managed writes an entry as "manager operation subresource".
func managed(manager string, operation metav1.ManagedFieldsOperationType, subresource, text string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, Subresource: subresource, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(text),
	}
}

const (
	byUpdate = metav1.ManagedFieldsOperationUpdate
	byApply  = metav1.ManagedFieldsOperationApply
)

func TestMigrate(t *testing.T) {
	ours := fields(t, `{"f:a":{},"f:b":{}}`)
	for name, test := range map[string]struct {
		migration migration
		before    []metav1.ManagedFieldsEntry
		after     []metav1.ManagedFieldsEntry // nil: no change
	}{
		"others keep what they hold": {
			before: []metav1.ManagedFieldsEntry{managed("kubectl-edit", byUpdate, "", `{"f:a":{}}`)},
		},
		"a former manager's fields become ours, wanted or not": {
			before: []metav1.ManagedFieldsEntry{managed("old", byUpdate, "", `{"f:a":{},"f:z":{}}`)},
			after:  []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:a":{},"f:z":{}}`)},
		},
		"they are added to what we have": {
			before: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:a":{}}`), managed("me", byUpdate, "", `{"f:z":{}}`)},
			after:  []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:a":{},"f:z":{}}`)},
		},
		"what a former manager wrote through a subresource is not of the object": {
			before: []metav1.ManagedFieldsEntry{managed("old", byUpdate, "status", `{"f:status":{}}`)},
		},
		"the status has a migration of its own": {
			migration: migration{subresource: "status"},
			before:    []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:a":{}}`), managed("old", byUpdate, "status", `{"f:status":{}}`)},
			after:     []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:a":{}}`), managed("me", byApply, "status", `{"f:status":{}}`)},
		},
		"a former manager that applied has its own life": {
			before: []metav1.ManagedFieldsEntry{managed("old", byApply, "", `{"f:a":{}}`)},
		},
		"adopting takes what we want, and leaves the rest": {
			migration: migration{adopting: true, shape: structsOutsideOf()},
			before:    []metav1.ManagedFieldsEntry{managed("kubectl-create", byUpdate, "", `{"f:a":{},"f:z":{}}`), managed("argo", byApply, "", `{"f:a":{}}`)},
			after:     []metav1.ManagedFieldsEntry{managed("kubectl-create", byUpdate, "", `{"f:z":{}}`), managed("argo", byApply, "", `{"f:a":{}}`)},
		},
		"an entry that is left with nothing goes": {
			migration: migration{adopting: true, shape: structsOutsideOf()},
			before:    []metav1.ManagedFieldsEntry{managed("kubectl-create", byUpdate, "", `{"f:a":{}}`), managed("x", byUpdate, "", `{"f:z":{}}`)},
			after:     []metav1.ManagedFieldsEntry{managed("x", byUpdate, "", `{"f:z":{}}`)},
		},
		"nobody's manager gives what we want": {
			migration: migration{shape: structsOutsideOf()},
			before:    []metav1.ManagedFieldsEntry{managed(beforeFirstApply, byUpdate, "", `{"f:a":{},"f:z":{}}`)},
			after:     []metav1.ManagedFieldsEntry{managed(beforeFirstApply, byUpdate, "", `{"f:z":{}}`)},
		},
		"no managed fields": {},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := test.migration
			m.manager, m.apiVersion, m.former = "me", "v1", sets.New("me", "old")
			before := metav1.ObjectMeta{ManagedFields: test.before}
			untouched := before.DeepCopy()

			entries, changed, err := m.migrate(before.ManagedFields, ours)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(changed).To(Equal(test.after != nil))
			if changed {
				g.Expect(entries).To(Equal(test.after))
			}
			if test.before != nil && test.before[0].Manager != "me" {
				g.Expect(before.ManagedFields).To(Equal(untouched.ManagedFields), "the cache's object is only read")
			}
		})
	}
}

func TestMigrateLeavesOtherVersionsAlone(t *testing.T) {
	g := NewWithT(t)
	entry := managed("old", byUpdate, "", `{"f:a":{}}`)
	entry.APIVersion = "v1beta1"

	_, changed, err := migration{manager: "me", apiVersion: "v1", former: sets.New("old")}.migrate([]metav1.ManagedFieldsEntry{entry}, emptyFieldSet())

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(changed).To(BeFalse())
}

func TestSeized(t *testing.T) {
	for name, test := range map[string]struct {
		before []metav1.ManagedFieldsEntry
		after  []metav1.ManagedFieldsEntry // nil: no change
	}{
		"it is ours alone already": {
			before: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{}}`), managed("other", byUpdate, "", `{"f:y":{}}`)},
		},
		"another holds it": {
			before: []metav1.ManagedFieldsEntry{managed("other", byUpdate, "", `{"f:x":{},"f:y":{}}`), managed("me", byApply, "", `{"f:a":{}}`)},
			after:  []metav1.ManagedFieldsEntry{managed("other", byUpdate, "", `{"f:y":{}}`), managed("me", byApply, "", `{"f:a":{},"f:x":{}}`)},
		},
		"several hold it, and it is all that they hold": {
			before: []metav1.ManagedFieldsEntry{managed("one", byUpdate, "", `{"f:x":{}}`), managed("two", byApply, "", `{"f:x":{}}`), managed("me", byApply, "", `{"f:x":{}}`)},
			after:  []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{}}`)},
		},
		"nobody holds it": {
			before: []metav1.ManagedFieldsEntry{managed("other", byUpdate, "", `{"f:y":{}}`)},
			after:  []metav1.ManagedFieldsEntry{managed("other", byUpdate, "", `{"f:y":{}}`), managed("me", byApply, "", `{"f:x":{}}`)},
		},
		"there are no managed fields": {
			after: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{}}`)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			entries, changed, err := seized(test.before, fields(t, `{"f:x":{}}`), "me", "v1")

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(changed).To(Equal(test.after != nil))
			if changed {
				g.Expect(entries).To(ConsistOf(test.after))
			}
		})
	}
}
