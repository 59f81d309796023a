package ssa

import (
	"testing"

	. "github.com/onsi/gomega"
)

// fields parses FieldsV1 as tests write it.
func fields(t testing.TB, text string) fieldSet {
	t.Helper()
	set, err := parseFields([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func textOf(t testing.TB, s fieldSet) string {
	t.Helper()
	raw, err := s.json()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func pathTexts(paths []fieldPath) []string {
	texts := []string{}
	for _, p := range paths {
		texts = append(texts, p.String())
	}
	return texts
}

// onlyPath is the one path of a set.
func onlyPath(t testing.TB, text string) fieldPath {
	t.Helper()
	tops := fields(t, text).tops()
	if len(tops) != 1 {
		t.Fatalf("%s has %d tops", text, len(tops))
	}
	return tops[0]
}

const item = `{"f:list":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:value":{}}}}`

func TestTops(t *testing.T) {
	for name, test := range map[string]struct {
		set  string
		tops []string
	}{
		"nothing":              {`{}`, []string{}},
		"leaves":               {`{"f:a":{},"f:b":{"f:c":{}}}`, []string{".a", ".b.c"}},
		"an item is one":       {item, []string{`.list[name="a"]`}},
		"a struct with itself": {`{"f:a":{".":{},"f:b":{}}}`, []string{".a"}},
		"a value of a set":     {`{"f:finalizers":{"v:\"x\"":{}}}`, []string{`.finalizers[="x"]`}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(pathTexts(fields(t, test.set).tops())).To(ConsistOf(test.tops))
		})
	}
}

func TestHolds(t *testing.T) {
	set := `{"f:a":{"f:b":{}},"f:m":{".":{},"f:k":{}}}`
	for name, test := range map[string]struct {
		path         fieldPath
		holds, above bool
	}{
		"a member":                       {makeFieldPath("a", "b"), true, false},
		"an ancestor of one":             {makeFieldPath("a"), true, false},
		"below a leaf":                   {makeFieldPath("a", "b", "c"), false, true},
		"beside one":                     {makeFieldPath("a", "c"), false, false},
		"beside one, in a map with mark": {makeFieldPath("m", "other"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(fields(t, set).holds(test.path)).To(Equal(test.holds), "holds")
			g.Expect(fields(t, set).holdsAbove(test.path)).To(Equal(test.above), "holdsAbove")
		})
	}
}

func TestLookupAndRemove(t *testing.T) {
	const document = `{"list":[{"name":"b"},{"name":"a","value":1}],"ports":[{"port":80}],"finalizers":["x","y"],"m":{"k":"v"}}`
	for name, test := range map[string]struct {
		path  string
		value any
		found bool
		left  string
	}{
		"a key":                      {`{"f:m":{"f:k":{}}}`, "v", true, `{"finalizers":["x","y"],"list":[{"name":"b"},{"name":"a","value":1}],"m":{},"ports":[{"port":80}]}`},
		"in an item":                 {`{"f:list":{"k:{\"name\":\"a\"}":{"f:value":{}}}}`, int64(1), true, `{"finalizers":["x","y"],"list":[{"name":"b"},{"name":"a"}],"m":{"k":"v"},"ports":[{"port":80}]}`},
		"an item":                    {`{"f:list":{"k:{\"name\":\"b\"}":{}}}`, map[string]any{"name": "b"}, true, `{"finalizers":["x","y"],"list":[{"name":"a","value":1}],"m":{"k":"v"},"ports":[{"port":80}]}`},
		"a value of a set":           {`{"f:finalizers":{"v:\"x\"":{}}}`, "x", true, `{"finalizers":["y"],"list":[{"name":"b"},{"name":"a","value":1}],"m":{"k":"v"},"ports":[{"port":80}]}`},
		"by index":                   {`{"f:finalizers":{"i:1":{}}}`, "y", true, `{"finalizers":["x"],"list":[{"name":"b"},{"name":"a","value":1}],"m":{"k":"v"},"ports":[{"port":80}]}`},
		"a key that has a default":   {`{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:port":{}}}}`, int64(80), true, `{"finalizers":["x","y"],"list":[{"name":"b"},{"name":"a","value":1}],"m":{"k":"v"},"ports":[{}]}`},
		"what is not there":          {`{"f:m":{"f:other":{}}}`, nil, false, ""},
		"an item that is not there":  {`{"f:list":{"k:{\"name\":\"c\"}":{}}}`, nil, false, ""},
		"a field of a list":          {`{"f:list":{"f:x":{}}}`, nil, false, ""},
		"an item of a map":           {`{"f:m":{"i:0":{}}}`, nil, false, ""},
		"below a value":              {`{"f:m":{"f:k":{"f:x":{}}}}`, nil, false, ""},
		"an item of a list of texts": {`{"f:finalizers":{"k:{\"name\":\"x\"}":{}}}`, nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			tree, err := decode([]byte(document))
			g.Expect(err).NotTo(HaveOccurred())
			path := onlyPath(t, test.path)

			v, found := path.lookup(tree)
			path.remove(tree)

			g.Expect(found).To(Equal(test.found))
			left, err := encode(tree)
			g.Expect(err).NotTo(HaveOccurred())
			if !test.found {
				g.Expect(left).To(MatchJSON(document), "nothing is removed")
				return
			}
			g.Expect(left).To(MatchJSON(test.left))
			if test.value != nil {
				g.Expect(v).To(Equal(test.value))
			}
		})
	}
}

func TestOutsideItemsOf(t *testing.T) {
	const held = `{"f:list":{"k:{\"name\":\"a\"}":{".":{},"f:default":{},"f:m":{"f:k":{}}},"k:{\"name\":\"b\"}":{".":{},"f:x":{}}},"f:y":{}}`
	for name, test := range map[string]struct{ owned, outside string }{
		"an owned item": {item, `{"f:list":{"k:{\"name\":\"a\"}":{},"k:{\"name\":\"b\"}":{".":{},"f:x":{}}},"f:y":{}}`},
		"no owned item": {`{"f:y":{}}`, held},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(textOf(t, fields(t, held).outsideItemsOf(fields(t, test.owned)))).To(MatchJSON(test.outside))
		})
	}
}

