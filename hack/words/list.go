package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed words.txt
var wordList string

//go:embed allow.txt
var allowList string

// word is one line of words.txt.
type word struct {
	pattern     *regexp.Regexp
	replacement string
	// namesOnly limits the word to names.
	namesOnly bool
}

type words []word

// finding is one use of a listed word.
type finding struct {
	path        string
	line        int
	match       string
	replacement string
}

// permission is one line of allow.txt.
type permission struct {
	line   int
	path   string
	match  *regexp.Regexp
	reason string
	used   bool
}

func parseWords(list string) (words, error) {
	var out words
	names := false
	for number, line := range lines(list) {
		if section, ok := strings.CutPrefix(line, "["); ok {
			names = strings.HasPrefix(section, "name]")
			continue
		}
		pattern, replacement, ok := strings.Cut(line, " => ")
		if !ok {
			return nil, fmt.Errorf("words.txt:%d: write PATTERN => REPLACEMENT", number)
		}
		compiled, err := compilePattern(pattern)
		if err != nil {
			return nil, fmt.Errorf("words.txt:%d: %w", number, err)
		}
		out = append(out, word{compiled, replacement, names})
	}
	return out, nil
}

// compilePattern lets a space match at most one line break, and adds word boundaries
// where the pattern begins or ends with a word.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	spaced := strings.ReplaceAll(pattern, " ", `(?:[ \t]+|[ \t]*\r?\n[ \t]*)`)
	end := `(?:\b|$)`
	if strings.HasSuffix(pattern, "]") || strings.HasSuffix(pattern, "'") {
		end = ""
	}
	return regexp.Compile(`(?i)\b(?:` + spaced + `)` + end)
}

func parseAllowed(list string) ([]*permission, error) {
	var out []*permission
	for number, line := range lines(list) {
		parts := strings.SplitN(line, " | ", 3)
		if len(parts) != 3 || strings.TrimSpace(parts[2]) == "" {
			return nil, fmt.Errorf("allow.txt:%d: write PATH | MATCH | REASON", number)
		}
		match, err := regexp.Compile(`(?is)^(?:` + parts[1] + `)$`)
		if err != nil {
			return nil, fmt.Errorf("allow.txt:%d: %w", number, err)
		}
		out = append(out, &permission{line: number, path: parts[0], match: match, reason: parts[2]})
	}
	return out, nil
}

// lines yields the lines that hold something, by their numbers.
func lines(text string) func(func(int, string) bool) {
	return func(yield func(int, string) bool) {
		for i, line := range strings.Split(text, "\n") {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if !yield(i+1, line) {
				return
			}
		}
	}
}

// find returns the uses of the words in a text, in order. Where matches overlap, the
// one that begins first counts, and of these the longest.
func (w words) find(t text) []finding {
	type use struct {
		from, to    int
		replacement string
	}
	var uses []use
	for _, each := range w {
		if each.namesOnly && !t.name {
			continue
		}
		for _, at := range each.pattern.FindAllStringIndex(t.content, -1) {
			uses = append(uses, use{at[0], at[1], each.replacement})
		}
	}
	slices.SortStableFunc(uses, func(a, b use) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	var out []finding
	end := 0
	for _, u := range uses {
		if u.from < end {
			continue
		}
		end = u.to
		match := strings.Join(strings.Fields(t.content[u.from:u.to]), " ")
		out = append(out, finding{t.path, t.lineAt(u.from), match, u.replacement})
	}
	return out
}

// without drops what is allowed, and notes which permissions were used.
func without(findings []finding, allowed []*permission) []finding {
	var rest []finding
	for _, f := range findings {
		if !permitted(f, allowed) {
			rest = append(rest, f)
		}
	}
	return rest
}

func permitted(f finding, allowed []*permission) bool {
	for _, a := range allowed {
		if a.covers(f.path) && a.match.MatchString(f.match) {
			a.used = true
			return true
		}
	}
	return false
}

func (p *permission) covers(file string) bool {
	if folder, ok := strings.CutSuffix(p.path, "**"); ok {
		return strings.HasPrefix(file, folder)
	}
	match, err := path.Match(p.path, file)
	return err == nil && match
}
