package examples

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const hold = "example.com/hold"

// suite is the client of one test of the operator.
type suite struct {
	Gomega
	ctx context.Context
	api client.Client
}

func newSuite(t *testing.T) *suite {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(within)
	g.SetDefaultEventuallyPollingInterval(every)
	api, err := client.New(shared.Admin(), client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	return &suite{g, context.Background(), api}
}

// message is that of the condition of the Namespace, with the reason before it.
func (s *suite) message(owner *unstructured.Unstructured) func() string {
	return func() string {
		s.Expect(client.IgnoreNotFound(s.api.Get(s.ctx, client.ObjectKeyFromObject(owner), owner))).To(Succeed())
		c := condition(owner, "NamespaceReady")
		reason, _ := c["reason"].(string)
		message, _ := c["message"].(string)
		return reason + ": " + message
	}
}

func (s *suite) isReady(owner *unstructured.Unstructured) func() string {
	return func() string {
		s.Expect(s.api.Get(s.ctx, client.ObjectKeyFromObject(owner), owner)).To(Succeed())
		return status(owner, "Ready")
	}
}

func (s *suite) get(object client.Object) func() error {
	return func() error { return s.api.Get(s.ctx, client.ObjectKeyFromObject(object), object) }
}

func (s *suite) patch(object client.Object, patch string) {
	s.Expect(s.api.Patch(s.ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

func named(name string) *unstructured.Unstructured {
	owner := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "ApplicationNamespace"}}
	owner.SetName(name)
	return owner
}

func objectIn(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func TestApplicationNamespaceOperator(t *testing.T) {
	startOperator(t, applicationNamespace)
	t.Run("life", testApplicationNamespaceLife)
	t.Run("adoption", testApplicationNamespaceAdoption)
	t.Run("validation", testApplicationNamespaceNames)
}

func testApplicationNamespaceLife(t *testing.T) {
	s := newSuite(t)
	owner := sample(NewWithT(t), applicationNamespace)

	// When an ApplicationNamespace is created, it owns the Namespace and what is in it
	s.Expect(s.api.Create(s.ctx, owner)).To(Succeed())
	s.Eventually(s.isReady(owner)).Should(Equal("True"))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: objectIn("shop", "shop")}
	support := &rbacv1.RoleBinding{ObjectMeta: objectIn("shop", "view:support")}
	for _, child := range []client.Object{
		namespace, policy, support,
		&corev1.ResourceQuota{ObjectMeta: objectIn("shop", "shop")},
		&rbacv1.RoleBinding{ObjectMeta: objectIn("shop", "edit:shop-developers")},
	} {
		s.Expect(s.get(child)()).To(Succeed())
		s.Expect(metav1.IsControlledBy(child, owner)).To(BeTrue(), "%T", child)
	}
	s.Expect(namespace.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "restricted"))

	// When another field manager changes a child, it is reverted
	s.patch(policy, `{"spec":{"ingress":[{}]}}`)
	s.Eventually(func() []networkingv1.NetworkPolicyPeer {
		s.Expect(s.get(policy)()).To(Succeed())
		return policy.Spec.Ingress[0].From
	}).Should(HaveLen(1))

	// When a team is removed from the spec, its RoleBinding is pruned
	s.patch(owner, `{"spec":{"teams":[{"group":"shop-developers","role":"edit"}]}}`)
	s.Eventually(s.get(support)).Should(Satisfy(apierrors.IsNotFound))
	s.Eventually(s.isReady(owner)).Should(Equal("True"))

	// When it is deleted while a pod has a finalizer, the pod keeps its NetworkPolicy
	config := &corev1.ConfigMap{ObjectMeta: objectIn("shop", "held")}
	config.Finalizers = []string{hold}
	s.Expect(s.api.Create(s.ctx, config)).To(Succeed())
	pod := &corev1.Pod{ObjectMeta: objectIn("shop", "held"), Spec: restrictedPod()}
	pod.Finalizers = []string{hold}
	s.Eventually(func() error { return s.api.Create(s.ctx, pod) }).Should(Succeed())
	s.Expect(s.api.Delete(s.ctx, owner)).To(Succeed())
	s.Eventually(s.message(owner)).Should(Equal("Terminating: waiting for Namespace shop to be deleted (finalizers: kubernetes)"))
	s.Eventually(func() *metav1.Time { s.Expect(s.get(pod)()).To(Succeed()); return pod.DeletionTimestamp }).ShouldNot(BeNil())
	s.Expect(s.get(policy)()).To(Succeed())
	s.Expect(policy.DeletionTimestamp).To(BeNil())

	// When the pod is gone, the condition names the finalizer of what is left
	s.patch(pod, `{"metadata":{"finalizers":null}}`)
	s.Eventually(s.message(owner)).Should(Equal("Terminating: waiting for Namespace shop to be deleted (finalizers: " + hold + ", kubernetes)"))

	// When the finalizer is removed, nothing is left
	s.patch(config, `{"metadata":{"finalizers":null}}`)
	s.Eventually(s.get(owner)).Should(Satisfy(apierrors.IsNotFound))
	s.Expect(s.get(namespace)()).To(Satisfy(apierrors.IsNotFound))
}

// restrictedPod is one that the restricted Pod Security Standard and the quota allow.
func restrictedPod() corev1.PodSpec {
	few := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1Mi")}
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](0),
		SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "c", Image: "registry.example.com/c", Resources: corev1.ResourceRequirements{Requests: few},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}
}

