package ssa

import (
	"encoding/json"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
)

// fields parses FieldsV1 as tests write it.
func fields(t testing.TB, text string) *fieldSet {
	t.Helper()
	set, err := parseFields([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func textOf(t testing.TB, s *fieldSet) string {
	t.Helper()
	text, err := fieldsJSON(s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func pathTexts(paths []fieldPath) []string {
	texts := []string{}
	for _, p := range paths {
		texts = append(texts, p.String())
	}
	return texts
}

func membersOf(s *fieldSet) (texts []string) {
	s.Iterate(func(p fieldPath) { texts = append(texts, p.String()) })
	return texts
}

// onlyPath is the one path of a set.
func onlyPath(t testing.TB, text string) fieldPath {
	t.Helper()
	tops := tops(fields(t, text))
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
			g.Expect(pathTexts(tops(fields(t, test.set)))).To(ConsistOf(test.tops))
		})
	}
}

func TestHolds(t *testing.T) {
	set := `{"f:a":{"f:b":{}},"f:m":{".":{},"f:k":{}},"f:metadata":{"f:labels":{}}}`
	for name, test := range map[string]struct {
		path          fieldPath
		holds, atomic bool
		above         int
	}{
		"a member":                       {makeFieldPath("a", "b"), true, false, 0},
		"an ancestor of one":             {makeFieldPath("a"), true, false, 0},
		"below a leaf":                   {makeFieldPath("a", "b", "c"), false, true, 1},
		"beside one":                     {makeFieldPath("a", "c"), false, false, 0},
		"beside one, in a map with mark": {makeFieldPath("m", "other"), false, false, 1},
		"below the mark of the labels":   {makeFieldPath("metadata", "labels", "a"), false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(holds(fields(t, set), test.path)).To(Equal(test.holds), "holds")
			g.Expect(ancestors(fields(t, set), test.path)).To(HaveLen(test.above), "ancestors")
			g.Expect(holdsAtomic(fields(t, set), test.path)).To(Equal(test.atomic), "holdsAtomic")
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
		"a key":                      {`{"f:m":{"f:k":{}}}`, "v", true, `{"finalizers":["x","y"],"list":[{"name":"b"},{"name":"a","value":1}],"ports":[{"port":80}]}`},
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
		"an index beyond the list":   {`{"f:finalizers":{"i:2":{}}}`, nil, false, ""},
		"an item of a list of texts": {`{"f:finalizers":{"k:{\"name\":\"x\"}":{}}}`, nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			tree, err := decode([]byte(document))
			g.Expect(err).NotTo(HaveOccurred())
			path := onlyPath(t, test.path)

			v, found := lookup(tree, path)
			without(tree, path)

			g.Expect(found).To(Equal(test.found))
			left, err := json.Marshal(tree)
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

// A shape in which everything is a struct's field, but for what is below a map.
func structsOutsideOf(maps ...string) func(fieldPath) int {
	return func(p fieldPath) int {
		count := len(p)
		for i, pe := range p {
			isKey := i > 0 && p[i-1].FieldName != nil && slices.Contains(maps, *p[i-1].FieldName)
			if isKey || pe.FieldName == nil {
				count = len(p) - i - 1
			}
		}
		return count
	}
}

func TestDependentOn(t *testing.T) {
	const items = `{"f:list":{"k:{\"name\":\"a\"}":{".":{},"f:default":{},"f:m":{"f:k":{}}},"k:{\"name\":\"b\"}":{".":{},"f:x":{}}},"f:y":{}}`
	for name, test := range map[string]struct{ held, owned, independent string }{
		"what is in an owned item is dropped":        {items, item, `{"f:list":{"k:{\"name\":\"b\"}":{".":{},"f:x":{}}},"f:y":{}}`},
		"what is in no owned item stays":             {items, `{"f:z":{}}`, items},
		"what is owned as well is dropped":           {items, `{"f:y":{}}`, `{"f:list":{"k:{\"name\":\"a\"}":{".":{},"f:default":{},"f:m":{"f:k":{}}},"k:{\"name\":\"b\"}":{".":{},"f:x":{}}}}`},
		"a default beside an owned field is dropped": {`{"f:spec":{"f:ingress":{"f:host":{},"f:path":{}}}}`, `{"f:spec":{"f:ingress":{"f:host":{}}}}`, `{}`},
		"a struct without owned fields stays":        {`{"f:spec":{"f:ingress":{"f:path":{}}}}`, `{"f:spec":{"f:probes":{"f:x":{}}}}`, `{"f:spec":{"f:ingress":{"f:path":{}}}}`},
		"what is in the spec itself stays":           {`{"f:spec":{"f:replicas":{}}}`, `{"f:spec":{"f:image":{}}}`, `{"f:spec":{"f:replicas":{}}}`},
		"a key of a map stays":                       {`{"f:spec":{"f:config":{"f:other":{}}}}`, `{"f:spec":{"f:config":{"f:own":{}}}}`, `{"f:spec":{"f:config":{"f:other":{}}}}`},
		"an item of a list stays":                    {`{"f:spec":{"f:pod":{"f:volumes":{"k:{\"name\":\"x\"}":{}}}}}`, `{"f:spec":{"f:pod":{"f:image":{}}}}`, `{"f:spec":{"f:pod":{"f:volumes":{"k:{\"name\":\"x\"}":{}}}}}`},
		"a map in an owned item is dropped":          {`{"f:list":{"k:{\"name\":\"a\"}":{"f:config":{"f:other":{}}}}}`, item, `{}`},
		"a key of a map that is owned stays":         {`{"f:spec":{"f:config":{"f:other":{}}}}`, `{"f:spec":{"f:config":{".":{},"f:own":{}}}}`, `{"f:spec":{"f:config":{"f:other":{}}}}`},
		"at the top everything stays":                {`{"f:data":{}}`, `{"f:data":{"f:a":{}}}`, `{"f:data":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			held := fields(t, test.held)
			dependent := dependentOn(held, fields(t, test.owned), structsOutsideOf("config"))
			g.Expect(textOf(t, held.Difference(dependent))).To(MatchJSON(test.independent))
		})
	}
}

func TestFieldsAtEnd(t *testing.T) {
	for name, test := range map[string]struct {
		path  string
		count int
	}{
		"fields of structs":         {`{"f:spec":{"f:strategy":{"f:rollingUpdate":{"f:maxSurge":{}}}}}`, 4},
		"a key of a map":            {`{"f:metadata":{"f:labels":{"f:a":{}}}}`, 0},
		"an item of a list":         {`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{}}}}}}`, 0},
		"a field of an item":        {`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{"f:resources":{"f:claims":{}}}}}}}}`, 2},
		"a map in an item":          {`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{"f:resources":{"f:limits":{"f:cpu":{}}}}}}}}}`, 0},
		"a value of a set":          {`{"f:metadata":{"f:finalizers":{"v:\"x\"":{}}}}`, 0},
		"a field that is not known": {`{"f:spec":{"f:unknown":{"f:x":{}}}}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(fieldsAtEnd(&appsv1.Deployment{}, onlyPath(t, test.path))).To(Equal(test.count))
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
			g.Expect(textOf(t, withoutEmptied(fields(t, test.now), fields(t, test.before)))).To(MatchJSON(test.left))
		})
	}
}

