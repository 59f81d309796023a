package bridge

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/fixpoint-dev/fixpoint/internal/peers"
)

// JSON-RPC error codes of errors of the bridge.
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

// Reasons are used in the data of errors, in logs, and as metric labels.
const (
	reasonTooManySessions = "TooManySessions"
	reasonTooManyRequests = "TooManyRequests"
	reasonDraining        = peers.ReasonDraining
	reasonStartFailed     = "StartFailed"
	reasonStartTimeout    = "StartTimeout"
	reasonServerExited    = "ServerExited"
	reasonInitRefused     = "InitializeRefused"
	reasonClientLeft      = "ClientLeft"
	reasonDeleted         = "Deleted"
	reasonIdle            = "Idle"
	reasonEvicted         = "Evicted"
	reasonTooLarge        = "MessageTooLarge"
	reasonSlowClient      = "SlowClient"
	reasonNotMessage      = "NotAMessage"
	reasonNoStream        = "NoOpenStream"
	reasonAmbiguous       = "Ambiguous"
	reasonStateless       = "Stateless"
	reasonNoSession       = peers.ReasonNoSession
	reasonForbidden       = "Forbidden"
	reasonReplicaFailed   = peers.ReasonReplicaFailed
	// reasonInvalid is only in records of requests.
	reasonInvalid = "InvalidRequest"
)

// failure is an error of the bridge that is sent to a client.
type failure struct {
	status  int
	code    int
	message string
	// reason, if set, is sent in the data of the error.
	reason string
	// data, if set, is sent instead of the reason.
	data any
	// closes makes the client close the connection.
	closes bool
	// retryAfter is the Retry-After header in seconds; 0 omits it.
	retryAfter int
}

func (f *failure) Error() string { return f.message }

// response encodes the failure as the JSON-RPC response to the request with the id.
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
		// Only the id comes from the client and can be invalid.
		return f.response(nil)
	}
	return out
}

// write responds to an HTTP request whose response has not started.
func (f *failure) write(w http.ResponseWriter, id json.RawMessage) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(f.retryAfter))
	}
	if f.closes {
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

// ended is the error of pending requests whose child has exited.
func ended(reason, message string) *failure {
	return &failure{status: http.StatusOK, code: codeInternal, message: message, reason: reason}
}
