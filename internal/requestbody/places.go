package requestbody

import (
	"context"
	"net/http"
	"net/netip"
	"sync"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
)

// Places bounds the number of large messages that are held at once, in total and per caller, such as a client address.
type Places struct {
	all       chan struct{}
	perCaller int

	mu      sync.Mutex
	callers map[string]*share
}

// share are the places of one caller.
type share struct {
	places chan struct{}
	users  int
}

// NewPlaces returns places of which one caller gets half.
func NewPlaces(total int) *Places {
	return &Places{all: make(chan struct{}, total), perCaller: max(1, total/2), callers: map[string]*share{}}
}

// Take waits for a place. It returns false if ctx is done before.
func (p *Places) Take(ctx context.Context, caller string) (release func(), ok bool) {
	own := p.enter(caller)
	if !acquire(ctx, own.places) {
		p.leave(caller, own)
		return nil, false
	}
	if !acquire(ctx, p.all) {
		<-own.places
		p.leave(caller, own)
		return nil, false
	}
	return func() {
		<-p.all
		<-own.places
		p.leave(caller, own)
	}, true
}

// Held is how many places are taken.
func (p *Places) Held() int { return len(p.all) }

func (p *Places) enter(caller string) *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	own, ok := p.callers[caller]
	if !ok {
		own = &share{places: make(chan struct{}, p.perCaller)}
		p.callers[caller] = own
	}
	own.users++
	return own
}

func (p *Places) leave(caller string, own *share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own.users--
	if own.users == 0 {
		delete(p.callers, caller)
	}
}

func acquire(ctx context.Context, semaphore chan struct{}) bool {
	select {
	case semaphore <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Caller is who identify says that the caller of a request is; if it is nil, the [ClientNetwork].
func Caller(r *http.Request, identify func(*http.Request) string) string {
	if identify == nil {
		return ClientNetwork(r)
	}
	return identify(r)
}

// ClientNetwork is the address of the client of a request, or of the proxy in front of it. Of IPv6, it is the network of 64
// bits, which one client has to itself.
func ClientNetwork(r *http.Request) string {
	host := callrecord.ClientAddress(r)
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if address = address.Unmap().WithZone(""); address.Is6() {
		if network, err := address.Prefix(64); err == nil {
			return network.String()
		}
	}
	return address.String()
}
