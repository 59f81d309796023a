package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// errEnd is the end of the input within a value.
var errEnd = errors.New("unexpected end of JSON")

// scanner walks through JSON once and copies nothing. It validates only the structure that it visits: the API server
// sends valid JSON, and rejects an invalid response.
type scanner struct {
	data []byte
	pos  int
}

// object visits the members of an object. visit must consume the value, which starts at s.pos. The key begins at
// keyStart, with its quote.
func (s *scanner) object(visit func(key []byte, keyStart int) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.next() == '}' {
		s.pos++
		return nil
	}
	for {
		s.space()
		keyStart := s.pos
		key, err := s.key()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		s.space()
		if err := visit(key, keyStart); err != nil {
			return err
		}
		if done, err := s.more('}'); done || err != nil {
			return err
		}
	}
}

// array visits the items of an array. visit must consume the item, which starts at s.pos.
func (s *scanner) array(visit func(i int) error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	if s.next() == ']' {
		s.pos++
		return nil
	}
	for i := 0; ; i++ {
		s.space()
		if err := visit(i); err != nil {
			return err
		}
		if done, err := s.more(']'); done || err != nil {
			return err
		}
	}
}

// more consumes a comma, or the end of an object or array.
func (s *scanner) more(end byte) (done bool, err error) {
	switch s.next() {
	case end:
		s.pos++
		return true, nil
	case ',':
		s.pos++
		return false, nil
	default:
		return false, s.unexpected()
	}
}

// value consumes a value and returns its JSON.
func (s *scanner) value() ([]byte, error) {
	s.space()
	start := s.pos
	err := s.skip()
	return s.data[start:s.pos], err
}

// skip consumes a value.
func (s *scanner) skip() error {
	depth := 0
	for {
		switch s.next() {
		case 0:
			return errEnd
		case '"':
			if err := s.skipString(); err != nil {
				return err
			}
		case '{', '[':
			depth++
			s.pos++
			continue
		case '}', ']':
			if depth == 0 {
				return s.unexpected()
			}
			depth--
			s.pos++
		case ',', ':':
			if depth == 0 {
				return s.unexpected()
			}
			s.pos++
			continue
		default:
			s.skipLiteral()
		}
		if depth == 0 {
			return nil
		}
	}
}

func (s *scanner) skipString() error {
	for {
		s.pos++
		length := bytes.IndexByte(s.data[s.pos:], '"')
		if length < 0 {
			s.pos = len(s.data)
			return errEnd
		}
		start := s.pos
		s.pos += length
		backslashes := 0
		for s.pos-1-backslashes >= start && s.data[s.pos-1-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			s.pos++
			return nil
		}
	}
}

// skipLiteral consumes a number, true, false or null.
func (s *scanner) skipLiteral() {
	for s.pos++; s.pos < len(s.data); s.pos++ {
		switch s.data[s.pos] {
		case ',', '}', ']', ':', '"', '{', '[', ' ', '\t', '\r', '\n':
			return
		}
	}
}

// key consumes the name of a member, and returns it without quotes and escapes.
func (s *scanner) key() ([]byte, error) {
	start := s.pos
	if s.next() != '"' {
		return nil, s.unexpected()
	}
	if err := s.skipString(); err != nil {
		return nil, err
	}
	quoted := s.data[start:s.pos]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1], nil
	}
	var name string
	if err := json.Unmarshal(quoted, &name); err != nil {
		return nil, fmt.Errorf("parsing the name of a field: %w", err)
	}
	return []byte(name), nil
}

func (s *scanner) expect(want byte) error {
	if s.next() != want {
		return s.unexpected()
	}
	s.pos++
	return nil
}

// next returns the next byte that is not space, or 0 at the end.
func (s *scanner) next() byte {
	s.space()
	if s.pos >= len(s.data) {
		return 0
	}
	return s.data[s.pos]
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) unexpected() error {
	if s.pos >= len(s.data) {
		return errEnd
	}
	return fmt.Errorf("unexpected character %q at byte %d of the JSON", s.data[s.pos], s.pos)
}
