// Package callrecord carries what the layers of the data path learn about a request, such as its caller and its message,
// to the layer that records it. Without a record in the context, the functions that set or read one do nothing.
package callrecord

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Facts are what is known about a request.
type Facts struct {
	// Issuer and Subject identify the caller; empty without authorization.
	Issuer, Subject string
	// Refusal is why a layer refused the request; empty if none did.
	Refusal string
}

// Record collects the facts about one request. It is safe for concurrent use.
type Record struct {
	onMessage func(message []byte)
	// trace is nil without a span.
	trace func() (parent, state string)

	mu    sync.Mutex
	read  bool
	facts Facts
}

// New returns a record. The message of the request is passed to onMessage once, and may be overwritten after it returns.
func New(onMessage func(message []byte)) *Record { return &Record{onMessage: onMessage} }

// SetTrace sets the function that returns the context of the span of the request, as the members traceparent and tracestate
// of the W3C recommendation. It must be called before the request is served.
func (r *Record) SetTrace(trace func() (parent, state string)) { r.trace = trace }

// Facts are those known so far.
func (r *Record) Facts() Facts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.facts
}

type key struct{}

// With returns a context with the record.
func With(ctx context.Context, r *Record) context.Context { return context.WithValue(ctx, key{}, r) }

// SetMessage hands over the message in the body of the request. The first one counts.
func SetMessage(ctx context.Context, message []byte) {
	r := of(ctx)
	if r == nil {
		return
	}
	r.mu.Lock()
	first := !r.read
	r.read = true
	r.mu.Unlock()
	if first {
		r.onMessage(message)
	}
}

// SetCaller names the caller.
func SetCaller(ctx context.Context, issuer, subject string) {
	if r := of(ctx); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.facts.Issuer, r.facts.Subject = issuer, subject
	}
}

// SetRefusal says why the request is refused.
func SetRefusal(ctx context.Context, reason string) {
	if r := of(ctx); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.facts.Refusal = reason
	}
}

// HasMessage reports whether the message need not be read for the record: it is known, or there is no record.
func HasMessage(ctx context.Context) bool {
	r := of(ctx)
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read
}

// Trace is the context of the span of the request, after its message is known; empty if there is none.
func Trace(ctx context.Context) (parent, state string) {
	r := of(ctx)
	if r == nil || r.trace == nil {
		return "", ""
	}
	return r.trace()
}

// Refuser is a writer of responses that records refusals.
type Refuser interface {
	// SetRefusal says why the request is refused.
	SetRefusal(reason string)
}

// RefuseBy says why the request is refused to which w responds, for layers that have only w.
func RefuseBy(w http.ResponseWriter, reason string) {
	for w != nil {
		if to, ok := w.(Refuser); ok {
			to.SetRefusal(reason)
			return
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = inner.Unwrap()
	}
}

// ClientAddress is the IP address of the client of a request, or of the proxy in front of it.
func ClientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

func of(ctx context.Context) *Record {
	r, _ := ctx.Value(key{}).(*Record)
	return r
}
