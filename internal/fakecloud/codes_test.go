package fakecloud

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var (
	// codeInSource finds the codes of errors where they are made.
	codeInSource = regexp.MustCompile(`(?:\b(?:badRequest|conflict|notFound|unauthorized)\(|\brefuse\([\w.]+, |\bCode: +|\binner = |\bop\.Code, op\.Message = |\bCode, taken\.inner = |\be\.Code = )"(\w+)"`)
	codeInTable  = regexp.MustCompile("`(\\w+)`")
)

// Each code that a client can see is in the table of the documentation, with the page that publishes it.
func TestDocumentationListsTheErrorCodes(t *testing.T) {
	g := NewWithT(t)
	used := map[string]bool{}
	files, err := filepath.Glob("*.go")
	g.Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		for _, match := range codeInSource.FindAllStringSubmatch(string(source), -1) {
			used[match[1]] = true
		}
	}
	g.Expect(len(used)).To(BeNumerically(">", 50), "the codes are found in the source")

	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "fakecloud.md"))
	g.Expect(err).NotTo(HaveOccurred())
	_, table, found := strings.Cut(string(page), "\n## Error codes\n")
	g.Expect(found).To(BeTrue())
	table, _, _ = strings.Cut(table, "\n## ")
	var listed []string
	for line := range strings.Lines(table) {
		codes, source, row := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !row || !strings.HasPrefix(codes, "`") {
			continue
		}
		g.Expect(source).To(Or(ContainSubstring("https://"), HavePrefix("no published page found")), "%s", codes)
		for _, match := range codeInTable.FindAllStringSubmatch(codes, -1) {
			listed = append(listed, match[1])
		}
	}
	g.Expect(listed).To(ConsistOf(slices.Collect(maps.Keys(used))))
}
