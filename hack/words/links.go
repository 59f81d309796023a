package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	anchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
)

// brokenLinks returns the links within the repository that lead nowhere, of one
// Markdown file.
func brokenLinks(root, file string) ([]finding, error) {
	if !strings.HasSuffix(file, ".md") {
		return nil, nil
	}
	content, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	var broken []finding
	for _, at := range link.FindAllSubmatchIndex(content, -1) {
		target := string(content[at[2]:at[3]])
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		if !exists(root, file, target) {
			line := 1 + strings.Count(string(content[:at[0]]), "\n")
			broken = append(broken, finding{file, line, target, "a link to something that exists"})
		}
	}
	return broken, nil
}

// exists reports whether a link in the file has its target, heading included.
func exists(root, file, target string) bool {
	to, fragment, _ := strings.Cut(target, "#")
	full := filepath.Join(root, file)
	if to != "" {
		full = filepath.Join(root, path.Join(path.Dir(file), to))
	}
	if fragment == "" || !strings.HasSuffix(full, ".md") {
		_, err := os.Stat(full)
		return err == nil
	}
	content, err := os.ReadFile(full)
	if err != nil {
		return false
	}
	return hasAnchor(fenced.ReplaceAllString(string(content), ""), fragment)
}

func hasAnchor(content, fragment string) bool {
	for _, match := range anchor.FindAllStringSubmatch(content, -1) {
		if match[1] == fragment {
			return true
		}
	}
	for _, match := range heading.FindAllStringSubmatch(content, -1) {
		if slug(match[1]) == fragment {
			return true
		}
	}
	return false
}

// slug is the anchor that GitHub gives a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, strings.TrimSpace(heading))
}
