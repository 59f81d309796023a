package bridge

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
)

func TestKindsOfMessages(t *testing.T) {
	for message, want := range map[string]kind{
		`{"id":1,"method":"m"}`:                request,
		`{"id":"a","method":"m","result":{}}`:  request,
		`{"method":"m"}`:                       notification,
		`{"id":null,"method":"m"}`:             notification,
		`{"id":1,"result":{}}`:                 response,
		`{"id":1,"error":{"code":1}}`:          response,
		`{"id":null,"error":{"code":1}}`:       response,
		`{"id":1}`:                             response,
		`{"id":1,"method":""}`:                 response,
		" \t\r\n{\"id\":1,\"method\":\"m\"}\n": request,
		`{"result":{}}`:                        invalid,
		`{"error":null}`:                       invalid,
		`{"id":null}`:                          invalid,
		`{"method":7}`:                         invalid,
		`{}`:                                   invalid,
		`[{"id":1,"method":"m"}]`:              invalid,
		`"m"`:                                  invalid,
		``:                                     invalid,
		` `:                                    invalid,
		`{"id":1,"method":"m"} {"id":2,"method":"m"}`:  invalid,
		`{"id":1,"method":"m"`:                         invalid,
		`{"params":{"method":"m","id":1},"result":{}}`: invalid,
	} {
		g := NewWithT(t)
		e, err := parse([]byte(message))
		if want == invalid {
			g.Expect(err).To(MatchError(errNotMessage), message)
			continue
		}
		g.Expect(err).NotTo(HaveOccurred(), message)
		g.Expect(e.kind()).To(Equal(want), message)
	}
}

func TestCodesOfErrors(t *testing.T) {
	for message, want := range map[string]int{
		`{"id":1,"error":{"code":-32601,"message":"no"}}`: -32601,
		`{"id":1,"error":{"message":"no"}}`:               0,
		`{"id":1,"error":{"code":"-32601"}}`:              0,
		`{"id":1,"error":{"code":-32601,"CODE":"x"}}`:     0,
		`{"id":1,"error":null}`:                           0,
		`{"id":1,"error":"no"}`:                           0,
		`{"id":1,"result":{"code":-32601}}`:               0,
	} {
		g := NewWithT(t)
		e, err := parse([]byte(message))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(e.errorCode()).To(Equal(want), message)
	}
}

// Clients and servers may write an id in another way than they got it.
func TestIDsAreComparedByTheirValue(t *testing.T) {
	g := NewWithT(t)
	key := func(raw string) string { return idKey(json.RawMessage(raw)) }
	for _, equal := range [][]string{
		{`1`, `1.0`, `1e0`, `10E-1`, `0.1e1`},
		{`1000000000000000000000`, `1e21`},
		{`-7`, `-7.0`},
		{`"a"`, `"\u0061"`},
		{`1.5`, `15e-1`, `1.50`},
	} {
		for _, other := range equal {
			g.Expect(key(other)).To(Equal(key(equal[0])), other)
		}
	}
	different := []string{``, `1`, `"1"`, `2`, `-1`, `"a"`, `"A"`, `"s1"`, `1.5`, `12345678901234567890`, `12345678901234567891`, `1e999`, `2e999`, `true`}
	keys := map[string]string{}
	for _, raw := range different {
		g.Expect(keys).NotTo(HaveKey(key(raw)), raw)
		keys[key(raw)] = raw
	}
}

// Stdio and event streams end a message at a line break.
func TestMessagesAreOneLine(t *testing.T) {
	g := NewWithT(t)
	for message, want := range map[string]string{
		"{\"a\":1}":                       `{"a":1}`,
		" \n{ \"a\" : 1.0 } \r\n":         `{ "a" : 1.0 }`,
		"{\n\"a\": \"<x\\n>\",\r\"b\":1}": `{"a":"<x\n>","b":1}`,
	} {
		got, err := oneLine([]byte(message))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(got)).To(Equal(want))
	}
	_, err := oneLine([]byte("{\n1"))
	g.Expect(err).To(MatchError(errNotMessage))
}
