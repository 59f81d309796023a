package bridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// A proxy that decides by Mcp-Method and Mcp-Name must not be bypassed by members that the bridge and the
// server understand differently. encoding/json matches names case-insensitively, and takes the last one.
func TestHeaderChecksCannotBeBypassed(t *testing.T) {
	w := newTestBridge(t, server("sdk"))
	w.Expect(w.bridge.Check(t.Context())).To(Succeed())
	call := func(old, replacement string) string { return strings.Replace(statelessCall, old, replacement, 1) }
	const name, version = `"name":"echo"`, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
	cases := map[string]struct{ body, message string }{
		"name in other case":           {call(name, `"name":"delete","Name":"echo"`), `"Name", which some servers take for "name"`},
		"name in other case first":     {call(name, `"NAME":"echo","name":"delete"`), `"NAME", which`},
		"only name in other case":      {call(name, `"Name":"echo"`), `"Name", which`},
		"name twice":                   {call(name, `"name":"delete","name":"echo"`), `the member "name" twice`},
		"name twice, one escaped":      {call(name, `"name":"delete","n\u0061me":"echo"`), `the member "name" twice`},
		"other name":                   {call(name, `"name":"delete"`), "Mcp-Name"},
		"name only in arguments":       {call(name, `"x":{"name":"echo"}`), "Mcp-Name"},
		"uri in other case":            {call(name, `"name":"echo","URI":"x"`), `"URI", which`},
		"method twice":                 {call(`"method":"tools/call"`, `"method":"tools/list","method":"tools/call"`), `the member "method" twice`},
		"method in other case":         {call(`"method":"tools/call"`, `"method":"tools/list","Method":"tools/call"`), `"Method", which`},
		"params twice":                 {call(`"params":`, `"params":{"name":"delete"},"params":`), `the member "params" twice`},
		"params in other case":         {call(`"params":`, `"parAms":{"name":"delete"},"params":`), `"parAms", which`},
		"params with a long s":         {call(`"params":`, `"param\u017f":{"name":"delete"},"params":`), `which some servers take for "params"`},
		"version twice":                {call(version, version+","+version), "twice"},
		"version in other case":        {call(version, strings.Replace(version, "protocolVersion", "ProtocolVersion", 1)+","+version), "which some servers take for"},
		"progress token in other case": {call(version, `"ProgressToken":1,`+version), `"ProgressToken", which`},
		"_meta twice":                  {call(`"_meta":`, `"_meta":{},"_meta":`), `the member "_meta" twice`},
		"_META":                        {call(`"_meta":`, `"_META":{},"_meta":`), `"_META", which`},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			g := NewWithT(t)
			before := w.metric("messages_total", toServer)
			reply := w.post(c.body, statelessHeaders...)
			g.Expect(reply.Status).To(Equal(http.StatusBadRequest), reply.Body)
			var said struct {
				Error struct{ Message string }
			}
			g.Expect(json.Unmarshal([]byte(reply.Body), &said)).To(Succeed())
			g.Expect(said.Error.Message).To(ContainSubstring(c.message))
			g.Expect(w.metric("messages_total", toServer)).To(Equal(before), "nothing reaches the server")
		})
	}
	for _, header := range []string{headerMethod, headerName, headerVersion} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url, strings.NewReader(statelessCall))
		w.Expect(err).NotTo(HaveOccurred())
		req.Header = http.Header{"Content-Type": {jsonType}, "Accept": {"*/*"}}
		for i := 0; i < len(statelessHeaders); i += 2 {
			req.Header.Set(statelessHeaders[i], statelessHeaders[i+1])
		}
		req.Header.Add(header, "other")
		resp, err := http.DefaultClient.Do(req)
		w.Expect(err).NotTo(HaveOccurred())
		resp.Body.Close()
		w.Expect(resp.StatusCode).To(Equal(http.StatusBadRequest), "repeated %s", header)
	}
	// Members of arguments are not those of params.
	reply := w.post(call(`"arguments":{"text":"hi"}`, `"arguments":{"text":"hi","Name":"x"}`), statelessHeaders...)
	w.Expect(reply.Status).To(Equal(http.StatusOK), reply.Body)
}

func TestMembers(t *testing.T) {
	cases := map[string]struct {
		data string
		want []string
	}{
		"empty":          {`{}`, nil},
		"empty in space": {" \n{ \t} ", nil},
		"all types":      {`{"a":1,"b":"x","c":null,"d":true,"e":[1,{"f":2}],"g":{"h":"}"}}`, []string{"a=1", `b="x"`, "c=null", "d=true", `e=[1,{"f":2}]`, `g={"h":"}"}`}},
		"white space":    {"{ \"a\" :\t-1.5e+3 ,\n\"b\" : [ ] }", []string{"a=-1.5e+3", "b=[ ]"}},
		"line breaks":    {"{\r\"a\"\r:\r1\r,\n\"b\":2\n}", []string{"a=1", "b=2"}},
		"escapes":        {`{"a\"b\\":"\\\"","\u0061":{"\\":"]"}}`, []string{`a"b\="\\\""`, `a={"\\":"]"}`}},
		"duplicates":     {`{"a":1,"a":2,"A":3}`, []string{"a=1", "a=2", "A=3"}},
		"array":          {`[{"a":1}]`, nil},
		"string":         {`"{\"a\":1}"`, nil},
		"nothing":        {``, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			members([]byte(c.data), func(name string, value json.RawMessage) { got = append(got, name+"="+string(value)) })
			NewWithT(t).Expect(got).To(Equal(c.want))
		})
	}
}

// A client gets the message of one of them, so that it can correct them one after another.
func TestTheFirstAmbiguityIsReported(t *testing.T) {
	g := NewWithT(t)
	for message, want := range map[string]string{
		`{"method":"m","Method":"m","ID":1}`:                                      `"Method", which some servers take for "method"`,
		`{"ID":1,"method":"m","method":"m"}`:                                      `"ID", which some servers take for "id"`,
		`{"method":"m","params":{"Name":"x","_meta":{"ProgressToken":1}}}`:        `"Name", which`,
		`{"method":"m","params":{"_meta":{"progressToken":1}},"Params":{}}`:       `"Params", which`,
		`{"method":"m","params":{"_meta":{"progressToken":1,"progressToken":1}}}`: `"progressToken" twice`,
	} {
		e, err := parse([]byte(message))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(e.ambiguous).To(MatchError(ContainSubstring(want)), message)
	}
}

// FuzzMembers compares members with the decoder of encoding/json.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":1,"b":[{"c":"\"}"}],"a":{}}`, "{ \"\\u00e9\" : -0.5e-3 ,\"\":null}", `[1]`, `"x"`, `{"a":"\\"}`, initMessage, statelessCall} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return // members requires valid JSON
		}
		var got [][2]string
		members(data, func(name string, value json.RawMessage) { got = append(got, [2]string{name, string(value)}) })
		want := decodedMembers(t, data)
		if len(got) != len(want) {
			t.Fatalf("%d members, want %d: %q", len(got), len(want), data)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("member %d is %q, want %q", i, got[i], want[i])
			}
		}
	})
}

func decodedMembers(t *testing.T, data []byte) [][2]string {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil
	}
	var all [][2]string
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			t.Fatal(err)
		}
		all = append(all, [2]string{fmt.Sprint(name), string(value)})
	}
	return all
}
