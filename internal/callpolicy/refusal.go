package callpolicy

import (
	"fmt"
	"net/http"

	"github.com/fixpoint-dev/fixpoint/internal/peers"
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

// unknownTool is the response to a call of a tool that is not selected. It is that of a server which does not have it: "Unknown
// tools" are protocol errors (specification, Tools, Error Handling), whose code has an HTTP status of its own since
// 2026-07-28.
//
// Its size does not depend on the name, which may be that of a large message.
func unknownTool(r *http.Request, tool string) *peers.Refusal {
	f := &peers.Refusal{Status: http.StatusOK, Code: codeInvalidParams, Message: fmt.Sprintf("Unknown tool: %.128s", tool)}
	if r.Header.Get("Mcp-Protocol-Version") >= statelessVersion {
		f.Status = http.StatusBadRequest
	}
	return f
}

func tooMany(reason, message string, retryAfter int) *peers.Refusal {
	return &peers.Refusal{Status: http.StatusTooManyRequests, Code: codeRefused, Message: message, Reason: reason, RetryAfter: retryAfter}
}

// recorded is the reason in metrics and records of requests, where all refusals have one.
func recorded(f *peers.Refusal) string {
	switch {
	case f.Reason != "":
		return f.Reason
	case f.Code == codeInvalidParams:
		return reasonToolNotSelected
	default:
		return reasonInvalid
	}
}