// A shape in which everything is a struct's field, but for what is below a map.
func structsOutsideOf(maps ...string) fieldsAtEnd {
	return func(p fieldPath) int {
		for i, pe := range p.path {
			for _, m := range maps {
				if i > 0 && p.path[i-1].FieldName != nil && *p.path[i-1].FieldName == m {
					return len(p.path) - i - 1
				}
			}
			if pe.FieldName == nil {
				return len(p.path) - i - 1
			}
		}
		return len(p.path)
	}
}

func TestOutsideStructsOf(t *testing.T) {
	for name, test := range map[string]struct{ held, owned, outside string }{
		"a default beside an owned field is dropped": {`{"f:spec":{"f:ingress":{"f:host":{},"f:path":{}}}}`, `{"f:spec":{"f:ingress":{"f:host":{}}}}`, `{}`},
		"a struct without owned fields stays":        {`{"f:spec":{"f:ingress":{"f:path":{}}}}`, `{"f:spec":{"f:probes":{"f:x":{}}}}`, `{"f:spec":{"f:ingress":{"f:path":{}}}}`},
		"what is in the spec itself stays":           {`{"f:spec":{"f:replicas":{}}}`, `{"f:spec":{"f:image":{}}}`, `{"f:spec":{"f:replicas":{}}}`},
		"a key of a map stays":                       {`{"f:spec":{"f:config":{"f:other":{}}}}`, `{"f:spec":{"f:config":{"f:own":{}}}}`, `{"f:spec":{"f:config":{"f:other":{}}}}`},
		"an item of a list stays":                    {`{"f:spec":{"f:pod":{"f:volumes":{"k:{\"name\":\"x\"}":{}}}}}`, `{"f:spec":{"f:pod":{"f:image":{}}}}`, `{"f:spec":{"f:pod":{"f:volumes":{"k:{\"name\":\"x\"}":{}}}}}`},
		"at the top everything stays":                {`{"f:data":{}}`, `{"f:data":{"f:a":{}}}`, `{"f:data":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			outside := fields(t, test.held).outsideStructsOf(fields(t, test.owned), structsOutsideOf("config"))
			g.Expect(textOf(t, outside)).To(MatchJSON(test.outside))
		})
	}
}

func TestWithoutEmptied(t *testing.T) {
	for name, test := range map[string]struct{ now, before, left string }{
		"a marker that holds something stays":           {`{"f:a":{".":{},"f:b":{}}}`, `{"f:a":{".":{},"f:b":{},"f:c":{}}}`, `{"f:a":{".":{},"f:b":{}}}`},
		"a marker that was emptied is dropped":          {`{"f:a":{".":{}}}`, `{"f:a":{".":{},"f:b":{}}}`, `{}`},
		"a marker that was always alone stays":          {`{"f:a":{}}`, `{"f:a":{},"f:b":{}}`, `{"f:a":{}}`},
		"markers within markers are dropped one by one": {`{"f:a":{".":{},"f:b":{".":{}}}}`, `{"f:a":{".":{},"f:b":{".":{},"f:c":{}}}}`, `{}`},
		"a leaf beside an emptied marker stays":         {`{"f:a":{".":{}},"f:x":{}}`, `{"f:a":{".":{},"f:b":{}},"f:x":{}}`, `{"f:x":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(textOf(t, fields(t, test.now).withoutEmptied(fields(t, test.before)))).To(MatchJSON(test.left))
		})
	}
}

func TestLeavesOf(t *testing.T) {
	for name, test := range map[string]struct {
		value  any
		leaves []string
	}{
		"a value":         {"x", []string{".at"}},
		"a list":          {[]any{map[string]any{"a": 1}}, []string{".at"}},
		"an empty struct": {map[string]any{}, []string{".at"}},
		"a struct":        {map[string]any{"a": 1, "b": map[string]any{"c": 2}}, []string{".at.a", ".at.b.c"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(pathTexts(leavesOf(test.value, makeFieldPath("at")))).To(ConsistOf(test.leaves))
		})
	}
}

func TestOutside(t *testing.T) {
	g := NewWithT(t)
	set := fields(t, `{"f:spec":{"f:replicas":{},"f:strategy":{"f:type":{},"f:rollingUpdate":{"f:maxSurge":{}}}}}`)
	left := set.outside(parseFieldPaths([]string{"spec.replicas", ".spec.strategy.rollingUpdate"}))
	g.Expect(textOf(t, left)).To(MatchJSON(`{"f:spec":{"f:strategy":{"f:type":{}}}}`))
}

func TestFieldsV1IsWrittenAsItWasRead(t *testing.T) {
	for _, text := range []string{`{}`, item, `{"f:a":{".":{},"f:b":{}},"f:c":{}}`, `{"f:finalizers":{".":{},"v:\"x\"":{}},"f:l":{"i:3":{}}}`} {
		NewWithT(t).Expect(textOf(t, fields(t, text))).To(Equal(text))
	}
}
