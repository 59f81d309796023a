package bridge

import (
	"encoding/json"
	"maps"
	"net/http"
	"time"
)

// wire is a message as it is sent. Only these members are relayed, so that
// others have no effect.
type wire struct {
	Version json.RawMessage `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// renumbered returns a message with the request number of the shared child.
func renumbered(e *envelope, number string) ([]byte, error) {
	m := wire{Version: e.Version, ID: e.ID, Method: e.Method, Params: e.Params.raw}
	if number != "" {
		m.ID = json.RawMessage(number)
		m.Params = replace(m.Params, m.ID, "_meta", "progressToken")
	}
	return marshal(m)
}

// answered returns a response with the id of the client.
func answered(e *envelope, c *sharedCall) ([]byte, error) {
	m := wire{Version: e.Version, ID: c.id, Result: e.Result, Error: e.Error}
	if c.listens {
		m.Result = replace(m.Result, c.id, "_meta", keySubscription)
	}
	return marshal(m)
}

// addressed returns a notification with the ids and token of the client.
func addressed(e *envelope, c *sharedCall) ([]byte, error) {
	m := wire{Version: e.Version, Method: e.Method, Params: e.Params.raw}
	m.Params = replace(m.Params, c.token, "progressToken")
	m.Params = replace(m.Params, c.id, "requestId")
	m.Params = replace(m.Params, c.id, "_meta", keySubscription)
	return marshal(m)
}

// replace replaces the member at the path, if it exists.
func replace(raw, value json.RawMessage, path ...string) json.RawMessage {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // what is no object has no members
	old, ok := members[path[0]]
	if !ok {
		return raw
	}
	if len(path) > 1 {
		value = replace(old, value, path[1:]...)
	}
	members[path[0]] = value
	out, err := marshal(members)
	if err != nil {
		return raw
	}
	return out
}

// traced returns a message with the context of a span in _meta. A message whose params or _meta are no objects stays as it is.
func traced(message json.RawMessage, parent, state string) json.RawMessage {
	var members, params, meta map[string]json.RawMessage
	if json.Unmarshal(message, &members) != nil || json.Unmarshal(members["params"], &params) != nil || params == nil {
		return message
	}
	if raw, ok := params["_meta"]; ok && json.Unmarshal(raw, &meta) != nil {
		return message
	}
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	meta["traceparent"] = json.RawMessage(quoted(parent))
	delete(meta, "tracestate")
	if state != "" {
		meta["tracestate"] = json.RawMessage(quoted(state))
	}
	var err error
	for _, level := range []struct {
		of   map[string]json.RawMessage
		name string
		is   map[string]json.RawMessage
	}{{params, "_meta", meta}, {members, "params", params}} {
		if level.of[level.name], err = marshal(level.is); err != nil {
			return message
		}
	}
	out, err := marshal(members)
	if err != nil {
		return message
	}
	return out
}

// marshal does not escape <, > and & in raw messages, unlike json.Marshal.
func marshal(v any) ([]byte, error) {
	var out lineBuilder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return out[:len(out)-1], nil
}

type lineBuilder []byte

func (b *lineBuilder) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// fromServer relays one message of the shared child.
func (w *worker) fromServer(line []byte) {
	e, err := parse(line)
	if err != nil {
		w.dropped(reasonNotMessage)
		return
	}
	w.shared.bridge.metrics.relayed(toClient, len(line))
	switch e.kind() {
	case response:
		w.answer(&e)
	case notification:
		w.notify(&e)
	default:
		w.dropped(reasonStateless)
		w.refuse(e.ID)
	}
}

// refuse responds to a request of the server. Without a session no client can be asked, and the spec has no such
// requests.
func (w *worker) refuse(id json.RawMessage) {
	w.child.answer(badRequest(codeMethodNotFound, "requests to the client require a session").Body(id))
}

func (w *worker) answer(e *envelope) {
	w.recordFirstResponse()
	c := w.take(idKey(e.ID))
	if c == nil {
		// The request was cancelled.
		return
	}
	message, err := answered(e, c)
	if err != nil {
		c.fail(ended(reasonNotMessage, "the response of the MCP server is not valid"))
		return
	}
	w.post(c, "", mail{message: message, last: true, status: statusOf(e.errorCode())})
}

// recordFirstResponse observes the start time of the child, once.
func (w *worker) recordFirstResponse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.answered {
		w.answered = true
		w.shared.bridge.metrics.startTime.Observe(time.Since(w.child.started).Seconds())
	}
}

// notify relays a notification to the call that it belongs to.
func (w *worker) notify(e *envelope) {
	number, c := w.addressee(e)
	if c == nil {
		return
	}
	if len(e.Params.ProgressToken) > 0 && !present(c.token) {
		// The client did not ask for progress.
		w.dropped(reasonNoStream)
		return
	}
	message, err := addressed(e, c)
	if err != nil {
		return
	}
	w.post(c, number, mail{message: message})
}

// addressee finds the call by the ids in the notification. A log message has
// none; it is delivered if exactly one request asked for logs, else dropped,
// because it might disclose data of another client. So might any other
// notification without an id.
func (w *worker) addressee(e *envelope) (string, *sharedCall) {
	for _, raw := range []json.RawMessage{e.Params.Meta.SubscriptionID, e.Params.ProgressToken, e.Params.RequestID} {
		if len(raw) == 0 {
			continue
		}
		number := idKey(raw)
		return number, w.lookup(number)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.cancelled, func(_ string, at time.Time) bool { return time.Since(at) > cancelledFor })
	if e.Method != "notifications/message" || len(w.cancelled) > 0 {
		w.dropped(reasonAmbiguous)
		return "", nil
	}
	var number string
	for n, c := range w.calls {
		if !c.wantsLogs {
			continue
		}
		if number != "" {
			w.dropped(reasonAmbiguous)
			return "", nil
		}
		number = n
	}
	if number == "" {
		w.dropped(reasonNoStream)
	}
	return number, w.calls[number]
}

// post delivers a message, or fails the call of a client that does not keep up.
func (w *worker) post(c *sharedCall, number string, m mail) {
	if c.put(m, w.shared.bridge.opts.MaxMessageBytes*2) {
		return
	}
	w.dropped(reasonSlowClient)
	c.fail(ended(reasonSlowClient, "the client reads the response too slowly"))
	if number != "" {
		go w.cancel(number, "the client reads too slowly")
	}
}

func (w *worker) dropped(reason string) {
	w.shared.bridge.metrics.dropped.WithLabelValues(reason).Inc()
}

func (w *worker) tooLarge(o *oversize) {
	w.shared.bridge.tooLarge(w.log, o)
	switch {
	case o.id == nil:
	case o.method != "":
		w.refuse(o.id)
	default:
		if c := w.take(idKey(o.id)); c != nil {
			c.fail(w.shared.bridge.largeFailure(o))
		}
	}
}

// statusOf is the HTTP status that the stateless spec gives a JSON-RPC error.
func statusOf(code int) int {
	switch code {
	case codeMethodNotFound:
		return http.StatusNotFound
	case codeInvalidParams, codeMissingCapability, codeUnsupportedVersion, codeHeaderMismatch:
		return http.StatusBadRequest
	default:
		return http.StatusOK
	}
}