func testApplicationNamespaceAdoption(t *testing.T) {
	s := newSuite(t)
	// Given a Namespace that another object controls
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}
	s.Expect(s.api.Create(s.ctx, tenant)).To(Succeed())
	blue := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "blue", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Namespace", Name: tenant.Name, UID: tenant.UID, Controller: ptr.To(true)},
	}}}
	s.Expect(s.api.Create(s.ctx, blue)).To(Succeed())

	// When an ApplicationNamespace asks for it, it is refused, and deleting the one does not delete the other
	owner := named("blue")
	s.Expect(unstructured.SetNestedField(owner.Object, string(blue.UID), "spec", "adopt")).To(Succeed())
	s.Expect(s.api.Create(s.ctx, owner)).To(Succeed())
	s.Eventually(s.message(owner)).Should(Equal("OwnedByAnother: Namespace blue: it is controlled by Namespace tenant, so it is not changed; " +
		"rename one of the two objects, or delete this one there"))
	s.Expect(s.api.Delete(s.ctx, owner)).To(Succeed())
	s.Eventually(s.get(owner)).Should(Satisfy(apierrors.IsNotFound))
	s.Expect(s.get(blue)()).To(Succeed())
	s.Expect(blue.DeletionTimestamp).To(BeNil())

	// When the other object releases it, the spec has to name it by its UID
	owner = named("blue")
	s.Expect(s.api.Create(s.ctx, owner)).To(Succeed())
	s.Eventually(s.message(owner)).Should(HavePrefix("OwnedByAnother: "))
	s.patch(blue, `{"metadata":{"ownerReferences":null}}`)
	s.Eventually(s.message(owner)).Should(HavePrefix("NotOwned: Namespace blue exists and no controller owns it: set spec.adopt to its UID, " + string(blue.UID) + ", "))

	// When it does, the Namespace is adopted, and goes with it
	s.patch(owner, `{"spec":{"adopt":"`+string(blue.UID)+`"}}`)
	s.Eventually(s.isReady(owner)).Should(Equal("True"))
	s.Expect(s.get(blue)()).To(Succeed())
	s.Expect(metav1.IsControlledBy(blue, owner)).To(BeTrue())
	s.Expect(s.api.Delete(s.ctx, owner)).To(Succeed())
	s.Eventually(s.get(owner)).Should(Satisfy(apierrors.IsNotFound))
	s.Expect(s.get(blue)()).To(Satisfy(apierrors.IsNotFound))
}

func testApplicationNamespaceNames(t *testing.T) {
	s := newSuite(t)
	for name, message := range map[string]string{
		"kube-system": "metadata.name is that of a Namespace of Kubernetes: use another name",
		"default":     "metadata.name is that of a Namespace of Kubernetes: use another name",
		"a.b":         "metadata.name is that of the Namespace: use at most 63 characters, and no dots",
	} {
		s.Expect(s.api.Create(s.ctx, named(name))).To(MatchError(ContainSubstring(message)), name)
	}
}
