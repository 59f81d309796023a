package ssa

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

func TestRecordRoundTrip(t *testing.T) {
	g := NewWithT(t)
	written := record{config: digestOf([]byte("x")), owner: "016db00a-ddd7-4cdf-82d9-2bae027ae752", packed: pack(item)}

	read := parseRecord(written.String())

	g.Expect(read).To(Equal(written))
	set, ok := read.fields()
	g.Expect(ok).To(BeTrue())
	g.Expect(textOf(t, set)).To(Equal(item))
}

// nested is a field set of this depth.
func nested(depth int) string {
	return strings.Repeat(`{"f:a":`, depth-1) + `{}` + strings.Repeat(`}`, depth-1)
}

func TestFieldSetsAreReadUpToTheirBound(t *testing.T) {
	g := NewWithT(t)
	for depth, empty := range map[int]bool{128: false, 129: true} {
		set, ok := record{packed: pack(nested(depth))}.fields()
		g.Expect(ok).To(Equal(!empty))
		g.Expect(ok && set.Empty()).To(BeFalse())
		entry := managed("x", byApply, "", nested(depth))
		g.Expect(entryFields(&entry).Empty()).To(Equal(empty))
	}
	g.Expect(nesting([]byte(`{"f:a":{},"f:b":{"f:c":{}},"f:d":{}}`))).To(Equal(3), "siblings are not nested")
}

func TestEntryWithoutFieldsHoldsNone(t *testing.T) {
	g := NewWithT(t)
	malformed := managed("x", byUpdate, "", "[")
	for _, entry := range []*metav1.ManagedFieldsEntry{nil, {Manager: "x"}, &malformed} {
		g.Expect(entryFields(entry)).To(Equal(&fieldSet{}))
	}
}

func TestFieldSetThatCannotBeSerializedIsAnError(t *testing.T) {
	m := managedFields{changed: true, entries: []managedEntry{{set: pathSet(make(fieldPath, 1))}}}
	applier := newBenchApplier(t, newServer())
	_, err := m.encode()
	_, _, writesErr := applier.Writes(Decision{managedFields: m})
	_, replaceErr := applier.replaceManagedFields(context.Background(), deployment, &appsv1.Deployment{}, m)
	for _, err := range []error{err, writesErr, replaceErr} {
		NewWithT(t).Expect(err).To(MatchError(HavePrefix("serializing managed fields: ")))
	}
}

func TestRecordOfASharedObjectHasNoOwner(t *testing.T) {
	r := record{config: digestOf([]byte("c")), packed: "p"}
	NewWithT(t).Expect(parseRecord(r.String())).To(Equal(r))
}

func TestOnlyTheTextOfADigestIsOne(t *testing.T) {
	c := digestOf([]byte("c"))
	text := c.String()
	last := text[:len(text)-1] + "B" // with bits beyond those of a digest
	for name, edited := range map[string]string{
		"empty": "", "shorter": text[1:], "longer": text + "AAAA", "not base64": "!" + text[1:], "bits that do not count": last, "a line end": text + "\n",
	} {
		NewWithT(t).Expect(parseDigest(edited)).To(BeZero(), name)
	}
	NewWithT(t).Expect(parseDigest(text)).To(Equal(c))
}

func TestAnswersAreBounded(t *testing.T) {
	g := NewWithT(t)
	known := &answers{of: map[digest]answer{}}
	for i := range maxAnswers + 2 {
		known.add(digest{byte(i), byte(i >> 8), byte(i >> 16)}, answer{fields: "{}"})
	}
	g.Expect(known.of).To(HaveLen(maxAnswers))
}

func TestHostileRecordsSayNothing(t *testing.T) {
	packedOf := func(text string) string {
		return record{config: digestOf([]byte("c")), packed: pack(text)}.String()
	}
	for name, text := range map[string]string{
		"empty":                                "",
		"another version":                      "v2/c/o/p",
		"no field set":                         "v1/c/o",
		"not base64":                           "v1/c/o/!!!",
		"not compressed":                       "v1/c/o/AAAA",
		"more than a record":                   packedOf(item) + "AAAA!",
		"not JSON":                             packedOf("hello"),
		"not a field set":                      packedOf(`["f:a"]`),
		"deeper than any schema":               packedOf(nested(maxNesting + 1)),
		"a bomb, which is cut and thus broken": packedOf(`{"f:` + strings.Repeat("a", 2*maxFields) + `":{}}`),
	} {
		t.Run(name, func(t *testing.T) {
			_, ok := parseRecord(text).fields()
			NewWithT(t).Expect(ok).To(BeFalse())
		})
	}
}

// FuzzRecord: whatever the annotation holds, reading it neither fails nor takes long.
func FuzzRecord(f *testing.F) {
	f.Add(record{config: digestOf([]byte("c")), owner: "o", packed: pack(item)}.String())
	f.Add("v1///")
	f.Add("v1/c/o/AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		r := parseRecord(text)
		if again := parseRecord(r.String()); r != (record{}) && again != r {
			t.Fatalf("%q was read as %+v and again as %+v", text, r, again)
		}
		if set, ok := r.fields(); ok {
			tops(set)
		}
	})
}

