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

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

// vocabulary is one constant of the words that a status speaks in.
type vocabulary struct {
	name, value, doc string
	// source is the file that declares it.
	source string
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
			for _, word := range vocabularyOf(g, declaration) {
				word.source = source
				words = append(words, word)
			}
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

// manuals are the files that declare words, and the manual that has to list them.
var manuals = map[string]string{
	"conditions.go":               "appservice.md",
	"mcpserver_conditions.go":     "mcpserver.md",
	"securestorage_conditions.go": "securestorage.md",
}

// sharedBySecureStorage are the words of conditions.go that a SecureStorage uses too.
var sharedBySecureStorage = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionSuspended,
	v1alpha1.ReasonReady, v1alpha1.ReasonBlocked, v1alpha1.ReasonSuspended, v1alpha1.ReasonTerminating, v1alpha1.ReasonFailed,
	v1alpha1.ReasonNotConfigured,
}

// sharedByMCPServer are the words of conditions.go that an MCPServer uses too.
var sharedByMCPServer = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionDrifted, v1alpha1.ConditionSuspended,
	v1alpha1.ConditionConfigReady, v1alpha1.ConditionServiceReady, v1alpha1.ConditionDeploymentReady,
	v1alpha1.ConditionAutoscalingReady, v1alpha1.ConditionDisruptionBudgetReady, v1alpha1.ConditionIngressReady,
	v1alpha1.ReasonReady, v1alpha1.ReasonNotConfigured, v1alpha1.ReasonBlocked, v1alpha1.ReasonSuspended, v1alpha1.ReasonTerminating,
	v1alpha1.ReasonPruning, v1alpha1.ReasonRecreating, v1alpha1.ReasonProgressing, v1alpha1.ReasonDrifted,
	v1alpha1.ReasonFailed, v1alpha1.ReasonConflict, v1alpha1.ReasonNotOwned, v1alpha1.ReasonOwnedByAnother, v1alpha1.ReasonImmutableField,
	v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonAdmissionDenied, v1alpha1.ReasonInvalid, v1alpha1.ReasonForbidden,
	v1alpha1.ReasonKindMissing, v1alpha1.ReasonNamespaceTerminating, v1alpha1.ReasonAPIUnavailable,
	v1alpha1.ReasonRolloutProgressing, v1alpha1.ReasonRolloutStalled, v1alpha1.ReasonPodsFailing,
	v1alpha1.ReasonIngressClassMissing, v1alpha1.ReasonScalingInactive,
}

func TestConditionsAndReasonsAreInTheManual(t *testing.T) {
	words := map[string][]string{"securestorage.md": sharedBySecureStorage, "mcpserver.md": sharedByMCPServer}
	for _, word := range parseVocabulary(t) {
		manual, found := manuals[word.source]
		NewWithT(t).Expect(found).To(BeTrue(), "%s declares %s: say in manuals which manual lists it", word.source, word.name)
		words[manual] = append(words[manual], word.value)
	}
	for manual, values := range words {
		t.Run(manual, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "docs", manual))
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			for _, value := range values {
				if !strings.Contains(string(text), "`"+value+"`") {
					t.Errorf("docs/%[1]s does not list %[2]s: write `%[2]s` there and say what it means", manual, value)
				}
			}
		})
	}
}
