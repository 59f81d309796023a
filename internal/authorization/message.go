package authorization

import (
	"net/http"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

// checkMessage reads the message of a request, checks the scopes of the tool that it calls, and replaces the body. The
// returned function releases what the message holds.
func (a *Authorizer) checkMessage(w http.ResponseWriter, r *http.Request, who *identity) (release func(), refused *refusal) {
	message, release, failed := a.messages.Read(w, r, who.issuer+" "+who.subject)
	if failed != nil {
		return nil, unreadable(failed)
	}
	if refused = a.checkCall(r, message, who); refused != nil {
		release()
		return nil, refused
	}
	return release, nil
}

// checkCall decides by the message alone. Headers that say otherwise are refused, because a server might go by them.
func (a *Authorizer) checkCall(r *http.Request, message []byte, who *identity) *refusal {
	call, err := bridge.ReadCall(message)
	if err != nil {
		return badRequest(err.Error())
	}
	if call.Tool != "" {
		if refused := a.checkScopes(who, a.scopesOf(call.Tool), call.Tool); refused != nil {
			return refused
		}
	}
	if err := call.CheckHeaders(r.Header); err != nil {
		id := call.ID
		if len(id) > bridge.MaxID {
			id = nil
		}
		return &refusal{status: http.StatusBadRequest, description: err.Error(), mismatch: true, id: id}
	}
	return nil
}

func unreadable(failed *requestbody.Error) *refusal {
	code := codeInvalidRequest
	if failed.Status == http.StatusServiceUnavailable {
		code = codeUnavailable
	}
	return &refusal{status: failed.Status, code: code, description: failed.Message, closes: true}
}
