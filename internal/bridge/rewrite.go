package bridge

import (
	"encoding/json"
	"net/http"
	"time"
)

const keySubscription = "io.modelcontextprotocol/subscriptionId"

// renumbered is a client's message with the number that it has towards the
// shared child. Only known members of the envelope go on, so that no second
// spelling of one can take its place.
func renumbered(message []byte, number string) ([]byte, error) {
	var m struct {
		Version json.RawMessage `json:"jsonrpc"`
		ID      json.RawMessage `json:"id,omitempty"`
		Method  json.RawMessage `json:"method"`
		Params  json.RawMessage `json:"params,omitempty"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return nil, errNotMessage
	}
	if number != "" {
		m.ID = json.RawMessage(number)
		m.Params = replace(m.Params, m.ID, "_meta", "progressToken")
	}
	return marshal(m)
}

// answered is the child's response with the client's own id.
func answered(message []byte, c *sharedCall) ([]byte, error) {
	var m struct {
		Version json.RawMessage `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result,omitempty"`
		Error   json.RawMessage `json:"error,omitempty"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return nil, errNotMessage
	}
	m.ID = c.id
	if c.listens {
		m.Result = replace(m.Result, c.id, "_meta", keySubscription)
	}
	return marshal(m)
}

// addressed is a notification with the client's own ids and token.
func addressed(message []byte, c *sharedCall) ([]byte, error) {
	var m struct {
		Version json.RawMessage `json:"jsonrpc"`
		Method  json.RawMessage `json:"method"`
		Params  json.RawMessage `json:"params,omitempty"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return nil, errNotMessage
	}
	if len(c.token) > 0 {
		m.Params = replace(m.Params, c.token, "progressToken")
	}
	m.Params = replace(m.Params, c.id, "requestId")
	m.Params = replace(m.Params, c.id, "_meta", keySubscription)
	return marshal(m)
}

// replace sets the member at the path, if it is there; all else stays as it is.
func replace(raw, value json.RawMessage, path ...string) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return raw
	}
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

// marshal keeps what is inside as it is: json.Marshal would escape <, > and &
// in raw messages too.
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
		w.answer(&e, line)
	case notification:
		w.notify(&e, line)
	default:
		// Nobody could be asked: there is no session, and the spec has no such
		// requests any more.
		w.dropped(reasonStateless)
		answer := badRequest(codeMethodNotFound, "requests to the client need a session").response(e.ID)
		go func() { _ = w.child.send(answer) }()
	}
}

func (w *worker) answer(e *envelope, line []byte) {
	w.first()
	c := w.take(idKey(e.ID))
	if c == nil {
		// Cancelled in the meantime.
		return
	}
	message, err := answered(line, c)
	if err != nil {
		c.fail(ended(reasonNotMessage, "the MCP server's response could not be read"))
		return
	}
	w.post(c, "", mail{message: message, last: true, status: statusOf(e.errorCode())})
}

// first notes how long the child took to say something useful.
func (w *worker) first() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.answered {
		w.answered = true
		w.shared.bridge.metrics.startTime.Observe(time.Since(w.child.started).Seconds())
	}
}

// notify finds the call that a notification belongs to.
func (w *worker) notify(e *envelope, line []byte) {
	number, c := w.addressee(e)
	if c == nil {
		return
	}
	message, err := addressed(line, c)
	if err != nil {
		return
	}
	w.post(c, number, mail{message: message})
}

// addressee goes by what the notification says of itself. A log message says
// nothing; it is delivered if a single request has asked for logs, and else
// dropped: it might tell one client about another.
func (w *worker) addressee(e *envelope) (string, *sharedCall) {
	for _, raw := range []json.RawMessage{e.Params.Meta.SubscriptionID, e.Params.ProgressToken, e.Params.RequestID} {
		if len(raw) == 0 {
			continue
		}
		number := idKey(raw)
		return number, w.look(number)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
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
		w.dropped(reasonNobody)
	}
	return number, w.calls[number]
}

// post delivers, or gives up a client that does not keep up.
func (w *worker) post(c *sharedCall, number string, m mail) {
	if c.put(m, w.shared.bridge.opts.MaxMessageBytes*2) {
		return
	}
	w.dropped(reasonSlowClient)
	c.fail(ended(reasonSlowClient, "the client does not read the response fast enough"))
	if number != "" {
		go w.cancel(number, "the client does not read")
	}
}

func (w *worker) dropped(reason string) {
	w.shared.bridge.metrics.dropped.WithLabelValues(reason).Inc()
}

func (w *worker) tooLarge(o *oversize) {
	w.shared.bridge.tooLarge(w.log, o)
	if o.id == nil || o.method != "" {
		return
	}
	if c := w.take(idKey(o.id)); c != nil {
		c.fail(w.shared.bridge.largeFailure(o))
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
