package bridge

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// worker is the shared child with the requests that it works on. Clients choose
// their ids and tokens independently of each other, so towards the child each
// request has a number of ours, which is its progress token as well.
type worker struct {
	shared *shared
	child  *child
	log    logr.Logger

	mu       sync.Mutex
	over     *failure
	next     int64
	calls    map[string]*sharedCall
	lastUse  time.Time
	answered bool
	idle     *time.Timer
}

func newWorker(s *shared, c *child, log logr.Logger) *worker {
	w := &worker{shared: s, child: c, log: log, calls: map[string]*sharedCall{}, lastUse: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle = time.AfterFunc(s.bridge.opts.IdleTimeout, w.checkIdle)
	return w
}

// add gives a call its number.
func (w *worker) add(c *sharedCall) (string, *failure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over != nil {
		return "", w.over
	}
	w.next++
	number := strconv.FormatInt(w.next, 10)
	w.calls[number] = c
	w.lastUse = time.Now()
	return number, nil
}

func (w *worker) take(number string) *sharedCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.calls[number]
	delete(w.calls, number)
	w.lastUse = time.Now()
	return c
}

func (w *worker) look(number string) *sharedCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[number]
}

// cancel tells the child that nobody waits for a request any more.
func (w *worker) cancel(number, why string) {
	if w.take(number) == nil {
		return
	}
	reason, err := json.Marshal(why)
	if err != nil {
		return
	}
	_ = w.child.send([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` +
		number + `,"reason":` + string(reason) + `}}`))
}

func (w *worker) relay() {
	for {
		line, over, err := w.child.lines.next()
		switch {
		case err != nil:
			w.childGone()
			return
		case over != nil:
			w.tooLarge(over)
		case len(line) > 0:
			w.fromServer(line)
		}
	}
}

func (w *worker) childGone() {
	why := ended(reasonServerExited, "the MCP server process closed its output")
	if w.child.waitFor(w.child.grace) {
		<-w.child.stderr.done
		why = ended(reasonServerExited, "the MCP server process ended: "+w.child.exit())
	}
	calls, crashed := w.finish(why)
	if crashed {
		w.shared.bridge.metrics.crashes.Inc()
		w.log.Error(nil, "Shared server process ended", "cause", why.message, "lastStderr", w.child.stderr.last())
	}
	// Whoever hears of it and asks again has to find that there is no server at the moment.
	w.shared.gone(w, crashed)
	failAll(calls, why)
	w.child.stop()
}

// end answers all calls, once, and reports whether it was this call that did.
func (w *worker) end(why *failure) bool {
	calls, first := w.finish(why)
	failAll(calls, why)
	return first
}

// finish takes no calls any more, and hands over those that wait for an answer. It reports whether it was
// this call that did.
func (w *worker) finish(why *failure) (waiting []*sharedCall, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over != nil {
		return nil, false
	}
	w.over = why
	w.idle.Stop()
	waiting = slices.Collect(maps.Values(w.calls))
	clear(w.calls)
	return waiting, true
}

func failAll(calls []*sharedCall, why *failure) {
	for _, c := range calls {
		c.fail(why)
	}
}

func (w *worker) stopListening() {
	w.mu.Lock()
	var listening []string
	for number, c := range w.calls {
		if c.listens {
			listening = append(listening, number)
			c.fail(drainFailure())
		}
	}
	w.mu.Unlock()
	for _, number := range listening {
		w.cancel(number, "the server is shutting down")
	}
}

// checkIdle ends a child that nobody has used for a while.
func (w *worker) checkIdle() {
	timeout := w.shared.bridge.opts.IdleTimeout
	w.mu.Lock()
	left := timeout - time.Since(w.lastUse)
	if len(w.calls) > 0 {
		left = timeout
	}
	if w.over == nil && left > 0 {
		w.idle.Reset(left)
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	// A request that comes right now finds another child.
	w.shared.gone(w, false)
	if w.end(refused(reasonIdle, "the server process was idle for too long; try again", 1)) {
		w.log.Info("Shared server process is idle and is stopped")
		w.child.stop()
	}
}

// fail completes the response with an error, even if the box is full.
func (c *sharedCall) fail(why *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = why
		close(c.box)
	}
}
