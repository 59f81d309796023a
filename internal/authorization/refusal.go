package authorization

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
)

// Error codes of RFC 6750, section 3.1, and of OAuth 2.1 for an issuer that cannot be reached.
const (
	codeInvalidRequest    = "invalid_request"
	codeInvalidToken      = "invalid_token"
	codeInsufficientScope = "insufficient_scope"
	codeUnavailable       = "temporarily_unavailable"
)

// refusal is the response to a request that is not forwarded.
type refusal struct {
	status int
	// code is empty for a request without a token, as RFC 6750 requires.
	code        string
	description string
	// scopes are those that the request needs.
	scopes []string
	// closes makes the client close the connection, because its body is not read.
	closes bool
	// mismatch is set if headers differ from the message with this id. The specification (2026-07-28, Transports) says that
	// the response is a JSON-RPC error.
	mismatch bool
	id       json.RawMessage
}

// codeHeaderMismatch is the JSON-RPC error code for headers that differ from the message.
const codeHeaderMismatch = -32020

func badRequest(description string) *refusal {
	return &refusal{status: http.StatusBadRequest, code: codeInvalidRequest, description: description}
}

// write sends the response. Only 400, 401 and 403 are about the token.
func (f *refusal) write(w http.ResponseWriter, of resource) {
	header := w.Header()
	switch f.status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		if !f.mismatch {
			header.Set("WWW-Authenticate", f.challenge(of))
		}
	case http.StatusServiceUnavailable:
		header.Set("Retry-After", "10")
	}
	if f.closes {
		header.Set("Connection", "close")
	}
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	body := f.body()
	w.WriteHeader(f.status)
	_, _ = w.Write(append(body, '\n')) // The client may be gone.
}

// name is the code in the body, in metrics and in records of requests.
func (f *refusal) name() string { return cmp.Or(f.code, "unauthorized") }

// body is a JSON-RPC error for what is wrong with the message, and an OAuth error otherwise.
func (f *refusal) body() []byte {
	var content any
	if f.mismatch {
		id := f.id
		if len(id) == 0 {
			id = json.RawMessage("null")
		}
		content = map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": codeHeaderMismatch, "message": f.description}}
	} else {
		content = struct {
			Code        string `json:"error"`
			Description string `json:"error_description"`
			Scope       string `json:"scope,omitempty"`
		}{f.name(), f.description, strings.Join(f.scopes, " ")}
	}
	body, err := json.Marshal(content)
	if err != nil {
		return []byte("{}")
	}
	return body
}

// challenge is the WWW-Authenticate header.
func (f *refusal) challenge(of resource) string {
	parameters := []string{`resource_metadata="` + of.metadataURL() + `"`}
	if len(f.scopes) > 0 {
		parameters = append(parameters, `scope="`+strings.Join(f.scopes, " ")+`"`)
	}
	if f.code != "" {
		parameters = append(parameters, `error="`+f.code+`"`, `error_description="`+quotable(f.description)+`"`)
	}
	return "Bearer " + strings.Join(parameters, ", ")
}

// quotable has only the characters that RFC 6750, section 3, allows in a description.
func quotable(text string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '"' || c == '\\':
			return '\''
		case c < ' ' || c > '~':
			return '?'
		default:
			return c
		}
	}, text)
}
