package callpolicy

import (
	"bytes"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
	"github.com/fixpoint-dev/fixpoint/internal/peers"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
	"github.com/fixpoint-dev/fixpoint/internal/streams"
)

const (
	methodCall = "tools/call"
	methodList = "tools/list"
)

// Policy applies limits, and selects tools. Create it with [New].
type Policy struct {
	opts     Options
	messages *requestbody.Reader
	// rates is nil if callers have no limits.
	rates *rates
	// calls has a place for each concurrent call; nil without a limit.
	calls chan struct{}
	tools selection
	// held are the bytes of responses that are held to be filtered.
	held atomic.Int64
}

// New returns a policy.
func New(opts Options) (*Policy, error) {
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("configuring limits: %w", err)
	}
	p := &Policy{opts: opts, messages: requestbody.NewReader(opts.MaxMessageBytes), tools: selection{allow: opts.Allow, deny: opts.Deny}}
	if opts.limitsRequests() {
		p.rates = newRates(&opts)
	}
	if opts.MaxConcurrentCalls > 0 {
		p.calls = make(chan struct{}, opts.MaxConcurrentCalls)
	}
	return p, nil
}

// Protect returns a handler that passes to next only requests that the policy permits.
func (p *Policy) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var from *buckets
		if p.rates != nil {
			from = p.rates.of(requestbody.Caller(r, p.opts.Caller))
			if wait := from.request(p.opts.now()); wait > 0 {
				p.refuse(w, r, nil, tooMany(reasonTooManyRequests, fmt.Sprintf(
					"the limit of %d requests per minute is reached: send fewer, or try again later", p.opts.RequestsPerMinute), inSeconds(wait)))
				return
			}
		}
		to := next
		if p.opts.selectsTools() && r.Method != http.MethodPost {
			to = p.filtersStream(next)
		}
		switch {
		case !requestbody.Has(r):
			to.ServeHTTP(w, r)
		case p.opts.readsMessages():
			p.serveMessage(w, r, to, from)
		default:
			p.serveBody(w, r, to)
		}
	})
}

func (p *Policy) refuse(w http.ResponseWriter, r *http.Request, id []byte, f *peers.Refusal) {
	p.opts.Log.V(1).Info("Refused a request", "status", f.Status, "reason", f.Reason, "message", f.Message)
	p.count(r, f)
	requestbody.Refuse(w, r)
	f.Write(w, id)
}

// count records the refusal of a request.
func (p *Policy) count(r *http.Request, f *peers.Refusal) {
	callrecord.SetRefusal(r.Context(), recorded(f))
	if p.opts.Refused != nil {
		p.opts.Refused(recorded(f))
	}
}

// filtersStream serves a request that may open a stream, on which a client can get the response to an earlier request after
// it has lost the connection. Servers take any such request for one with GET: some ignore the letter case of the method, and
// most the body.
func (p *Policy) filtersStream(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.serveFiltered(&filteredWriter{ResponseWriter: w, policy: p}, r, next)
	})
}

// serveBody forwards a body that need not be read.
func (p *Policy) serveBody(w http.ResponseWriter, r *http.Request, next http.Handler) {
	limit := int64(p.opts.MaxBodyBytes)
	if limit > 0 {
		if r.ContentLength > limit {
			p.refuse(w, r, nil, bodyTooLarge(limit))
			return
		}
		limited := *r
		limited.Body = http.MaxBytesReader(w, r.Body, limit)
		r = &limited
	}
	next.ServeHTTP(w, r)
}

func bodyTooLarge(limit int64) *peers.Refusal {
	return &peers.Refusal{Status: http.StatusRequestEntityTooLarge, Code: codeInvalidRequest, Reason: reasonTooLarge, Closes: true,
		Message: fmt.Sprintf("the message is larger than the limit of %d bytes: send a smaller one", limit)}
}

// serveMessage reads the message of a request.
func (p *Policy) serveMessage(w http.ResponseWriter, r *http.Request, next http.Handler, from *buckets) {
	read := *r
	read.Header = r.Header.Clone()
	r = &read
	message, release, failed := p.messages.Read(w, r, requestbody.Caller(r, p.opts.Caller))
	if failed != nil {
		p.refuse(w, r, nil, unreadable(failed))
		return
	}
	defer release()
	call, err := bridge.ReadCall(message)
	call.ID = bytes.Clone(call.ID) // It is kept until the response, and the message only until it was sent.
	mismatch := call.CheckHeaders(r.Header)
	switch {
	case err != nil:
		p.refuse(w, r, nil, &peers.Refusal{Status: http.StatusBadRequest, Code: codeInvalidRequest, Message: err.Error()})
	case len(call.ID) > bridge.MaxID:
		p.refuse(w, r, nil, &peers.Refusal{Status: http.StatusBadRequest, Code: codeInvalidRequest,
			Message: fmt.Sprintf("id must not be longer than %d bytes: use a shorter one", bridge.MaxID)})
	case mismatch != nil:
		p.refuse(w, r, call.ID, &peers.Refusal{Status: http.StatusBadRequest, Code: codeHeaderMismatch, Message: mismatch.Error()})
	case call.Method == methodCall:
		p.serveCall(w, r, next, from, call)
	case call.Method == methodList && p.opts.selectsTools():
		p.serveFiltered(&filteredWriter{ResponseWriter: w, policy: p, lists: true, id: call.ID}, r, next)
	default:
		next.ServeHTTP(w, r)
	}
}

func unreadable(failed *requestbody.Error) *peers.Refusal {
	f := &peers.Refusal{Status: failed.Status, Code: codeInvalidRequest, Message: failed.Message, Closes: true}
	switch failed.Status {
	case http.StatusRequestEntityTooLarge:
		f.Reason = reasonTooLarge
	case http.StatusServiceUnavailable:
		f.Code, f.Reason, f.RetryAfter = codeRefused, reasonTooManyRequests, 5
	}
	return f
}

// serveCall serves a call of a tool.
func (p *Policy) serveCall(w http.ResponseWriter, r *http.Request, next http.Handler, from *buckets, call bridge.Call) {
	if !p.tools.has(call.Tool) {
		p.refuse(w, r, call.ID, unknownTool(r, call.Tool))
		return
	}
	if p.calls != nil {
		select {
		case p.calls <- struct{}{}:
			defer func() { <-p.calls }()
		default:
			p.refuse(w, r, call.ID, tooMany(reasonTooManyCalls, fmt.Sprintf(
				"the limit of %d concurrent calls of tools is reached: try again later", p.opts.MaxConcurrentCalls), 1))
			return
		}
	}
	// After the limit of concurrent calls, which does not use up those per minute.
	if from != nil {
		if wait := p.rates.call(from, call.Tool, p.opts.now()); wait > 0 {
			p.refuse(w, r, call.ID, tooMany(reasonTooManyRequests, fmt.Sprintf(
				"the limit of calls of the tool %.128q per minute is reached: call it less, or try again later", call.Tool), inSeconds(wait)))
			return
		}
	}
	if p.opts.CallTimeout > 0 {
		p.serveInTime(w, r, next, call.ID)
		return
	}
	next.ServeHTTP(w, r)
}

// serveFiltered serves a request whose response may have tools. The server must not compress it.
func (p *Policy) serveFiltered(out *filteredWriter, r *http.Request, next http.Handler) {
	defer out.letGo()
	uncompressed := *r
	uncompressed.Header = r.Header.Clone()
	uncompressed.Header.Del("Accept-Encoding")
	next.ServeHTTP(out, &uncompressed)
	if !streams.OnEnd(out, out.end) {
		out.finish()
	}
}
