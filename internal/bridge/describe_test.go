package bridge

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
)

func TestDescribe(t *testing.T) {
	id := json.RawMessage(`"a"`)
	for name, c := range map[string]struct {
		message string
		want    Description
	}{
		"a call": {
			`{"id":"a","method":"tools/call","params":{"name":"get","arguments":{"x":1},"_meta":{` +
				`"io.modelcontextprotocol/protocolVersion":"2026-07-28","traceparent":"` + clientSpan + `","tracestate":"k=v"}}}`,
			Description{
				Method: "tools/call", ID: id, Target: "get", Arguments: json.RawMessage(`{"x":1}`),
				ProtocolVersion: "2026-07-28", TraceParent: clientSpan, TraceState: "k=v",
			},
		},
		"a resource":                     {`{"id":"a","method":"resources/read","params":{"uri":"file:///x"}}`, Description{Method: "resources/read", ID: id, Target: "file:///x"}},
		"a resource with another name":   {`{"id":"a","method":"resources/read","params":{"uri":"file:///x","name":"file:///y"}}`, Description{Method: "resources/read", ID: id, Target: "file:///x"}},
		"a tool with another URI":        {`{"id":"a","method":"tools/call","params":{"uri":"get","name":"set"}}`, Description{Method: "tools/call", ID: id, Target: "set"}},
		"a tool without its name":        {`{"id":"a","method":"tools/call","params":{"uri":"get"}}`, Description{Method: "tools/call", ID: id}},
		"initialize":                     {`{"id":"a","method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, Description{Method: "initialize", ID: id, ProtocolVersion: "2025-11-25"}},
		"a notification":                 {`{"method":"notifications/x"}`, Description{Method: "notifications/x"}},
		"an id of null is none":          {`{"id":null,"method":"ping"}`, Description{Method: "ping"}},
		"a response is to an id":         {`{"id":"a","result":{}}`, Description{}},
		"a member twice":                 {`{"id":"a","method":"ping","method":"ping"}`, Description{Method: "ping", ID: id, Ambiguous: true}},
		"a member of params twice":       {`{"id":"a","method":"m","params":{"name":"b","Name":"c"}}`, Description{Method: "m", ID: id, Target: "b", Ambiguous: true}},
		"a member of _meta twice":        {`{"id":"a","method":"m","params":{"_meta":{"traceparent":"b","TraceParent":"c"}}}`, Description{Method: "m", ID: id, TraceParent: "b", Ambiguous: true}},
		"JSON that is no message at all": {` 1`, Description{}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, all, err := Describe([]byte(c.message), 10)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(all).To(Equal(1))
			g.Expect(got).To(Equal([]Description{c.want}))
		})
	}
}

// A record of a batch is bounded, but says how many messages there were.
func TestDescribesABatchUpToTheLimit(t *testing.T) {
	g := NewWithT(t)
	first, second := Description{Method: "a"}, Description{Method: "b"}
	batch := []byte(` [{"method":"a"}, {"method":"b"}, {"method":"c"}]`)
	for limit, want := range [][]Description{nil, {first}, {first, second}} {
		got, all, err := Describe(batch, limit)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(all).To(Equal(3))
		g.Expect(got).To(Equal(want))
	}

	got, all, err := Describe([]byte(`[{"method":"a"}`), 10)
	g.Expect(err).To(MatchError(errNotMessage))
	g.Expect(all).To(BeZero())
	g.Expect(got).To(BeEmpty())
}
