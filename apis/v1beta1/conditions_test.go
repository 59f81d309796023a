package v1beta1_test

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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// statusConstant is the constant of a condition type or of a reason.
type statusConstant struct {
	name, value, doc string
	// source is the file that declares it.
	source string
}

// parseConstants returns the constants of this package whose names start with
// Condition or Reason. It parses the source, so that the tests also find
// constants that a list omits.
func parseConstants(t *testing.T) []statusConstant {
	t.Helper()
	g := NewWithT(t)
	sources, err := filepath.Glob("*.go")
	g.Expect(err).NotTo(HaveOccurred())
	var found []statusConstant
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
		g.Expect(err).NotTo(HaveOccurred())
		for _, declaration := range file.Decls {
			for _, constant := range constantsOf(g, declaration) {
				constant.source = source
				found = append(found, constant)
			}
		}
	}
	g.Expect(found).NotTo(BeEmpty(), "no constants named Condition... or Reason...")
	return found
}

func constantsOf(g *WithT, declaration ast.Decl) []statusConstant {
	group, ok := declaration.(*ast.GenDecl)
	if !ok || group.Tok != token.CONST {
		return nil
	}
	var found []statusConstant
	for _, spec := range group.Specs {
		constant, ok := spec.(*ast.ValueSpec)
		g.Expect(ok).To(BeTrue())
		for i, name := range constant.Names {
			if !strings.HasPrefix(name.Name, "Condition") && !strings.HasPrefix(name.Name, "Reason") {
				continue
			}
			g.Expect(constant.Values).To(HaveLen(len(constant.Names)), "%s has no value", name.Name)
			literal, ok := constant.Values[i].(*ast.BasicLit)
			g.Expect(ok).To(BeTrue(), "%s is not a literal", name.Name)
			value, err := strconv.Unquote(literal.Value)
			g.Expect(err).NotTo(HaveOccurred())
			found = append(found, statusConstant{name: name.Name, value: value, doc: constant.Doc.Text()})
		}
	}
	return found
}

func TestConstantNamesMatchTheirValues(t *testing.T) {
	for _, constant := range parseConstants(t) {
		NewWithT(t).Expect(constant.name).To(
			BeElementOf("Condition"+constant.value, "Reason"+constant.value), "the value of %s", constant.name)
	}
}

func TestConstantsAreDocumented(t *testing.T) {
	for _, constant := range parseConstants(t) {
		NewWithT(t).Expect(constant.doc).To(HavePrefix(constant.name),
			"%s needs a comment that starts with its name and says what the user can do", constant.name)
	}
}

func TestConstantsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, constant := range parseConstants(t) {
		NewWithT(t).Expect(seen[constant.name]).To(BeFalse(), "%s is declared twice", constant.name)
		seen[constant.name] = true
	}
}

// documents maps the files with constants to the documents that must list them.
var documents = map[string]string{
	"conditions.go":               "appservice.md",
	"appservice_types.go":         "appservice.md",
	"mcpserver_conditions.go":     "mcpserver.md",
	"securestorage_conditions.go": "securestorage.md",
}

// sharedBySecureStorage are the constants in conditions.go that SecureStorage also uses.
var sharedBySecureStorage = []string{
	v1beta1.ConditionReady, v1beta1.ConditionReconciling, v1beta1.ConditionStalled, v1beta1.ConditionSuspended,
	v1beta1.ReasonReady, v1beta1.ReasonBlocked, v1beta1.ReasonSuspended, v1beta1.ReasonTerminating, v1beta1.ReasonFailed,
}

// sharedByMCPServer are the constants in conditions.go that MCPServer also uses.
var sharedByMCPServer = []string{
	v1beta1.ConditionReady, v1beta1.ConditionReconciling, v1beta1.ConditionStalled, v1beta1.ConditionDrifted, v1beta1.ConditionSuspended,
	v1beta1.ConditionConfigReady, v1beta1.ConditionServiceReady, v1beta1.ConditionDeploymentReady,
	v1beta1.ConditionAutoscalingReady, v1beta1.ConditionDisruptionBudgetReady, v1beta1.ConditionIngressReady,
	v1beta1.ReasonReady, v1beta1.ReasonBlocked, v1beta1.ReasonSuspended, v1beta1.ReasonTerminating,
	v1beta1.ReasonPruning, v1beta1.ReasonRecreating, v1beta1.ReasonProgressing, v1beta1.ReasonDrifted,
	v1beta1.ReasonFailed, v1beta1.ReasonConflict, v1beta1.ReasonNotOwned, v1beta1.ReasonOwnedByAnother, v1beta1.ReasonImmutableField,
	v1beta1.ReasonQuotaExceeded, v1beta1.ReasonAdmissionDenied, v1beta1.ReasonInvalid, v1beta1.ReasonForbidden,
	v1beta1.ReasonKindMissing, v1beta1.ReasonNamespaceTerminating, v1beta1.ReasonAPIUnavailable,
	v1beta1.ReasonRolloutProgressing, v1beta1.ReasonRolloutStalled, v1beta1.ReasonPodsFailing,
	v1beta1.ReasonIngressClassMissing, v1beta1.ReasonScalingInactive,
}

func TestDocumentationListsConditionsAndReasons(t *testing.T) {
	expected := map[string][]string{"securestorage.md": sharedBySecureStorage, "mcpserver.md": sharedByMCPServer}
	for _, constant := range parseConstants(t) {
		document, found := documents[constant.source]
		NewWithT(t).Expect(found).To(BeTrue(), "%s declares %s: add the file to documents", constant.source, constant.name)
		expected[document] = append(expected[document], constant.value)
	}
	for document, values := range expected {
		t.Run(document, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "docs", document))
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			for _, value := range values {
				if !strings.Contains(string(text), "`"+value+"`") {
					t.Errorf("docs/%[1]s does not list `%[2]s`: add it and its meaning", document, value)
				}
			}
		})
	}
}
