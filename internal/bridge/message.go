package bridge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
)

// Members of _meta.
const (
	keyVersion      = "io.modelcontextprotocol/protocolVersion"
	keyLogLevel     = "io.modelcontextprotocol/logLevel"
	keySubscription = "io.modelcontextprotocol/subscriptionId"
)

// errNotMessage is the error of data that is not one JSON-RPC message.
var errNotMessage = errors.New("not a JSON-RPC message")

// kind is the kind of a message.
type kind int

const (
	invalid kind = iota
	request
	notification
	response
)

// envelope is the part of a message that the bridge reads. Its fields are raw
// JSON of any type.
type envelope struct {
	Version json.RawMessage
	ID      json.RawMessage
	Method  string
	Params  params
	Result  json.RawMessage
	Error   json.RawMessage
	// ambiguous is set if a reader may understand the members above in another way.
	ambiguous *ambiguity
}

type params struct {
	raw           json.RawMessage
	Meta          meta
	ProgressToken json.RawMessage
	RequestID     json.RawMessage
	Name          json.RawMessage
	URI           json.RawMessage
	Arguments     json.RawMessage
}

type meta struct {
	ProgressToken   json.RawMessage
	ProtocolVersion json.RawMessage
	LogLevel        json.RawMessage
	SubscriptionID  json.RawMessage
}

// parse reads the envelope of one message, without copying it. Batches, which
// spec versions since 2025-06-18 do not have, are rejected. A member of an
// unexpected type is relayed; the bridge does not validate messages.
func parse(data []byte) (envelope, error) {
	var e envelope
	data = bytes.TrimLeft(data, " \t\r\n")
	if len(data) == 0 || data[0] != '{' || !json.Valid(data) {
		return e, errNotMessage
	}
	var method, inMeta json.RawMessage
	p, m := &e.Params, &e.Params.Meta
	top := fields{"jsonrpc": &e.Version, "id": &e.ID, "method": &method, "params": &p.raw, "result": &e.Result, "error": &e.Error}.read(data)
	below := fields{"_meta": &inMeta, "progressToken": &p.ProgressToken, "requestId": &p.RequestID, "name": &p.Name, "uri": &p.URI, "arguments": &p.Arguments}.read(p.raw)
	lowest := fields{"progressToken": &m.ProgressToken, keyVersion: &m.ProtocolVersion, keyLogLevel: &m.LogLevel, keySubscription: &m.SubscriptionID}.read(inMeta)
	e.ambiguous = cmp.Or(top, below, lowest)
	e.Method = text(method)
	if e.kind() == invalid {
		return e, errNotMessage
	}
	return e, nil
}

func (e *envelope) hasID() bool {
	return present(e.ID)
}

func (e *envelope) kind() kind {
	switch {
	case e.Method != "" && e.hasID():
		return request
	case e.Method != "":
		return notification
	case e.hasID() || present(e.Error):
		return response
	default:
		return invalid
	}
}

// errorCode is the code of an error response, and 0 of any other message.
func (e *envelope) errorCode() int {
	var failure struct {
		Code int `json:"code"`
	}
	if json.Unmarshal(e.Error, &failure) != nil {
		return 0
	}
	return failure.Code
}

func present(raw json.RawMessage) bool {
	return len(raw) > 0 && !bytes.Equal(raw, []byte("null"))
}

// text is the value of a JSON string; empty for other types.
func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // the string stays empty
	return s
}

// idKey normalizes an id or token for comparison, because client and server may
// escape a string or write a number differently.
func idKey(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	if raw[0] == '"' {
		return "s" + text(raw)
	}
	if n, err := strconv.ParseFloat(string(raw), 64); err == nil && bytes.ContainsAny(raw, ".eE") {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return string(raw)
}

// oneLine removes line breaks, which stdio and event streams do not allow in a
// message.
func oneLine(data []byte) ([]byte, error) {
	data = bytes.TrimSpace(data)
	if !bytes.ContainsAny(data, "\r\n") {
		return data, nil
	}
	var out bytes.Buffer
	if err := json.Compact(&out, data); err != nil {
		return nil, errNotMessage
	}
	return out.Bytes(), nil
}
