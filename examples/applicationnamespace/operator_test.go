package main

import (
	"errors"
	"os"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	namespacesv1 "github.com/fixpoint-dev/fixpoint/examples/applicationnamespace/api/v1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases/phasestest"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

const key = "shop"

type env = phasestest.Env[*namespacesv1.ApplicationNamespace, *scope]

// newEnv is the operator's engine over an API server in memory.
func newEnv(t *testing.T) *env {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), namespacesv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return phasestest.New(t, definition, phasestest.Options{Scheme: scheme, GarbageCollection: true})
}

func shop() *namespacesv1.ApplicationNamespace {
	return &namespacesv1.ApplicationNamespace{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Generation: 1},
		Spec: namespacesv1.ApplicationNamespaceSpec{
			PodSecurity: "restricted",
			Quota:       corev1.ResourceList{corev1.ResourcePods: resource.MustParse("50")},
			Teams:       []namespacesv1.Team{{Group: "developers", Role: "edit"}, {Group: "support", Role: "view"}},
		},
	}
}

// existing is a Namespace of the same name that the operator has not created.
func existing(owners ...metav1.OwnerReference) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", OwnerReferences: owners}}
}

var tenant = metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Tenant", Name: "blue", UID: "tenant", Controller: ptr.To(true)}

// children are all that the operator may create for the ApplicationNamespace.
func children() []client.Object {
	within := metav1.ObjectMeta{Namespace: "shop", Name: "shop"}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.ResourceQuota{ObjectMeta: within},
		&networkingv1.NetworkPolicy{ObjectMeta: within},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edit:developers"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "view:support"}},
	}
}

func haveCondition(conditionType, reason, message string) types.GomegaMatcher {
	return WithTransform(func(e *env) metav1.Condition {
		object := shop()
		e.Exists(object)
		return ptr.Deref(meta.FindStatusCondition(object.Status.Conditions, conditionType), metav1.Condition{})
	}, And(HaveField("Reason", reason), HaveField("Message", ContainSubstring(message))))
}

func TestOwnsTheNamespaceAndWhatIsInItByUID(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t)
	e.Create(shop())

	e.Settle(key)

	owner := shop()
	g.Expect(e.Exists(owner)).To(BeTrue())
	for _, child := range children() {
		g.Expect(e.Exists(child)).To(BeTrue(), "%T %s", child, child.GetName())
		g.Expect(metav1.IsControlledBy(child, owner)).To(BeTrue(), "%T %s", child, child.GetName())
	}
	g.Expect(owner.OwnerReferences).To(BeEmpty())
	g.Expect(e).To(haveCondition("Ready", "Ready", ""))
	g.Expect(e).To(haveCondition("NamespaceReady", "Ready", "deleting the ApplicationNamespace deletes it"))
	e.ExpectQuiet(key)
}

func TestPrunesWhatIsRemovedFromTheSpec(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t)
	e.Create(shop())
	e.Settle(key)
	e.Forget()
	object := shop()

	e.Edit(object, func() { object.Spec.Quota, object.Spec.Teams = nil, object.Spec.Teams[:1] })
	e.Settle(key)

	g.Expect(e.Changes()).To(ContainElements("delete ResourceQuota shop", "delete RoleBinding view:support"))
	g.Expect(e.Changes()).NotTo(ContainElement("delete RoleBinding edit:developers"))
	g.Expect(e).To(haveCondition("Ready", "Ready", ""))
	e.ExpectQuiet(key)
}

func TestAnotherRoleOfATeamIsAnotherRoleBinding(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t)
	e.Create(shop())
	e.Settle(key)
	e.Forget()
	object := shop()

	e.Edit(object, func() { object.Spec.Teams[1].Role = "edit" })
	e.Settle(key)

	g.Expect(e.Changes()[:2]).To(Equal([]string{"create RoleBinding edit:support", "delete RoleBinding view:support"}))
}

func TestExistingNamespaceIsAdoptedByItsUIDOnly(t *testing.T) {
	g := NewWithT(t)
	// Given a Namespace that no controller owns
	e := newEnv(t)
	e.Create(existing())
	found := existing()
	g.Expect(e.Exists(found)).To(BeTrue())
	uid := found.UID
	e.Forget()

	// When the spec does not name it, or names another one, it is not changed, and the message says how to adopt it
	object := shop()
	e.Create(object)
	for _, other := range []func(){func() {}, func() { object.Spec.Adopt = "another" }} {
		e.Edit(object, other)
		e.Settle(key)
		g.Expect(e).To(haveCondition("NamespaceReady", "NotOwned", "set spec.adopt to its UID, "+string(uid)+", after which deleting the ApplicationNamespace deletes the Namespace"))
		g.Expect(e).To(haveCondition("Stalled", "NotOwned", ""))
		g.Expect(e.Exists(found)).To(BeTrue())
		g.Expect(found.OwnerReferences).To(BeEmpty())
		g.Expect(e.Exists(children()[1])).To(BeFalse(), "nothing is created in it")
	}

	// When the spec names it, it is adopted
	e.Edit(object, func() { object.Spec.Adopt = uid })
	e.Settle(key)
	g.Expect(e).To(haveCondition("Ready", "Ready", ""))
	g.Expect(e.Exists(found)).To(BeTrue())
	g.Expect(metav1.IsControlledBy(found, object)).To(BeTrue())

	// When the adoption is removed from the spec, it stays adopted
	e.Edit(object, func() { object.Spec.Adopt = "" })
	e.Settle(key)
	g.Expect(e).To(haveCondition("Ready", "Ready", ""))
	e.ExpectQuiet(key)

	// When the ApplicationNamespace is deleted, the adopted Namespace is
	e.Delete(object)
	e.Settle(key)
	g.Expect(e.State()).To(BeEmpty())
}

