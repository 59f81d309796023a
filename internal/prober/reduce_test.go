package prober

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// reduced is what a reducer with the limits of a full probe keeps of a body.
func reduced(events bool, body string) (string, kept, *Error) {
	k := kept{maxBytes: handshakeKept, maxValues: handshakeValues}
	k.extend()
	r := reducer{kept: &k, events: events}
	err := r.write([]byte(body))
	return string(r.out), k, err
}

// escapedInFull is a JSON string, without quotes, in its longest spelling.
func escapedInFull(text string) string {
	var out strings.Builder
	for _, character := range text {
		fmt.Fprintf(&out, `\u%04x`, character)
	}
	return out.String()
}

func TestReducerKeepsMessagesWithoutItems(t *testing.T) {
	const tool = `{"name":"a]","inputSchema":{"type":"object","properties":{"x":[1,"\"]"]}}}`
	long := strings.Repeat("x", 2*maxString)
	// A server refuses a cursor that was cut. Ten of them are longer than a handshake may be.
	page := `{"result":{"tools":[1],"nextCursor":"` + strings.Repeat("x", 4<<10) + `"}}`
	for name, test := range map[string]struct {
		body   string
		events bool
		then   string
		items  [4]int
	}{
		"a handshake":             {body: `{"id":1,"result":{"capabilities":{"tools":{}},"supportedVersions":["a","b"]}}`, then: `{"id":1,"result":{"capabilities":{"tools":{}},"supportedVersions":["a","b"]}}`},
		"a list":                  {body: `{"id":1,"result":{"tools":[` + tool + `,` + tool + `],"nextCursor":"2"}}`, then: `{"id":1,"result":{"tools":[],"nextCursor":"2"}}`, items: [4]int{2}},
		"items of any type":       {body: `{"result":{"prompts":[1, "a" ,[[]],{},null , true]}}`, then: `{"result":{"prompts":[]}}`, items: [4]int{promptList: 6}},
		"an empty list":           {body: "{\"result\":{\"resources\":[ \n\t]}}", then: `{"result":{"resources":[]}}`},
		"white space":             {body: ` { "result" : { "tools" : [ {} , {} ] } } `, then: ` { "result" : { "tools" : [] } } `, items: [4]int{2}},
		"all lists":               {body: `{"result":{"tools":[1],"prompts":[2,3],"resources":[4,5,6]}}`, then: `{"result":{"tools":[],"prompts":[],"resources":[]}}`, items: [4]int{1, 2, 3}},
		"the result comes last":   {body: `{"result":{"tools":[1]},"id":[1]}`, then: `{"result":{"tools":[]},"id":[1]}`, items: [4]int{1}},
		"a list elsewhere":        {body: `{"tools":[1],"result":{"x":{"tools":[1]},"tools":{"tools":[1]}},"x":{"tools":[1]}}`, then: `{"tools":[1],"result":{"x":{"tools":[1]},"tools":{"tools":[1]}},"x":{"tools":[1]}}`},
		"a key as a value":        {body: `{"result":["tools",[1]],"x":"result"}`, then: `{"result":["tools",[1]],"x":"result"}`},
		"similar keys":            {body: `{"result":{"tools2":[1],"tool":[1],"\\u0074ool":[1],"tools\\":[1],"tools\ud83d":[1]}}`, then: `{"result":{"tools2":[1],"tool":[1],"\\u0074ool":[1],"tools\\":[1],"tools\ud83d":[1]}}`},
		"escaped keys":            {body: `{"r\u0065sult":{"t\u006Fols":[1],"` + escapedInFull("resourceTemplates") + `":[2,3]}}`, then: `{"r\u0065sult":{"t\u006Fols":[],"` + escapedInFull("resourceTemplates") + `":[]}}`, items: [4]int{toolList: 1, templateList: 2}},
		"a longer key":            {body: `{"result":{"` + escapedInFull("resourceTemplates") + `x":[1]}}`, then: `{"result":{"` + escapedInFull("resourceTemplates") + `x":[1]}}`},
		"a key of another object": {body: `{"x":{"tools":1},"result":[[1]]}`, then: `{"x":{"tools":1},"result":[[1]]}`},
		"another letter case":     {body: `{"RESULT":{"Tools":[1],"tool\u017f":[2,3],"toolſ":[4]}}`, then: `{"RESULT":{"Tools":[],"tool\u017f":[],"toolſ":[]}}`, items: [4]int{4}},
		"a list twice":            {body: `{"result":{"tools":[1],"tools":[2]},"result":{"tools":[3]}}`, then: `{"result":{"tools":[],"tools":[]},"result":{"tools":[]}}`, items: [4]int{3}},
		"a long string":           {body: `{"result":{"instructions":"` + long + `","tools":[1]}}`, then: `{"result":{"instructions":"` + long[:maxString] + `","tools":[]}}`, items: [4]int{1}},
		"an escape at the end":    {body: `["` + long[:maxString-1] + `\"abc\u1234"]`, then: `["` + long[:maxString-1] + `"]`},
		"escapes before the end":  {body: `["` + strings.Repeat(`\\`, maxString) + `"]`, then: `["` + strings.Repeat(`\\`, maxString/2-longestCharacter/2) + `"]`},
		"escapes up to the end":   {body: `["x` + strings.Repeat(`\\`, maxString) + `"]`, then: `["x` + strings.Repeat(`\\`, maxString/2-longestCharacter/2) + `"]`},
		"a character at the end":  {body: `["` + long[:maxString-1] + `€€"]`, then: `["` + long[:maxString-1] + `"]`},
		"pages with cursors":      {body: strings.Repeat(page, 10), then: strings.Repeat(strings.Replace(page, "[1]", "[]", 1), 10), items: [4]int{10}},
		"not JSON":                {body: "<p class=\"a\">What, again?</p>", then: "<p class=\"a\">What, again?</p>"},
		"closed too often":        {body: `}]}{"result":{"tools":[1]}}`, then: `}]}{"result":{"tools":[]}}`, items: [4]int{1}},
		"events": {
			events: true,
			body:   "event: message\r\nid: {1\ndata: {\"result\":\r\ndata: {\"tools\":[1,\ndata: 2]}}\n\n: \"tools\":[\n\ndata: {\"result\":{\"tools\":[3]}}\n\n",
			then:   "event: message\r\nid: {1\ndata: {\"result\":\r\ndata: {\"tools\":[\ndata:]}}\n\n: \"tools\":[\n\ndata: {\"result\":{\"tools\":[]}}\n\n",
			items:  [4]int{3},
		},
		"an item over two lines":   {events: true, body: "data: {\"result\":{\"tools\":[{\"a\":\ndata: 1}]}}\n\n", then: "data: {\"result\":{\"tools\":[\ndata:]}}\n\n", items: [4]int{1}},
		"an event that ends early": {events: true, body: "data: {\"result\":{\"tools\":[1\n\ndata: {\"result\":{\"tools\":[2]}}\n\n", then: "data: {\"result\":{\"tools\":[\n\ndata: {\"result\":{\"tools\":[]}}\n\n", items: [4]int{2}},
		"a comment in an event":    {events: true, body: "data: {\"result\":{\"tools\":[1,\n:\nretry\ndata: 2]}}\n\n", then: "data: {\"result\":{\"tools\":[\n:\nretry\ndata:]}}\n\n", items: [4]int{2}},
		"events with CRLF":         {events: true, body: "data: {\"result\":{\"tools\":[1\r\n\r\ndata: {\"result\":{\"tools\":[2]}}\r\n\r\n", then: "data: {\"result\":{\"tools\":[\n\r\ndata: {\"result\":{\"tools\":[]}}\r\n\r\n", items: [4]int{2}},
		"a field that is no data":  {events: true, body: "datas: {\"result\":{\"tools\":[1]}}\nda:ta: {\"result\":{\"tools\":[1]}}\n\n", then: "datas: {\"result\":{\"tools\":[1]}}\nda:ta: {\"result\":{\"tools\":[1]}}\n\n"},
		"as many values":           {body: "[" + strings.Repeat("0,", handshakeValues+listValues-1), then: "[" + strings.Repeat("0,", handshakeValues+listValues-1)},
		"as many bytes":            {body: strings.Repeat(" ", handshakeKept+listKept), then: strings.Repeat(" ", handshakeKept+listKept)},
		"as deep":                  {body: strings.Repeat("[", maxDepth), then: strings.Repeat("[", maxDepth)},
		"an endpoint":              {events: true, body: "event: endpoint\ndata: /m?s=[1\n\n", then: "event: endpoint\ndata: /m?s=[1\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			then, k, err := reduced(test.events, test.body)
			g.Expect(err).To(BeNil())
			g.Expect(then).To(Equal(test.then))
			g.Expect(k.items).To(Equal(test.items))
		})
	}
}

