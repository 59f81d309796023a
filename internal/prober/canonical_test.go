package prober

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// digestsOf are the digests of the schema and of the description of a value.
func digestsOf(parts ...string) ([2]digest, *Error) {
	var c canonicalizer
	c.begin()
	for _, part := range parts {
		c.write([]byte(part))
	}
	schema, description := c.end()
	return [2]digest{schema, description}, c.err
}

func TestSpellingsOfAValueHaveTheSameDigests(t *testing.T) {
	for name, spellings := range map[string][]string{
		"white space":        {`{"a":[1,{"b":null}]}`, " {\n\"a\" :\t[ 1 , { \"b\" : null } ]\r\n} "},
		"order of keys":      {`{"a":1,"b":{"c":2,"d":3},"description":"x","title":"y"}`, `{"title":"y","b":{"d":3,"c":2},"description":"x","a":1}`},
		"escapes":            {`"é\"\\/` + "\u007f" + `"`, `"\u00e9\u0022\u005C\/\u007f"`},
		"an escaped space":   {`" "`, `"\u0020"`},
		"short escapes":      {`"\b\f\n\r\t"`, `"\u0008\u000C\u000a\u000d\u0009"`},
		"pairs":              {`"😀"`, `"\ud83d\ude00"`, `"\uD83D\uDE00"`},
		"halves of pairs":    {`"\ud83d"`, `"\ude00"`, `"\ufffd"`},
		"a half, then more":  {`"\ud83da\ud83d\u0062"`, `"\ufffda\ufffdb"`},
		"two first halves":   {`"\ud83d\ud83d\ude00"`, `"\ufffd😀"`},
		"escapes in keys":    {`{"description":1}`, `{"descr\u0069ption":1}`},
		"integers":           {`[100,0,-5]`, `[1e2,-0,-5.0]`, `[1E+2,0.00,-50e-1]`, `[0.1e3,0e9,-0.5E1]`},
		"fractions":          {`1.5`, `15e-1`, `0.15e1`, `1.50`},
		"very large numbers": {`1e400`, `10e399`},
		"greatest exponents": {`10e1073741824`, `1e1073741825`},
		"least exponents":    {`10e-1073741824`, `1e-1073741823`},
		"duplicate keys":     {`{"a":1,"b":0,"a":2}`, `{"b":0,"a":1,"a":2}`, `{"\u0061":1,"a":2,"b":0}`},
		"empty":              {`{}`, `{ }`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			want, err := digestsOf(spellings[0])
			g.Expect(err).To(BeNil())
			for _, spelling := range spellings[1:] {
				got, err := digestsOf(spelling)
				g.Expect(err).To(BeNil(), spelling)
				g.Expect(got).To(Equal(want), spelling)
			}
		})
	}
}

func TestDifferentValuesHaveDifferentDigests(t *testing.T) {
	g := NewWithT(t)
	seen := map[[2]digest]string{}
	for _, value := range []string{
		`null`, `true`, `false`, `0`, `"0"`, `""`, `[]`, `{}`, `[[]]`, `[{}]`, `[0]`, `{"":0}`, `[0,0]`, `[1,2]`, `[2,1]`, `["1,2"]`,
		`{"a":1}`, `{"a":"1"}`, `{"a":1,"a":1}`, `{"a":{"b":1}}`, `{"a":{"b":1},"c":{}}`, `{"a":{},"c":{"b":1}}`, `{"a":[{"b":1}]}`,
		`{"title":"a"}`, `{"description":"a"}`, `{"x":{"description":"a"}}`, `{"x":{"title":"a"}}`,
		`9007199254740993`, `9007199254740992`, `0.1`, `0.10000000000000000555`, `-1`, `1e400`, `1e401`, `"é"`, `"e\u0301"`, `"\u0000"`, `"\\u0000"`, `1`, `"a\"b"`, `"a\\b"`, `"\u0001"`, `"\u0010"`,
		`1e99999999999`, `1e99999999998`, `-1e99999999999`, `1e-99999999999`, `10e1073741825`, `1e1073741826`, `10e-1073741826`, `1e-1073741825`,
		`{"a":1,"a":2}`, `{"a":2,"a":1}`, `{"a":2}`, `{"a":1,"a":2,"a":1}`, `{"a":1,"a":1,"a":2}`, `[{"b":{"a":1,"a":2}}]`, `[{"b":{"a":2,"a":1}}]`, `{"description":1,"description":2}`, `{"description":2,"description":1}`,
		`{"a":[{"a":1,"a":2}],"b":{"a":1}}`, `{"a":[{"a":2,"a":1}],"b":{"a":1}}`,
	} {
		got, err := digestsOf(value)
		g.Expect(err).To(BeNil(), value)
		g.Expect(seen).NotTo(HaveKey(got), "%s and %s", value, seen[got])
		seen[got] = value
	}
}

