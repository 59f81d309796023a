package bridge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// statelessVersion is the first spec version without sessions. Versions are
// dates and are compared as strings.
const statelessVersion = "2026-07-28"

// sessionVersions are the spec versions with sessions.
var sessionVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// guard rejects requests with other hosts or origins, and with headers that readers may understand in
// several ways.
func (b *Bridge) guard(r *http.Request) *failure {
	for _, name := range []string{"Origin", headerSession, headerVersion, headerMethod, headerName} {
		if len(r.Header.Values(name)) > 1 {
			return badRequest(codeInvalidRequest, "the header "+name+" is repeated: send it once")
		}
	}
	return b.allowed.check(r)
}

// legacyVersion checks the version header of a request in a session.
func legacyVersion(r *http.Request) *failure {
	v := r.Header.Get(headerVersion)
	if v == "" || slices.Contains(sessionVersions, v) {
		return nil
	}
	return badRequest(codeInvalidRequest, fmt.Sprintf(
		"header Mcp-Protocol-Version %q is not a supported version with sessions (%s)", v, strings.Join(sessionVersions, ", ")))
}

// stateless reports whether a request uses a spec version without sessions.
func stateless(r *http.Request, e *envelope) bool {
	return r.Header.Get(headerVersion) >= statelessVersion ||
		text(e.Params.Meta.ProtocolVersion) >= statelessVersion ||
		e.Method == methodDiscover
}

// checkStateless checks that the headers match the message, as the stateless
// spec requires, because proxies route by them.
func checkStateless(r *http.Request, e *envelope) *failure {
	version := r.Header.Get(headerVersion)
	if e.kind() == response {
		return badRequest(codeInvalidRequest, "responses require a session")
	}
	if version == "" {
		return mismatch("the header Mcp-Protocol-Version is missing")
	}
	if e.kind() == request {
		if f := checkVersion(version, e); f != nil {
			return f
		}
	}
	return checkHeaders(r, e, true)
}

// checkHeaders checks that Mcp-Method and Mcp-Name match the message. Without a session they are required;
// with one they are checked if the client sends them. Errors do not grow with the message.
func checkHeaders(r *http.Request, e *envelope, required bool) *failure {
	method, name := r.Header.Get(headerMethod), r.Header.Get(headerName)
	if (required || method != "") && method != e.Method {
		return mismatch(fmt.Sprintf("header Mcp-Method is %q, but the method of the message is %.128q", method, e.Method))
	}
	if required || name != "" {
		return checkName(name, e)
	}
	return nil
}

func checkVersion(version string, e *envelope) *failure {
	switch inBody := text(e.Params.Meta.ProtocolVersion); {
	case inBody == "":
		return badRequest(codeInvalidParams, `_meta has no "io.modelcontextprotocol/protocolVersion"`)
	case inBody != version:
		return mismatch(fmt.Sprintf("header Mcp-Protocol-Version is %q, but the version in the message is %.128q", version, inBody))
	}
	return nil
}

func checkName(header string, e *envelope) *failure {
	var name json.RawMessage
	switch e.Method {
	case "tools/call", "prompts/get":
		name = e.Params.Name
	case "resources/read":
		name = e.Params.URI
	default:
		return nil
	}
	got, err := decodedHeader(header)
	switch want := text(name); {
	case err != nil:
		return mismatch("header Mcp-Name " + err.Error())
	case header == "" || got != want:
		return mismatch(fmt.Sprintf("header Mcp-Name is %q, but the name in the message is %.128q", header, want))
	}
	return nil
}

func mismatch(message string) *failure { return badRequest(codeHeaderMismatch, message) }
