package v1beta1_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
)

const storageManager = "fixpoint-securestorage"

// The API server would reject a default or a duration that is written as zero.
func TestEmptySecureStorageSpecContainsOnlyRequiredFields(t *testing.T) {
	g := NewWithT(t)
	text, err := json.Marshal(v1beta1.SecureStorageSpec{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(MatchJSON(`{
		"provider": {"subscriptionID": "", "resourceGroup": "", "location": ""},
		"key": {"name": ""}}`))
}

func TestEmptySecureStorageStatusIsEmpty(t *testing.T) {
	g := NewWithT(t)
	text, err := json.Marshal(v1beta1.SecureStorageStatus{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(MatchJSON(`{}`))
}

func TestParsesDurationsOfASecureStorage(t *testing.T) {
	g := NewWithT(t)
	var spec v1beta1.SecureStorageSpec
	g.Expect(json.Unmarshal([]byte(`{"pollInterval": "1h30m", "propagationDeadline": "15m"}`), &spec)).To(Succeed())
	g.Expect(spec.PollInterval.Duration).To(Equal(90 * time.Minute))
	g.Expect(spec.PropagationDeadline.Duration).To(Equal(15 * time.Minute))
}

func TestExtractReturnsTheFieldsOfAFieldManagerOfASecureStorage(t *testing.T) {
	g := NewWithT(t)
	live := &v1beta1.SecureStorage{
		TypeMeta: metav1.TypeMeta{APIVersion: "fixpoint.dev/v1beta1", Kind: "SecureStorage"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "invoices", Namespace: "default",
			ManagedFields: []metav1.ManagedFieldsEntry{
				{
					Manager: storageManager, Operation: metav1.ManagedFieldsOperationApply,
					APIVersion: "fixpoint.dev/v1beta1", FieldsType: "FieldsV1", Subresource: "status",
					FieldsV1: metav1.NewFieldsV1(
						`{"f:status":{"f:encryption":{},"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:type":{},"f:status":{}}}}}`),
				},
			},
		},
		Status: v1beta1.SecureStorageStatus{
			AccountName: "invoices", Encryption: v1beta1.EncryptionCustomerKey,
			Conditions: []metav1.Condition{
				{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady},
			},
		},
	}

	extracted, err := fixpointac.ExtractSecureStorageStatus(live, storageManager)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(extracted.Status).To(Equal(fixpointac.SecureStorageStatus().
		WithEncryption(v1beta1.EncryptionCustomerKey).
		WithConditions(metav1ac.Condition().WithType(v1beta1.ConditionReady).WithStatus(metav1.ConditionTrue))))
}

func TestTypeConverterSupportsSecureStorage(t *testing.T) {
	g := NewWithT(t)
	converter := applyconfiguration.NewTypeConverter(newScheme(t))
	object := &v1beta1.SecureStorage{
		TypeMeta: metav1.TypeMeta{APIVersion: "fixpoint.dev/v1beta1", Kind: "SecureStorage"},
		Spec: v1beta1.SecureStorageSpec{
			Tags:         map[string]string{"team": "billing"},
			PollInterval: metav1.Duration{Duration: time.Minute},
		},
	}

	typed, err := converter.ObjectToTyped(object)
	g.Expect(err).NotTo(HaveOccurred())
	fields, err := typed.ToFieldSet()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fields.String()).To(And(ContainSubstring(".spec.tags.team"), ContainSubstring(".spec.pollInterval")))
}

// The spec references credentials; the status must not contain any.
func TestStatusOfASecureStorageHasNoFieldsForCredentials(t *testing.T) {
	status := reflect.TypeFor[v1beta1.SecureStorageStatus]()
	for i := range status.NumField() {
		name := strings.ToLower(status.Field(i).Name)
		for _, word := range []string{"secret", "credential", "token", "password"} {
			NewWithT(t).Expect(name).NotTo(ContainSubstring(word))
		}
	}
}