func TestReducerRejects(t *testing.T) {
	const carriageReturn = "the response is not MCP: an event stream has a carriage return without a line feed"
	for name, test := range map[string]struct {
		body   string
		events bool
		then   string
	}{
		"many items":                                 {body: `{"result":{"tools":[` + strings.Repeat("{},", maxItems+1), then: "the response is too large: a list has more than 10000 items"},
		"many values":                                {body: `{"result":{"capabilities":[` + strings.Repeat("{},", handshakeValues+listValues), then: "the response is too large: too many JSON values outside of lists"},
		"many values in an array":                    {body: `{"result":{"capabilities":[` + strings.Repeat("0,", handshakeValues+listValues), then: "the response is too large: too many JSON values outside of lists"},
		"deep nesting":                               {body: strings.Repeat("[", maxDepth+1), then: "the response is too large: JSON is nested deeper than 64 levels"},
		"deep nesting in an item":                    {body: `{"result":{"tools":[` + strings.Repeat(`{"a":`, maxDepth), then: "the response is too large: JSON is nested deeper than 64 levels"},
		"many bytes":                                 {body: strings.Repeat(" ", handshakeKept+listKept+1), then: "the response is too large"},
		"many bytes in strings":                      {body: strings.Repeat(`"`+strings.Repeat("x", maxString-2)+`"`, (handshakeKept+listKept)/maxString-1) + `"` + strings.Repeat("x", maxString), then: "the response is too large"},
		"many bytes before the end of a list":        {body: strings.Repeat(" ", handshakeKept+listKept-len(`{"result":{"tools":[`)) + `{"result":{"tools":[]`, then: "the response is too large"},
		"many empty lines":                           {events: true, body: strings.Repeat("\n", handshakeKept+listKept+1), then: "the response is too large"},
		"many bytes in comments":                     {events: true, body: ":" + strings.Repeat("x", handshakeKept+listKept), then: "the response is too large"},
		"a line break in a string":                   {body: "{\"a\":\"\n", then: "the response is not MCP"},
		"a string over two lines":                    {events: true, body: "data: {\"a\":\"\ndata: \"}\n\n", then: "the response is not MCP"},
		"a control character":                        {body: "{\"a\":\"\x00\"}", then: "the response is not MCP"},
		"a control character in an item":             {body: "{\"result\":{\"tools\":[\"\x00\"]}}", then: "the response is not MCP"},
		"a line that is empty only for the SDK":      {events: true, body: "event: ping\ndata: [\n\r\r\ndata: {\"result\":{\"tools\":[1]}}\n\n", then: carriageReturn},
		"an event that other clients read":           {events: true, body: "\ufeffdata: {\"result\":{\"tools\":[1]}}\n\n", then: "the response is not MCP: an event stream begins with a byte order mark"},
		"a line that ends only for other clients":    {events: true, body: ": x\rdata: {\"result\":{\"tools\":[1]}}\n\n", then: carriageReturn},
		"a carriage return within a list of an item": {events: true, body: "data: {\"result\":{\"tools\":[{\"enum\":[1,\r2,\ndata: 3]}]}}\n\n", then: carriageReturn},
		"a carriage return within an item":           {events: true, body: "data: {\"result\":{\"tools\":[[ \r ]]}}\n\n", then: carriageReturn},
		"many items in many events":                  {events: true, body: strings.Repeat("data: {\"result\":{\"tools\":["+strings.Repeat("[],", 999)+"1]}}\n\n", 11), then: "the response is too large: a list has more than 10000 items"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			kept, k, err := reduced(test.events, test.body)
			g.Expect(err).NotTo(BeNil())
			g.Expect(err.Error()).To(Equal(test.then))
			g.Expect(len(kept)).To(BeNumerically("<=", k.maxBytes))
		})
	}
}

