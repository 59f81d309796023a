package requestbody

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// One address has half of the places, so that it cannot keep others from sending large messages.
func TestPlacesOfLargeMessages(t *testing.T) {
	g := NewWithT(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	p := NewPlaces(4)
	var releases []func()
	take := func(address string) bool {
		// A place that is free may be refused as well if the context is over, so one that lasts is taken first.
		ctx := over
		if own := p.callers[address]; len(p.all) < 4 && (own == nil || len(own.places) < p.perCaller) {
			ctx = t.Context()
		}
		release, ok := p.Take(ctx, address)
		if ok {
			releases = append(releases, release)
		}
		return ok
	}
	g.Expect([]bool{take("a"), take("a"), take("a")}).To(Equal([]bool{true, true, false}))
	g.Expect([]bool{take("b"), take("b"), take("c")}).To(Equal([]bool{true, true, false}))
	g.Expect(p.callers).To(And(HaveLen(2), HaveKey("a"), HaveKey("b")), "an address that has no place is forgotten")
	releases[0]()
	g.Expect([]bool{take("c"), take("a")}).To(Equal([]bool{true, false}))
	for _, release := range releases[1:] {
		release()
	}
	g.Expect(p.callers).To(BeEmpty())
	g.Expect(p.all).To(BeEmpty())
	g.Expect(NewPlaces(1).perCaller).To(Equal(1), "there is always one")
}

// A request that gets no place of all has not taken one of its address.
func TestPlaceOfAnAddressIsGivenBackWithoutAPlaceOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := NewWithT(t), NewPlaces(4)
		for _, address := range []string{"a", "b", "b", "c"} {
			_, ok := p.Take(t.Context(), address)
			g.Expect(ok).To(BeTrue())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, ok := p.Take(ctx, "a")
		g.Expect(ok).To(BeFalse())
		g.Expect(p.callers["a"].places).To(HaveLen(1))
		g.Expect(p.callers["a"].users).To(Equal(1))
	})
}

func TestClientNetwork(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1", "[2001:db8::1:2:3:4]:80": "2001:db8::/64",
		"[fe80::1%eth0]:80": "fe80::/64", "@": "@", "name:80": "name",
	} {
		NewWithT(t).Expect(ClientNetwork(&http.Request{RemoteAddr: remote})).To(Equal(want), remote)
	}
}

// Otherwise one client could keep the large messages of all others out.
func TestOneCallerGetsHalfOfThePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := NewWithT(t), NewReader(1<<20)
		read := func(caller string) *Error {
			_, _, failed := m.Read(httptest.NewRecorder(), newRequest(strings.NewReader(strings.Repeat("x", SmallMessage+1))), caller)
			return failed
		}
		for range MaxLargeMessages / 2 {
			g.Expect(read("192.0.2.1")).To(BeNil())
		}
		g.Expect(read("192.0.2.1")).To(HaveField("Status", http.StatusServiceUnavailable))
		g.Expect(read("192.0.2.2")).To(BeNil())
	})
}
