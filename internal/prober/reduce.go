package prober

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of what a probe keeps of the responses of a server. They bound the memory of a probe, because
// the SDK decodes only what is kept. The limits of bytes read are in probe.go.
const (
	// handshakeKept and listKept limit the kept bytes of the handshake and, in addition, of the lists.
	handshakeKept = 32 << 10
	listKept      = 128 << 10
	// handshakeValues and listValues limit the kept JSON values in the same way.
	handshakeValues = 1 << 10
	listValues      = 8 << 10
	// maxItems limits the items of each list, over all its pages.
	maxItems = 10_000
	// maxDepth limits the nesting of JSON, also within items.
	maxDepth = 64
	// maxString is the number of bytes that are kept of a JSON string. It is enough for a cursor.
	maxString = 4 << 10
	// longestCharacter bounds the length of an escaped or encoded character.
	longestCharacter = 8
)

// The errors of responses that exceed a limit, that no JSON parser accepts, or that clients split into lines differently.
var (
	errTooLarge      = &Error{Kind: TooLarge}
	errTooManyValues = &Error{Kind: TooLarge, Detail: "too many JSON values outside of lists"}
	errTooManyItems  = &Error{Kind: TooLarge, Detail: "a list has more than 10000 items"}
	errTooDeep       = &Error{Kind: TooLarge, Detail: "JSON is nested deeper than 64 levels"}
	errNotJSON       = &Error{Kind: NotMCP}
	errByteOrderMark = &Error{Kind: NotMCP, Detail: "an event stream begins with a byte order mark"}
	errLineEnd       = &Error{Kind: NotMCP, Detail: "an event stream has a carriage return without a line feed"}
)

// listNames are the keys of the lists in results. The index of a name is its index in kept.items.
var listNames = []string{"tools", "prompts", "resources", "resourceTemplates"}

const (
	toolList = iota
	promptList
	resourceList
	templateList
)

// kept counts what a probe has kept of all responses.
type kept struct {
	bytes, values       int
	maxBytes, maxValues int
	items               [4]int
}

// extend raises the limits from those of the handshake to those of the lists.
func (k *kept) extend() {
	k.maxBytes += listKept
	k.maxValues += listValues
}

func (k *kept) addByte() *Error {
	if k.bytes++; k.bytes > k.maxBytes {
		return errTooLarge
	}
	return nil
}

func (k *kept) addValue() *Error {
	if k.values++; k.values > k.maxValues {
		return errTooManyValues
	}
	return nil
}

func (k *kept) addItem(list int) *Error {
	if k.items[list]++; k.items[list] > maxItems {
		return errTooManyItems
	}
	return nil
}

// reducer reads the bytes of a response body as they arrive, and keeps what the SDK needs: it counts the
// items of the lists in results and drops them, and cuts long strings. So a list of any size takes no
// memory. Bytes that are not JSON pass, within the limits; the SDK rejects them.
type reducer struct {
	kept *kept
	// contract reads the items of lists; nil if they are only counted.
	contract *contractReader
	// out receives the kept bytes.
	out []byte
	// json is the state in the current JSON message.
	json jsonState
	// events is true for a body of server-sent events; line is then the state in the current line, and
	// messages the number of events with data.
	events   bool
	line     lineState
	messages int
}

// lineState is the state in one line of server-sent events.
type lineState struct {
	// field is the beginning of the line up to the colon; long names are truncated.
	field []byte
	// value is true after the colon, and data if the value is part of a message.
	value, data bool
	// returned is true after a carriage return.
	returned bool
}

// jsonState is the state in one JSON message.
type jsonState struct {
	// begun is true after the beginning of the data of an event.
	begun             bool
	depth             int
	inString, escaped bool
	// length is the length of the current string, and cut is true once its rest is dropped.
	length int
	cut    bool
	// last is what is kept of the last string, and keys are the current keys at depth 1 and 2.
	last []byte
	keys [3]string
	// dropping is true within a list, whose index is list. expectsItem is true before an item.
	dropping    bool
	list        int
	expectsItem bool
}

// listDepth is the depth within a list of a result: the message, the result, the list.
const listDepth = 3

// write reads more bytes of the body.
func (r *reducer) write(body []byte) *Error {
	for i := 0; i < len(body); i++ {
		begin := i
		for i < len(body) && r.drops(body[i]) {
			i++
		}
		if r.json.dropping {
			r.contract.write(body[begin:i])
		}
		if i == len(body) {
			break
		}
		if err := r.next(body[i]); err != nil {
			return err
		}
	}
	return nil
}

// drops reports whether the next byte can be dropped without a change of state, which is most of a list.
func (r *reducer) drops(b byte) bool {
	s := &r.json
	switch {
	case r.events && (!r.line.data || r.line.returned):
		return false
	case s.inString:
		return (s.dropping || s.cut) && !s.escaped && b >= ' ' && b != '"' && b != '\\'
	default:
		return s.dropping && s.depth > listDepth && !isStructure(b)
	}
}

// isStructure reports whether a byte outside of strings changes the state.
func isStructure(b byte) bool {
	return b == '"' || b == '{' || b == '}' || b == '[' || b == ']' || b == '\n' || b == '\r'
}

