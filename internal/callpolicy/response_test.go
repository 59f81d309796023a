package callpolicy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const (
	listRequest = `{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":"a"}}`
	listed      = `{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"get"},{"name":"delete"}],"nextCursor":"b","ttlMs":60000,"cacheScope":"public"}}`
	filtered    = `{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"get"}],"nextCursor":"b","ttlMs":60000,"cacheScope":"public"}}`
)

// responding is a server whose response has the headers.
func responding(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestListsAreFiltered(t *testing.T) {
	jsonType, events := "application/json; charset=utf-8", "text/event-stream; charset=utf-8"
	progress := "event: message\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"tools\":[{\"name\":\"delete\"}]}}\r\n\r\n"
	for name, c := range map[string]struct {
		server http.HandlerFunc
		want   string
	}{
		"JSON":                             {responding(200, listed, "Content-Type", jsonType), filtered},
		"JSON of a known length":           {responding(200, listed, "Content-Type", jsonType, "Content-Length", strconv.Itoa(len(listed)), "Etag", `"a"`), filtered},
		"without hidden tools":             {responding(200, filtered, "Content-Type", jsonType), filtered},
		"an error":                         {responding(200, `{"id":3,"error":{"code":-32601}}`, "Content-Type", jsonType), `{"id":3,"error":{"code":-32601}}`},
		"another status":                   {responding(203, listed, "Content-Type", jsonType), filtered},
		"accepted, for another stream":     {responding(202, "", "Content-Type", jsonType), ""},
		"an empty response":                {responding(200, "", "Content-Type", jsonType), ""},
		"an HTTP error":                    {responding(500, listed, "Content-Type", jsonType), listed},
		"events":                           {responding(200, ": open\n\nid: 1\ndata: \n\n"+progress+"id: 2\ndata: "+listed+"\n\n", "Content-Type", events), ": open\n\nid: 1\ndata: \n\n" + progress + "id: 2\ndata: " + filtered + "\n\n"},
		"events of a known length":         {responding(200, "data: "+listed+"\n\n", "Content-Type", events, "Content-Length", strconv.Itoa(len(listed)+8)), "data: " + filtered + "\n\n"},
		"an event of several lines":        {responding(200, "event: message\ndata: "+strings.ReplaceAll(listed, ",\"result", "\ndata: ,\"result")+"\n\n", "Content-Type", events), "event: message\ndata: " + strings.ReplaceAll(filtered, ",\"result", "\ndata: ,\"result") + "\n\n"},
		"an event without a space and end": {responding(200, "data:"+listed, "Content-Type", events), "data: " + filtered + "\n\n"},
		"a byte order mark":                {responding(200, "\ufeffdata: "+listed+"\n\n", "Content-Type", events), "data: " + filtered + "\n\n"},
		"lines that end with CR":           {responding(200, "retry: 1\rdata: "+listed+"\r\rdata: {}\r\r", "Content-Type", events), "retry: 1\ndata: " + filtered + "\n\ndata: {}\r\r"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Options{Deny: []string{"delete"}}, func(w http.ResponseWriter, r *http.Request) {
				f := NewWithT(t)
				f.Expect(r.Header).NotTo(HaveKey("Accept-Encoding"))
				c.server(w, r)
			})
			response := f.post(listRequest, "Accept-Encoding", "gzip")
			f.Expect(f.text(response)).To(Equal(c.want))
			if c.want != listed {
				f.Expect(response.Header).NotTo(HaveKey("Etag"))
			}
		})
	}
}

// Responses to other requests are not held.
func TestOtherResponsesAreNotFiltered(t *testing.T) {
	f := newFixture(t, Options{Deny: []string{"delete"}}, func(w http.ResponseWriter, r *http.Request) {
		responding(200, listed, "Content-Type", "application/json", "Accepted", r.Header.Get("Accept-Encoding"))(w, r)
	})
	response := f.post(ping, "Accept-Encoding", "gzip")
	f.Expect(f.text(response)).To(Equal(listed))
	f.Expect(response.Header.Get("Accepted")).To(Equal("gzip"))
}

// A client that lost its connection can get the response to tools/list on a stream that it opens with GET.
func TestStreamsAreFiltered(t *testing.T) {
	next := make(chan string)
	f := newFixture(t, Options{Deny: []string{"delete"}}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w).Flush
		_ = flush()
		for {
			select {
			case part := <-next:
				_, _ = io.WriteString(w, part)
				_ = flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	response, err := http.Get(f.url)
	f.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for _, event := range []struct{ sent, want string }{
		{": keep-alive\n\n", ": keep-alive\n\n"},
		{"data: {\"method\":\"notifications/tools/list_changed\"}\n\n", "data: {\"method\":\"notifications/tools/list_changed\"}\n\n"},
		{"id: 9\ndata: " + listed + "\n\n", "id: 9\ndata: " + filtered + "\n\n"},
	} {
		half := len(event.sent) / 2
		next <- event.sent[:half]
		next <- event.sent[half:]
		got := make([]byte, len(event.want))
		_, err := io.ReadFull(lines, got)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(string(got)).To(Equal(event.want), "before the next event is sent")
	}
}

// Servers ignore the body of a request for a stream, and some the letter case of its method.
func TestStreamsAreFilteredInAllFormsOfTheirRequest(t *testing.T) {
	for name, c := range map[string]struct{ method, body string }{
		"a stream":                     {http.MethodGet, ""},
		"with a message":               {http.MethodGet, ping},
		"with a call":                  {http.MethodGet, call("get")},
		"with a list":                  {http.MethodGet, listRequest},
		"with a method in lower case":  {"get", ""},
		"in lower case with a message": {"get", ping},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			policy, err := New(Options{Deny: []string{"delete"}})
			g.Expect(err).NotTo(HaveOccurred())
			r := message(c.body)
			r.Method = c.method
			if c.body == "" {
				r.Body, r.ContentLength = http.NoBody, 0
			}
			w := recorder()
			policy.Protect(responding(200, "id: 9\ndata: "+listed+"\n\n", "Content-Type", "text/event-stream")).ServeHTTP(w, r)
			g.Expect(w.Body.String()).To(Equal("id: 9\ndata: " + filtered + "\n\n"))
		})
	}
}

