package conversion

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

func TestAClientGetsHalfOfTheMemory(t *testing.T) {
	g, m := NewWithT(t), newMemory(100)
	slow, honest := m.begin("slow"), m.begin("honest")
	g.Expect(slow.acquire(t.Context(), 50)).To(Succeed())
	full, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(m.begin("slow").acquire(full, 1)).To(MatchError(context.Canceled))
	g.Expect(honest.acquire(t.Context(), 50)).To(Succeed())
	third := m.begin("third")
	g.Expect(third.acquire(full, 1)).To(MatchError(context.Canceled), "all memory is held")
	slow.end()
	g.Expect(third.acquire(t.Context(), 50)).To(Succeed())
}

// Two requests of one client, which hold what it may hold, wait for each other. They end, although nothing tells that the
// client has left.
func TestRequestsDoNotWaitForMemoryWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, handler := NewWithT(t), Handler(logr.Discard(), nil)
		var both sync.WaitGroup
		both.Add(2)
		var ended sync.WaitGroup
		for range 2 {
			ended.Go(func() {
				rest := readerFunc(func(p []byte) (int, error) { return len(p), nil })
				body := io.MultiReader(io.LimitReader(rest, maxRead), readerFunc(func([]byte) (int, error) {
					both.Done()
					both.Wait()
					return 0, io.EOF
				}), rest)
				recorder := httptest.NewRecorder()
				handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, Path, body))
				g.Expect(recorder.Code).To(Equal(http.StatusBadRequest))
			})
		}
		ended.Wait()
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestMemoryForgetsClients(t *testing.T) {
	g, m := NewWithT(t), newMemory(100)
	first, second := m.begin("a"), m.begin("a")
	g.Expect(first.acquire(t.Context(), 30)).To(Succeed())
	first.end()
	g.Expect(m.clients).To(HaveLen(1))
	second.end()
	g.Expect(m.clients).To(BeEmpty())
	g.Expect(m.all.TryAcquire(100)).To(BeTrue())
}

func TestHandlerReadsRequestsOfAnyLength(t *testing.T) {
	g := NewWithT(t)
	large := `{"apiVersion":"fixpoint.dev/v1alpha1","metadata":{},"spec":{"args":["` + strings.Repeat("a", 3*maxRead) + `"]}}`
	_, response, _ := respond(g, http.MethodPost, reviewOf(v1beta1, large))
	g.Expect(string(response.ConvertedObjects[0].Raw)).To(Equal(strings.Replace(large, "v1alpha1", "v1beta1", 1)))

	code, _, says := respond(g, http.MethodPost, make([]byte, maxReview+1))
	g.Expect(code).To(Equal(http.StatusBadRequest))
	g.Expect(says).To(ContainSubstring("request body too large"))
}

func TestHandlerReportsARequestThatBreaksOff(t *testing.T) {
	g, recorder := NewWithT(t), httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodPost, Path, iotest.TimeoutReader(strings.NewReader(`{"request":`)))
	Handler(logr.Discard(), nil).ServeHTTP(recorder, request)
	g.Expect(recorder.Code).To(Equal(http.StatusBadRequest))
	g.Expect(recorder.Body.String()).To(ContainSubstring("reading the request: timeout"))
}
