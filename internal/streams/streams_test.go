package streams

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
)

// testTimeout is for a busy machine and the race detector.
const testTimeout = time.Minute

// source relays by a function.
type source struct {
	relay   func(http.ResponseWriter) error
	stopped chan struct{}
}

func newSource(relay func(http.ResponseWriter) error) *source {
	return &source{relay: relay, stopped: make(chan struct{})}
}

func (s *source) Relay(w http.ResponseWriter) error { return s.relay(w) }

func (s *source) Stop() { close(s.stopped) } // It panics if it is called twice.

// begin writes the header of a stream, and detaches it.
func begin(w http.ResponseWriter, s *source) {
	Prepare(w.Header())
	w.WriteHeader(http.StatusOK)
	if Detach(w, s) != nil {
		panic(http.ErrAbortHandler)
	}
}

// serve serves a handler in a group, and returns the response to a GET.
func serve(t *testing.T, group *Group, h http.HandlerFunc) (*WithT, *http.Response, error) {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(testTimeout)
	server := httptest.NewServer(group.Handler(h))
	t.Cleanup(server.Close)
	response, err := http.Get(server.URL)
	if err == nil {
		t.Cleanup(func() { _ = response.Body.Close() })
	}
	return g, response, err
}

// layer is a writer of a layer, which adds to what it writes.
type layer struct{ http.ResponseWriter }

func (l layer) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l layer) Write(data []byte) (int, error) {
	_, err := io.WriteString(l.ResponseWriter, "<"+string(data)+">")
	return len(data), err
}

func TestLayersSeeTheEndInTheirOrder(t *testing.T) {
	group := NewGroup(logr.Discard())
	var mu sync.Mutex
	var ends []string
	s := newSource(func(w http.ResponseWriter) error {
		_, err := io.WriteString(w, "a")
		_, none := w.Write(nil)
		return errors.Join(err, none, http.NewResponseController(w).Flush(), http.NewResponseController(w).SetWriteDeadline(time.Now().Add(testTimeout)))
	})
	g, response, err := serve(t, group, func(w http.ResponseWriter, _ *http.Request) {
		inner := layer{w}
		begin(inner, s)
		OnEnd(inner, func(aborted bool) {
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, "inner")
			if !aborted {
				_, _ = io.WriteString(inner, "end")
			}
		})
		OnEnd(w, func(bool) {
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, "outer")
		})
	})
	g.Expect(err).NotTo(HaveOccurred())
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(body)).To(Equal("<a><><end>"))
	g.Eventually(s.stopped).Should(BeClosed())
	mu.Lock()
	defer mu.Unlock()
	g.Expect(ends).To(Equal([]string{"inner", "outer"}))
}

func TestStreamsThatFailBreakOff(t *testing.T) {
	for name, c := range map[string]struct {
		fail   func() error
		logged bool
	}{
		"error": {func() error { return io.ErrUnexpectedEOF }, false},
		"abort": {func() error { panic(http.ErrAbortHandler) }, false},
		"panic": {func() error { panic("a bug") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var logged, aborted atomic.Bool
			group := NewGroup(funcr.New(func(_, _ string) { logged.Store(true) }, funcr.Options{}))
			s := newSource(func(w http.ResponseWriter) error {
				_, _ = io.WriteString(w, "half")
				return c.fail()
			})
			g, response, err := serve(t, group, func(w http.ResponseWriter, _ *http.Request) {
				begin(w, s)
				OnEnd(w, aborted.Store)
			})
			g.Expect(err).NotTo(HaveOccurred())
			body, err := io.ReadAll(response.Body)
			g.Expect(err).To(MatchError(io.ErrUnexpectedEOF))
			g.Expect(string(body)).To(Equal("half"))
			g.Expect(aborted.Load()).To(BeTrue())
			g.Expect(logged.Load()).To(Equal(c.logged))
			g.Eventually(s.stopped).Should(BeClosed())
		})
	}
}

func TestEndThatPanicsBreaksTheStreamOff(t *testing.T) {
	group := NewGroup(logr.Discard())
	g, response, err := serve(t, group, func(w http.ResponseWriter, _ *http.Request) {
		begin(w, newSource(func(http.ResponseWriter) error { return nil }))
		OnEnd(w, func(bool) { panic("a bug") })
	})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = io.ReadAll(response.Body)
	g.Expect(err).To(MatchError(io.ErrUnexpectedEOF))
	g.Expect(group.Shutdown(t.Context())).To(Succeed())
}

func TestHandlerThatPanicsAfterItsResponseIsDetached(t *testing.T) {
	group := NewGroup(logr.Discard())
	s := newSource(func(http.ResponseWriter) error { panic("not called") })
	g, response, err := serve(t, group, func(w http.ResponseWriter, _ *http.Request) {
		begin(w, s)
		panic(http.ErrAbortHandler)
	})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = io.ReadAll(response.Body)
	g.Expect(err).To(HaveOccurred())
	g.Eventually(s.stopped).Should(BeClosed())
	g.Expect(group.Shutdown(t.Context())).To(Succeed())
}

