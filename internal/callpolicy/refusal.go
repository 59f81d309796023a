package callpolicy

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// JSON-RPC error codes.
const (
	codeInvalidRequest = -32600
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeHeaderMismatch = -32020
	// codeRefused is one of the codes that the specification leaves to implementations.
	codeRefused = -32000
)

// Reasons are in the data of errors.
const (
	reasonTooManyRequests = "TooManyRequests"
	reasonTooManyCalls    = "TooManyConcurrentCalls"
	reasonCallTimeout     = "CallTimeout"
	reasonTooLarge        = "MessageTooLarge"
	reasonListUnreadable  = "ListNotReadable"
)

// Reasons that are only in metrics and records of requests: the response to a tool that is not selected is that of a server
// without it.
const (
	reasonToolNotSelected = "ToolNotSelected"
	reasonInvalid         = "InvalidRequest"
)

// statelessVersion is the first version of the specification without sessions. Versions are dates.
const statelessVersion = "2026-07-28"

// refusal is the response to a request that is not forwarded, or not answered by the server.
type refusal struct {
	status  int
	code    int
	message string
	// reason, if set, is in the data of the error.
	reason string
	// retryAfter is the Retry-After header in seconds; 0 omits it.
	retryAfter int
	// closes makes the client close the connection, because its body is not read.
	closes bool
}

// unknownTool is the response to a call of a tool that is not selected. It is that of a server which does not have it: "Unknown
// tools" are protocol errors (specification, Tools, Error Handling), whose code has an HTTP status of its own since
// 2026-07-28.
func unknownTool(r *http.Request, tool string) *refusal {
	f := &refusal{status: http.StatusOK, code: codeInvalidParams, message: "Unknown tool: " + tool}
	if r.Header.Get("Mcp-Protocol-Version") >= statelessVersion {
		f.status = http.StatusBadRequest
	}
	return f
}

func tooMany(reason, message string, retryAfter int) *refusal {
	return &refusal{status: http.StatusTooManyRequests, code: codeRefused, message: message, reason: reason, retryAfter: retryAfter}
}

// recorded is the reason in metrics and records of requests, where all refusals have one.
func (f *refusal) recorded() string {
	switch {
	case f.reason != "":
		return f.reason
	case f.code == codeInvalidParams:
		return reasonToolNotSelected
	default:
		return reasonInvalid
	}
}

// body is the JSON-RPC response to the request with the id.
func (f *refusal) body(id json.RawMessage) []byte {
	type rpcError struct {
		Code    int               `json:"code"`
		Message string            `json:"message"`
		Data    map[string]string `json:"data,omitempty"`
	}
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	content := rpcError{Code: f.code, Message: f.message}
	if f.reason != "" {
		content.Data = map[string]string{"reason": f.reason}
	}
	body, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   rpcError        `json:"error"`
	}{"2.0", id, content})
	if err != nil {
		return f.body(nil) // only the id can be invalid
	}
	return body
}

// write responds to the request with the id.
func (f *refusal) write(w http.ResponseWriter, id json.RawMessage) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	if f.retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(f.retryAfter))
	}
	if f.closes {
		header.Set("Connection", "close")
	}
	body := f.body(id)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.status)
	_, _ = w.Write(body) // The client may be gone.
}
