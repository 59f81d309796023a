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

const (
	// maxCancelled is the maximum number of cancelled calls that a worker remembers.
	maxCancelled = 1000
	// cancelledFor is how long it does if they get no response, which servers need not send.
	cancelledFor = time.Hour
)

// worker is the shared child with its pending requests. Ids and progress tokens
// of clients may collide, so each request gets a number from the bridge, which is
// its id and progress token for the child.
type worker struct {
	shared *shared
	child  *child
	log    logr.Logger

	mu    sync.Mutex
	over  *failure
	next  int64
	calls map[string]*sharedCall
	// cancelled are the calls with log messages that were cancelled, and when. Until their response, the server may still
	// log what belongs to them.
	cancelled map[string]time.Time
	lastUse   time.Time
	answered  bool
	idle      *time.Timer

	schemas *schemas
}

func newWorker(s *shared, c *child, log logr.Logger) *worker {
	w := &worker{
		shared: s, child: c, log: log, calls: map[string]*sharedCall{}, cancelled: map[string]time.Time{}, lastUse: time.Now(),
		schemas: newSchemas(s.bridge.opts.StartTimeout, log),
	}
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
	if c.listens && w.shared.bridge.isDraining() {
		// It would delay the end of the drain: stopListening has ended the others.
		return "", drainFailure()
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
	delete(w.cancelled, number)
	w.lastUse = time.Now()
	return c
}

// abandon removes a call that has no response yet, and reports whether it existed.
func (w *worker) abandon(number string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.calls[number]
	if c == nil {
		return false
	}
	delete(w.calls, number)
	w.lastUse = time.Now()
	if c.wantsLogs {
		if len(w.cancelled) >= maxCancelled {
			number = "" // which no response removes
		}
		w.cancelled[number] = w.lastUse
	}
	return true
}

func (w *worker) lookup(number string) *sharedCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[number]
}

// cancel cancels a request at the child.
func (w *worker) cancel(number, why string) {
	if !w.abandon(number) {
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
	defer w.child.stdout.Close()
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
	why := ended(reasonServerExited, "the MCP server process closed its standard output")
	if w.child.waitFor(w.child.grace) {
		<-w.child.stderr.done
		why = ended(reasonServerExited, "the MCP server process exited: "+w.child.exit())
	}
	calls, crashed := w.finish(why)
	if crashed {
		w.shared.bridge.metrics.crashes.Inc()
		w.log.Error(nil, "Shared server process exited", "cause", why.Message, "stderr", w.child.stderr.last())
	}
	// Before the calls fail, so that retries do not find the exited process.
	w.shared.gone(w, crashed)
	failAll(calls, why)
	w.child.stop()
}

// end fails all calls, once, and reports whether this call did so.
func (w *worker) end(why *failure) bool {
	calls, first := w.finish(why)
	failAll(calls, why)
	return first
}

// finish stops accepting calls and returns the pending ones. It reports whether this was the first call of
// finish.
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
	// In a goroutine, because a child that does not read must not delay the drain.
	go func() {
		for _, number := range listening {
			w.cancel(number, "the server is shutting down")
		}
	}()
}

// checkIdle stops an idle child, or resets its timer.
func (w *worker) checkIdle() {
	timeout := w.shared.bridge.opts.IdleTimeout
	w.mu.Lock()
	left := timeout - time.Since(w.lastUse)
	w.mu.Unlock()
	if left <= 0 {
		if w.shared.dismiss(w) {
			w.stopIdle()
			return
		}
		left = timeout
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over == nil {
		w.idle.Reset(left)
	}
}

func (w *worker) stopIdle() {
	if w.end(refused(reasonIdle, "the server process was stopped after the idle timeout; try again", 1)) {
		w.log.Info("Stopping the idle shared server process")
		w.child.stop()
	}
}
