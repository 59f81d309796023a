package bridge

import (
	"cmp"
	"encoding/json"
	"strings"
)

// Description is what a message says about itself, for records of requests.
type Description struct {
	// Method is empty for a response.
	Method string
	// ID is the id of a request, as raw JSON; empty for other messages.
	ID json.RawMessage
	// Target is the name of a tool or a prompt, or the URI of a resource.
	Target string
	// Arguments are those of a tool or a prompt, as raw JSON.
	Arguments json.RawMessage
	// ProtocolVersion is the version of the specification, if the message has it.
	ProtocolVersion string
	// TraceParent and TraceState are the context of the trace in _meta.
	TraceParent, TraceState string
	// Ambiguous is true for a message that a server may understand differently, such as one with a repeated name.
	Ambiguous bool
}

// Describe describes a message, or each message of a batch up to the limit; all is their number. Unlike [ReadCall] it
// refuses nothing but what is no JSON. The descriptions are parts of the message.
func Describe(message []byte, limit int) (descriptions []Description, all int, err error) {
	if !json.Valid(message) {
		return nil, 0, errNotMessage
	}
	if at := afterSpace(message, 0); message[at] != '[' {
		return []Description{describe(message)}, 1, nil
	}
	elements(message, func(element []byte) {
		if all++; all <= limit {
			descriptions = append(descriptions, describe(element))
		}
	})
	return descriptions, all, nil
}

func describe(message []byte) Description {
	var id, method, inParams, inMeta, name, uri, arguments, requested, version, parent, state json.RawMessage
	top := fields{"id": &id, "method": &method, "params": &inParams}.read(message)
	below := fields{"_meta": &inMeta, "name": &name, "uri": &uri, "arguments": &arguments, "protocolVersion": &requested}.read(inParams)
	lowest := fields{keyVersion: &version, "traceparent": &parent, "tracestate": &state}.read(inMeta)
	d := Description{
		Method: text(method), Arguments: arguments, ProtocolVersion: cmp.Or(text(version), text(requested)),
		TraceParent: text(parent), TraceState: text(state), Ambiguous: cmp.Or(top, below, lowest) != nil,
	}
	d.Target = text(name)
	if strings.HasPrefix(d.Method, "resources/") { // a name beside the URI means nothing to the server
		d.Target = text(uri)
	}
	if d.Method != "" && present(id) {
		d.ID = id
	}
	return d
}