// Each event with data takes memory of the SDK, however many lines it has; comments and other fields take none.
func TestReducerCountsEventsWithData(t *testing.T) {
	g := NewWithT(t)
	r := reducer{kept: &kept{maxBytes: handshakeKept}, events: true}
	g.Expect(r.write([]byte(": c\nevent: message\nid: 1\ndata: \ndata: \n\nevent: ping\n\n:\n\ndata: 1\n\n"))).To(BeNil())
	g.Expect(r.messages).To(Equal(2))
}

// The result must not depend on how the network splits a body.
func TestReducerReadsBytesAsTheyArrive(t *testing.T) {
	g := NewWithT(t)
	const body = `{"result":{"t\u006fols":[{"a":"\"]}"},{}],"x":"\u20ac€"}}`
	whole, _, _ := reduced(false, body)
	k := kept{maxBytes: handshakeKept, maxValues: handshakeValues}
	r := reducer{kept: &k}
	for i := range len(body) {
		g.Expect(r.write([]byte(body[i : i+1]))).To(BeNil())
	}
	g.Expect(string(r.out)).To(Equal(whole))
	g.Expect(k.items[toolList]).To(Equal(2))
}

func BenchmarkReducer(b *testing.B) {
	var body strings.Builder
	body.WriteString(`{"jsonrpc":"2.0","id":1,"result":{"tools":[`)
	for i := range 2000 {
		fmt.Fprintf(&body, `{"name":"tool-%d","description":"Does one thing, and does it well.","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}}},`, i)
	}
	text := []byte(body.String())
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		k := kept{maxBytes: handshakeKept, maxValues: handshakeValues}
		r := reducer{kept: &k}
		_ = r.write(text)
	}
}
