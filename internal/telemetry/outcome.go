package telemetry

import (
	"net/http"

	"github.com/fixpoint-dev/fixpoint/internal/telemetry/answer"
)

// Outcomes of requests.
const (
	// outcomeOK is a result, or an accepted notification, or a stream that has ended.
	outcomeOK = "ok"
	// outcomeToolError is a result with isError.
	outcomeToolError = "toolError"
	// outcomeRPCError is a JSON-RPC error of the server.
	outcomeRPCError = "rpcError"
	// outcomeRefused is an HTTP status from 400 to 499, or a refusal of the proxy or the bridge, which has a reason.
	outcomeRefused = "refused"
	// outcomeCanceled is the end of the connection before the response.
	outcomeCanceled = "canceled"
	// outcomeServerFailed is an HTTP status from 500, or a response that broke off.
	outcomeServerFailed = "serverFailed"
	// outcomeNoResponse is a stream that ended without the response, which a client may get on another stream.
	outcomeNoResponse = "noResponse"
	// outcomeInterrupted is a request that was in progress when the process ended.
	outcomeInterrupted = "interrupted"
)

// result is how a request ended.
type result struct {
	outcome string
	// reason is that of a refusal.
	reason string
	// status is the HTTP status; 0 if there is none.
	status int
	// code is that of a JSON-RPC error.
	code *int
	// answered is true if the server has sent a JSON-RPC response.
	answered bool
}

// ending is what the outcome follows from.
type ending struct {
	refusal string
	// aborted is true if the response broke off, left if the client closed the connection before.
	aborted, left bool
	// isPost is true for a message; isRequest for one that expects a response.
	isPost, isRequest bool
	// reads is true if the response was read for the answer.
	reads  bool
	status int
	answer answer.Answer
}

func (e *ending) result() result {
	r := result{reason: e.refusal, status: e.status, answered: e.answer.Found}
	if e.answer.Found && e.answer.Failed {
		code := e.answer.Code
		r.code = &code
	}
	r.outcome = e.outcome()
	return r
}

func (e *ending) outcome() string {
	switch {
	case e.refusal != "":
		return e.refused()
	case e.isPost && e.left && !e.answer.Found:
		return outcomeCanceled
	case e.aborted:
		return outcomeServerFailed
	case e.answer.Failed:
		return outcomeRPCError
	case e.answer.ToolError:
		return outcomeToolError
	case e.status >= http.StatusInternalServerError:
		return outcomeServerFailed
	case e.status >= http.StatusBadRequest:
		return outcomeRefused
	case e.isRequest && e.reads && !e.answer.Found:
		return outcomeNoResponse
	default:
		return outcomeOK
	}
}

// refused is the outcome of a request that a layer has refused. Some do because the server has failed.
func (e *ending) refused() string {
	if e.status >= http.StatusInternalServerError && e.status != http.StatusServiceUnavailable {
		return outcomeServerFailed
	}
	return outcomeRefused
}
