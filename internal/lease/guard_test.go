package lease

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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
	})
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
		"GET /api/v1/pods":  false,
		"HEAD /api/v1/pods": false,
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
