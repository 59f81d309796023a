package fakecloud

import (
	"strings"
)

// path is a parsed resource ID. IDs are compared ignoring case, as Azure Resource Manager does, and
// shown as they were written.
type path struct {
	segments     []string
	subscription string
	group        string
	// scope is the ID of the parent of the last provider's resource.
	scope string
	// provider, types and names are those behind the last "providers". A collection or an action has one
	// more type than names.
	provider string
	types    []string
	names    []string
}

func parsePath(raw string) path {
	p := path{segments: strings.FieldsFunc(raw, func(r rune) bool { return r == '/' })}
	last := len(p.segments)
	for i, segment := range p.segments {
		switch strings.ToLower(segment) {
		case "subscriptions":
			if i == 0 && len(p.segments) > 1 {
				p.subscription = p.segments[1]
			}
		case "resourcegroups":
			if i == 2 && len(p.segments) > 3 {
				p.group = p.segments[3]
			}
		case "providers":
			if i%2 == 0 {
				last = i
			}
		}
	}
	p.scope = idOf(p.segments[:last])
	if last+1 < len(p.segments) {
		p.provider = p.segments[last+1]
		p.split(p.segments[last+2:])
	}
	return p
}

func idOf(segments []string) string { return "/" + strings.Join(segments, "/") }

func (p *path) split(rest []string) {
	for i, segment := range rest {
		if i%2 == 0 {
			p.types = append(p.types, segment)
		} else {
			p.names = append(p.names, segment)
		}
	}
}

func (p path) id() string { return idOf(p.segments) }

// kind is, for example, microsoft.storage/storageaccounts, in lower case.
func (p path) kind() string {
	if p.provider != "" {
		return strings.ToLower(strings.Join(append([]string{p.provider}, p.types...), "/"))
	}
	var kinds []string
	for i := 0; i < len(p.segments); i += 2 {
		kinds = append(kinds, strings.ToLower(p.segments[i]))
	}
	return strings.Join(kinds, "/")
}

// item says whether the path names a resource, and not a collection or an action.
func (p path) item() bool {
	if p.provider != "" {
		return len(p.types) == len(p.names)
	}
	return len(p.segments)%2 == 0
}

func (p path) name(i int) string {
	if i < len(p.names) {
		return p.names[i]
	}
	return ""
}

func same(a, b string) bool { return strings.EqualFold(a, b) }

// within says whether an ID is a scope or below it.
func within(id, scope string) bool {
	id, scope = strings.ToLower(strings.TrimSuffix(id, "/")), strings.ToLower(strings.TrimSuffix(scope, "/"))
	return id == scope || strings.HasPrefix(id, scope+"/")
}
