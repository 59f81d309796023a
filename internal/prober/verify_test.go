package prober

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// verified is a simulation whose replicas are listed with each probe.
func verified(t *testing.T, offers map[string]string, serving, unready []string) *replicas {
	r := newReplicas(t, offers)
	r.verify(serving, unready)
	r.settle()
	return r
}

func (r *replicas) verify(serving, unready []string) {
	r.Set(name("web"), Target{URL: "http://web/mcp", Addresses: serving, Unready: unready, Interval: time.Minute, Contract: true, Verify: true})
}

// offered are the contracts by address.
func (r *replicas) offered() map[string]string {
	found := map[string]string{}
	for address, offer := range r.result("web").Offers {
		switch {
		case offer.Contract != nil && offer.Err != nil:
			found[address] = offer.Contract.Digest + " and an error"
		case offer.Contract != nil:
			found[address] = offer.Contract.Digest
		case offer.Refused():
			found[address] = "refused: " + offer.Err.Error()
		case offer.Err != nil:
			found[address] = offer.Err.Error()
		default:
			found[address] = ""
		}
	}
	return found
}

func TestReplicasThatDoNotServeAreListed(t *testing.T) {
	g := NewWithT(t)
	r := verified(t, map[string]string{"a": "1", "b": "2"}, []string{"a"}, []string{"b", "a"})
	g.Expect(r.offered()).To(Equal(map[string]string{"a": "1", "b": "2"}))
	g.Expect(r.result("web")).To(And(HaveField("State", Answering), HaveField("Replicas", 1), HaveField("Answered", 1)))

	// When one begins to serve, then it is not probed as a new one.
	before := r.count("web")
	r.verify([]string{"a", "b"}, nil)
	r.settle()
	g.Expect(r.count("web")).To(Equal(before))
	g.Expect(r.result("web")).To(And(HaveField("State", Answering), HaveField("Replicas", 2)))

	// When none serves, then their state is not that of the server.
	r.setScript(fails(Refused))
	r.verify(nil, []string{"a", "b"})
	r.advance(5*time.Minute, time.Second)
	g.Expect(r.result("web")).To(And(HaveField("State", Unknown), HaveField("Replicas", 0), HaveField("Err", BeNil())))
	g.Expect(r.offered()).To(Equal(map[string]string{"a": "1", "b": "2"}), "what they offered last")
}

// It may be the one whose contract is not approved.
func TestReplicaThatDoesNotServeDoesNotDescribeTheServer(t *testing.T) {
	g := NewWithT(t)
	r := verified(t, map[string]string{}, []string{"a"}, []string{"b"})
	failing := ""
	r.setScript(func(_ context.Context, j job) answer {
		if j.address == failing {
			return answer{err: &Error{Kind: Refused}}
		}
		return answer{server: Server{Name: j.address}, listed: j.list}
	})
	r.advance(2*time.Minute, time.Second)
	g.Expect(r.result("web").Server.Name).To(Equal("a"))
	r.verify([]string{"a", "c"}, []string{"b"})
	r.advance(2*time.Minute, time.Second)
	g.Expect(r.result("web").Server.Name).To(Equal("a"), "nor does another one")
	r.verify([]string{"a"}, []string{"b"})
	failing = "a"
	r.advance(seldom, 5*time.Second)
	g.Expect(r.result("web").Server.Name).To(Equal("a"))
}

// A server that changes its contract while it runs is found within two intervals, in all replicas.
func TestVerifiedReplicaThatChangesIsFoundWithinTwoIntervals(t *testing.T) {
	g := NewWithT(t)
	r := verified(t, map[string]string{"a": "1", "b": "1", "c": "1"}, []string{"a", "b", "c"}, nil)
	r.advance(10*time.Minute, time.Second)
	r.offer("2", "b")
	r.advance(2*time.Minute, time.Second)
	g.Expect(r.offered()).To(Equal(map[string]string{"a": "1", "b": "2", "c": "1"}))
}

// The lists of another server of the namespace may take the slot.
func TestVerifiedReplicaThatCouldNotBeListedIsProbedEarlier(t *testing.T) {
	g := NewWithT(t)
	r := verified(t, map[string]string{"a": "1"}, []string{"a"}, nil)
	listed := r.script
	r.setScript(func(context.Context, job) answer { return answer{} })
	r.advance(2*time.Minute, time.Second)
	before := r.count("web")
	r.advance(4*time.Minute, time.Second)
	g.Expect(r.count("web") - before).To(BeNumerically(">=", 12))
	r.setScript(listed)
	r.advance(time.Minute, time.Second)
	before = r.count("web")
	r.advance(4*time.Minute, time.Second)
	g.Expect(r.count("web")-before).To(BeNumerically("<=", 5), "until it is listed")
	g.Expect(r.offered()).To(Equal(map[string]string{"a": "1"}))
}

