package bridge

import (
	"context"
	"net/http"
	"time"
)

// postStateless serves a message without a session.
func (b *Bridge) postStateless(w http.ResponseWriter, r *http.Request, in *incoming) {
	e := &in.envelope
	if f := checkStateless(r, e); f != nil {
		b.refuse(w, e.ID, f)
		return
	}
	caller := b.caller(r)
	if f := b.shared.enter(caller); f != nil {
		b.refuse(w, e.ID, f)
		return
	}
	defer b.shared.leave(caller)
	if b.isDraining() {
		// The next request should go to another pod.
		w.Header().Set("Connection", "close")
	}
	if f := b.checkServerStateless(r.Context(), e); f != nil {
		b.refuse(w, e.ID, f)
		return
	}
	worker, f := b.shared.get(r.Context())
	if f != nil {
		b.refuse(w, e.ID, f)
		return
	}
	if e.kind() == request {
		worker.request(w, r, in)
		return
	}
	worker.notifyChild(w, in)
}

// notifyChild relays a notification. It drops cancellations, because clients
// cancel by closing the response and ids are not unique across clients.
func (w *worker) notifyChild(rw http.ResponseWriter, in *incoming) {
	if in.kind() == notification && in.Method != methodCancelled {
		if out, err := renumbered(&in.envelope, ""); err == nil {
			w.shared.countUnawaited(1)
			defer w.shared.countUnawaited(-1)
			w.shared.bridge.metrics.relayed(toServer, len(out))
			_ = w.child.send(out) // notifications have no response
		}
	}
	rw.WriteHeader(http.StatusAccepted)
}

// request serves one request with the shared child.
func (w *worker) request(rw http.ResponseWriter, r *http.Request, in *incoming) {
	b := w.shared.bridge
	// A child that does not read must not be kept by requests whose client has left.
	stop := context.AfterFunc(r.Context(), func() { w.shared.countUnawaited(1) })
	defer func() {
		if !stop() {
			w.shared.countUnawaited(-1)
		}
	}()
	if f := w.schemas.check(r, &in.envelope, w.listTools); f != nil {
		b.refuse(rw, in.ID, f)
		return
	}
	c := newSharedCall(&in.envelope)
	number, f := w.add(c)
	if f != nil {
		b.refuse(rw, c.id, f)
		return
	}
	defer func() {
		b.metrics.requests.WithLabelValues("stateless").Observe(time.Since(c.begun).Seconds())
	}()
	out, err := renumbered(&in.envelope, number)
	if err != nil {
		w.take(number)
		b.refuse(rw, c.id, badRequest(codeInvalidRequest, "the request could not be relayed"))
		return
	}
	b.metrics.relayed(toServer, len(out))
	if err := w.child.send(out); err != nil {
		// The child is being stopped, which fails the call.
		w.log.V(1).Info("Failed to send a message to the server", "error", err.Error())
	}
	in.release()
	if !c.serve(r.Context(), newStream(rw, b.opts.IOTimeout), b.opts.KeepAlive) {
		w.cancel(number, "the client closed the connection")
	}
}

// serve writes the messages of the call, and reports whether the response is complete.
func (c *sharedCall) serve(ctx context.Context, out *stream, interval time.Duration) bool {
	defer out.detach()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		var err error
		m, ok, failed := c.take()
		switch {
		case failed != nil:
			_ = out.refuse(failed.Status, failed.Body(c.id))
			return true
		case !ok:
			select {
			case <-c.arrived:
			case <-ctx.Done():
				return false
			case <-ticker.C:
				err = out.comment(": keep-alive\n\n")
			}
		case m.last && m.status != http.StatusOK:
			_ = out.refuse(m.status, m.message)
			return true
		case m.last:
			_ = out.finish(m.message)
			return true
		default:
			err = out.send(m.message)
		}
		if err != nil {
			return false
		}
	}
}