func (r *reducer) next(b byte) *Error {
	if r.events {
		return r.nextInEvents(b)
	}
	return r.nextInJSON(b)
}

// nextInEvents passes all fields of an event, and reads the data as JSON. It rejects a carriage return without a line feed,
// which is the end of a line for some clients, and for others, such as the SDK, is not; and a byte order mark, after which some
// clients read an event that the SDK ignores.
func (r *reducer) nextInEvents(b byte) *Error {
	if r.line.returned && b != '\n' {
		return errLineEnd
	}
	r.line.returned = b == '\r'
	switch {
	case b == '\n':
		return r.endLine()
	case r.line.data:
		return r.nextInJSON(b)
	case r.line.value:
	case b == ':':
		r.line.value = true
		if r.line.data = string(r.line.field) == "data"; r.line.data && !r.json.begun {
			r.json.begun = true
			r.messages++
		}
	case len(r.line.field) <= len("data"):
		if r.line.field = append(r.line.field, b); string(r.line.field) == "\ufeff" {
			return errByteOrderMark
		}
	}
	return r.keep(b)
}

// endLine ends a line. An empty line ends the event.
func (r *reducer) endLine() *Error {
	if r.json.inString {
		return errNotJSON
	}
	isEmpty := !r.line.value && (len(r.line.field) == 0 || string(r.line.field) == "\r")
	r.line = lineState{field: r.line.field[:0]}
	if isEmpty {
		r.json = jsonState{last: r.json.last[:0]}
	}
	return r.keep('\n')
}

func (r *reducer) nextInJSON(b byte) *Error {
	switch {
	case r.json.inString:
		return r.nextInString(b)
	case r.json.dropping:
		return r.nextInList(b)
	}
	switch b {
	case '"':
		r.json.beginString()
	case '{', '[', ',':
		if err := r.kept.addValue(); err != nil {
			return err
		}
	}
	if err := r.keep(b); err != nil {
		return err
	}
	switch b {
	case '{', '[':
		return r.json.open(b)
	case '}', ']':
		r.json.depth = max(0, r.json.depth-1)
	case ':':
		r.json.setKey(r.json.last)
	}
	return nil
}

// nextInString keeps the beginning of a string. It does not cut within a character.
func (r *reducer) nextInString(b byte) *Error {
	s := &r.json
	switch {
	case b < ' ':
		return errNotJSON
	case s.escaped:
		s.escaped = false
	case b == '\\':
		s.escaped = true
	case b == '"':
		s.inString = false
	}
	s.length++
	if s.inString && !s.cut {
		begins := s.escaped || b >= utf8.RuneSelf|0x40
		s.cut = s.length > maxString || begins && s.length > maxString-longestCharacter
	}
	if s.dropping {
		r.contract.writeByte(b)
		return nil
	}
	if s.cut && s.inString {
		return nil
	}
	if s.inString {
		s.last = append(s.last, b)
	}
	return r.keep(b)
}

// nextInList counts the items of a list, and drops them, once the contract has read them.
func (r *reducer) nextInList(b byte) *Error {
	s := &r.json
	if s.depth == listDepth {
		switch b {
		case ' ', '\t', '\r', '\n':
			return nil
		case ',':
			r.contract.end()
			s.expectsItem = true
			return nil
		case ']':
			r.contract.end()
			s.dropping = false
			s.depth--
			return r.keep(b)
		}
		if s.expectsItem {
			s.expectsItem = false
			if err := r.kept.addItem(s.list); err != nil {
				return err
			}
			r.contract.begin(s.list)
		}
	}
	r.contract.writeByte(b)
	switch b {
	case '"':
		s.beginString()
	case '{', '[':
		return s.descend()
	case '}', ']':
		s.depth = max(listDepth, s.depth-1)
	}
	return nil
}

func (s *jsonState) beginString() {
	s.inString, s.escaped, s.cut, s.length = true, false, false, 0
	s.last = s.last[:0]
}

// setKey sets the current key to a JSON string without its quotes.
func (s *jsonState) setKey(text []byte) {
	if s.depth == 1 || s.depth == 2 {
		s.keys[s.depth] = unescape(text)
	}
}

// unescape undoes the escapes of a JSON string without its quotes; empty if it is not valid.
func unescape(text []byte) (unescaped string) {
	_ = json.Unmarshal(slices.Concat([]byte{'"'}, text, []byte{'"'}), &unescaped)
	return unescaped
}

// open begins an object or an array. Some clients ignore the letter case of keys, and of two keys they read the first or
// the last: each list that one of them may read is read here.
func (s *jsonState) open(b byte) *Error {
	if b == '[' && s.depth == 2 && strings.EqualFold(s.keys[1], "result") {
		list := slices.IndexFunc(listNames, func(name string) bool { return strings.EqualFold(s.keys[2], name) })
		if list >= 0 {
			s.dropping, s.list, s.expectsItem = true, list, true
		}
	}
	err := s.descend()
	s.setKey(nil)
	return err
}

func (s *jsonState) descend() *Error {
	if s.depth++; s.depth > maxDepth {
		return errTooDeep
	}
	return nil
}

func (r *reducer) keep(b byte) *Error {
	if err := r.kept.addByte(); err != nil {
		return err
	}
	r.out = append(r.out, b)
	return nil
}