// A replica may take longer to start than the first probes.
func TestStartingReplicaThatDoesNotServeIsProbedMoreOften(t *testing.T) {
	g := NewWithT(t)
	r := verified(t, map[string]string{"a": "1", "b": "1"}, []string{"a"}, nil)
	listed := r.script
	r.setScript(func(ctx context.Context, j job) answer {
		if j.address == "b" {
			return answer{err: &Error{Kind: Refused}}
		}
		return listed(ctx, j)
	})
	r.verify([]string{"a"}, []string{"b"})
	r.advance(10*time.Minute, time.Second)
	g.Expect(r.offered()).To(Equal(map[string]string{"a": "1", "b": (&Error{Kind: Refused}).Error()}))
	g.Expect(r.result("web").State).To(Equal(Answering))
	r.setScript(listed)
	r.advance(20*time.Second, time.Second)
	g.Expect(r.offered()).To(Equal(map[string]string{"a": "1", "b": "1"}))
}

var tooManyItems = "refused: " + errTooManyItems.Error()

func TestListsThatCannotBeReadAreReported(t *testing.T) {
	g := NewWithT(t)
	r := verified(t, map[string]string{"a": "1", "b": ""}, []string{"a"}, []string{"b"})
	g.Expect(r.offered()).To(Equal(map[string]string{"a": "1", "b": tooManyItems}))

	// Verify requires Contract.
	r.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a"}, Interval: time.Minute, Verify: true})
	g.Expect(r.result("web").Offers).To(BeNil())
	listed := r.lists("a")
	r.advance(2*time.Minute, time.Second)
	g.Expect(r.lists("a")).To(BeNumerically("<=", listed+1), "for the description of the server")
	r.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a"}, Interval: time.Minute, Contract: true})
	g.Expect(r.result("web").Offers).To(BeNil())
}

func TestErrorOfAReplicaIsThatOfItsLastProbe(t *testing.T) {
	g := NewWithT(t)
	r := verified(t, map[string]string{"a": "1"}, []string{"a"}, nil)
	broken := &Error{Kind: Protocol, Code: -32603}
	r.setScript(func(context.Context, job) answer { return answer{listed: true, listErr: broken} })
	r.verify([]string{"a"}, []string{"b"})
	r.settle()
	g.Expect(r.offered()).To(Equal(map[string]string{"a": "1", "b": broken.Error()}))
	r.setScript(fails(Refused))
	r.advance(2*time.Minute, time.Second)
	g.Expect(r.offered()).To(Equal(map[string]string{"a": "1", "b": (&Error{Kind: Refused}).Error()}), "it says more than the lists before")
}

// What a replica offered before stays while it is the network or an error of the server that keeps it from being read. A
// response that is refused for its content may be another contract to clients with other limits.
func TestResponsesAreRefusedUntilTheListsAreReadAgain(t *testing.T) {
	broken := &Error{Kind: Protocol, Code: -32603}
	for name, c := range map[string]struct {
		answer answer
		want   string
	}{
		"connection refused":         {answer{err: &Error{Kind: Refused}}, "1"},
		"timeout":                    {answer{err: &Error{Kind: Timeout}}, "1"},
		"lists with an error":        {answer{listed: true, listErr: broken}, "1"},
		"lists of another server":    {answer{}, "1"},
		"handshake too large":        {answer{err: errTooLarge}, "refused: " + errTooLarge.Error()},
		"handshake is no MCP":        {answer{err: errNotJSON}, "refused: " + errNotJSON.Error()},
		"too many items":             {answer{listed: true, listErr: errTooManyItems}, tooManyItems},
		"item that is not valid":     {answer{listed: true, contractErr: errMalformed}, "refused: " + errMalformed.Error()},
		"templates that are no MCP":  {answer{listed: true, contractErr: errNotJSON}, "refused: " + errNotJSON.Error()},
		"templates with an error":    {answer{listed: true, contractErr: broken}, "1"},
		"headers that are too large": {answer{err: errLongHeaders}, "refused: " + errLongHeaders.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := verified(t, map[string]string{"a": "1"}, []string{"a"}, nil)
			listed := r.script
			r.setScript(func(context.Context, job) answer { return c.answer })
			r.advance(2*time.Minute, time.Second)
			g.Expect(r.offered()).To(Equal(map[string]string{"a": c.want}))
			// It stays refused until the lists are read.
			for _, later := range []answer{{}, {err: &Error{Kind: Refused}}, {listed: true, listErr: broken}} {
				r.setScript(func(context.Context, job) answer { return later })
				r.advance(2*time.Minute, time.Second)
				g.Expect(r.offered()).To(Equal(map[string]string{"a": c.want}))
			}
			r.setScript(listed)
			r.advance(2*time.Minute, time.Second)
			g.Expect(r.offered()).To(Equal(map[string]string{"a": "1"}))
		})
	}
}
