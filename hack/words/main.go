// Command words checks that everything a user reads is written in the words of the
// Kubernetes documentation. It reads the files that git knows, finds the words that
// words.txt lists, and prints for each its place and what to write instead. It also
// prints the links of Markdown files that lead nowhere.
//
//	words [folder]
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	failed, err := run(root, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "words: "+err.Error())
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// run prints the findings in the repository at root, and reports whether any exist.
func run(root string, out io.Writer) (bool, error) {
	words, err := parseWords(wordList)
	if err != nil {
		return false, err
	}
	allowed, err := parseAllowed(allowList)
	if err != nil {
		return false, err
	}
	paths, err := listFiles(root)
	if err != nil {
		return false, err
	}
	var findings []finding
	for _, path := range paths {
		texts, err := readTexts(root, path)
		if err != nil {
			return false, err
		}
		for _, t := range texts {
			findings = append(findings, words.find(t)...)
		}
		if len(texts) > 0 {
			broken, err := brokenLinks(root, path)
			if err != nil {
				return false, err
			}
			findings = append(findings, broken...)
		}
	}
	findings = without(findings, allowed)
	for _, f := range findings {
		fmt.Fprintf(out, "%s:%d: %q: write %s\n", f.path, f.line, f.match, f.replacement)
	}
	unused := 0
	for _, a := range allowed {
		if !a.used {
			unused++
			fmt.Fprintf(out, "hack/words/allow.txt:%d: allows nothing: remove the entry for %s\n", a.line, a.path)
		}
	}
	if len(findings)+unused == 0 {
		fmt.Fprintf(out, "%d files: no listed words, no broken links\n", len(paths))
		return false, nil
	}
	fmt.Fprintf(out, "%d listed words and broken links, %d unused entries of the allow list. A use that is right gets an entry in hack/words/allow.txt.\n", len(findings), unused)
	return true, nil
}
