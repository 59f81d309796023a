package bridge

import "encoding/json"

// keepToken limits the stored bytes of a key or value. The server may escape each byte of an id of a client as \u0000.
const keepToken = len(`\u0000`) * MaxID

// scanner finds the id and method of a JSON-RPC message that is too large to
// be stored, so that the waiting side gets an error.
type scanner struct {
	depth    int
	inString bool
	escaped  bool
	token    []byte
	key      string
	id       []byte
	method   string
}

func (s *scanner) feed(data []byte) {
	for _, c := range data {
		if s.inString {
			s.character(c)
			continue
		}
		s.structure(c)
	}
}

// character handles a character within a string.
func (s *scanner) character(c byte) {
	s.keep(c)
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.inString = false
	}
}

func (s *scanner) structure(c byte) {
	switch c {
	case ' ', '\t', '\r', '\n':
	case '{', '[':
		s.depth++
	case '}', ']':
		if s.depth == 1 {
			s.value()
		}
		s.depth--
	case ',':
		if s.depth == 1 {
			s.value()
		}
	case ':':
		if s.depth == 1 {
			s.key = text(s.token)
			s.token = s.token[:0]
		}
	default:
		s.inString = c == '"'
		s.keep(c)
	}
}

// keep stores tokens of the top level only.
func (s *scanner) keep(c byte) {
	if s.depth == 1 && len(s.token) < keepToken {
		s.token = append(s.token, c)
	}
}

// value ends a member of the message.
func (s *scanner) value() {
	switch s.key {
	case "id":
		s.id = append([]byte(nil), s.token...)
	case "method":
		s.method = text(s.token)
	}
	s.key, s.token = "", s.token[:0]
}

func (s *scanner) describe(size int) *oversize {
	o := &oversize{method: s.method, bytes: size}
	if json.Valid(s.id) && present(s.id) {
		o.id = s.id
	}
	return o
}
