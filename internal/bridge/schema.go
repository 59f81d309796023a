package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// keyParamHeader marks a parameter in the schema of a tool.
const keyParamHeader = "x-mcp-header"

// maxSchemaDepth limits the nesting of schemas that are read.
const maxSchemaDepth = 64

var (
	// schemaMaps are the keywords, beside properties, whose value has names of the author with a schema each.
	schemaMaps = []string{"patternProperties", "$defs", "definitions", "dependentSchemas"}
	// subschemas are the keywords whose value is a schema or a list of schemas. Other keywords have data.
	subschemas = []string{
		"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties",
		"propertyNames", "oneOf", "anyOf", "allOf", "not", "if", "then", "else", "contentSchema",
	}
)

// markedParams returns the parameters that the inputSchema of a tool marks, or why clients must reject the tool: a
// mark that the specification does not allow makes the whole definition invalid.
func markedParams(schema json.RawMessage) ([]param, error) {
	s := &schemaReader{}
	s.read(schema, []string{}, 0)
	if s.err != nil {
		return nil, s.err
	}
	return s.params, nil
}

type schemaReader struct {
	params []param
	err    error
}

// read reads a schema. The path is nil unless only properties lead to the schema.
func (s *schemaReader) read(schema json.RawMessage, path []string, depth int) {
	if depth > maxSchemaDepth {
		s.fail(fmt.Errorf("the inputSchema is nested deeper than %d levels", maxSchemaDepth))
		return
	}
	var mark, kind json.RawMessage
	members(schema, func(name string, value json.RawMessage) {
		switch {
		case name == keyParamHeader:
			mark = value
		case name == "type":
			kind = value
		case name == "properties":
			members(value, func(property string, inner json.RawMessage) {
				s.read(inner, below(path, property), depth+1)
			})
		case slices.Contains(schemaMaps, name):
			members(value, func(_ string, inner json.RawMessage) { s.read(inner, nil, depth+1) })
		case slices.Contains(subschemas, name):
			s.readEach(value, depth+1)
		}
	})
	if mark != nil {
		s.mark(mark, text(kind), path)
	}
}

func below(path []string, property string) []string {
	if path == nil {
		return nil
	}
	return append(slices.Clone(path), property)
}

// readEach reads a schema, or each of a list.
func (s *schemaReader) readEach(value json.RawMessage, depth int) {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		s.read(value, nil, depth)
		return
	}
	for _, inner := range list {
		s.read(inner, nil, depth)
	}
}

// mark adds a parameter.
func (s *schemaReader) mark(mark json.RawMessage, kind string, path []string) {
	name, at := text(mark), strings.Join(path, ".")
	p := param{http.CanonicalHeaderKey(headerParam + name), path}
	switch {
	case len(path) == 0:
		s.fail(errors.New(keyParamHeader + " is not at a property that is reached by properties alone"))
	case !isToken(name):
		s.fail(fmt.Errorf("%s of %q is not the name of a header", keyParamHeader, at))
	case kind != "string" && kind != "integer" && kind != "boolean":
		s.fail(fmt.Errorf("%s is at %q, whose type is not string, integer or boolean", keyParamHeader, at))
	case slices.ContainsFunc(s.params, func(other param) bool { return other.header == p.header }):
		s.fail(fmt.Errorf("two properties have the %s %q", keyParamHeader, name))
	default:
		s.params = append(s.params, p)
	}
}

func (s *schemaReader) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// isToken reports whether a name may be part of the name of a header (RFC 9110, tchar).
func isToken(name string) bool {
	for _, c := range []byte(name) {
		isAlphanumeric := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !isAlphanumeric && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}
