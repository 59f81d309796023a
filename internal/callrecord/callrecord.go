// Package callrecord carries what the layers of the data path learn about a request, such as its caller and its message,
// to the layer that records it. Without a record in the context, its functions do nothing.
package callrecord

import (
	"context"
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

	mu    sync.Mutex
	read  bool
	facts Facts
}

// New returns a record. The message of the request is passed to onMessage once, and may be overwritten after it returns.
func New(onMessage func(message []byte)) *Record { return &Record{onMessage: onMessage} }

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

func of(ctx context.Context) *Record {
	r, _ := ctx.Value(key{}).(*Record)
	return r
}
