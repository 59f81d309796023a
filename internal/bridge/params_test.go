package bridge

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// markedSchema is an inputSchema with a marked parameter of each type.
const markedSchema = `{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},
	"limits":{"type":"object","properties":{"rows":{"type":"integer","x-mcp-header":"Max-Rows"}}},
	"dry":{"type":"boolean","x-mcp-header":"dry_run"},
	"note":{"type":"string"}}}`

func TestParamHeadersMatchTheArguments(t *testing.T) {
	const region, rows, dry = "Mcp-Param-Region", "Mcp-Param-Max-Rows", "Mcp-Param-Dry_run"
	cases := map[string]struct {
		arguments string
		headers   http.Header
		// problem is part of the message; empty if the call is relayed.
		problem string
	}{
		"nothing":                        {``, nil, ""},
		"no arguments":                   {`{}`, nil, ""},
		"arguments of another type":      {`[1]`, nil, ""},
		"all":                            {`{"region":"us","limits":{"rows":7},"dry":false}`, http.Header{region: {"us"}, rows: {"7"}, dry: {"false"}}, ""},
		"null":                           {`{"region":null,"limits":null}`, nil, ""},
		"unmarked parameter":             {`{"note":"x"}`, http.Header{"Mcp-Param-Note": {"other"}}, ""},
		"missing":                        {`{"region":"us"}`, nil, "Mcp-Param-Region is missing"},
		"missing below":                  {`{"limits":{"rows":7}}`, nil, `Mcp-Param-Max-Rows is missing; the parameter is "limits.rows"`},
		"not in the message":             {`{}`, http.Header{region: {"us"}}, "has a value that the message has not"},
		"null in the message":            {`{"region":null}`, http.Header{region: {"null"}}, "has a value that the message has not"},
		"other value":                    {`{"region":"us"}`, http.Header{region: {"eu"}}, "differs"},
		"other case":                     {`{"region":"us"}`, http.Header{region: {"US"}}, "differs"},
		"repeated":                       {`{"region":"us"}`, http.Header{region: {"us", "us"}}, "is repeated"},
		"empty":                          {`{"region":""}`, http.Header{region: {""}}, ""},
		"empty and missing":              {`{"region":""}`, nil, "is missing"},
		"tab":                            {`{"region":"us\twest"}`, http.Header{region: {"us\twest"}}, ""},
		"last character of ASCII":        {`{"region":"~"}`, http.Header{region: {"~"}}, ""},
		"delete":                         {`{"region":"\u007f"}`, http.Header{region: {"\x7f"}}, "characters"},
		"inner space":                    {`{"region":"us west"}`, http.Header{region: {"us west"}}, ""},
		"escaped in the message":         {`{"reg\u0069on":"\u0075s"}`, http.Header{region: {"us"}}, ""},
		"encoded":                        {`{"region":"Hello, 世界"}`, http.Header{region: {"=?base64?SGVsbG8sIOS4lueVjA==?="}}, ""},
		"encoded plain value":            {`{"region":"us"}`, http.Header{region: {"=?base64?dXM=?="}}, ""},
		"encoded line break":             {`{"region":"line1\nline2"}`, http.Header{region: {"=?base64?bGluZTEKbGluZTI=?="}}, ""},
		"encoded marker":                 {`{"region":"=?base64?literal?="}`, http.Header{region: {"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="}}, ""},
		"marker that is not encoded":     {`{"region":"=?base64?dXM=?="}`, http.Header{region: {"=?base64?dXM=?="}}, "differs"},
		"other encoded value":            {`{"region":"eu"}`, http.Header{region: {"=?base64?dXM=?="}}, "differs"},
		"not encoded":                    {`{"region":"世界"}`, http.Header{region: {"世界"}}, "characters"},
		"control character":              {`{"region":"a\u0001"}`, http.Header{region: {"a\x01"}}, "characters"},
		"without padding":                {`{"region":"us"}`, http.Header{region: {"=?base64?dXM?="}}, "not encoded correctly"},
		"not base64":                     {`{"region":"us"}`, http.Header{region: {"=?base64?dX!!?="}}, "not encoded correctly"},
		"base64 with other bits":         {`{"region":"us"}`, http.Header{region: {"=?base64?dXN=?="}}, "not encoded correctly"},
		"not UTF-8":                      {`{"region":"\ufffd"}`, http.Header{region: {"=?base64?/w==?="}}, "not encoded correctly"},
		"without suffix":                 {`{"region":"=?base64?dXM="}`, http.Header{region: {"=?base64?dXM="}}, ""},
		"upper-case prefix":              {`{"region":"=?BASE64?dXM=?="}`, http.Header{region: {"=?BASE64?dXM=?="}}, ""},
		"number written differently":     {`{"limits":{"rows":42}}`, http.Header{rows: {"42.0"}}, ""},
		"number with an exponent":        {`{"limits":{"rows":4.2e1}}`, http.Header{rows: {"42"}}, ""},
		"encoded number":                 {`{"limits":{"rows":42}}`, http.Header{rows: {"=?base64?NDI=?="}}, ""},
		"other number":                   {`{"limits":{"rows":42}}`, http.Header{rows: {"43"}}, "differs"},
		"zero":                           {`{"limits":{"rows":0}}`, http.Header{rows: {"0"}}, ""},
		"nothing for zero":               {`{"limits":{"rows":0}}`, http.Header{rows: {""}}, "differs"},
		"no number for zero":             {`{"limits":{"rows":0}}`, http.Header{rows: {"false"}}, "differs"},
		"negative number":                {`{"limits":{"rows":-7}}`, http.Header{rows: {"-7"}}, ""},
		"other negative number":          {`{"limits":{"rows":-7}}`, http.Header{rows: {"7"}}, "differs"},
		"number with a leading zero":     {`{"limits":{"rows":42}}`, http.Header{rows: {"042"}}, "differs"},
		"hexadecimal floating point":     {`{"limits":{"rows":42}}`, http.Header{rows: {"0x2Ap0"}}, "differs"},
		"hexadecimal number":             {`{"limits":{"rows":42}}`, http.Header{rows: {"0x2A"}}, "differs"},
		"number with a sign":             {`{"limits":{"rows":42}}`, http.Header{rows: {"+42"}}, "differs"},
		"number with space":              {`{"limits":{"rows":42}}`, http.Header{rows: {"42 "}}, "differs"},
		"fraction":                       {`{"limits":{"rows":4.5}}`, http.Header{rows: {"4.5"}}, "differs"},
		"unsafe number":                  {`{"limits":{"rows":9007199254740993}}`, http.Header{rows: {"9007199254740992"}}, "differs"},
		"greatest number":                {`{"limits":{"rows":9007199254740991}}`, http.Header{rows: {"9007199254740991"}}, ""},
		"fraction close to 1":            {`{"limits":{"rows":0.99999999999999999999}}`, http.Header{rows: {"1"}}, "differs"},
		"fraction close to 0":            {`{"limits":{"rows":1e-400}}`, http.Header{rows: {"0"}}, "differs"},
		"fraction close to the greatest": {`{"limits":{"rows":9007199254740990.6}}`, http.Header{rows: {"9007199254740991"}}, "differs"},
		"fraction in the header":         {`{"limits":{"rows":1}}`, http.Header{rows: {"0.99999999999999999999"}}, "differs"},
		"negative fraction close to 0":   {`{"limits":{"rows":-1e-400}}`, http.Header{rows: {"0"}}, "differs"},
		"fraction with an exponent":      {`{"limits":{"rows":900719925474099.06e1}}`, http.Header{rows: {"9007199254740991"}}, "differs"},
		"fraction of zeros":              {`{"limits":{"rows":4.200E+1}}`, http.Header{rows: {"42.00"}}, ""},
		"negative exponent":              {`{"limits":{"rows":4200e-2}}`, http.Header{rows: {"42"}}, ""},
		"zero with an exponent":          {`{"limits":{"rows":-0.0e-7}}`, http.Header{rows: {"0"}}, ""},
		"exponents that are not read":    {`{"limits":{"rows":1e-9223372036854775808}}`, http.Header{rows: {"1e-99999999999999999999"}}, "differs"},
		"infinite number":                {`{"limits":{"rows":1e999}}`, http.Header{rows: {"1e999"}}, "differs"},
		"boolean in other case":          {`{"dry":true}`, http.Header{dry: {"True"}}, "differs"},
		"object":                         {`{"region":{}}`, http.Header{region: {"{}"}}, "differs"},
		"list":                           {`{"region":["us"]}`, http.Header{region: {`["us"]`}}, "differs"},
		"twice in the message":           {`{"region":"eu","region":"us"}`, http.Header{region: {"us"}}, `the member "region" twice`},
		"in other case in the message":   {`{"Region":"eu","region":"us"}`, http.Header{region: {"us"}}, `"Region", which some servers`},
		"only in other case":             {`{"REGION":"eu"}`, nil, `"REGION", which some servers`},
		"nested twice":                   {`{"limits":{"rows":1},"limits":{"rows":2}}`, http.Header{rows: {"2"}}, `the member "limits" twice`},
		"nested in an object of strings": {`{"limits":"{\"rows\":1}"}`, nil, ""},
	}
	params, err := markedParams(json.RawMessage(markedSchema))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := checkParams(params, c.headers, json.RawMessage(c.arguments))
			if c.problem == "" {
				g.Expect(f).To(BeNil())
				return
			}
			g.Expect(f).NotTo(BeNil())
			g.Expect(f.Message).To(ContainSubstring(c.problem))
			g.Expect(f.Status).To(Equal(http.StatusBadRequest))
			if strings.Contains(c.problem, "member") || strings.Contains(c.problem, "which") {
				g.Expect(f.Code).To(Equal(codeInvalidRequest), "the message alone is wrong")
			} else {
				g.Expect(f.Code).To(Equal(codeHeaderMismatch))
			}
		})
	}
}

