package bridge

import (
	"bytes"
	"encoding/json"
)

// FilterTools removes tools from the result of tools/list, in a response or in a batch of responses. All else stays as it
// is, byte for byte, such as the cursor of the next page and the hints for caches. It returns the message itself if there
// is nothing to remove, and an error if it is not JSON.
func FilterTools(message []byte, keep func(tool string) bool) ([]byte, error) {
	if !json.Valid(message) {
		return nil, errNotMessage
	}
	f := toolFilter{message: message, keep: keep}
	if at := afterSpace(message, 0); message[at] == '[' {
		elements(message, f.response)
	} else {
		f.response(message)
	}
	if f.filtered == nil {
		return message, nil
	}
	return append(f.filtered, message[f.copied:]...), nil
}

// toolFilter copies a message, except for tools that are removed.
type toolFilter struct {
	message []byte
	keep    func(tool string) bool
	// filtered is the message up to copied, without the removed tools; nil if there are none.
	filtered []byte
	copied   int
}

func (f *toolFilter) response(response []byte) {
	members(response, func(name string, value json.RawMessage) {
		if name == "result" {
			members(value, func(name string, value json.RawMessage) {
				if name == "tools" {
					f.list(value)
				}
			})
		}
	})
}

// list removes tools of a list, which is a part of the message.
func (f *toolFilter) list(list json.RawMessage) {
	var kept [][]byte
	removed := false
	elements(list, func(tool []byte) {
		if f.keeps(tool) {
			kept = append(kept, tool)
		} else {
			removed = true
		}
	})
	if !removed {
		return
	}
	if f.filtered == nil {
		f.filtered = make([]byte, 0, len(f.message))
	}
	begin := cap(f.message) - cap(list) // parts share the capacity of the whole
	f.filtered = append(f.filtered, f.message[f.copied:begin]...)
	f.filtered = append(f.filtered, '[')
	f.filtered = append(f.filtered, bytes.Join(kept, []byte(","))...)
	f.filtered = append(f.filtered, ']')
	f.copied = begin + len(list)
}

// keeps reports whether all names of a tool are kept, because readers differ in which of several they take.
func (f *toolFilter) keeps(tool []byte) bool {
	kept := true
	members(tool, func(name string, value json.RawMessage) {
		if name == "name" && !f.keep(text(value)) {
			kept = false
		}
	})
	return kept
}

// elements calls visit for each element of a JSON array, in order. The data must be valid JSON; data of another type has no
// elements. Elements are parts of data.
func elements(data []byte, visit func(element []byte)) {
	at := afterSpace(data, 0)
	if at == len(data) || data[at] != '[' {
		return
	}
	for {
		at = afterSpace(data, at+1) // after [ or ,
		if data[at] == ']' {
			return
		}
		end := afterValue(data, at)
		visit(data[at:end])
		at = afterSpace(data, end)
		if data[at] == ']' {
			return
		}
	}
}
