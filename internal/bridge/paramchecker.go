package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// StatelessVersion is the first version of the specification whose requests have headers that mirror their message.
const StatelessVersion = statelessVersion

// ParamChecker checks the headers of calls in front of a server that serves HTTP. Create it with [NewParamChecker].
type ParamChecker struct{ schemas *schemas }

// NewParamChecker returns a checker that waits for lists of tools for at most the timeout. A call is not checked if the
// server does not list its tools in time.
func NewParamChecker(timeout time.Duration, log logr.Logger) *ParamChecker {
	return &ParamChecker{newSchemas(timeout, log)}
}

// Exchange sends a JSON-RPC request to the server for the caller of the request that is checked, and returns the
// HTTP status and the JSON-RPC response, which is empty if there is none.
type Exchange func(ctx context.Context, method string, message []byte) (status int, response []byte, err error)

// Refusal is the response to a request that is refused.
type Refusal struct {
	failure *failure
	id      json.RawMessage
}

func (r *Refusal) Error() string { return r.failure.Error() }

// Write responds.
func (r *Refusal) Write(w http.ResponseWriter) { r.failure.Write(w, r.id) }

// MirrorsMessage reports whether the headers of a request must match its message: in all versions without sessions, and
// if it has such headers.
func MirrorsMessage(header http.Header) bool {
	for _, version := range header.Values(headerVersion) {
		if version >= statelessVersion {
			return true
		}
	}
	for name := range header {
		if name == headerMethod || name == headerName || strings.HasPrefix(name, headerParam) {
			return true
		}
	}
	return false
}

// Check refuses a request whose headers differ from its message; nil if they match. It refuses what a server may
// understand differently, too.
func (c *ParamChecker) Check(r *http.Request, message []byte, exchange Exchange) *Refusal {
	e, err := parse(message)
	switch {
	case err != nil && !json.Valid(message):
		return &Refusal{failure: badRequest(codeParse, "the body is not JSON")}
	case err != nil:
		return &Refusal{failure: badRequest(codeInvalidRequest, "the body is not one JSON-RPC message (batches are not supported)")}
	case e.ambiguous != nil:
		return &Refusal{failure: badRequest(codeInvalidRequest, e.ambiguous.Error())}
	}
	failed := repeated(r.Header)
	if failed == nil {
		failed = checkHeaders(r, &e, false)
	}
	if failed == nil {
		failed = c.schemas.check(r, &e, exchange.listTools)
	}
	if failed == nil {
		return nil
	}
	id := e.requestID()
	if len(id) > MaxID {
		id = nil // The response must not grow with the message.
	}
	return &Refusal{failed, id}
}

// repeated refuses headers that readers may understand in several ways.
func repeated(header http.Header) *failure {
	for _, name := range []string{headerVersion, headerMethod, headerName} {
		if len(header.Values(name)) > 1 {
			return mismatch("the header " + name + " is repeated: send it once")
		}
	}
	return nil
}

// listTools lists a page of the tools that the caller gets.
func (x Exchange) listTools(ctx context.Context, cursor string) (json.RawMessage, error) {
	const method = "tools/list"
	params := `{"_meta":{` + statelessMeta + `}}`
	if cursor != "" {
		params = `{"cursor":` + quoted(cursor) + `,"_meta":{` + statelessMeta + `}}`
	}
	status, answer, err := x(ctx, method, []byte(`{"jsonrpc":"2.0","id":"fixpoint-tools","method":"`+method+`","params":`+params+`}`))
	if err != nil {
		return nil, err
	}
	e, err := parse(answer)
	switch {
	case e.errorCode() == codeMethodNotFound:
		return nil, nil
	case status != http.StatusOK && status != http.StatusBadRequest:
		// The reason may be the caller, or the path and the headers of its request. That of 400 is the message, which is the
		// same for all callers.
		return nil, fmt.Errorf("%w with status %d", errListRefused, status)
	case err != nil:
		return nil, fmt.Errorf("the response of the server with status %d is no JSON-RPC message", status)
	case present(e.Error):
		return nil, fmt.Errorf("the server responded with error %d", e.errorCode())
	}
	return e.Result, nil
}
