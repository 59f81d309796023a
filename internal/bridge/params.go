package bridge

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// headerParam is the start of the names of headers that mirror parameters of a tool.
const headerParam = "Mcp-Param-"

// param is a parameter of a tool that clients mirror in a header.
type param struct {
	header string
	// path are the names of the properties that lead to it.
	path []string
}

// checkParams checks that the headers of a tools/call match its arguments: "Any server that processes the message body
// MUST validate that encoded header values, after decoding if Base64-encoded, match the corresponding values in the
// request body" (specification 2026-07-28, Streamable HTTP). Headers that no parameter has are ignored, as it says.
func checkParams(params []param, headers http.Header, arguments json.RawMessage) *failure {
	for _, p := range params {
		value, ambiguous := argument(arguments, p.path)
		if ambiguous != nil {
			return badRequest(codeInvalidRequest, ambiguous.Error())
		}
		if problem := p.check(headers.Values(p.header), value); problem != "" {
			return mismatch(fmt.Sprintf("header %s %s; the parameter is %q: list the tools again", p.header, problem, strings.Join(p.path, ".")))
		}
	}
	return nil
}

// check returns what is wrong with the header of a parameter. It does not name values, which may be confidential.
func (p param) check(sent []string, value json.RawMessage) string {
	switch {
	case len(sent) > 1:
		return "is repeated"
	case len(sent) == 0 && present(value):
		return "is missing"
	case len(sent) == 0:
		return ""
	case !present(value):
		return "has a value that the message has not"
	}
	decoded, err := decodedHeader(sent[0])
	switch {
	case err != nil:
		return err.Error()
	case !sameValue(decoded, value):
		return "differs from the message"
	}
	return ""
}

// argument is the value at a path; nil if there is none.
func argument(arguments json.RawMessage, path []string) (json.RawMessage, *ambiguity) {
	value := arguments
	for _, name := range path {
		var inner json.RawMessage
		if a := (fields{name: &inner}).read(value); a != nil {
			return nil, a
		}
		value = inner
	}
	return value, nil
}

// sameValue compares the decoded value of a header with that of the message. Integers are compared as numbers.
func sameValue(header string, value json.RawMessage) bool {
	switch value[0] {
	case '"':
		return header == text(value)
	case 't', 'f':
		return header == string(value)
	case '{', '[':
		return false
	}
	inHeader, ok := safeInteger(header)
	inMessage, alsoOK := safeInteger(string(value))
	return ok && alsoOK && inHeader == inMessage
}

// safeInteger reads a JSON number that is an integer which all servers read exactly.
func safeInteger(number string) (float64, bool) {
	f, err := strconv.ParseFloat(number, 64)
	return f, err == nil && json.Valid([]byte(number)) && isInteger(number) && math.Abs(f) <= 1<<53-1
}

// isInteger reports whether a JSON number is an integer before it is rounded.
func isInteger(number string) bool {
	mantissa, power, scaled := strings.Cut(strings.ToLower(number), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimRight(whole+fraction, "0")
	exponent := 0
	if scaled {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil {
			return false
		}
	}
	// The last digit that is not 0 must not be behind the point.
	return strings.Trim(digits, "-0") == "" || exponent >= len(digits)-len(whole)
}

var (
	errHeaderCharacters = errors.New("has characters that headers must not have: encode it as =?base64?...?=")
	errHeaderEncoding   = errors.New("is not encoded correctly: use =?base64?...?= with base64 of UTF-8")
)

// decodedHeader decodes the value of a header that clients encode if it has characters that headers cannot have.
func decodedHeader(header string) (string, error) {
	for _, c := range []byte(header) {
		if c < ' ' && c != '\t' || c > '~' {
			return "", errHeaderCharacters
		}
	}
	inner, ok := strings.CutPrefix(header, "=?base64?")
	if ok {
		inner, ok = strings.CutSuffix(inner, "?=")
	}
	if !ok {
		return header, nil
	}
	value, err := base64.StdEncoding.Strict().DecodeString(inner)
	if err != nil || !utf8.Valid(value) {
		return "", errHeaderEncoding
	}
	return string(value), nil
}
