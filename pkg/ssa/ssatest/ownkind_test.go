package ssatest_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// Widget is a kind of a user's own, without generated code.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WidgetSpec   `json:"spec,omitempty"`
	Status            WidgetStatus `json:"status,omitempty"`
}

type WidgetSpec struct {
	Color string `json:"color,omitempty"`
}

type WidgetStatus struct {
	Ready      bool               `json:"ready,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

func (w *Widget) DeepCopyObject() runtime.Object {
	copied := *w
	w.DeepCopyInto(&copied.ObjectMeta)
	return &copied
}

var widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

func widgetScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(widgetKind, &Widget{})
	_ = corev1.AddToScheme(scheme)
	return scheme
}

// TestOperatorOfAnOwnKind does what an operator does in the life of one object.
func TestOperatorOfAnOwnKind(t *testing.T) {
	g, server := NewWithT(t), ssatest.NewServer(widgetScheme(), ssatest.Options{})
	applier, err := ssa.New(ssa.Options{Client: server, FieldManager: "widget-operator"})
	g.Expect(err).NotTo(HaveOccurred())
	widget := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w"}, Spec: WidgetSpec{Color: "red"}}
	g.Expect(server.Create(ctx, widget)).To(Succeed())

	live, err := applier.EnsureFinalizer(ctx, widget, "example.com/teardown")
	g.Expect(err).NotTo(HaveOccurred())
	owner := *metav1.NewControllerRef(live, widgetKind)
	request := ssa.Request{Desired: corev1ac.ConfigMap("w", "default").WithData(map[string]string{"color": "red"}), Owner: &owner}
	child, err := applier.Apply(ctx, request)
	g.Expect(err).NotTo(HaveOccurred())
	reported, err := applier.ApplyStatus(ctx, ssa.StatusOf(live, widgetKind, WidgetStatus{Ready: true}), live)
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(exists(server, widget)).To(BeTrue())
	g.Expect(widget.Status.Ready).To(BeTrue())
	g.Expect(widget.Generation).To(Equal(int64(1)))
	g.Expect(reported.Live.GetResourceVersion()).To(Equal(widget.ResourceVersion))

	g.Expect(server.Delete(ctx, widget)).To(Succeed())
	g.Expect(exists(server, widget)).To(BeTrue())
	g.Expect(applier.Delete(ctx, child.Live, owner, metav1.DeletePropagationBackground)).To(BeTrue())
	g.Expect(applier.RemoveFinalizer(ctx, widget, "example.com/teardown")).To(Succeed())
	g.Expect(exists(server, widget)).To(BeFalse())
	g.Expect(server.Writes()).To(Equal([]string{
		"create Widget w", "update Widget w", "create ConfigMap w", "update Widget w/status", "delete Widget w", "delete ConfigMap w", "update Widget w",
	}))
}

// TestConditionsAreKeyedByType: as the lists of conditions of custom resources should be.
func TestConditionsAreKeyedByType(t *testing.T) {
	g, server := NewWithT(t), ssatest.NewServer(widgetScheme(), ssatest.Options{})
	widget := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w"}}
	g.Expect(server.Create(ctx, widget)).To(Succeed())
	for _, name := range []string{"one", "two"} {
		applier, err := ssa.New(ssa.Options{Client: server, FieldManager: name})
		g.Expect(err).NotTo(HaveOccurred())
		status := WidgetStatus{Conditions: []metav1.Condition{{Type: name, Status: metav1.ConditionTrue}}}
		result, err := applier.ApplyStatus(ctx, ssa.StatusOf(widget, widgetKind, status), widget)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.Action).To(Equal(ssa.ActionUpdate))
		g.Expect(exists(server, widget)).To(BeTrue())
	}

	g.Expect(widget.Status.Conditions).To(ConsistOf(HaveField("Type", "one"), HaveField("Type", "two")))
}

// A hook may use the Server: here another client deletes the object just before the apply.
func TestInterceptMayUseTheServer(t *testing.T) {
	g := NewWithT(t)
	var server *ssatest.Server
	c := configMap("c", nil)
	server = newServer(ssatest.Options{Intercept: func(call ssatest.Call) error {
		if call.Verb == "update" && !call.Done {
			return server.Delete(ctx, c)
		}
		return nil
	}})
	g.Expect(server.Create(ctx, c)).To(Succeed())

	g.Expect(server.Update(ctx, c)).NotTo(Succeed())
}
