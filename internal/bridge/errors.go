package bridge

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// JSON-RPC error codes that the bridge itself answers with.
const (
	codeParse              = -32700
	codeInvalidRequest     = -32600
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeInternal           = -32603
	codeRefused            = -32000
	codeSessionNotFound    = -32001
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

// Reasons stand in the data of the bridge's own errors, in its log, and as
// labels in its metrics.
const (
	reasonTooManySessions = "TooManySessions"
	reasonTooManyRequests = "TooManyRequests"
	reasonDraining        = "Draining"
	reasonStartFailed     = "StartFailed"
	reasonStartTimeout    = "StartTimeout"
	reasonServerExited    = "ServerExited"
	reasonInitRefused     = "InitializeRefused"
	reasonClientLeft      = "ClientLeft"
	reasonDeleted         = "Deleted"
	reasonIdle            = "Idle"
	reasonTooLarge        = "MessageTooLarge"
	reasonSlowClient      = "SlowClient"
	reasonNotMessage      = "NotAMessage"
	reasonNobody          = "NobodyListens"
	reasonAmbiguous       = "Ambiguous"
	reasonStateless       = "Stateless"
	reasonNoSession       = "SessionNotFound"
	reasonForbidden       = "Forbidden"
)

// failure is an error of the bridge's own, as a client is told it.
type failure struct {
	status  int
	code    int
	message string
	// reason is given to the client in the error's data, if there is one.
	reason string
	// data takes the place of the reason.
	data any
	// retryAfter is in seconds; 0 says nothing.
	retryAfter int
}

func (f *failure) Error() string { return f.message }

// response is the failure as the JSON-RPC response to the request of that id.
func (f *failure) response(id json.RawMessage) []byte {
	type rpcError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	data := f.data
	if data == nil && f.reason != "" {
		data = map[string]string{"reason": f.reason}
	}
	out, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   rpcError        `json:"error"`
	}{"2.0", id, rpcError{f.code, f.message, data}})
	if err != nil {
		// The id is the only part that is not ours.
		return f.response(nil)
	}
	return out
}

// write answers an HTTP request whose response has not begun.
func (f *failure) write(w http.ResponseWriter, id json.RawMessage) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(f.retryAfter))
	}
	if f.reason == reasonDraining {
		// The next attempt should reach another replica, not this connection.
		h.Set("Connection", "close")
	}
	w.WriteHeader(f.status)
	_, _ = w.Write(f.response(id)) // The client may be gone.
}

func badRequest(code int, message string) *failure {
	return &failure{status: http.StatusBadRequest, code: code, message: message}
}

func refused(reason, message string, retryAfter int) *failure {
	return &failure{
		status: http.StatusServiceUnavailable, code: codeRefused,
		message: message, reason: reason, retryAfter: retryAfter,
	}
}

// ended is what requests in flight are told when their child is no more.
func ended(reason, message string) *failure {
	return &failure{status: http.StatusOK, code: codeInternal, message: message, reason: reason}
}
