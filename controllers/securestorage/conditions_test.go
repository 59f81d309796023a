package securestorage

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Conditions and reasons are API. These tests read the sources and the documentation, to find reasons
// that are unused or undocumented.

const conditionsFile = "../../apis/v1alpha1/securestorage_conditions.go"

func source(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(path))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// code returns the sources of this package without its tests.
func code(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var b strings.Builder
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			b.WriteString(source(t, file))
		}
	}
	return b.String()
}

func manual(t *testing.T) string {
	t.Helper()
	return source(t, "../../docs/securestorage.md")
}

// words returns the constants of this kind that have a prefix, by value.
func words(t *testing.T, prefix string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^\s+(`+prefix+`\w+)\s*= "(\w+)"`).FindAllStringSubmatch(source(t, conditionsFile), -1) {
		found[match[2]] = match[1]
	}
	NewWithT(t).Expect(found).NotTo(BeEmpty())
	return found
}

func TestEveryReasonIsUsed(t *testing.T) {
	text := code(t)
	for value, name := range words(t, "Reason") {
		if !regexp.MustCompile(`v1alpha1\.` + name + `\b`).MatchString(text) {
			t.Errorf("%s (%q) is declared but not used: use it, or remove it", name, value)
		}
	}
}

func TestEveryReasonIsDocumented(t *testing.T) {
	text := manual(t)
	for value := range words(t, "Reason") {
		if !strings.Contains(text, "\n| `"+value+"` | ") {
			t.Errorf("docs/securestorage.md has no row for the reason %s", value)
		}
	}
}

// The tests in these files cause each reason; this test checks that none is missing.
func TestEveryReasonIsTested(t *testing.T) {
	var tests strings.Builder
	for _, file := range []string{"api_behavior_test.go", "boundaries_test.go", "crash_test.go", "decide_test.go", "lifecycle_test.go", "recordedgrants_test.go"} {
		tests.WriteString(source(t, file))
	}
	// These reasons end within the reconcile that reports them, so they appear only in plans and logs.
	transient := []string{v1alpha1.ReasonUpdating, v1alpha1.ReasonGranting, v1alpha1.ReasonEncrypting, v1alpha1.ReasonEncryptionDrifted, v1alpha1.ReasonCreating}
	for value, name := range words(t, "Reason") {
		tested := strings.Contains(tests.String(), "v1alpha1."+name) || regexp.MustCompile(`(Normal|Warning) `+value+`\b|eventsWith\("`+value).MatchString(tests.String())
		if !tested && !slices.Contains(transient, value) {
			t.Errorf("no test causes %s", name)
		}
	}
}

func TestEveryPhaseHasADeclaredCondition(t *testing.T) {
	var conditions []string
	declared := words(t, "Condition")
	for _, phase := range Phases() {
		conditions = append(conditions, phases.ConditionOf(phase.PhaseName()))
	}
	NewWithT(t).Expect(conditions).To(HaveLen(len(declared)))
	for _, condition := range conditions {
		NewWithT(t).Expect(declared).To(HaveKey(condition))
		NewWithT(t).Expect(manual(t)).To(ContainSubstring("\n| `" + condition + "` | "))
	}
}

func TestDocumentedPhasesAreInOrder(t *testing.T) {
	var names, documented []string
	for _, phase := range Phases() {
		names = append(names, phase.PhaseName())
	}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| (\w+) \|`).FindAllStringSubmatch(manual(t), -1) {
		documented = append(documented, row[2])
		NewWithT(t).Expect(row[1]).To(Equal(strconv.Itoa(len(documented))))
	}
	NewWithT(t).Expect(documented).To(Equal(names))
}

func TestEveryFieldIsDocumented(t *testing.T) {
	text := manual(t)
	for prefix, object := range map[string]any{
		"":                           v1alpha1.SecureStorageSpec{},
		"provider.":                  v1alpha1.SecureStorageProvider{},
		"provider.credentialsRef.":   v1alpha1.SecureStorageCredentialsRef{},
		"provider.workloadIdentity.": v1alpha1.SecureStorageWorkloadIdentity{},
		"key.":                       v1alpha1.SecureStorageKey{},
		"key.vault.":                 v1alpha1.SecureStorageVault{},
		"access.":                    v1alpha1.SecureStorageAccess{},
		"status.":                    v1alpha1.SecureStorageStatus{},
	} {
		for field := range reflect.TypeOf(object).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !strings.Contains(text, "`"+prefix+name) {
				t.Errorf("docs/securestorage.md does not have `%s%s`", prefix, name)
			}
		}
	}
}
