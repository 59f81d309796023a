package authproxy

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/callpolicy"
	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

// messages are those that a layer of the proxy has read.
type messages struct {
	mu   sync.Mutex
	read []weak.Pointer[byte]
}

// watched adds the messages of requests to next.
func (m *messages) watched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record := callrecord.New(func(message []byte) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.read = append(m.read, weak.Make(&message[0]))
		})
		next.ServeHTTP(w, r.WithContext(callrecord.With(r.Context(), record)))
	})
}

// inMemory is the number of messages that something refers to.
func (m *messages) inMemory() (n int) {
	runtime.GC()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, message := range m.read {
		if message.Value() != nil {
			n++
		}
	}
	return n
}

// A large message has its place and its memory until the server has it, and not until the end of the response.
func TestLongRequestsDoNotHoldTheirMessages(t *testing.T) {
	// slow is a server that begins sessions, and whose other responses do not end.
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("Mcp-Method") == "" {
			w.Header().Set(headerSession, "own")
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	limited := newPolicy(t, callpolicy.Options{CallTimeout: time.Hour})
	alone := func(protect func(http.Handler) http.Handler) func(*testing.T, *messages) (url, id string) {
		return func(t *testing.T, read *messages) (url, id string) {
			_, front, _ := newProxy(t, slow, func(next http.Handler) http.Handler { return read.watched(protect(next)) })
			return front, ""
		}
	}
	for name, serve := range map[string]func(*testing.T, *messages) (url, id string){
		"that a policy has read":         alone(limited),
		"that were read for the headers": alone(open),
		"that another replica serves": func(t *testing.T, read *messages) (url, id string) {
			keys := keysOf(t)
			owner, other := newReplica(t, keys, slow), newReplica(t, keys, slow, func(o *Options) {
				o.Protect = func(next http.Handler) http.Handler { return read.watched(limited(next)) }
			})
			return other.url, owner.post().session()
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var read messages
			front, id := serve(t, &read)
			message := `{"jsonrpc":"2.0","id":1,"method":"acme/slow","params":{"text":"` + strings.Repeat("x", requestbody.SmallMessage) + `"}}`
			const requests = requestbody.MaxLargeMessages + 1
			for range requests {
				request, err := http.NewRequest(http.MethodPost, front+"/mcp", strings.NewReader(message))
				g.Expect(err).NotTo(HaveOccurred())
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set("Mcp-Method", "acme/slow")
				if id != "" {
					request.Header.Set(headerSession, id)
				}
				response, err := http.DefaultClient.Do(request)
				g.Expect(err).NotTo(HaveOccurred())
				defer response.Body.Close()
				g.Expect(response.StatusCode).To(Equal(http.StatusOK))
			}
			g.Expect(read.read).To(HaveLen(requests))
			g.Eventually(read.inMemory, testTimeout).Should(BeZero())
		})
	}
}
