package v1beta1_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
)

const mcpManager = "fixpoint-mcpserver"

// The API server would reject a default or a duration that is written as zero.
func TestEmptyMCPServerSpecContainsOnlyRequiredFields(t *testing.T) {
	g := NewWithT(t)
	text, err := json.Marshal(v1beta1.MCPServerSpec{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(MatchJSON(`{"image": ""}`))
}

// An omitted zero would read as "unknown".
func TestStatusOfAnMCPServerStoresZeros(t *testing.T) {
	g := NewWithT(t)
	status, err := json.Marshal(v1beta1.MCPServerStatus{Server: &v1beta1.MCPServerInfo{}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status).To(MatchJSON(`{"replicas": 0, "readyReplicas": 0, "server": {"tools": 0, "prompts": 0, "resources": 0}}`))

	applied, err := json.Marshal(fixpointac.MCPServerInfo().WithTools(0).WithPrompts(0).WithResources(0))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(applied).To(MatchJSON(`{"tools": 0, "prompts": 0, "resources": 0}`))
}

func TestParsesDurationsOfAnMCPServer(t *testing.T) {
	g := NewWithT(t)
	var spec v1beta1.MCPServerSpec
	g.Expect(json.Unmarshal([]byte(`{"protocol": {"interval": "1m30s", "timeout": "5s"}, "bridge": {"idleTimeout": "30m"}}`), &spec)).To(Succeed())
	g.Expect(spec.Protocol.Interval.Duration).To(Equal(90 * time.Second))
	g.Expect(spec.Protocol.Timeout.Duration).To(Equal(5 * time.Second))
	g.Expect(spec.Bridge.IdleTimeout.Duration).To(Equal(30 * time.Minute))
}

// The overrides are merged as an apply configuration, and must have the same JSON format.
func TestPodOverridesAreAnApplyConfiguration(t *testing.T) {
	g := NewWithT(t)
	var overrides v1beta1.MCPServerPodOverrides
	given := `{"metadata": {"labels": {"team": "tools"}, "annotations": {"a": "b"}},
		"spec": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db"]}], "containers": [{"name": "server", "tty": true}]}}`
	g.Expect(json.Unmarshal([]byte(given), &overrides)).To(Succeed())

	text, err := json.Marshal(overrides.DeepCopy())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(MatchJSON(given))
	var template corev1ac.PodTemplateSpecApplyConfiguration
	g.Expect(json.Unmarshal(text, &template)).To(Succeed())

	g.Expect(template).To(Equal(*corev1ac.PodTemplateSpec().
		WithLabels(map[string]string{"team": "tools"}).
		WithAnnotations(map[string]string{"a": "b"}).
		WithSpec(corev1ac.PodSpec().
			WithHostAliases(corev1ac.HostAlias().WithIP("10.0.0.1").WithHostnames("db")).
			WithContainers(corev1ac.Container().WithName("server").WithTTY(true)))))
}

func TestExtractReturnsTheFieldsOfAFieldManagerOfAnMCPServer(t *testing.T) {
	g := NewWithT(t)
	live := &v1beta1.MCPServer{
		TypeMeta: metav1.TypeMeta{APIVersion: "fixpoint.dev/v1beta1", Kind: "MCPServer"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "tools", Namespace: "default",
			ManagedFields: []metav1.ManagedFieldsEntry{
				{
					Manager: mcpManager, Operation: metav1.ManagedFieldsOperationApply,
					APIVersion: "fixpoint.dev/v1beta1", FieldsType: "FieldsV1", Subresource: "status",
					FieldsV1: metav1.NewFieldsV1(
						`{"f:status":{"f:server":{"f:tools":{}},"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:type":{},"f:status":{}}}}}`),
				},
			},
		},
		Status: v1beta1.MCPServerStatus{
			Endpoint: "http://tools.default.svc:8080/mcp",
			Server:   &v1beta1.MCPServerInfo{Name: "tools", Tools: 0},
			Conditions: []metav1.Condition{
				{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady},
			},
		},
	}

	extracted, err := fixpointac.ExtractMCPServerStatus(live, mcpManager)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(extracted.Status).To(Equal(fixpointac.MCPServerStatus().
		WithServer(fixpointac.MCPServerInfo().WithTools(0)).
		WithConditions(metav1ac.Condition().WithType(v1beta1.ConditionReady).WithStatus(metav1.ConditionTrue))))
}

func TestTypeConverterSupportsMCPServer(t *testing.T) {
	g := NewWithT(t)
	converter := applyconfiguration.NewTypeConverter(newScheme(t))
	object := &v1beta1.MCPServer{
		TypeMeta: metav1.TypeMeta{APIVersion: "fixpoint.dev/v1beta1", Kind: "MCPServer"},
		Spec: v1beta1.MCPServerSpec{
			Files:        []v1beta1.MCPServerFile{{Path: "/etc/tools.json"}},
			Protocol:     v1beta1.MCPServerProtocol{Interval: metav1.Duration{Duration: time.Minute}},
			PodOverrides: &v1beta1.MCPServerPodOverrides{Spec: &runtime.RawExtension{Raw: []byte(`{"hostNetwork": true}`)}},
		},
	}

	typed, err := converter.ObjectToTyped(object)
	g.Expect(err).NotTo(HaveOccurred())
	fields, err := typed.ToFieldSet()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fields.String()).To(And(
		ContainSubstring(`.spec.files[path="/etc/tools.json"]`),
		ContainSubstring(".spec.protocol.interval"),
		ContainSubstring(".spec.podOverrides.spec")))
}

// fieldsOf returns the paths of all fields of a type and of its types in this package; [] is a list
// item. It does not descend into types of Kubernetes.
func fieldsOf(path string, object reflect.Type) []string {
	var paths []string
	for field := range object.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		kind, below := field.Type, path+name
		paths = append(paths, below)
		for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
			if kind.Kind() == reflect.Slice {
				below += "[]"
			}
			kind = kind.Elem()
		}
		if kind.Kind() == reflect.Struct && kind.PkgPath() == object.PkgPath() {
			paths = append(paths, fieldsOf(below+".", kind)...)
		}
	}
	return paths
}

func TestDocumentationListsEveryFieldOfAnMCPServer(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "mcpserver.md"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	// The three probes have the same fields.
	probe := regexp.MustCompile(`^probes\.\w+\.`)
	paths := fieldsOf("", reflect.TypeFor[v1beta1.MCPServerSpec]())
	for _, path := range append(paths, fieldsOf("status.", reflect.TypeFor[v1beta1.MCPServerStatus]())...) {
		path = probe.ReplaceAllString(path, "probes.*.")
		if !strings.Contains(string(text), "`"+path+"`") {
			t.Errorf("docs/mcpserver.md does not document `%s`", path)
		}
	}
}
