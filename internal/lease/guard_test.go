package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const duration = 10 * time.Second

// elapse advances the fake clock of the synctest bubble.
func elapse(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the fake clock of synctest
}

// newElected is the guard, in a synctest bubble, of a replica that was just elected.
func newElected(t *testing.T) *Guard {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	guard := New(duration, metrics)
	guard.renewed(guard.now())
	return guard
}

func reasonOf(err error) Reason {
	if refusal, ok := Refused(err); ok {
		return refusal.Reason
	}
	return ""
}

func TestCheck(t *testing.T) {
	cases := map[string]struct {
		happens func(g *Guard)
		want    Reason
	}{
		"just elected":             {func(*Guard) {}, ""},
		"shortly before the end":   {func(*Guard) { elapse(9*time.Second - time.Millisecond) }, ""},
		"at the end of the proof":  {func(*Guard) { elapse(9 * time.Second) }, Unproven},
		"renewed in time":          {func(g *Guard) { elapse(8 * time.Second); g.renewed(g.now()); elapse(8 * time.Second) }, ""},
		"renewed too late":         {func(g *Guard) { elapse(20 * time.Second); g.renewed(g.now()) }, ""},
		"a slow answer":            {func(g *Guard) { sent := g.now(); elapse(9 * time.Second); g.renewed(sent) }, Unproven},
		"given up":                 {func(g *Guard) { g.GiveUp() }, GivenUp},
		"given up, and renewed":    {func(g *Guard) { g.GiveUp(); g.renewed(g.now()) }, GivenUp},
		"lost":                     {func(g *Guard) { g.lose() }, Lost},
		"lost, and given up":       {func(g *Guard) { g.lose(); g.GiveUp() }, Lost},
		"given up, and then lost":  {func(g *Guard) { g.GiveUp(); g.lose() }, Lost},
		"lost twice, and it shows": {func(g *Guard) { g.lose(); g.lose() }, Lost},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				guard := newElected(t)
				c.happens(guard)
				NewWithT(t).Expect(reasonOf(guard.Check())).To(Equal(c.want))
				NewWithT(t).Expect(guard.Held()).To(Equal(c.want == ""))
			})
		})
	}
}

func TestReplicaThatWasNeverElectedIsRefused(t *testing.T) {
	g := NewWithT(t)
	guard := New(duration, nil)
	g.Expect(guard.Check()).To(MatchError("write refused: this replica is not the leader"))
	g.Expect(guard.Overdue()).To(BeZero())
}

// A candidate waits for the duration that the Lease stores, in whole seconds.
func TestProofIsOfWholeSeconds(t *testing.T) {
	guard := New(duration+900*time.Millisecond, nil)
	at := instant{running: time.Minute, wall: time.Unix(1000, 0)}
	guard.now = func() instant { return at }
	guard.renewed(at)
	at.running += duration * provenShare / ofShares
	NewWithT(t).Expect(reasonOf(guard.Check())).To(Equal(Unproven))
}

// Only the wall clock includes the time that a machine sleeps.
func TestLongerElapsedTimeCounts(t *testing.T) {
	for name, c := range map[string]struct {
		running, wall time.Duration
		want          Reason
	}{
		"both go along":       {8 * time.Second, 8 * time.Second, ""},
		"the machine slept":   {time.Second, time.Hour, Unproven},
		"the clock was set":   {9 * time.Second, -time.Hour, Unproven},
		"set back, no matter": {8 * time.Second, -time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			guard := New(duration, nil)
			at := instant{running: time.Minute, wall: time.Unix(1000, 0)}
			guard.now = func() instant { return at }
			guard.renewed(at)
			at = instant{running: at.running + c.running, wall: at.wall.Add(c.wall)}
			NewWithT(t).Expect(reasonOf(guard.Check())).To(Equal(c.want))
		})
	}
}

func TestGuardReadsBothClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := clockSince(time.Now())
		elapse(time.Minute)
		NewWithT(t).Expect(now()).To(Equal(instant{running: time.Minute, wall: time.Now().Round(0)}))
	})
}

func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard := newElected(t)
		g.Expect(guard.Overdue()).To(BeZero())
		elapse(9*time.Second + time.Minute)
		g.Expect(guard.Overdue()).To(Equal(time.Minute))
		guard.GiveUp()
		g.Expect(guard.Overdue()).To(BeZero())
	})
}

// server responds when the test says so.
type server struct {
	received chan *http.Request
	answer   chan error
}

func newServer() *server {
	return &server{received: make(chan *http.Request, 1), answer: make(chan error)}
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(request *http.Request) (*http.Response, error) {
	s.received <- request
	select {
	case err := <-s.answer:
		if err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: request}, nil
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
}

// send starts a request and returns its outcome.
func send(ctx context.Context, t *testing.T, through http.RoundTripper, method string) <-chan error {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, "https://server.test/apis/apps/v1/namespaces/a/deployments/b", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	outcome := make(chan error, 1)
	go func() {
		response, err := through.RoundTrip(request)
		if err == nil {
			err = response.Body.Close()
		}
		outcome <- err
	}()
	return outcome
}

func TestRoundTripperGuardsOnlyWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, reads, writes := New(duration, nil), newServer(), newServer()
		through := guard.RoundTripper(reads, writes, IsKubernetesWrite)

		read := send(t.Context(), t, through, http.MethodGet)
		<-reads.received
		reads.answer <- nil
		g.Expect(<-read).To(Succeed())
		g.Expect(<-send(t.Context(), t, through, http.MethodPatch)).To(MatchError(&Error{Reason: NotElected}))

		guard.renewed(guard.now())
		write := send(t.Context(), t, through, http.MethodPatch)
		<-writes.received
		writes.answer <- nil
		g.Expect(<-write).To(Succeed())
	})
}

func TestWriteIsAbortedWhenTheProofExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newElected(t), newServer()
		started := time.Now()

		outcome := send(t.Context(), t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)

		g.Expect(<-outcome).To(MatchError(&Error{Reason: Unproven, Sent: true}))
		g.Expect(time.Since(started)).To(Equal(9 * time.Second))
	})
}

func TestRenewalExtendsPendingWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newElected(t), newServer()
		outcome := send(t.Context(), t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)
		elapse(5 * time.Second)
		guard.renewed(guard.now())
		elapse(8 * time.Second)
		wire.answer <- nil
		g.Expect(<-outcome).To(Succeed())
	})
}

func TestWriteIsAbortedWhenTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newElected(t), newServer()
		outcome := send(t.Context(), t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)
		<-wire.received
		guard.lose()
		g.Expect(<-outcome).To(MatchError("write aborted: another replica holds the Lease"))
		g.Expect(guard.Lost()).To(BeClosed())
	})
}

// Otherwise the outcome of the write would be unknown.
func TestWriteContinuesWhenItsCallerIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newElected(t), newServer()
		ctx, cancel := context.WithCancel(t.Context())
		outcome := send(ctx, t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)
		<-wire.received
		cancel()
		synctest.Wait()
		g.Expect(outcome).NotTo(Receive())
		wire.answer <- nil
		g.Expect(<-outcome).To(Succeed())
		g.Expect(<-send(ctx, t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)).To(MatchError(context.Canceled), "no further write starts")
	})
}

func TestWriteKeepsItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newElected(t), newServer()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g.Expect(<-send(ctx, t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)).To(MatchError(context.DeadlineExceeded))
	})
}

func TestServerErrorsAreUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newElected(t), newServer()
		outcome := send(t.Context(), t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)
		<-wire.received
		broken := errors.New("connection reset by peer")
		wire.answer <- broken
		g.Expect(<-outcome).To(BeIdenticalTo(broken))
	})
}

func TestRefusalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newElected(t), newServer()
		g.Expect(testutil.ToFloat64(guard.metrics.leading)).To(Equal(1.0))
		elapse(duration)
		g.Expect(testutil.ToFloat64(guard.metrics.leading)).To(Equal(0.0))
		g.Expect(<-send(t.Context(), t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)).NotTo(Succeed())
		g.Expect(testutil.ToFloat64(guard.metrics.refusals.WithLabelValues(string(Unproven)))).To(Equal(1.0))
		guard.renewed(guard.now())
		g.Expect(testutil.ToFloat64(guard.metrics.leading)).To(Equal(1.0))
		guard.GiveUp()
		g.Expect(testutil.ToFloat64(guard.metrics.leading)).To(Equal(0.0))
	})
}

// So that the first refusal is an increase.
func TestEveryReasonIsExplainedAndCountedFromTheStart(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	_, err := NewMetrics(registry)
	g.Expect(err).NotTo(HaveOccurred())
	series, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	counted := map[string]float64{}
	for _, family := range series {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				counted[label.GetValue()] = metric.GetCounter().GetValue()
			}
		}
	}
	g.Expect(counted).To(Equal(map[string]float64{"NotElected": 0, "Unproven": 0, "Lost": 0, "GivenUp": 0, "NotClaimed": 0}))
	for reason := range counted {
		g.Expect((&Error{Reason: Reason(reason)}).Error()).To(MatchRegexp("^write refused: .+"), reason)
	}
}

func TestMetricsOfAnotherTypeAreAnError(t *testing.T) {
	for name, taken := range map[string]prometheus.Collector{
		"refusals, with other labels": prometheus.NewGauge(prometheus.GaugeOpts{Name: "fixpoint_lease_refused_writes_total", Help: "Other."}),
		"leading, as a counter":       prometheus.NewCounter(prometheus.CounterOpts{Name: "fixpoint_lease_held", Help: "1 if this replica is provably the leader, else 0."}),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			registry := prometheus.NewRegistry()
			g.Expect(registry.Register(taken)).To(Succeed())
			_, err := NewMetrics(registry)
			g.Expect(err).To(MatchError(HavePrefix("registering the metrics of the lease guard: ")))
		})
	}
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	first, err := NewMetrics(registry)
	g.Expect(err).NotTo(HaveOccurred())
	second, err := NewMetrics(registry)
	g.Expect(err).NotTo(HaveOccurred())
	first.refused(Lost)
	g.Expect(testutil.ToFloat64(second.refusals.WithLabelValues(string(Lost)))).To(Equal(1.0))
}

func TestIsKubernetesWrite(t *testing.T) {
	for line, want := range map[string]bool{
		"GET /api/v1/pods":                                                       false,
		"HEAD /api/v1/pods":                                                      false,
		"OPTIONS /api/v1/pods":                                                   false,
		"PATCH /apis/apps/v1/namespaces/a/deployments/b":                         true,
		"POST /apis/events.k8s.io/v1/namespaces/a/events":                        true,
		"DELETE /api/v1/namespaces/a/services/b":                                 true,
		"PUT /api/v1/namespaces/a/services/b":                                    true,
		"POST /apis/authentication.k8s.io/v1/tokenreviews":                       false,
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews":                false,
		"POST /k8s/clusters/c/apis/authorization.k8s.io/v1/subjectaccessreviews": false,
		"POST /api/v1/namespaces/a/serviceaccounts/b/token":                      true,
	} {
		t.Run(line, func(t *testing.T) {
			method, path, _ := strings.Cut(line, " ")
			request, err := http.NewRequest(method, "https://server.test"+path, nil)
			g := NewWithT(t)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(IsKubernetesWrite(request)).To(Equal(want))
		})
	}
}

func TestSuccessAfterTheProofIsASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newElected(t), newServer()
		at := guard.now()
		guard.now = func() instant { return at }
		outcome := send(t.Context(), t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)
		<-wire.received
		at.wall = at.wall.Add(duration)
		wire.answer <- nil
		g.Expect(<-outcome).To(Succeed())
	})
}

