package controllers

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

func controlledBy(apiVersion, kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: "uid-0", Controller: ptr.To(true)}}
}

func TestStrip(t *testing.T) {
	deletion := metav1.NewTime(time.Unix(1000, 0))
	meta := func(owners []metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "uid-1", ResourceVersion: "42", Generation: 2,
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"e.f/g"},
			OwnerReferences: owners, DeletionTimestamp: &deletion,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		}
	}
	remains := func(owners []metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "uid-1", ResourceVersion: "42", OwnerReferences: owners, DeletionTimestamp: &deletion,
		}
	}
	managed := controlledBy("fixpoint.dev/v1alpha1", "AppService")
	managedByV1 := controlledBy("fixpoint.dev/v1", "AppService")
	helm := controlledBy("example.com/v1", "AppService")
	notController := controlledBy("fixpoint.dev/v1alpha1", "AppService")
	notController[0].Controller = nil
	data := map[string]string{"key": "a large value"}

	cases := map[string]struct {
		cached any
		want   any // nil: cached itself, unchanged
	}{
		"an AppService":                          {&v1alpha1.AppService{ObjectMeta: meta(nil)}, nil},
		"an ingress class":                       {&networkingv1.IngressClass{ObjectMeta: meta(nil)}, nil},
		"a managed child":                        {&corev1.ConfigMap{ObjectMeta: meta(managed), Data: data}, nil},
		"a child managed by a later API version": {&corev1.ConfigMap{ObjectMeta: meta(managedByV1), Data: data}, nil},
		"an object without owner":                {&corev1.ConfigMap{ObjectMeta: meta(nil), Data: data}, &corev1.ConfigMap{ObjectMeta: remains(nil)}},
		"an object of another controller":        {&corev1.ConfigMap{ObjectMeta: meta(helm), Data: data}, &corev1.ConfigMap{ObjectMeta: remains(helm)}},
		"an owner that is not the controller":    {&corev1.ConfigMap{ObjectMeta: meta(notController), Data: data}, &corev1.ConfigMap{ObjectMeta: remains(notController)}},
		"a Deployment without owner": {
			&appsv1.Deployment{ObjectMeta: meta(nil), Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}},
			&appsv1.Deployment{ObjectMeta: remains(nil)},
		},
		"not an object": {"a tombstone", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			stripped, err := strip(c.cached)
			g.Expect(err).NotTo(HaveOccurred())
			if c.want == nil {
				g.Expect(stripped).To(BeIdenticalTo(c.cached))
				return
			}
			g.Expect(stripped).To(Equal(c.want))
			again, err := strip(stripped)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(Equal(c.want), "stripping is idempotent")
		})
	}
}

// Cached objects may be shared, so the transform must not edit them.
func TestStripDoesNotModifyItsInput(t *testing.T) {
	g := NewWithT(t)
	original := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Data: map[string]string{"a": "b"}}
	_, err := strip(client.Object(original))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(original.Data).To(HaveLen(1))
}
