package peers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// JSON-RPC error codes.
const (
	codeInvalidRequest  = -32600
	codeInternal        = -32603
	codeRefused         = -32000
	codeSessionNotFound = -32001
)

// Reasons of refusals, in the data of errors.
const (
	ReasonNoSession     = "SessionNotFound"
	ReasonReplicaFailed = "ReplicaFailed"
	ReasonDraining      = "Draining"
	ReasonTooLarge      = "MessageTooLarge"
	ReasonInvalidID     = "InvalidSessionID"
)

// Refusal is the response to a request that is not served.
type Refusal struct {
	// Status is the HTTP status, and Code that of the JSON-RPC error.
	Status, Code int
	Message      string
	// Reason, if set, is sent in the data of the error.
	Reason string
	// Data, if set, is sent instead of the reason.
	Data any
	// RetryAfter is the header in seconds; 0 omits it.
	RetryAfter int
	// Closes makes the client close the connection.
	Closes bool
}

// Write responds to a request, whose response has not begun. The id is that of the message, if it is known.
func (f *Refusal) Write(w http.ResponseWriter, id json.RawMessage) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if f.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	if f.Closes {
		h.Set("Connection", "close")
	}
	body := f.Body(id)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // The client may be gone.
}

func (f *Refusal) Error() string { return f.Message }

// Body is the JSON-RPC response to the request with the id.
func (f *Refusal) Body(id json.RawMessage) []byte {
	type rpcError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	data := f.Data
	if data == nil && f.Reason != "" {
		data = map[string]string{"reason": f.Reason}
	}
	out, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   rpcError        `json:"error"`
	}{"2.0", id, rpcError{f.Code, f.Message, data}})
	if err != nil {
		return f.Body(nil) // Only the id comes from the client and can be invalid.
	}
	return out
}

// NoSession is the response to a request whose session does not exist, as far as the client may know.
func NoSession() *Refusal {
	return notFound("session not found: it has ended, or belongs to another replica; initialize again")
}

// Gone is the response to a request whose session has ended with its replica.
func Gone() *Refusal {
	return notFound("session not found: the replica that had it is gone; initialize again")
}

func notFound(message string) *Refusal {
	return &Refusal{Status: http.StatusNotFound, Code: codeSessionNotFound, Reason: ReasonNoSession, Message: message}
}

// Draining is the response to a request that a replica cannot complete before it ends. The client should retry with
// another replica, over a new connection.
func Draining() *Refusal {
	return &Refusal{
		Status: http.StatusServiceUnavailable, Code: codeRefused, Reason: ReasonDraining, RetryAfter: 1, Closes: true,
		Message: "this server is shutting down; connect again",
	}
}

// InvalidID is the response to a request that began a session with an id that cannot be sealed.
func InvalidID(cause string) *Refusal {
	return &Refusal{
		Status: http.StatusBadGateway, Code: codeInternal, Reason: ReasonInvalidID,
		Message: "the MCP server began a session with an id that other replicas cannot forward: " + cause + "; change the ids of the server, or remove spec.sessionRouting (-session-keys)",
	}
}

func refusedConnection() *Refusal {
	return &Refusal{
		Status: http.StatusBadGateway, Code: codeInternal, Reason: ReasonReplicaFailed,
		Message: "the replica that has the session refused the connection, and has not received the request: its session keys are older than those of this replica; retry later",
	}
}

func didNotRespond() *Refusal {
	return &Refusal{
		Status: http.StatusBadGateway, Code: codeInternal, Reason: ReasonReplicaFailed,
		Message: "the replica that has the session did not respond, and may have received the request: retry it only if it may run twice",
	}
}

func tooLarge(limit int64) *Refusal {
	return &Refusal{
		Status: http.StatusRequestEntityTooLarge, Code: codeInvalidRequest, Reason: ReasonTooLarge, Closes: true,
		Message: fmt.Sprintf("the message is larger than the limit of %d bytes: send a smaller one", limit),
	}
}

func notRead() *Refusal {
	return &Refusal{
		Status: http.StatusBadRequest, Code: codeInvalidRequest, Closes: true,
		Message: "the message could not be read: send it again",
	}
}

func notAnAddress() *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Code: codeInvalidRequest, Message: "the header " + HeaderClient + " is not an IP address"}
}
