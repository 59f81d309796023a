package bridge

import (
	"encoding/json"
	"strings"
)

// members calls visit for each member of a JSON object, in order. Unlike
// encoding/json it does not match names case-insensitively, and it shows
// duplicates. The data must be valid JSON; data of another type has no members.
// Values are parts of data.
func members(data []byte, visit func(name string, value json.RawMessage)) {
	at := afterSpace(data, 0)
	if at == len(data) || data[at] != '{' {
		return
	}
	for {
		at = afterSpace(data, at+1) // after { or ,
		if data[at] == '}' {
			return
		}
		end := afterValue(data, at)
		name := text(data[at:end])
		at = afterSpace(data, afterSpace(data, end)+1) // after :
		end = afterValue(data, at)
		visit(name, data[at:end])
		at = afterSpace(data, end)
		if data[at] == '}' {
			return
		}
	}
}

// afterSpace is the index of the first character from at that is not white space.
func afterSpace(data []byte, at int) int {
	for at < len(data) && (data[at] == ' ' || data[at] == '\t' || data[at] == '\r' || data[at] == '\n') {
		at++
	}
	return at
}

// afterValue is the index after the value that begins at at.
func afterValue(data []byte, at int) int {
	depth := 0
	for ; at < len(data); at++ {
		switch data[at] {
		case '"':
			for at++; data[at] != '"'; at++ {
				if data[at] == '\\' {
					at++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if !endsLiteral(data, at+1) {
				continue
			}
		}
		if depth == 0 {
			return at + 1
		}
	}
	return at
}

// endsLiteral reports whether a number, true, false or null ends before at.
func endsLiteral(data []byte, at int) bool {
	return at == len(data) || strings.IndexByte(" \t\r\n,]}", data[at]) >= 0
}

// ambiguity is the error of a message with several members that a reader may
// take for the same one: readers differ in whether the first or the last of
// duplicates counts, and in whether letter case does.
type ambiguity struct{ name, known string }

func (a *ambiguity) Error() string {
	if a.name == a.known {
		return "the message has the member " + quoted(a.name) + " twice: send it once"
	}
	return "the message has the member " + quoted(a.name) + ", which some servers take for " + quoted(a.known) + ": rename or remove it"
}

// fields are the places for the values of the members with these names.
type fields map[string]*json.RawMessage

// read stores the values of the members of an object in the fields. Other members are ignored. It
// reports the first ambiguity; the last of duplicates counts.
func (f fields) read(data []byte) (first *ambiguity) {
	seen := map[string]bool{}
	members(data, func(name string, value json.RawMessage) {
		known := f.match(name)
		if known == "" {
			return
		}
		if first == nil && (name != known || seen[name]) {
			first = &ambiguity{name, known}
		}
		if name == known {
			seen[name] = true
			*f[name] = value
		}
	})
	return first
}

// match is the name of the field that a case-insensitive reader would take for the name.
func (f fields) match(name string) string {
	if _, ok := f[name]; ok {
		return name
	}
	for known := range f {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	return ""
}

func quoted(s string) string {
	out, _ := json.Marshal(s)
	return string(out)
}