func TestMarkedParams(t *testing.T) {
	deep := func(levels int) string {
		return strings.Repeat(`{"properties":{"a":`, levels) + `{"type":"string","x-mcp-header":"A"}` + strings.Repeat(`}}`, levels)
	}
	cases := map[string]struct {
		schema, problem string
		want            []param
	}{
		"no schema":                 {``, "", nil},
		"true":                      {`true`, "", nil},
		"nothing marked":            {`{"properties":{"a":{"type":"string"}}}`, "", nil},
		"a standard header's name":  {`{"properties":{"a":{"type":"string","x-mcp-header":"method"}}}`, "", []param{{"Mcp-Param-Method", []string{"a"}}}},
		"the order does not matter": {`{"properties":{"a":{"x-mcp-header":"X","type":"integer"}}}`, "", []param{{"Mcp-Param-X", []string{"a"}}}},
		"nested":                    {`{"properties":{"a":{"properties":{"b":{"type":"boolean","x-mcp-header":"B"}}}}}`, "", []param{{"Mcp-Param-B", []string{"a", "b"}}}},
		"a property of that name":   {`{"properties":{"x-mcp-header":{"type":"string"},"items":{"type":"string","x-mcp-header":"I"}}}`, "", []param{{"Mcp-Param-I", []string{"items"}}}},
		"in data":                   {`{"default":{"x-mcp-header":""},"examples":[{"x-mcp-header":1}],"properties":{"a":{"const":{"x-mcp-header":"A"}}}}`, "", nil},
		"deep":                      {deep(maxSchemaDepth), "", []param{{"Mcp-Param-A", strings.Split(strings.Repeat("a", maxSchemaDepth), "")}}},
		"deep siblings": {
			`{"properties":{"a":{"properties":{"b":{"properties":{"c":{"properties":{"d":{"type":"string","x-mcp-header":"D"},"e":{"type":"string","x-mcp-header":"E"}}}}}}}}}`,
			"", []param{{"Mcp-Param-D", []string{"a", "b", "c", "d"}}, {"Mcp-Param-E", []string{"a", "b", "c", "e"}}},
		},
		"digits":                        {`{"properties":{"a":{"type":"string","x-mcp-header":"Region09"}}}`, "", []param{{"Mcp-Param-Region09", []string{"a"}}}},
		"too deep without a property":   {strings.Repeat(`{"not":`, maxSchemaDepth+1) + `{}` + strings.Repeat(`}`, maxSchemaDepth+1), "deeper than 64", nil},
		"too deep":                      {deep(maxSchemaDepth + 1), "deeper than 64", nil},
		"empty":                         {`{"properties":{"a":{"type":"string","x-mcp-header":""}}}`, `x-mcp-header of "a" is not the name of a header`, nil},
		"not a string":                  {`{"properties":{"a":{"type":"string","x-mcp-header":1}}}`, "not the name", nil},
		"space":                         {`{"properties":{"a":{"type":"string","x-mcp-header":"My Region"}}}`, "not the name", nil},
		"colon":                         {`{"properties":{"a":{"type":"string","x-mcp-header":"Region:Primary"}}}`, "not the name", nil},
		"line break":                    {`{"properties":{"a":{"type":"string","x-mcp-header":"A\r\nHost"}}}`, "not the name", nil},
		"not ASCII":                     {`{"properties":{"a":{"type":"string","x-mcp-header":"Région"}}}`, "not the name", nil},
		"twice":                         {`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"properties":{"c":{"type":"string","x-mcp-header":"a"}}}}}`, `two properties have the x-mcp-header "a"`, nil},
		"number":                        {`{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`, "type is not", nil},
		"object":                        {`{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}`, "type is not", nil},
		"array":                         {`{"properties":{"a":{"type":"array","x-mcp-header":"A"}}}`, "type is not", nil},
		"several types":                 {`{"properties":{"a":{"type":["string","null"],"x-mcp-header":"A"}}}`, "type is not", nil},
		"no type":                       {`{"properties":{"a":{"x-mcp-header":"A"}}}`, "type is not", nil},
		"at the root":                   {`{"type":"string","x-mcp-header":"A"}`, "x-mcp-header is not at a property that is reached by properties alone", nil},
		"in items":                      {`{"properties":{"a":{"items":{"type":"string","x-mcp-header":"A"}}}}`, "reached by properties alone", nil},
		"in a list of schemas":          {`{"anyOf":[{},{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}`, "reached by properties alone", nil},
		"in a condition":                {`{"if":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`, "reached by properties alone", nil},
		"in a definition":               {`{"$defs":{"d":{"type":"string","x-mcp-header":"A"}},"properties":{"a":{"$ref":"#/$defs/d"}}}`, "reached by properties alone", nil},
		"in a property of a definition": {`{"$defs":{"d":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}}`, "reached by properties alone", nil},
		"one invalid among valid":       {`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"x-mcp-header":""}}}`, "not the name", nil},
		"properties of another type":    {`{"properties":[{"x-mcp-header":"A"}]}`, "", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			params, err := markedParams(json.RawMessage(c.schema))
			if c.problem != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.problem)))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(params).To(Equal(c.want))
		})
	}
}

