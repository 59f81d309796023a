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
	for name, protect := range map[string]func(http.Handler) http.Handler{
		"that a policy has read":         newPolicy(t, callpolicy.Options{CallTimeout: time.Hour}),
		"that were read for the headers": open,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var read messages
			_, front, _ := newProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}), func(next http.Handler) http.Handler { return read.watched(protect(next)) })
			message := `{"jsonrpc":"2.0","id":1,"method":"acme/slow","params":{"text":"` + strings.Repeat("x", requestbody.SmallMessage) + `"}}`
			const requests = requestbody.MaxLargeMessages + 1
			for range requests {
				request, err := http.NewRequest(http.MethodPost, front+"/mcp", strings.NewReader(message))
				g.Expect(err).NotTo(HaveOccurred())
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set("Mcp-Method", "acme/slow")
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
