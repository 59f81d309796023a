package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// methodCall is the method that calls a tool.
const methodCall = "tools/call"

// Call is the part of a message by which a client is allowed to send it.
type Call struct {
	// Method is the method of the message; empty for a response.
	Method string
	// Tool is the name of the tool that the message calls; empty for other methods.
	Tool string
	// ID is the id of a request, as raw JSON; empty for other messages.
	ID json.RawMessage
}

// ReadCall reads one JSON-RPC message. It refuses a message that a server may understand differently, such as one with a
// repeated name, because then the server might call a tool that was not checked.
func ReadCall(message []byte) (Call, error) {
	e, err := parse(message)
	switch {
	case err != nil:
		return Call{}, errors.New("the body is not one JSON-RPC message (batches are not supported)")
	case e.ambiguous != nil:
		return Call{}, e.ambiguous
	case strings.ContainsRune(e.Method, utf8.RuneError):
		return Call{}, errors.New("the method is not valid Unicode: correct it")
	case e.Method != methodCall:
		return Call{Method: e.Method, ID: e.requestID()}, nil
	}
	tool := text(e.Params.Name)
	if tool == "" || strings.ContainsRune(tool, utf8.RuneError) {
		return Call{}, errors.New("params.name must be the name of a tool, as a string of valid Unicode")
	}
	return Call{Method: e.Method, Tool: tool, ID: e.requestID()}, nil
}

// CheckHeaders refuses headers that name another method or tool than the message, because a server might go by them.
// They need not exist. Errors do not grow with the message.
func (c Call) CheckHeaders(header http.Header) error {
	if sent := header.Values(headerMethod); len(sent) > 1 || len(sent) == 1 && sent[0] != c.Method {
		return fmt.Errorf("the header %s must be once %.128q, the method of the message", headerMethod, c.Method)
	}
	sent := header.Values(headerName)
	if c.Tool == "" || len(sent) == 0 {
		return nil
	}
	if name, _ := decodedHeader(sent[0]); len(sent) > 1 || name != c.Tool {
		return fmt.Errorf("the header %s must be once %.128q, the name in the message", headerName, c.Tool)
	}
	return nil
}

func (e *envelope) requestID() json.RawMessage {
	if e.kind() != request {
		return nil
	}
	return e.ID
}

// IsResponse reports whether a message is a JSON-RPC response.
func IsResponse(message []byte) bool {
	e, _ := parse(message)
	return e.kind() == response
}
