package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

var (
	start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	names = []string{"fixpoint-webhook.fixpoint-system.svc", "fixpoint-webhook.fixpoint-system.svc.cluster.local"}
)

func issued(t *testing.T, at time.Time, names ...string) *pair {
	t.Helper()
	p, err := issue(names, at)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return p
}

func TestDecide(t *testing.T) {
	first, other := issued(t, start, names...), issued(t, start, names...)
	renewal := start.Add(lifetime - renewBefore)
	second := issued(t, renewal, names...)
	elsewhere := issued(t, start, "fixpoint-webhook.elsewhere.svc")
	whole := state{serving: first, bundle: bundleOf(first)}
	staged := state{serving: first, next: second, bundle: bundleOf(first, second)}
	for name, c := range map[string]struct {
		state state
		now   time.Time
		do    action
		again time.Time
	}{
		"nothing":                              {state{}, start, replace, start},
		"a certificate":                        {whole, start, keep, renewal},
		"a certificate just before it renews":  {whole, renewal, keep, renewal},
		"a certificate that is to be renewed":  {whole, renewal.Add(1), stage, renewal.Add(1)},
		"an expired certificate":               {whole, start.Add(lifetime + 1), replace, start.Add(lifetime + 1)},
		"a certificate of a wrong clock":       {whole, start.Add(-clockSkew - 1), replace, start.Add(-clockSkew - 1)},
		"the next one is of a wrong clock":     {staged, renewal.Add(-clockSkew - 1), keep, renewal},
		"a certificate for another Service":    {state{serving: elsewhere, bundle: bundleOf(elsewhere)}, start, replace, start},
		"a certificate that nobody trusts":     {state{serving: first, bundle: bundleOf(other)}, start, replace, start},
		"the next one is not propagated":       {staged, renewal.Add(propagation - 1), keep, renewal.Add(propagation)},
		"the next one is propagated":           {staged, renewal.Add(propagation), promote, renewal.Add(propagation)},
		"the next one is not in the bundle":    {state{serving: first, next: second, bundle: bundleOf(first)}, renewal.Add(propagation), stage, renewal.Add(propagation)},
		"the next one is for another Service":  {state{serving: first, next: elsewhere, bundle: bundleOf(first, elsewhere)}, start, keep, renewal},
		"expired, with the next one published": {staged, start.Add(lifetime + 1), replace, start.Add(lifetime + 1)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			do, again := decide(c.state, names, c.now)
			g.Expect(do).To(Equal(c.do))
			g.Expect(again).To(Equal(c.again))
			next, err := perform(do, c.state, names, c.now)
			g.Expect(err).NotTo(HaveOccurred())
			settled, later := decide(next, names, c.now)
			g.Expect(settled).To(Equal(keep), "the next decision on what was done")
			g.Expect(later.After(c.now)).To(Equal(do != keep || c.again.After(c.now)))
		})
	}
}

func TestParseReturnsWhatWasWritten(t *testing.T) {
	g := NewWithT(t)
	first, second := issued(t, start, names...), issued(t, start, names...)
	written := state{serving: first, next: second, bundle: bundleOf(first, second)}
	g.Expect(parse(written.data())).To(Equal(written))
}

func TestParseIgnoresWhatCannotBeUsed(t *testing.T) {
	first, second := issued(t, start, names...), issued(t, start, names...)
	for name, data := range map[string]map[string][]byte{
		"nothing":       nil,
		"no key":        {entryCertificate: first.certificate},
		"another key":   {entryCertificate: first.certificate, entryKey: second.key},
		"no PEM":        {entryCertificate: []byte("a"), entryKey: []byte("b"), entryNextCertificate: []byte("c")},
		"no PEM of any": {entryBundle: []byte("x")},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(parse(data)).To(Equal(state{bundle: data[entryBundle]}))
		})
	}
}

// handshake is whether an API server that trusts a bundle connects to a replica that serves a certificate.
func handshake(t *testing.T, bundle []byte, serving *pair, now time.Time) error {
	t.Helper()
	g := NewWithT(t)
	certificate, err := tls.X509KeyPair(serving.certificate, serving.key)
	g.Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(bundle)).To(BeTrue())
	client, server := net.Pipe()
	defer func() { _, _ = client.Close(), server.Close() }()
	go func() {
		_ = tls.Server(server, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}).HandshakeContext(t.Context())
	}()
	return tls.Client(client, &tls.Config{RootCAs: roots, ServerName: names[0], MinVersion: tls.VersionTLS12, Time: func() time.Time { return now }}).HandshakeContext(t.Context())
}

func TestTheBundleIsTrusted(t *testing.T) {
	g := NewWithT(t)
	first, second := issued(t, start, names...), issued(t, start, names...)
	g.Expect(handshake(t, bundleOf(first), first, start)).To(Succeed())
	g.Expect(handshake(t, bundleOf(second, first), first, start.Add(lifetime))).To(Succeed())
	g.Expect(handshake(t, bundleOf(first), first, start.Add(-clockSkew))).To(Succeed())
	g.Expect(handshake(t, bundleOf(second), first, start)).To(MatchError(ContainSubstring("unknown authority")))
	g.Expect(handshake(t, bundleOf(first), first, start.Add(lifetime+time.Second))).To(MatchError(ContainSubstring("expired")))
}

// Through years of rotations, a replica that observes the Secret late and an API server that observes the bundle late
// always agree.
func TestRotationsNeverBreakAConnection(t *testing.T) {
	g := NewWithT(t)
	const lag = propagation - time.Second
	type change struct {
		at    time.Time
		state state
	}
	present, now := state{}, start
	var history []change
	rotations := 0
	for now.Before(start.Add(3 * 365 * 24 * time.Hour)) {
		do, again := decide(present, names, now)
		if do == keep {
			now = again
			if now.Equal(present.serving.leaf.NotAfter.Add(-renewBefore)) {
				now = now.Add(time.Second)
			}
			continue
		}
		next, err := perform(do, present, names, now)
		g.Expect(err).NotTo(HaveOccurred())
		present = next
		history = append(history, change{now, next})
		if do == promote {
			rotations++
		}
	}
	g.Expect(rotations).To(BeNumerically(">=", 17))
	for i, c := range history {
		// What may be observed at the time of a change: this state, and those before it that are younger than the lag.
		for _, when := range []time.Time{c.at, c.at.Add(lag)} {
			var observable []state
			for j := i; j >= 0; j-- {
				observable = append(observable, history[j].state)
				if !history[j].at.After(when.Add(-lag)) {
					break
				}
			}
			for _, replica := range observable {
				for _, server := range observable {
					g.Expect(trusts(server.bundle, replica.serving)).To(BeTrue(), "change %d at %s", i, when)
				}
			}
		}
	}
}