func TestListsThatCannotBeFilteredAreNotSent(t *testing.T) {
	large := `{"id":3,"result":{"tools":[{"name":"delete","description":"` + strings.Repeat("x", maxListBytes) + `"}]}}`
	for name, c := range map[string]struct {
		server http.HandlerFunc
		status int
		want   string
	}{
		"compressed":            {responding(200, listed, "Content-Type", "application/json", "Content-Encoding", "gzip"), 502, "is compressed"},
		"compressed events":     {responding(200, "data: "+listed+"\n\n", "Content-Type", "text/event-stream", "Content-Encoding", "br"), 502, "is compressed"},
		"no JSON":               {responding(200, strings.Replace(listed, "60000", "NaN", 1), "Content-Type", "application/json"), 502, "is not JSON"},
		"no JSON of any length": {responding(200, "data: "+strings.Replace(listed, "60000", "NaN", 1)+"\n\n", "Content-Type", "text/event-stream", "Content-Length", strconv.Itoa(len(listed)+6)), 502, "is not JSON"},
		"an event without JSON": {responding(200, "data: "+strings.Replace(listed, "60000", "NaN", 1)+"\n\n", "Content-Type", "text/event-stream"), 200, "is not JSON"},
		"too large":             {responding(200, large, "Content-Type", "application/json"), 502, "larger than"},
		"a large event":         {responding(200, "data: "+large+"\n\n", "Content-Type", "text/event-stream"), 200, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Options{Deny: []string{"delete"}}, c.server)
			response := f.post(listRequest)
			body := f.text(response)
			f.Expect(body).To(And(ContainSubstring(c.want), ContainSubstring(`"id":3`), ContainSubstring("ListNotReadable")))
			f.Expect(body).NotTo(ContainSubstring("delete"))
			f.Expect(response.StatusCode).To(Equal(c.status))
			f.Expect(response.Header).NotTo(HaveKey("Content-Encoding"))
		})
	}
}

// What is held while lists are filtered is released, also if the server aborts its response.
func TestHeldResponsesAreReleased(t *testing.T) {
	for name, c := range map[string]struct{ kind, body string }{
		"JSON": {"application/json", listed}, "events": {"text/event-stream", "data: " + listed},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			policy, err := New(Options{Deny: []string{"delete"}})
			g.Expect(err).NotTo(HaveOccurred())
			abort := false
			handler := policy.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(w, c.body)
				if abort {
					panic(http.ErrAbortHandler)
				}
			}))
			for _, abort = range []bool{false, true} {
				func() {
					defer func() { g.Expect(recover() != nil).To(Equal(abort)) }()
					handler.ServeHTTP(recorder(), message(listRequest))
				}()
				g.Expect(policy.held.Load()).To(BeZero())
			}
			policy.held.Store(maxHeldBytes)
			abort = false
			w := recorder()
			handler.ServeHTTP(w, message(listRequest))
			g.Expect(w.Body.String()).To(ContainSubstring("too many large responses"))
			g.Expect(policy.held.Load()).To(BeEquivalentTo(maxHeldBytes))
		})
	}
}

// However a stream is divided into writes, the client gets the same events.
func TestEventsInAnyParts(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r"} {
		stream := strings.ReplaceAll(": open\n\nid: 1\ndata: "+listed+"\n\n\ndata: {}\n\n", "\n", end)
		var want string
		for size := 1; size <= len(stream); size++ {
			f := NewWithT(t)
			policy, err := New(Options{Deny: []string{"delete"}})
			f.Expect(err).NotTo(HaveOccurred())
			w := recorder()
			policy.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for part := stream; len(part) > 0; part = part[min(size, len(part)):] {
					_, _ = io.WriteString(w, part[:min(size, len(part))])
				}
			})).ServeHTTP(w, message(listRequest))
			got := strings.ReplaceAll(strings.ReplaceAll(w.Body.String(), "\r\n", "\n"), "\r", "\n")
			if want == "" {
				want = got
				f.Expect(got).To(ContainSubstring("id: 1\ndata: " + filtered + "\n\n"))
			}
			f.Expect(strings.Fields(got)).To(Equal(strings.Fields(want)), fmt.Sprintf("parts of %d bytes, lines end with %q", size, end))
			f.Expect(got).NotTo(ContainSubstring("delete"))
		}
	}
}