func TestResponsesThatCannotBeDetached(t *testing.T) {
	group := NewGroup(logr.Discard())
	t.Run("of no group", func(t *testing.T) {
		g := NewWithT(t)
		w := httptest.NewRecorder()
		g.Expect(CanDetach(w)).To(BeFalse())
		g.Expect(Detach(w, newSource(nil))).To(MatchError(errors.ErrUnsupported))
		g.Expect(OnEnd(w, func(bool) {})).To(BeFalse())
	})
	t.Run("without a connection", func(t *testing.T) {
		var can bool
		group.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { can = CanDetach(w) })).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		NewWithT(t).Expect(can).To(BeFalse())
	})
	t.Run("errors", func(t *testing.T) {
		var failed error
		var onEnd bool
		g, response, err := serve(t, group, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "compressed", http.StatusBadGateway)
			failed = Detach(w, newSource(nil))
			onEnd = OnEnd(w, func(bool) {})
		})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.StatusCode).To(Equal(http.StatusBadGateway))
		g.Expect(io.ReadAll(response.Body)).To(BeEquivalentTo("compressed\n"))
		g.Expect(failed).To(MatchError(errors.ErrUnsupported))
		g.Expect(onEnd).To(BeFalse())
	})
}

func TestShutdownWaitsForStreams(t *testing.T) {
	group := NewGroup(logr.Discard())
	end := make(chan struct{})
	g, response, err := serve(t, group, func(w http.ResponseWriter, _ *http.Request) {
		begin(w, newSource(func(http.ResponseWriter) error {
			<-end
			return nil
		}))
	})
	g.Expect(err).NotTo(HaveOccurred())
	done, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(group.Shutdown(done)).To(MatchError(context.Canceled))
	ended := make(chan error, 1)
	go func() { ended <- group.Shutdown(context.Background()) }()
	close(end)
	g.Eventually(ended).Should(Receive(BeNil()))
	_, err = io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(group.Shutdown(done)).To(Succeed())
}

// flushing is a layer that sees when a header is sent.
type flushing struct {
	http.ResponseWriter
	flushed func()
}

func (f flushing) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f flushing) FlushError() error {
	f.flushed()
	return http.NewResponseController(f.ResponseWriter).Flush()
}

// The server does not wait for connections that it has given up, and the group must not miss them.
func TestShutdownWaitsForStreamsThatBegin(t *testing.T) {
	group := NewGroup(logr.Discard())
	done, cancel := context.WithCancel(t.Context())
	cancel()
	var during error
	g, response, err := serve(t, group, func(w http.ResponseWriter, _ *http.Request) {
		begin(flushing{w, func() { during = group.Shutdown(done) }}, newSource(func(http.ResponseWriter) error { return nil }))
	})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(during).To(MatchError(context.Canceled))
	g.Expect(group.Shutdown(t.Context())).To(Succeed())
}

func TestCloseCutsStreams(t *testing.T) {
	for name, before := range map[string]bool{"that are open": false, "that begin later": true} {
		t.Run(name, func(t *testing.T) {
			group := NewGroup(logr.Discard())
			if before {
				NewWithT(t).Expect(group.Close()).To(Succeed())
			}
			var aborted atomic.Bool
			s := newSource(nil)
			s.relay = func(http.ResponseWriter) error {
				<-s.stopped
				return io.ErrUnexpectedEOF
			}
			g, response, err := serve(t, group, func(w http.ResponseWriter, _ *http.Request) {
				begin(w, s)
				OnEnd(w, aborted.Store)
			})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(group.Close()).To(Succeed())
			_, err = io.ReadAll(response.Body)
			g.Expect(err).To(HaveOccurred())
			g.Expect(group.Shutdown(context.Background())).To(Succeed())
			g.Expect(aborted.Load()).To(BeTrue())
		})
	}
}

func TestClientThatDoesNotReadHasTheDeadline(t *testing.T) {
	group := NewGroup(logr.Discard())
	var aborted atomic.Bool
	s := newSource(func(w http.ResponseWriter) error {
		err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Millisecond))
		for err == nil {
			_, err = w.Write(make([]byte, 1<<20))
		}
		return err
	})
	g, response, err := serve(t, group, func(w http.ResponseWriter, _ *http.Request) {
		begin(w, s)
		OnEnd(w, aborted.Store)
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(s.stopped).Should(BeClosed())
	_, err = io.Copy(io.Discard, bufio.NewReader(response.Body))
	g.Expect(err).To(HaveOccurred())
	g.Expect(group.Shutdown(context.Background())).To(Succeed())
	g.Expect(aborted.Load()).To(BeTrue())
}