// Each text of up to three characters that could be confused.
func TestDifferentTextsHaveDifferentDigests(t *testing.T) {
	g := NewWithT(t)
	seen := map[[2]digest]string{}
	for _, a := range confusable {
		for _, b := range confusable {
			for _, c := range confusable {
				text, err := json.Marshal(a + b + c)
				g.Expect(err).NotTo(HaveOccurred())
				got, failure := digestsOf(string(text))
				g.Expect(failure).To(BeNil())
				if before, ok := seen[got]; ok && before != string(text) {
					t.Fatalf("%s and %s have the same digest", before, text)
				}
				seen[got] = string(text)
			}
		}
	}
}

// confusable are characters that are escaped, and those that are part of escapes.
var confusable = []string{"", "\x00", "\x01", "\x02", "\n", "\x10", "\x11", "\x1f", "0", "1", "a", "f", "u", "u1", "u0", "u00", ".", "\\", `"`}

func TestDescriptionAndSchemaHaveDigestsOfTheirOwn(t *testing.T) {
	const tool = `{"name":"a","title":"A","description":"Does a.","inputSchema":{"properties":{"x":{"description":"An x."}}},"annotations":{"readOnlyHint":true}}`
	for name, test := range map[string]struct {
		from, to                        string
		changesSchema, changesDescribed bool
	}{
		"description":                {"Does a.", "Does b.", false, true},
		"title":                      {`"A"`, `"B"`, false, true},
		"description of a parameter": {"An x.", "A y.", true, false},
		"parameter":                  {`"x"`, `"y"`, true, false},
		"annotation":                 {"true", "false", true, false},
		"name":                       {`"a"`, `"b"`, true, false},
		"another member":             {`{"name"`, `{"_meta":{},"name"`, true, false},
		"icons":                      {`{"name"`, `{"icons":[{"src":"x"}],"name"`, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before, err := digestsOf(tool)
			g.Expect(err).To(BeNil())
			changed := strings.Replace(tool, test.from, test.to, 1)
			g.Expect(changed).NotTo(Equal(tool))
			after, err := digestsOf(changed)
			g.Expect(err).To(BeNil())
			g.Expect(before[0] != after[0]).To(Equal(test.changesSchema))
			g.Expect(before[1] != after[1]).To(Equal(test.changesDescribed))
		})
	}
}

