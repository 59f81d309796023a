package bridge

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
)

// A caller is allowed to call a tool by what ReadCall reads, so a server must not understand the message differently.
func TestReadCall(t *testing.T) {
	id := json.RawMessage("1")
	for name, c := range map[string]struct {
		message string
		want    Call
		refused string
	}{
		"a call":                          {`{"id":1,"method":"tools/call","params":{"name":"get"}}`, Call{"tools/call", "get", id}, ""},
		"a call without an id":            {`{"method":"tools/call","params":{"name":"get"}}`, Call{"tools/call", "get", nil}, ""},
		"another method has no tool":      {`{"id":1,"method":"prompts/get","params":{"name":"get"}}`, Call{"prompts/get", "", id}, ""},
		"a notification":                  {`{"method":"notifications/cancelled"}`, Call{"notifications/cancelled", "", nil}, ""},
		"a response":                      {`{"id":1,"result":{}}`, Call{}, ""},
		"not JSON":                        {`{`, Call{}, "not one JSON-RPC message"},
		"a batch":                         {`[{"id":1,"method":"ping"}]`, Call{}, "batches are not supported"},
		"two names":                       {`{"id":1,"method":"tools/call","params":{"name":"get","name":"delete"}}`, Call{}, `"name" twice`},
		"two methods":                     {`{"id":1,"method":"ping","Method":"tools/call"}`, Call{}, `"Method", which`},
		"a method of half a character":    {`{"id":1,"method":"tools\ud800"}`, Call{}, "the method is not valid Unicode"},
		"no tool":                         {`{"id":1,"method":"tools/call","params":{}}`, Call{}, "params.name must be the name of a tool"},
		"a tool that is no string":        {`{"id":1,"method":"tools/call","params":{"name":7}}`, Call{}, "params.name must be the name of a tool"},
		"a tool of half a character":      {`{"id":1,"method":"tools/call","params":{"name":"get\ud800"}}`, Call{}, "params.name must be the name of a tool"},
		"a name in the arguments is none": {`{"id":1,"method":"tools/call","params":{"arguments":{"name":"get"}}}`, Call{}, "params.name"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			call, err := ReadCall([]byte(c.message))
			if c.refused != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.refused)))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(call).To(Equal(c.want))
		})
	}
}

func TestIsResponse(t *testing.T) {
	for message, want := range map[string]bool{
		`{"id":1,"result":{}}`:         true,
		`{"id":null,"error":{}}`:       true,
		`{"id":1,"method":"ping"}`:     false,
		`{"method":"notifications/x"}`: false,
		`[{"id":1,"result":{}}]`:       false,
		`{"id":1,"result":{}`:          false,
	} {
		NewWithT(t).Expect(IsResponse([]byte(message))).To(Equal(want), message)
	}
}