// FuzzParamHeaders checks that a call is accepted only if a server that reads JSON with encoding/json understands the
// arguments as proxies understand the headers.
func FuzzParamHeaders(f *testing.F) {
	params, err := markedParams(json.RawMessage(markedSchema))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"region":"us","limits":{"rows":7},"dry":true}`, "us", "7", "true", uint8(7))
	f.Add(`{"region":"\u4e16","limits":{"rows":1e2}}`, "=?base64?5LiW?=", "100.0", "", uint8(3))
	f.Add(`{"Region":"a","region":"b"}`, "b", "", "", uint8(1))
	f.Add(`{"limits":{"rows":0.1,"ROWS":1},"dry":null}`, "", "1", "", uint8(2))
	f.Fuzz(func(t *testing.T, arguments, region, rows, dry string, sent uint8) {
		if !json.Valid([]byte(arguments)) {
			return // so is the message
		}
		headers := http.Header{}
		values := []string{region, rows, dry}
		for i, p := range params {
			if sent&(1<<i) != 0 {
				headers.Set(p.header, values[i])
			}
		}
		if checkParams(params, headers, json.RawMessage(arguments)) != nil {
			return
		}
		for i, p := range params {
			if got := argumentOf(arguments, p.path); !accepted(got, headers.Values(p.header)) {
				t.Fatalf("%s: header %q is accepted for %q", arguments, values[i], got)
			}
		}
	})
}

// argumentOf reads an argument as a server would.
func argumentOf(arguments string, path []string) any {
	var in struct {
		Region any `json:"region"`
		Limits any `json:"limits"`
		Dry    any `json:"dry"`
	}
	_ = json.Unmarshal([]byte(arguments), &in) // arguments may be of another type
	value := map[string]any{"region": in.Region, "limits": in.Limits, "dry": in.Dry}[path[0]]
	if len(path) > 1 {
		inner, _ := value.(map[string]any)
		value = inner[path[1]]
	}
	return value
}

func accepted(argument any, sent []string) bool {
	if argument == nil || len(sent) == 0 {
		return argument == nil && len(sent) == 0
	}
	header, err := decodedHeader(sent[0])
	if err != nil {
		return false
	}
	switch value := argument.(type) {
	case string:
		return header == value
	case bool, float64:
		var inHeader any
		return json.Unmarshal([]byte(header), &inHeader) == nil && inHeader == value
	}
	return false
}

// FuzzMarkedParams reads any schema of a server.
func FuzzMarkedParams(f *testing.F) {
	f.Add([]byte(markedSchema))
	f.Add([]byte(`{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}],"properties":{"":{"type":"string","x-mcp-header":"~"}}}`))
	f.Fuzz(func(t *testing.T, schema []byte) {
		if !json.Valid(schema) {
			return // so is the message
		}
		params, err := markedParams(schema)
		seen := map[string]bool{}
		for _, p := range params {
			if name := strings.ToLower(p.header); err != nil || seen[name] || len(p.path) == 0 || !isToken(p.header) {
				t.Fatalf("parameter %+v of %q: %v", p, schema, err)
			}
			seen[strings.ToLower(p.header)] = true
		}
	})
}
