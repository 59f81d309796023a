// Package answer reads the outcome of JSON-RPC responses as they pass, without keeping them.
package answer

import (
	"bytes"
	"strconv"
	"strings"
)

// member is a member of a response that matters for its outcome.
type member byte

const (
	otherMember member = iota
	memberResult
	memberError
	memberCode
	memberIsError
)

var membersOfInterest = map[string]member{"result": memberResult, "error": memberError, "code": memberCode, "isError": memberIsError}

// Answer is the outcome of responses. Only the two upper levels of a message matter, and of a batch the last response that
// is no success.
type Answer struct {
	depth, base       int
	inString, escaped bool
	// token is the beginning of the last string or literal at the upper levels.
	token []byte
	// path are the members that the position is in, by level.
	path [3]member

	// Found is true after the beginning of a response.
	Found bool
	// Failed is true after an error, whose code is Code.
	Failed bool
	Code   int
	// ToolError is true after a result with isError.
	ToolError bool
}

// maxToken is longer than all names and values that matter.
const maxToken = 24

// reset begins another message.
func (a *Answer) reset() {
	a.depth, a.base, a.inString, a.escaped, a.token = 0, 0, false, false, a.token[:0]
}

func (a *Answer) level() int { return a.depth - a.base }

func (a *Answer) isUpper() bool { return a.level() == 1 || a.level() == 2 }

// Feed continues a message.
func (a *Answer) Feed(data []byte) {
	for i := 0; i < len(data); i++ {
		if a.inString && !a.escaped && !a.isUpper() {
			// Most of a response is in strings further below.
			skip := bytes.IndexAny(data[i:], `"\`)
			if skip < 0 {
				return
			}
			i += skip
		}
		if a.inString {
			a.character(data[i])
		} else {
			a.structure(data[i])
		}
	}
}

func (a *Answer) character(c byte) {
	switch {
	case a.escaped:
		a.escaped = false
	case c == '\\':
		a.escaped = true
	case c == '"':
		a.inString = false
		return
	}
	a.keep(c)
}

func (a *Answer) keep(c byte) {
	if a.isUpper() && len(a.token) < maxToken {
		a.token = append(a.token, c)
	}
}

func (a *Answer) structure(c byte) {
	switch c {
	case '"':
		a.inString, a.token = true, a.token[:0]
	case '[', '{':
		if c == '[' && a.depth == 0 {
			a.base = 1
		}
		a.depth++
		a.token = a.token[:0]
		if a.isUpper() {
			a.path[a.level()] = otherMember
		}
	case ']', '}':
		a.value()
		a.depth--
	case ',':
		a.value()
	case ':':
		a.name()
	case ' ', '\t', '\r', '\n':
	default:
		a.keep(c)
	}
}

// name is the end of the name of a member.
func (a *Answer) name() {
	if !a.isUpper() {
		return
	}
	a.path[a.level()] = membersOfInterest[string(a.token)]
	a.token = a.token[:0]
	if a.level() != 1 {
		return
	}
	switch a.path[1] {
	case memberResult:
		a.Found = true
	case memberError:
		a.Found, a.Failed = true, true
	}
}

// value is the end of the value of a member.
func (a *Answer) value() {
	value := string(a.token)
	a.token = a.token[:0]
	switch {
	case a.level() == 1 && a.path[1] == memberError && value == "null":
		a.Failed = false
	case a.level() == 2 && a.path[1] == memberError && a.path[2] == memberCode:
		if code, err := strconv.Atoi(value); err == nil {
			a.Code = code
		}
	case a.level() == 2 && a.path[1] == memberResult && a.path[2] == memberIsError && value == "true":
		a.ToolError = true
	}
}

// Events passes the data of server-sent events to an answer.
type Events struct {
	To *Answer
	// prefix is the beginning of a line, up to the name of the field.
	prefix []byte
	// isData is true within a line with data, isOther within another one.
	isData, isOther bool
	// afterCR is true after \r, of which \n may be the second half.
	afterCR bool
}

const (
	dataField = "data:"
	// byteOrderMark may begin a stream.
	byteOrderMark = "\ufeff"
)

// Feed continues an event.
func (e *Events) Feed(data []byte) {
	for len(data) > 0 {
		end := bytes.IndexAny(data, "\r\n")
		line := data
		if end >= 0 {
			line = data[:end]
		}
		e.part(line)
		if end < 0 {
			return
		}
		if empty := len(e.prefix) == 0 && !e.isData && !e.isOther; empty && (!e.afterCR || data[end] != '\n') {
			e.To.reset() // An empty line ends an event.
		}
		e.afterCR = data[end] == '\r'
		e.prefix, e.isData, e.isOther = e.prefix[:0], false, false
		data = data[end+1:]
	}
}

// part continues a line.
func (e *Events) part(part []byte) {
	for len(part) > 0 && !e.isData && !e.isOther {
		e.prefix = append(e.prefix, part[0])
		part = part[1:]
		name := string(e.prefix)
		e.isData = name == dataField || name == byteOrderMark+dataField
		e.isOther = !strings.HasPrefix(dataField, name) && !strings.HasPrefix(byteOrderMark+dataField, name)
	}
	if e.isData {
		e.To.Feed(part)
	}
}