func TestClaimTo(t *testing.T) {
	for name, test := range map[string]struct {
		value any
		claim []string
	}{
		"a value":         {"x", []string{".at"}},
		"a list":          {[]any{map[string]any{"a": 1}}, []string{".at"}},
		"an empty struct": {map[string]any{}, []string{".at"}},
		"a struct":        {map[string]any{"a": 1, "b": map[string]any{"c": 2}}, []string{".at", ".at.a", ".at.b", ".at.b.c"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(membersOf(claimTo(test.value, makeFieldPath("at")))).To(ConsistOf(test.claim))
		})
	}
}

func TestWithin(t *testing.T) {
	g := NewWithT(t)
	set := fields(t, `{"f:spec":{"f:replicas":{},"f:strategy":{"f:type":{},"f:rollingUpdate":{"f:maxSurge":{}}}}}`)
	found := within(set, parseFieldPaths([]string{"spec.replicas", ".spec.strategy.rollingUpdate"}))
	g.Expect(textOf(t, found)).To(MatchJSON(`{"f:spec":{"f:replicas":{},"f:strategy":{"f:rollingUpdate":{"f:maxSurge":{}}}}}`))
	g.Expect(within(set, nil).Empty()).To(BeTrue())
}

func TestSameValues(t *testing.T) {
	for name, test := range map[string]struct {
		fields, desired, stored string
		same                    bool
	}{
		"a value":                             {`{"f:a":{}}`, `{"a":1}`, `{"a":1,"b":2}`, true},
		"another value":                       {`{"f:a":{}}`, `{"a":1}`, `{"a":2}`, false},
		"a whole number as a fraction":        {`{"f:a":{}}`, `{"a":1}`, `{"a":1.0}`, true},
		"what is not stored":                  {`{"f:a":{}}`, `{"a":1}`, `{}`, false},
		"a null that is not stored":           {`{"f:a":{}}`, `{"a":null}`, `{}`, false},
		"an item to which others have added":  {item, `{"list":[{"name":"a","value":1}]}`, `{"list":[{"name":"b"},{"name":"a","value":1,"more":2}]}`, true},
		"a field of an item":                  {item, `{"list":[{"name":"a","value":1}]}`, `{"list":[{"name":"a","value":2}]}`, false},
		"an atomic list":                      {`{"f:l":{}}`, `{"l":[1,2]}`, `{"l":[1,2,3]}`, false},
		"an empty struct beside other fields": {`{"f:status":{}}`, `{"status":{}}`, `{"status":{"a":1}}`, true},
		"an empty list beside other items":    {`{"f:l":{}}`, `{"l":[]}`, `{"l":[1]}`, true},
		"an empty list that is not stored":    {`{"f:l":{}}`, `{"l":[]}`, `{}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			desired, err := decode([]byte(test.desired))
			g.Expect(err).NotTo(HaveOccurred())
			stored, err := decode([]byte(test.stored))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(sameValues(fields(t, test.fields), desired, stored)).To(Equal(test.same))
		})
	}
}

func TestFieldsV1IsWrittenAsItWasRead(t *testing.T) {
	for _, text := range []string{`{}`, item, `{"f:a":{".":{},"f:b":{}},"f:c":{}}`, `{"f:finalizers":{".":{},"v:\"x\"":{}},"f:l":{"i:3":{}}}`} {
		NewWithT(t).Expect(textOf(t, fields(t, text))).To(Equal(text))
	}
}

func TestInItemsFindsFieldsOfKeyedItemsOnly(t *testing.T) {
	for name, test := range map[string]struct {
		set   string
		found []string
	}{
		"a field of an item":   {item, []string{`.list[name="a"].name`}},
		"a field of a struct":  {`{"f:list":{"f:name":{}}}`, []string{}},
		"a field at the top":   {`{"f:name":{}}`, []string{}},
		"a field by its index": {`{"f:list":{"i:0":{"f:name":{}}}}`, []string{}},
		"another field":        {`{"f:list":{"k:{\"name\":\"a\"}":{"f:value":{}}}}`, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(pathTexts(inItems(fields(t, test.set), makeFieldPath("list", "name")))).To(ConsistOf(test.found))
		})
	}
	NewWithT(t).Expect(inItems(fields(t, `{"f:name":{}}`), makeFieldPath("name"))).To(BeEmpty())
}

func TestWithoutLeavesNoStructsThatItHasEmptied(t *testing.T) {
	for name, test := range map[string]struct{ document, path, left string }{
		"a struct":                    {`{"a":{"b":{"c":1}},"x":1}`, `{"f:a":{"f:b":{"f:c":{}}}}`, `{"x":1}`},
		"a struct with another field": {`{"a":{"b":{"c":1},"x":1}}`, `{"f:a":{"f:b":{"f:c":{}}}}`, `{"a":{"x":1}}`},
		"a struct in an item":         {`{"l":[{"k":1,"b":{"c":1}}]}`, `{"f:l":{"k:{\"k\":1}":{"f:b":{"f:c":{}}}}}`, `{"l":[{"k":1}]}`},
		"what does not exist":         {`{"a":{}}`, `{"f:a":{"f:b":{}}}`, `{"a":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			tree, err := decode([]byte(test.document))
			g.Expect(err).NotTo(HaveOccurred())
			without(tree, onlyPath(t, test.path))
			g.Expect(json.Marshal(tree)).To(MatchJSON(test.left))
		})
	}
}

// A list of lists is atomic, so no manager holds an item of one.
func TestWithoutLeavesListsOfLists(t *testing.T) {
	g := NewWithT(t)
	const document = `{"l":[[1,2],[3]]}`
	tree, err := decode([]byte(document))
	g.Expect(err).NotTo(HaveOccurred())
	without(tree, onlyPath(t, `{"f:l":{"i:0":{"i:1":{}}}}`))
	g.Expect(json.Marshal(tree)).To(MatchJSON(document))
}
