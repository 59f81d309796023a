package v1beta1_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
)

const manager = "fixpoint-appservice"

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(v1beta1.AddToScheme(scheme)).To(Succeed())
	return scheme
}

func TestSchemeRecognizesEveryKind(t *testing.T) {
	scheme := newScheme(t)
	for _, kind := range []string{"AppService", "AppServiceList", "MCPServer", "MCPServerList", "SecureStorage", "SecureStorageList"} {
		_, err := scheme.New(v1beta1.SchemeGroupVersion.WithKind(kind))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
}

// An omitted zero would read as "unknown", and the scale subresource would not
// find it.
func TestStatusStoresZeroReplicas(t *testing.T) {
	g := NewWithT(t)
	typed, err := json.Marshal(v1beta1.AppServiceStatus{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(typed).To(MatchJSON(`{"replicas": 0, "readyReplicas": 0}`))

	applied, err := json.Marshal(fixpointac.AppServiceStatus().WithReplicas(0).WithReadyReplicas(0))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(applied).To(MatchJSON(`{"replicas": 0, "readyReplicas": 0}`))
}

// Extract requires that the generated schema and the scheme use the same type
// names.
func TestExtractReturnsTheFieldsOfAFieldManager(t *testing.T) {
	g := NewWithT(t)
	live := &v1beta1.AppService{
		TypeMeta: metav1.TypeMeta{APIVersion: "fixpoint.dev/v1beta1", Kind: "AppService"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "default",
			ManagedFields: []metav1.ManagedFieldsEntry{
				{
					Manager: manager, Operation: metav1.ManagedFieldsOperationApply,
					APIVersion: "fixpoint.dev/v1beta1", FieldsType: "FieldsV1", Subresource: "status",
					FieldsV1: metav1.NewFieldsV1(
						`{"f:status":{"f:readyReplicas":{},"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:type":{},"f:status":{}}}}}`),
				},
			},
		},
		Status: v1beta1.AppServiceStatus{
			Replicas: 3, ReadyReplicas: 0, URL: "http://web.default.svc:8080",
			Conditions: []metav1.Condition{
				{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady},
				{Type: "Foreign", Status: metav1.ConditionTrue, Reason: "Foreign"},
			},
		},
	}

	extracted, err := fixpointac.ExtractAppServiceStatus(live, manager)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(extracted.Status).To(Equal(fixpointac.AppServiceStatus().
		WithReadyReplicas(0).
		WithConditions(metav1ac.Condition().WithType(v1beta1.ConditionReady).WithStatus(metav1.ConditionTrue))))
}

func TestTypeConverterSupportsAppService(t *testing.T) {
	g := NewWithT(t)
	converter := applyconfiguration.NewTypeConverter(newScheme(t))
	object := &v1beta1.AppService{
		TypeMeta: metav1.TypeMeta{APIVersion: "fixpoint.dev/v1beta1", Kind: "AppService"},
		Spec:     v1beta1.AppServiceSpec{Image: "shop:1", Config: map[string]string{"A": "b"}},
	}

	typed, err := converter.ObjectToTyped(object)
	g.Expect(err).NotTo(HaveOccurred())
	fields, err := typed.ToFieldSet()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fields.String()).To(ContainSubstring(".spec.config.A"))
}

func TestEveryKindHasAnApplyConfiguration(t *testing.T) {
	g := NewWithT(t)
	g.Expect(applyconfiguration.ForKind(v1beta1.SchemeGroupVersion.WithKind("AppService"))).
		To(BeAssignableToTypeOf(&fixpointac.AppServiceApplyConfiguration{}))
	g.Expect(applyconfiguration.ForKind(v1beta1.SchemeGroupVersion.WithKind("MCPServer"))).
		To(BeAssignableToTypeOf(&fixpointac.MCPServerApplyConfiguration{}))
	g.Expect(applyconfiguration.ForKind(v1beta1.SchemeGroupVersion.WithKind("SecureStorage"))).
		To(BeAssignableToTypeOf(&fixpointac.SecureStorageApplyConfiguration{}))
}
