package requestbody

import (
	"context"
	"net/http"
	"net/netip"
	"sync"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
)

// Places bounds the number of large messages that are held at once, in total and per client address.
type Places struct {
	all        chan struct{}
	perAddress int

	mu        sync.Mutex
	addresses map[string]*share
}

// share are the places of one client address.
type share struct {
	places chan struct{}
	users  int
}

// NewPlaces returns places of which one client address gets half.
func NewPlaces(total int) *Places {
	return &Places{all: make(chan struct{}, total), perAddress: max(1, total/2), addresses: map[string]*share{}}
}

// Take waits for a place. It returns false if ctx is done before.
func (p *Places) Take(ctx context.Context, address string) (release func(), ok bool) {
	own := p.enter(address)
	if !acquire(ctx, own.places) {
		p.leave(address, own)
		return nil, false
	}
	if !acquire(ctx, p.all) {
		<-own.places
		p.leave(address, own)
		return nil, false
	}
	return func() {
		<-p.all
		<-own.places
		p.leave(address, own)
	}, true
}

// Held is how many places are taken.
func (p *Places) Held() int { return len(p.all) }

func (p *Places) enter(address string) *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	own, ok := p.addresses[address]
	if !ok {
		own = &share{places: make(chan struct{}, p.perAddress)}
		p.addresses[address] = own
	}
	own.users++
	return own
}

func (p *Places) leave(address string, own *share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own.users--
	if own.users == 0 {
		delete(p.addresses, address)
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
