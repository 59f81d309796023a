package contracts

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/internal/prober"
)

// What has changed in an item.
const (
	Added       = "added"
	Removed     = "removed"
	Schema      = "other schema"
	Description = "other description"
)

// ItemDiff is an item that differs.
type ItemDiff struct {
	Kind prober.Kind `json:"kind"`
	Name string      `json:"name"`
	// Change is what has changed; a changed schema counts before a changed description.
	Change string `json:"change"`
	// Lines are those of the item as YAML, each after "+", "-" or a space. Lines far from changes are left out, with "@@"
	// in their place. They contain only characters that can be printed.
	Lines []string `json:"lines"`
}

// Diff compares two contracts item by item, in the order of their kinds and names.
func Diff(from, to prober.ContractText) []ItemDiff {
	was, is := byKey(from), byKey(to)
	keys := slices.Collect(maps.Keys(was))
	for key := range is {
		if _, ok := was[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, itemKey.compare)
	var diffs []ItemDiff
	for _, key := range keys {
		before, after := was[key], is[key]
		if slices.Equal(before.lines, after.lines) {
			continue
		}
		diff := ItemDiff{Kind: key.kind, Name: key.name, Change: Description, Lines: printable(unified(before.lines, after.lines))}
		switch {
		case before.lines == nil:
			diff.Change = Added
		case after.lines == nil:
			diff.Change = Removed
		case before.schema != after.schema:
			diff.Change = Schema
		}
		diffs = append(diffs, diff)
	}
	return diffs
}

type itemKey struct {
	kind prober.Kind
	name string
}

var kindOrder = []prober.Kind{prober.Tool, prober.Prompt, prober.ResourceTemplate}

func (k itemKey) compare(other itemKey) int {
	return cmp.Or(cmp.Compare(slices.Index(kindOrder, k.kind), slices.Index(kindOrder, other.kind)), strings.Compare(k.name, other.name))
}

// itemText is an item, or all of those with the same name.
type itemText struct {
	lines []string
	// schema is all but what describes the item.
	schema string
}

func byKey(text prober.ContractText) map[itemKey]itemText {
	items := map[itemKey]itemText{}
	for _, item := range text.Items {
		key := itemKey{item.Kind, item.Name}
		items[key] = itemText{append(items[key].lines, linesOf(item.Definition)...), items[key].schema + schemaOf(item.Definition)}
	}
	return items
}

// linesOf are the lines of a definition as YAML.
func linesOf(definition json.RawMessage) []string {
	raw, err := yaml.JSONToYAML(definition)
	if err != nil {
		raw = definition
	}
	return strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
}

// printable escapes characters that could control a terminal, or the direction of text, and those that people do not see, in
// which a server may hide instructions for models. Lines are compared before, because their text may contain such escapes.
func printable(lines []string) []string {
	for i, line := range lines {
		var escaped strings.Builder
		for _, r := range line {
			if unicode.IsPrint(r) {
				escaped.WriteRune(r)
			} else {
				quoted := strconv.QuoteRuneToASCII(r)
				escaped.WriteString(quoted[1 : len(quoted)-1])
			}
		}
		lines[i] = escaped.String()
	}
	return lines
}

// schemaOf is a definition without the members that describe it.
func schemaOf(definition json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(definition, &members) != nil {
		return string(definition)
	}
	for _, name := range []string{"description", "title", "icons"} {
		delete(members, name)
	}
	raw, _ := json.Marshal(members) // it was JSON
	return string(raw)
}

// context is the number of equal lines around changes.
const context = 3

// unified compares lines.
func unified(from, to []string) []string {
	all := compare(from, to)
	near := make([]bool, len(all))
	for i, line := range all {
		if line[0] == ' ' {
			continue
		}
		for at := max(0, i-context); at <= min(len(all)-1, i+context); at++ {
			near[at] = true
		}
	}
	var lines []string
	for i, line := range all {
		switch {
		case near[i]:
			lines = append(lines, line)
		case i == 0 || near[i-1]:
			lines = append(lines, "@@")
		}
	}
	return lines
}

// maxCells bounds the time to compare. Longer texts are shown as removed and added.
const maxCells = 4 << 20

// compare returns the lines of both texts, with a longest common subsequence as equal lines.
func compare(from, to []string) []string {
	start := 0
	for start < len(from) && start < len(to) && from[start] == to[start] {
		start++
	}
	end := 0
	for end < len(from)-start && end < len(to)-start && from[len(from)-1-end] == to[len(to)-1-end] {
		end++
	}
	all := marked(" ", from[:start])
	all = append(all, compareRest(from[start:len(from)-end], to[start:len(to)-end])...)
	return append(all, marked(" ", from[len(from)-end:])...)
}

func marked(mark string, lines []string) (all []string) {
	for _, line := range lines {
		all = append(all, mark+line)
	}
	return all
}

func compareRest(from, to []string) (all []string) {
	width := len(to) + 1
	if (len(from)+1)*width > maxCells {
		return append(marked("-", from), marked("+", to)...)
	}
	// common[i*width+j] is the length of the longest common subsequence of from[i:] and to[j:].
	common := make([]int32, (len(from)+1)*width)
	for i := len(from) - 1; i >= 0; i-- {
		for j := len(to) - 1; j >= 0; j-- {
			if from[i] == to[j] {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(from) && j < len(to) {
		switch {
		case from[i] == to[j]:
			all = append(all, " "+from[i])
			i, j = i+1, j+1
		case common[(i+1)*width+j] >= common[i*width+j+1]:
			all = append(all, "-"+from[i])
			i++
		default:
			all = append(all, "+"+to[j])
			j++
		}
	}
	return append(append(all, marked("-", from[i:])...), marked("+", to[j:])...)
}

// Lines are the lines of a definition as YAML. They contain only characters that can be printed.
func Lines(definition json.RawMessage) []string { return printable(linesOf(definition)) }