func TestNamespaceOfAnotherControllerIsRefusedAndNotDeleted(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t)
	e.Create(&namespacesv1.ApplicationNamespace{ObjectMeta: metav1.ObjectMeta{Name: "blue"}})
	blue := &namespacesv1.ApplicationNamespace{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	g.Expect(e.Exists(blue)).To(BeTrue())
	other := tenant
	other.UID = blue.UID // it exists, so that the garbage collector leaves the Namespace alone
	e.Create(existing(other))
	found := existing()
	g.Expect(e.Exists(found)).To(BeTrue())
	before := found.ResourceVersion
	object := shop()
	object.Spec.Adopt = found.UID
	e.Create(object)

	e.Settle(key)

	g.Expect(e).To(haveCondition("NamespaceReady", "OwnedByAnother", "it is controlled by Tenant blue, so it is not changed; rename one of the two objects, or delete this one there"))
	e.Delete(object)
	e.Settle(key)
	g.Expect(e.Exists(shop())).To(BeFalse())
	g.Expect(e.Exists(found)).To(BeTrue())
	g.Expect(found.ResourceVersion).To(Equal(before))
}

func TestDeletionWaitsForTheNamespaceAndNamesItsFinalizers(t *testing.T) {
	g := NewWithT(t)
	// Given a Namespace that takes its time, because of a finalizer in it
	e := newEnv(t)
	e.Server.SlowDeletion(func(object client.Object) bool { return object.GetName() == "shop" && object.GetNamespace() == "" })
	e.Create(shop())
	e.Settle(key)
	live := existing()
	g.Expect(e.Exists(live)).To(BeTrue())
	live.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	g.Expect(e.Server.Update(t.Context(), live)).To(Succeed())
	live.Status.Conditions = []corev1.NamespaceCondition{{
		Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue,
		Message: "Some content in the namespace has finalizers remaining: example.com/backup in 2 resource instances, example.com/audit in 1 resource instances",
	}}
	g.Expect(e.Server.Status().Update(t.Context(), live)).To(Succeed())
	e.Forget()

	// When the ApplicationNamespace is deleted
	e.Delete(shop())
	e.Settle(key)

	// Then the Namespace is the only child that is deleted, and the condition names what it waits for
	g.Expect(e.Changes()).To(ContainElement("delete Namespace shop"))
	for _, child := range children()[1:] {
		g.Expect(e.Exists(child)).To(BeTrue(), "%T %s is left to the deletion of the Namespace", child, child.GetName())
	}
	g.Expect(e).To(haveCondition("NamespaceReady", "Terminating", "waiting for Namespace shop to be deleted (finalizers: example.com/audit, example.com/backup, kubernetes)"))
	g.Expect(e).To(haveCondition("IsolationReady", "Terminating", "deleted with the Namespace"))

	// When it is gone, so is the ApplicationNamespace
	for _, child := range children()[1:] {
		e.Delete(child)
	}
	e.Server.SlowDeletion(nil)
	e.Settle(key)
	g.Expect(e.State()).To(BeEmpty())
}

func TestOrphaningDeletionKeepsTheNamespace(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t)
	e.Create(shop())
	e.Settle(key)

	e.Delete(shop(), client.PropagationPolicy(metav1.DeletePropagationOrphan))
	e.Settle(key)

	g.Expect(e.Exists(shop())).To(BeFalse())
	for _, child := range children() {
		g.Expect(e.Exists(child)).To(BeTrue(), "%T %s", child, child.GetName())
		g.Expect(child.GetOwnerReferences()).To(BeEmpty())
	}
}

func TestDeletedNamespaceIsRecreatedWithWhatIsInIt(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t)
	e.Create(shop())
	e.Settle(key)
	for _, child := range children() {
		e.Delete(child)
	}

	e.Settle(key)

	for _, child := range children() {
		g.Expect(e.Exists(child)).To(BeTrue(), "%T %s", child, child.GetName())
	}
	g.Expect(e.Events()).To(ContainElement(ContainSubstring("Namespace shop was deleted")))
}

func TestSurvivesACrashAtEveryRequest(t *testing.T) {
	phasestest.SurvivesCrashes(t, newEnv, func(_ *testing.T, e *env) {
		e.Create(existing())
		found := existing()
		e.Exists(found)
		object := shop()
		object.Spec.Adopt, object.Spec.Quota, object.Spec.Teams = found.UID, nil, object.Spec.Teams[:1]
		e.Create(object)
		e.Settle(key)
	})
}
