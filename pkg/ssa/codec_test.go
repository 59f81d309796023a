package ssa

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestRecordRoundTrip(t *testing.T) {
	g := NewWithT(t)
	packed, err := pack(item)
	g.Expect(err).NotTo(HaveOccurred())
	written := record{config: digestOf([]byte("x")), owner: "016db00a-ddd7-4cdf-82d9-2bae027ae752", packed: packed}

	read := parseRecord(written.String())

	g.Expect(read).To(Equal(written))
	set, ok := read.fields()
	g.Expect(ok).To(BeTrue())
	g.Expect(textOf(t, set)).To(Equal(item))
}

func TestRecordOfASharedObjectHasNoOwner(t *testing.T) {
	r := record{config: "c", packed: "p"}
	NewWithT(t).Expect(parseRecord(r.String())).To(Equal(r))
}

func TestHostileRecordsSayNothing(t *testing.T) {
	packedOf := func(text string) string {
		packed, err := pack(text)
		if err != nil {
			t.Fatal(err)
		}
		return record{config: "c", packed: packed}.String()
	}
	for name, text := range map[string]string{
		"empty":                                "",
		"another version":                      "v2/c/o/p",
		"no field set":                         "v1/c/o",
		"not base64":                           "v1/c/o/!!!",
		"not compressed":                       "v1/c/o/AAAA",
		"not JSON":                             packedOf("hello"),
		"not a field set":                      packedOf(`["f:a"]`),
		"deeper than any schema":               packedOf(strings.Repeat(`{"f:a":`, 200) + `{}` + strings.Repeat(`}`, 200)),
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
	packed, err := pack(item)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(record{config: "c", owner: "o", packed: packed}.String())
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

// FuzzFields: a field set that can be read can be written, and is the same then.
func FuzzFields(f *testing.F) {
	for _, text := range []string{item, `{}`, `{"f:a":{".":{},"i:0":{},"v:1":{}}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if nesting(raw) > maxNesting {
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
		if err != nil || !again.Equals(set) {
			t.Fatalf("%s was written as %s: %v", raw, written, err)
		}
	})
}
