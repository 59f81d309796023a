package authorization

import (
	"net/http"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

// checkMessage reads the message of a request, checks the scopes of the tool that it calls, and replaces the body. The
// returned function releases what the message holds.
func (a *Authorizer) checkMessage(w http.ResponseWriter, r *http.Request, who *identity) (release func(), refused *refusal) {
	message, release, failed := a.messages.Read(w, r)
	if failed != nil {
		return nil, unreadable(failed)
	}
	call, err := bridge.ReadCall(message)
	if err != nil {
		refused = badRequest(err.Error())
	} else if call.Tool != "" {
		refused = a.checkScopes(who, a.scopesOf(call.Tool), call.Tool)
	}
	if refused != nil {
		release()
		return nil, refused
	}
	return release, nil
}

func unreadable(failed *requestbody.Error) *refusal {
	code := codeInvalidRequest
	if failed.Status == http.StatusServiceUnavailable {
		code = codeUnavailable
	}
	return &refusal{status: failed.Status, code: code, description: failed.Message, closes: true}
}