// FuzzFields: a field set that can be read can be written, and is the same then, but for bytes that are no
// text. No operation on two
// sets panics or takes long, and what is taken from a set and what is left of it are the set.
func FuzzFields(f *testing.F) {
	texts := []string{item, `{}`, `{"f:a":{".":{},"i:0":{},"v:1":{}}}`, `{"f:spec":{"f:a":{".":{},"f:b":{".":{},"f:c":{}}}}}`, `{"f:list":{"i:-1":{"k:{\"name\":\"a\"}":{}}}}`, "{\"k:{\\\"\\\":\\\"\xff\\\"}\":{}}"}
	for _, text := range texts {
		f.Add([]byte(text), []byte(item))
		f.Add([]byte(item), []byte(text))
	}
	document := `{"list":[{"name":"a","value":[1]}],"spec":{"a":{"b":{"c":1}}},"a":["x"]}`
	f.Fuzz(func(t *testing.T, raw, rawOther []byte) {
		if nesting(raw) > maxNesting || nesting(rawOther) > maxNesting {
			return
		}
		set, err := parseFields(raw)
		if err != nil {
			return
		}
		written, err := fieldsJSON(set)
		if err != nil {
			return
		}
		again, err := parseFields([]byte(written))
		if err != nil || utf8.Valid(raw) && !again.Equals(set) {
			t.Fatalf("%s was written as %s: %v", raw, written, err)
		}
		other, err := parseFields(rawOther)
		if err != nil {
			return
		}
		dependent := dependentOn(set, other, structsOutsideOf("config"))
		if left := set.Difference(dependent); !left.Union(dependent).Equals(set) || !left.Intersection(other).Empty() {
			t.Fatalf("of %s, %s depends on %s", set, dependent, other)
		}
		if left := withoutEmptied(set.Difference(other), set); !left.Difference(set).Empty() {
			t.Fatalf("%s without %s has gained something: %s", set, other, left)
		}
		inItems(set, makeFieldPath("list", "name"))
		for _, path := range tops(set) {
			tree, err := decode([]byte(document))
			if err != nil {
				t.Fatal(err)
			}
			lookup(tree, path)
			without(tree, path)
			holds(other, path)
			within(other, []fieldPath{path})
		}
	})
}

// FuzzDecide: whatever other clients have written into the record and the managed fields of an object,
// Decide neither panics nor takes long, and what it plans to write can be read.
func FuzzDecide(f *testing.F) {
	owner := ownedBy("o")
	server := newServer()
	desired := appsv1ac.Deployment("d", "n").WithSpec(appsv1ac.DeploymentSpec().WithReplicas(1).
		WithTemplate(corev1ac.PodTemplateSpec().WithSpec(corev1ac.PodSpec().WithContainers(
			corev1ac.Container().WithName("web").WithPorts(corev1ac.ContainerPort().WithName("http").WithContainerPort(80))))))
	created, err := newBenchApplier(f, server).Apply(context.Background(), Request{Desired: desired, Owner: owner})
	if err != nil {
		f.Fatal(err)
	}
	record, held := created.Live.GetAnnotations()[RecordAnnotationPrefix+benchManager], created.Live.GetManagedFields()[0].FieldsV1.GetRawString()
	const containers = `{"f:spec":{"f:template":{"f:spec":{"f:containers":`
	for _, other := range []string{
		`{"f:spec":{".":{},"f:replicas":{}}}`,
		containers + `{"k:{\"name\":\"web\"}":{"f:ports":{"k:{\"containerPort\":81,\"protocol\":\"TCP\"}":{".":{},"f:name":{}}}}}}}}}`,
		containers + `{"i:-1":{"f:ports":{"k:{\"containerPort\":80}":{"f:name":{}}}}}}}}`,
		strings.Repeat(`{"f:a":`, 200) + `{}` + strings.Repeat(`}`, 200),
	} {
		f.Add(record, held, other, true, byte(0))
		f.Add("", held, other, false, byte(1))
		f.Add(record, "", other, true, byte(2))
		f.Add(record, `{"f:spec":{"f:paused":{}}}`, other, false, byte(7))
	}
	f.Fuzz(func(t *testing.T, record, mine, other string, update bool, flags byte) {
		live, _ := created.Live.DeepCopyObject().(*appsv1.Deployment)
		live.Annotations = map[string]string{RecordAnnotationPrefix + benchManager: record}
		live.ManagedFields = nil
		if mine != "" {
			live.ManagedFields = append(live.ManagedFields, managed(benchManager, byApply, "", mine))
		}
		live.ManagedFields = append(live.ManagedFields, managed("other", byApply, "", other))
		if update {
			live.ManagedFields[len(live.ManagedFields)-1].Operation = byUpdate
		}
		if flags&1 != 0 {
			live.ManagedFields[len(live.ManagedFields)-1].Manager = beforeFirstApply
		}
		if flags&2 != 0 {
			live.OwnerReferences = nil
		}
		for i := range live.ManagedFields {
			live.ManagedFields[i].APIVersion = "apps/v1"
		}
		request := Request{
			Desired: desired, Live: live, Owner: owner, Adoption: AdoptIfUnowned,
			HandOver: []string{"spec.replicas"}, RemoveFields: []string{"spec.strategy.rollingUpdate"}, UniqueFields: []string{"spec.template.spec.containers.ports.name"},
		}
		if flags&4 != 0 {
			request.Drift = ReportDrift
		}
		applier := newBenchApplier(t, server)
		d, err := applier.Decide(request)
		if err != nil || !d.Writes() {
			return
		}
		d.body(live)
		entries, err := d.managedFields.encode()
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if _, err := parseFields(entry.FieldsV1.GetRawBytes()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