// members is an object with many members.
func members(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"%d":0`, i)
	}
	return "{" + strings.Join(list, ",") + "}"
}

func TestValuesWithoutDigests(t *testing.T) {
	for name, test := range map[string]struct {
		value string
		then  *Error
	}{
		"nothing":                    {"", errMalformed},
		"not closed":                 {`{"a":[1`, errMalformed},
		"closed otherwise":           {`[1}`, errMalformed},
		"closed twice":               {`[]]`, errMalformed},
		"no value":                   {`{"a"}`, errMalformed},
		"a value without a colon":    {`{"a"[1]}`, errMalformed},
		"a colon in a list":          {`[1:2]`, errMalformed},
		"two strings":                {`["a"""]`, errMalformed},
		"two lists":                  {`[[][]]`, errMalformed},
		"a word in a list":           {`[nul]`, errMalformed},
		"a point, no digit":          {`.5`, errMalformed},
		"no key":                     {`{1:2}`, errMalformed},
		"two values":                 {`1 2`, errMalformed},
		"two commas":                 {`[1,,2]`, errMalformed},
		"a comma at the end":         {`[1,]`, errMalformed},
		"a comma after a member":     {`{"a":1,}`, errMalformed},
		"a comma alone":              {`,`, errMalformed},
		"an unknown word":            {`nul`, errMalformed},
		"a leading zero":             {`01`, errMalformed},
		"no digit after a point":     {`1.`, errMalformed},
		"no digit after the e":       {`1e+`, errMalformed},
		"two signs":                  {`1e+-1`, errMalformed},
		"a plus":                     {`+1`, errMalformed},
		"an unknown escape":          {`"\x"`, errMalformed},
		"not hexadecimal":            {`"\u00g0"`, errMalformed},
		"hexadecimal after all":      {`"\u00g00"`, errMalformed},
		"another character":          {`[?]`, errMalformed},
		"a very long number":         {strings.Repeat("1", maxToken+1), errTooManyMembers},
		"deep nesting":               {strings.Repeat("[", maxDepth+1), errTooDeep},
		"deep objects":               {strings.Repeat(`{"a":`, maxDepth+1), errTooDeep},
		"an object with many":        {members(4<<10 + 1), errTooManyMembers},
		"many objects with some":     {"[" + strings.Repeat(members(1000)+",", maxMembers/1000+1) + "1]", errTooManyMembers},
		"many members that end":      {`{"title":` + strings.Repeat(`0,"title":`, maxOpenMembers+1) + "0}", errTooManyMembers},
		"as many members as can be":  {"[" + strings.TrimSuffix(strings.Repeat(members(1000)+",", maxMembers/1000), ",") + "]", nil},
		"one member too many":        {"[" + strings.Repeat(members(1000)+",", maxMembers/1000) + `{"a":1}]`, errTooManyMembers},
		"as long as a number may be": {strings.Repeat("1", maxToken), nil},
		"a very deep honest item":    {strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			digests, err := digestsOf(test.value)
			g.Expect(err).To(Equal(test.then))
			g.Expect(digests == [2]digest{}).To(Equal(test.then != nil))
		})
	}
}

func TestErrorsOfValuesSayWhatIsWrong(t *testing.T) {
	g := NewWithT(t)
	g.Expect(errTooManyMembers.Error()).To(Equal("the response is too large: the lists have too many object members, or a number is too long"))
	g.Expect(errMalformed.Error()).To(Equal("the response is not MCP: an item of a list is not valid JSON"))
}

// The digests are stored in objects, and compared with those of the next release.
func TestDigestsDoNotChangeBetweenReleases(t *testing.T) {
	for name, test := range map[string]struct{ value, schema, description string }{
		"a tool": {
			`{"name":"a","title":"A \"b\"","description":"Does\na.","icons":[{"src":"x"}],"inputSchema":{"type":"object","properties":{"x":{"enum":[1,-2.5,1e30,"c\\d","\u0010"]},"y":{}},"required":[]}}`,
			"6cf12d0bf411613617b4893c66b2d822683d9bb61a6b832655b82811767d2cba", "0fab99c7f10f818909211c006dbf138953e48620a4d1db659e22268b8e99f47a",
		},
		"a list": {`[[],{},null,"é"]`, "4ee70300b4dd25d87bd7c9288d65b45a3e974cab13b3e8283182e565bc06e158", "efb8bfaafac1354be2ed1e5f4d75825007da021674193acb4bd51a445fa7460e"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			digests, err := digestsOf(test.value)
			g.Expect(err).To(BeNil())
			g.Expect(hex.EncodeToString(digests[0][:])).To(Equal(test.schema))
			g.Expect(hex.EncodeToString(digests[1][:])).To(Equal(test.description))
		})
	}
}

// FuzzCanonicalizer checks that digests depend neither on how a value arrives nor on white space, and that each JSON
// value within the limits has some.
func FuzzCanonicalizer(f *testing.F) {
	for _, body := range fuzzSeeds {
		f.Add([]byte(body), 3)
	}
	f.Add([]byte(`{"a":[1.50,-0,1E+2,"\ud83d\ude00\/"],"title":" "}`), 20)
	f.Fuzz(func(t *testing.T, body []byte, split int) {
		whole, failure := digestsOf(string(body))
		at := 0
		if len(body) > 0 {
			at = max(0, split) % len(body)
		}
		parted, again := digestsOf(string(body[:at]), string(body[at:]))
		if whole != parted || failure != again {
			t.Fatalf("in one part %x, %v; in two %x, %v", whole, failure, parted, again)
		}
		if !json.Valid(body) {
			return
		}
		if failure != nil && failure.Kind != TooLarge {
			t.Fatalf("%q is JSON: %v", body, failure)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, body); err != nil {
			t.Fatal(err)
		}
		if same, err := digestsOf(compact.String()); same != whole || err != failure {
			t.Fatalf("%q and %q differ", body, compact.String())
		}
	})
}
