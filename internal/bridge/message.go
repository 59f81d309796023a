package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
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
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params params          `json:"params"`
	Error  json.RawMessage `json:"error"`
}

type params struct {
	Meta          meta            `json:"_meta"`
	ProgressToken json.RawMessage `json:"progressToken"`
	RequestID     json.RawMessage `json:"requestId"`
	Name          json.RawMessage `json:"name"`
	URI           json.RawMessage `json:"uri"`
}

type meta struct {
	ProgressToken   json.RawMessage `json:"progressToken"`
	ProtocolVersion json.RawMessage `json:"io.modelcontextprotocol/protocolVersion"`
	LogLevel        json.RawMessage `json:"io.modelcontextprotocol/logLevel"`
	SubscriptionID  json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
}

// parse reads the envelope of one message. Batches, which spec versions since
// 2025-06-18 do not have, are rejected.
func parse(data []byte) (envelope, error) {
	var e envelope
	data = bytes.TrimLeft(data, " \t\r\n")
	if len(data) == 0 || data[0] != '{' {
		return e, errNotMessage
	}
	err := json.Unmarshal(data, &e)
	// A field of an unexpected type is relayed; the bridge does not validate messages.
	var odd *json.UnmarshalTypeError
	if err != nil && !errors.As(err, &odd) {
		return e, errNotMessage
	}
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
	if !present(e.Error) || json.Unmarshal(e.Error, &failure) != nil {
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
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return ""
	}
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
