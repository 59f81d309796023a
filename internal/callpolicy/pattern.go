package callpolicy

import (
	"slices"
	"strings"
)

// matches reports whether a name matches a pattern, in which * stands for any characters.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return name == pattern
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(name, part)
		if at < 0 {
			return false
		}
		name = name[at+len(part):]
	}
	return true
}

// selection selects tools by their names.
type selection struct{ allow, deny []string }

func (s selection) has(tool string) bool {
	match := func(pattern string) bool { return matches(pattern, tool) }
	return (len(s.allow) == 0 || slices.ContainsFunc(s.allow, match)) && !slices.ContainsFunc(s.deny, match)
}
