package callpolicy

import (
	"slices"

	"github.com/fixpoint-dev/fixpoint/internal/toolname"
)

// selection selects tools by their names.
type selection struct{ allow, deny []string }

func (s selection) has(tool string) bool {
	match := func(pattern string) bool { return toolname.Matches(pattern, tool) }
	return (len(s.allow) == 0 || slices.ContainsFunc(s.allow, match)) && !slices.ContainsFunc(s.deny, match)
}
