package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// vocabulary is one constant of the words that a status speaks in.
type vocabulary struct {
	name, value, doc string
}

// parseVocabulary reads the constants of this package whose names start with
// Condition or Reason. It reads the source, because a constant that a list in Go
// forgets is just the one that a test has to find.
func parseVocabulary(t *testing.T) []vocabulary {
	t.Helper()
	g := NewWithT(t)
	sources, err := filepath.Glob("*.go")
	g.Expect(err).NotTo(HaveOccurred())
	var words []vocabulary
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
		g.Expect(err).NotTo(HaveOccurred())
		for _, declaration := range file.Decls {
			words = append(words, vocabularyOf(g, declaration)...)
		}
	}
	g.Expect(words).NotTo(BeEmpty(), "no constants named Condition... or Reason... were found")
	return words
}

func vocabularyOf(g *WithT, declaration ast.Decl) []vocabulary {
	constants, ok := declaration.(*ast.GenDecl)
	if !ok || constants.Tok != token.CONST {
		return nil
	}
	var words []vocabulary
	for _, spec := range constants.Specs {
		constant, ok := spec.(*ast.ValueSpec)
		g.Expect(ok).To(BeTrue())
		for i, name := range constant.Names {
			if !strings.HasPrefix(name.Name, "Condition") && !strings.HasPrefix(name.Name, "Reason") {
				continue
			}
			g.Expect(constant.Values).To(HaveLen(len(constant.Names)), "%s has no value of its own", name.Name)
			literal, ok := constant.Values[i].(*ast.BasicLit)
			g.Expect(ok).To(BeTrue(), "%s is not a literal", name.Name)
			value, err := strconv.Unquote(literal.Value)
			g.Expect(err).NotTo(HaveOccurred())
			words = append(words, vocabulary{name: name.Name, value: value, doc: constant.Doc.Text()})
		}
	}
	return words
}

func TestConditionsAndReasonsAreNamedAfterTheirValues(t *testing.T) {
	for _, word := range parseVocabulary(t) {
		NewWithT(t).Expect(word.name).To(
			BeElementOf("Condition"+word.value, "Reason"+word.value), "the value of %s", word.name)
	}
}

func TestConditionsAndReasonsAreDocumented(t *testing.T) {
	for _, word := range parseVocabulary(t) {
		NewWithT(t).Expect(word.doc).To(HavePrefix(word.name),
			"%s needs a comment that starts with its name and says what a user does about it", word.name)
	}
}

func TestConditionsAndReasonsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, word := range parseVocabulary(t) {
		NewWithT(t).Expect(seen[word.name]).To(BeFalse(), "%s is declared twice", word.name)
		seen[word.name] = true
	}
}

func TestConditionsAndReasonsAreInTheManual(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "appservice.md"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, word := range parseVocabulary(t) {
		if !strings.Contains(string(manual), "`"+word.value+"`") {
			t.Errorf("docs/appservice.md does not list %s: write `%s` there and say what it means", word.name, word.value)
		}
	}
}