// The connection refused the bytes, and the Lease has been renewed since.
func TestWriteThatAConnectionAbortedIsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newElected(t), newServer()
		outcome := send(t.Context(), t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)
		<-wire.received
		aborted := &Error{Reason: Unproven, Sent: true}
		wire.answer <- fmt.Errorf("http2: %w", aborted)
		g.Expect(<-outcome).To(BeIdenticalTo(aborted))
		g.Expect(testutil.ToFloat64(guard.metrics.refusals.WithLabelValues(string(Unproven)))).To(Equal(1.0))
	})
}

func TestCloseAbortsPendingWrites(t *testing.T) {
	for name, limited := range map[string]bool{"without a deadline": false, "with a deadline": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				guard, wire, ctx := newElected(t), newServer(), t.Context()
				if limited {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, duration)
					defer cancel()
				}
				outcome := send(ctx, t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)
				<-wire.received
				guard.Close()
				g.Expect(<-outcome).To(MatchError(&Error{Reason: GivenUp, Sent: true}))
			})
		})
	}
}

func TestContextOfAWriteEndsWithIt(t *testing.T) {
	for name, answer := range map[string]error{"success": nil, "failure": errors.New("connection reset by peer")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				guard, wire := newElected(t), newServer()
				outcome := send(t.Context(), t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)
				request := <-wire.received
				wire.answer <- answer
				if answer == nil {
					g.Expect(<-outcome).To(Succeed())
				} else {
					g.Expect(<-outcome).To(BeIdenticalTo(answer))
				}
				g.Expect(request.Context().Err()).To(MatchError(context.Canceled))
			})
		})
	}
}

// brokenBody is the body of a response whose connection fails.
type brokenBody struct{ io.Reader }

func (brokenBody) Close() error { return io.ErrUnexpectedEOF }

// answering answers every request with a body.
type answering struct{ body io.ReadCloser }

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: a.body}, nil
}

func TestBodyOfAResponseIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := answering{brokenBody{strings.NewReader("")}}
		outcome := send(t.Context(), t, newElected(t).RoundTripper(wire, wire, IsWrite), http.MethodPatch)
		NewWithT(t).Expect(<-outcome).To(MatchError(io.ErrUnexpectedEOF))
	})
}

func TestBodyOfARefusedWriteIsClosed(t *testing.T) {
	g := NewWithT(t)
	body, far := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://server.test", body)
	g.Expect(err).NotTo(HaveOccurred())
	through := New(duration, nil).RoundTripper(newServer(), newServer(), IsWrite)
	_, err = through.RoundTrip(request)
	g.Expect(reasonOf(err)).To(Equal(NotElected))
	_, err = far.Write([]byte("{}"))
	g.Expect(err).To(MatchError(io.ErrClosedPipe))

	request.Body = nil
	_, err = through.RoundTrip(request)
	g.Expect(reasonOf(err)).To(Equal(NotElected), "without a body")
}

func TestWrappedTransportIsThatOfReads(t *testing.T) {
	reads := newServer()
	through := New(duration, nil).RoundTripper(reads, newServer(), IsWrite)
	wrapper, ok := through.(utilnet.RoundTripperWrapper)
	g := NewWithT(t)
	g.Expect(ok).To(BeTrue())
	g.Expect(wrapper.WrappedRoundTripper()).To(BeIdenticalTo(reads))
}

func TestErrorsAfterTheProofAreRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		guard, wire := newElected(t), newServer()
		at := guard.now()
		guard.now = func() instant { return at }
		outcome := send(t.Context(), t, guard.RoundTripper(wire, wire, IsWrite), http.MethodPatch)
		<-wire.received
		at.wall = at.wall.Add(duration) // as after a sleep of the machine
		wire.answer <- errors.New("http2: client connection lost")
		g.Expect(<-outcome).To(MatchError(&Error{Reason: Unproven, Sent: true}))
	})
}
