package bridge

import (
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
	"github.com/fixpoint-dev/fixpoint/internal/peers/peerstest"
)

const (
	clientSpan  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	requestSpan = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
)

func TestSpanOfTheRequestIsInMeta(t *testing.T) {
	const traced = `"traceparent":"` + requestSpan + `","tracestate":"a=b"`
	for name, c := range map[string]struct{ message, state, want string }{
		"in place of the span of the client": {
			`{"id":1,"jsonrpc":"2.0","method":"m","params":{"_meta":{"k":[1.0,"<&>"],"traceparent":"` + clientSpan + `","tracestate":"c=d"},"z":12345678901234567890}}`, "a=b",
			`{"id":1,"jsonrpc":"2.0","method":"m","params":{"_meta":{"k":[1.0,"<&>"],` + traced + `},"z":12345678901234567890}}`,
		},
		"of a request without the span of a client": {`{"id":1,"jsonrpc":"2.0","method":"m","params":{}}`, "a=b", `{"id":1,"jsonrpc":"2.0","method":"m","params":{"_meta":{` + traced + `}}}`},
		"with _meta that is null":                   {`{"id":1,"jsonrpc":"2.0","method":"m","params":{"_meta":null}}`, "a=b", `{"id":1,"jsonrpc":"2.0","method":"m","params":{"_meta":{` + traced + `}}}`},
		"without a state": {
			`{"id":1,"jsonrpc":"2.0","method":"m","params":{"_meta":{"tracestate":"c=d"}}}`, "",
			`{"id":1,"jsonrpc":"2.0","method":"m","params":{"_meta":{"traceparent":"` + requestSpan + `"}}}`,
		},
		"unknown members stay":      {`{"id":1,"jsonrpc":"2.0","method":"m","params":{},"x":1}`, "", `{"id":1,"jsonrpc":"2.0","method":"m","params":{"_meta":{"traceparent":"` + requestSpan + `"}},"x":1}`},
		"of a notification":         {`{"jsonrpc":"2.0","method":"m","params":{}}`, "", `{"jsonrpc":"2.0","method":"m","params":{"_meta":{"traceparent":"` + requestSpan + `"}}}`},
		"not without params":        {`{"jsonrpc":"2.0", "id":1,"method":"m"}`, "", `{"jsonrpc":"2.0", "id":1,"method":"m"}`},
		"not with params of null":   {`{"jsonrpc":"2.0", "id":1,"method":"m","params":null}`, "", `{"jsonrpc":"2.0", "id":1,"method":"m","params":null}`},
		"not with other params":     {`{"jsonrpc":"2.0", "id":1,"method":"m","params":[1]}`, "", `{"jsonrpc":"2.0", "id":1,"method":"m","params":[1]}`},
		"not with _meta of no kind": {`{"jsonrpc":"2.0", "id":1,"method":"m","params":{"_meta":1}}`, "", `{"jsonrpc":"2.0", "id":1,"method":"m","params":{"_meta":1}}`},
		"not in a response":         {`{"jsonrpc":"2.0", "id":1,"result":{},"params":{}}`, "", `{"jsonrpc":"2.0", "id":1,"result":{},"params":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var in incoming
			g.Expect(in.parse([]byte(c.message))).To(BeNil())

			g.Expect(in.continueTrace(requestSpan, c.state, len(c.want))).To(BeNil())

			g.Expect(string(in.message)).To(Equal(c.want))
			if len(in.Params.raw) > 0 {
				g.Expect(c.want).To(ContainSubstring(string(in.Params.raw)), "the envelope is that of the new message")
			}

			g.Expect(in.parse([]byte(c.message))).To(BeNil())
			g.Expect(in.continueTrace(requestSpan, c.state, len(c.want)-1)).To(BeNil())
			g.Expect(string(in.message)).To(Equal(c.message), "a message that would exceed the limit stays as it is")
		})
	}
}

// repeats responds to each message with the message.
func repeats() []string {
	return []string{"sed", "-u", "-n", `s/^\(.*\)$/{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"},"got":\1}}/p`}
}

// spanning gives the requests of clients a span; they have none while it is empty.
func spanning(span *string) func(*Options) {
	return func(o *Options) {
		o.Protect = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				record := callrecord.New(func([]byte) {})
				record.SetTrace(func() (string, string) { return *span, "" })
				next.ServeHTTP(w, r.WithContext(callrecord.With(r.Context(), record)))
			})
		}
	}
}

func TestServerGetsTheSpanOfTheRequest(t *testing.T) {
	span := ""
	w := newTestBridge(t, repeats(), spanning(&span))
	id := w.session()
	const message = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"traceparent":"` + clientSpan + `"}}}`
	w.Expect(w.post(message, headerSession, id).Body).To(ContainSubstring(message), "the record has no span")
	span = requestSpan
	got := w.post(message, headerSession, id).Body
	w.Expect(got).To(ContainSubstring(requestSpan))
	w.Expect(got).NotTo(ContainSubstring(clientSpan))
}

// Another replica limits the message with the span, and this one the message of the client.
func TestMessagesWithinTheLimitAreAcceptedByAnyReplica(t *testing.T) {
	const limit = 1024
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	span := requestSpan
	limited := func(o *Options) { o.MaxMessageBytes = limit }
	owner := newReplica(t, tinyServer(), keys, "a", limited, spanning(&span))
	other := newReplica(t, tinyServer(), keys, "a", limited, spanning(&span))
	id := owner.session()
	for _, size := range []int{limit - 100, limit - 1, limit} {
		message := `{"jsonrpc":"2.0","method":"m","params":{"pad":""},"id":7}`
		message = strings.Replace(message, `""`, `"`+strings.Repeat("x", size-len(message))+`"`, 1)
		for name, replica := range map[string]*served{"the owner": owner, "another": other} {
			reply := replica.post(message, headerSession, id)
			owner.Expect(reply.Status).To(Equal(http.StatusOK), "%d bytes at %s: %s", size, name, reply.Body)
		}
	}
	reply := other.post(strings.Repeat(" ", limit+1-len(ping))+ping, headerSession, id)
	owner.Expect(reply.Status).To(Equal(http.StatusRequestEntityTooLarge))
}
