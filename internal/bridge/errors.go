package bridge

import (
	"net/http"

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
type failure = peers.Refusal

func badRequest(code int, message string) *failure {
	return &failure{Status: http.StatusBadRequest, Code: code, Message: message}
}

func refused(reason, message string, retryAfter int) *failure {
	return &failure{
		Status: http.StatusServiceUnavailable, Code: codeRefused,
		Message: message, Reason: reason, RetryAfter: retryAfter,
	}
}

// ended is the error of pending requests whose child has exited.
func ended(reason, message string) *failure {
	return &failure{Status: http.StatusOK, Code: codeInternal, Message: message, Reason: reason}
}
