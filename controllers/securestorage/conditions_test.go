package securestorage

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/conditionstest"
)

var contract = conditionstest.Contract{
	Own:      []string{"apis/v1beta1/securestorage_conditions.go"},
	Packages: []string{"controllers/securestorage"},
	// Their values are constants, which the other tests of the contract find.
	ReasonVariables: []string{"reason", "notEncryptedReason"},
	Phases:          conditionstest.Names(Phases()),
	Page:            "docs/securestorage.md",
	Fields: map[string]any{
		"":                               v1beta1.SecureStorageSpec{},
		"provider.":                      v1beta1.SecureStorageProvider{},
		"provider.credentialsSecretRef.": v1beta1.SecureStorageCredentialsSecretRef{},
		"provider.workloadIdentity.":     v1beta1.SecureStorageWorkloadIdentity{},
		"key.":                           v1beta1.SecureStorageKey{},
		"key.vault.":                     v1beta1.SecureStorageVault{},
		"access.":                        v1beta1.SecureStorageAccess{},
		"export.":                        v1beta1.SecureStorageExport{},
		"status.":                        v1beta1.SecureStorageStatus{},
	},
}

func TestConditionsContract(t *testing.T) { contract.Run(t) }

// The tests in these files cause each reason; this test checks that none is missing.
func TestEveryReasonIsTested(t *testing.T) {
	var tests strings.Builder
	for _, file := range []string{"ambient_test.go", "api_behavior_test.go", "boundaries_test.go", "crash_test.go", "decide_test.go", "export_test.go", "lifecycle_test.go", "observe_test.go", "recordedgrants_test.go"} {
		source, err := os.ReadFile(file)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		tests.Write(source)
	}
	// These reasons end within the reconcile that reports them, so they appear only in plans and logs.
	transient := []string{v1beta1.ReasonUpdating, v1beta1.ReasonGranting, v1beta1.ReasonEncrypting, v1beta1.ReasonEncryptionDrifted, v1beta1.ReasonCreating}
	for name, value := range contract.OwnReasons(t) {
		tested := strings.Contains(tests.String(), "v1beta1."+name) || regexp.MustCompile(`(Normal|Warning) `+value+`\b|eventsWith\("`+value).MatchString(tests.String())
		if !tested && !slices.Contains(transient, value) {
			t.Errorf("no test causes %s", name)
		}
	}
}
