package ssatest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

var (
	ctx = context.Background()
	now = time.Unix(1_700_000_000, 0)
)

func newServer(options ssatest.Options) *ssatest.Server {
	options.Clock = clocktesting.NewFakePassiveClock(now)
	return ssatest.NewServer(clientgoscheme.Scheme, options)
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: data}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
}

// ownedBy makes the object a dependent.
func ownedBy[T client.Object](object T, owner client.Object) T {
	object.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))})
	return object
}

func apply(server client.Client, object client.Object, manager, document string, opts ...client.PatchOption) error {
	return server.Patch(ctx, object, client.RawPatch(types.ApplyPatchType, []byte(document)), append(opts, client.FieldOwner(manager))...)
}

// managers lists "manager operation subresource" with the fields that each holds.
func managers(object client.Object) map[string]string {
	held := map[string]string{}
	for _, entry := range object.GetManagedFields() {
		held[entry.Manager+" "+string(entry.Operation)+entry.Subresource] = entry.FieldsV1.GetRawString()
	}
	return held
}

func exists(server client.Reader, object client.Object) bool {
	return server.Get(ctx, client.ObjectKeyFromObject(object), object) == nil
}

func TestMetadataFollowsWrites(t *testing.T) {
	g, server := NewWithT(t), newServer(ssatest.Options{})
	d := deployment("web", 1)
	d.Status.Replicas = 9
	g.Expect(server.Create(ctx, d)).To(Succeed())
	g.Expect(d.UID).NotTo(BeEmpty())
	g.Expect(d.CreationTimestamp.Time).To(BeTemporally("==", now))
	g.Expect(d.Generation).To(Equal(int64(1)))
	g.Expect(d.Status.Replicas).To(BeZero(), "a create writes no status")
	created := d.DeepCopy()

	d.Spec.Replicas = new(int32)
	d.Status.Replicas = 9
	g.Expect(server.Update(ctx, d)).To(Succeed())
	g.Expect(d.Generation).To(Equal(int64(2)))
	g.Expect(d.Status.Replicas).To(BeZero(), "an update writes no status")
	g.Expect(d.ResourceVersion).NotTo(Equal(created.ResourceVersion))

	d.Status.Replicas = 9
	d.Spec.Paused = true
	g.Expect(server.Status().Update(ctx, d, client.FieldOwner("status"))).To(Succeed())
	g.Expect(d.Generation).To(Equal(int64(2)))
	g.Expect(d.Status.Replicas).To(Equal(int32(9)))
	g.Expect(d.Spec.Paused).To(BeFalse(), "an update of the status writes nothing else")
	g.Expect(managers(d)).To(HaveKeyWithValue("status Updatestatus", `{"f:status":{".":{},"f:replicas":{}}}`))

	version := d.ResourceVersion
	g.Expect(server.Update(ctx, d)).To(Succeed())
	g.Expect(d.ResourceVersion).To(Equal(version), "nothing has changed")
	g.Expect(apierrors.IsConflict(server.Update(ctx, created))).To(BeTrue(), "of an old version")
	g.Expect(apierrors.IsAlreadyExists(server.Create(ctx, deployment("web", 1)))).To(BeTrue())
	g.Expect(apierrors.IsNotFound(server.Update(ctx, deployment("other", 1)))).To(BeTrue())
	g.Expect(server.Writes()).To(Equal([]string{"create Deployment web", "update Deployment web", "update Deployment web/status", "unchanged Deployment web"}))
	g.Expect(server.Writes()).To(BeEmpty())
}

func TestServerSideApplyKeepsManagedFields(t *testing.T) {
	g, server, c := NewWithT(t), newServer(ssatest.Options{}), configMap("c", nil)
	const document = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`
	g.Expect(apply(server, c, "one", document)).To(Succeed())
	g.Expect(managers(c)).To(Equal(map[string]string{"one Apply": `{"f:data":{"f:a":{}}}`}))
	g.Expect(c.ManagedFields[0].Time.Time).To(BeTemporally("==", now))
	version := c.ResourceVersion
	g.Expect(apply(server, c, "one", document)).To(Succeed())
	g.Expect(c.ResourceVersion).To(Equal(version))

	c.Data["a"] = "2"
	g.Expect(server.Update(ctx, c, client.FieldOwner("two"))).To(Succeed())
	g.Expect(managers(c)).To(HaveKeyWithValue("two Update", `{"f:data":{"f:a":{}}}`))
	err := apply(server, c, "one", document)
	g.Expect(apierrors.IsConflict(err)).To(BeTrue())
	g.Expect(err).To(MatchError(ContainSubstring(`conflict with "two"`)))

	g.Expect(apply(server, c, "one", document, client.ForceOwnership, client.DryRunAll)).To(Succeed())
	g.Expect(c.Data).To(HaveKeyWithValue("a", "1"))
	g.Expect(exists(server, c)).To(BeTrue())
	g.Expect(c.Data).To(HaveKeyWithValue("a", "2"), "a dry run changes nothing")

	wiped := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`))
	g.Expect(server.Patch(ctx, c, wiped)).To(Succeed())
	g.Expect(c.ManagedFields).To(BeEmpty())
	err = apply(server, c, "one", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"c"}}`)
	g.Expect(err).To(HaveOccurred())
}

// Numbers that an apply repeats are those that are stored, so that a change of metadata alone is no new generation.
func TestApplyOfMetadataKeepsTheGeneration(t *testing.T) {
	g, server := NewWithT(t), newServer(ssatest.Options{})
	g.Expect(server.Create(ctx, deployment("web", 1))).To(Succeed())
	d := deployment("web", 1)
	for _, label := range []string{"a", "b"} {
		document := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"of":"` + label + `"}},"spec":{"replicas":1}}`
		g.Expect(apply(server, d, "one", document, client.ForceOwnership)).To(Succeed())
		g.Expect(d.Labels).To(HaveKeyWithValue("of", label))
		g.Expect(d.Generation).To(Equal(int64(1)))
	}
}

func TestApplyPreconditions(t *testing.T) {
	server, live := newServer(ssatest.Options{}), configMap("live", nil)
	NewWithT(t).Expect(server.Create(ctx, live)).To(Succeed())
	for name, test := range map[string]struct {
		name, precondition string
		fails              func(error) bool
	}{
		"a version that nothing has, to create":   {"new", `"resourceVersion":"1"`, nil},
		"a version that nothing has, to update":   {"live", `"resourceVersion":"1"`, apierrors.IsConflict},
		"a UID that nothing has, to create":       {"other", `"uid":"x"`, apierrors.IsConflict},
		"the UID of another object":               {"live", `"uid":"x"`, apierrors.IsInvalid},
		"the UID and the version of the live one": {"live", `"uid":"` + string(live.UID) + `","resourceVersion":"` + live.ResourceVersion + `"`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			document := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + test.name + `",` + test.precondition + `}}`
			err := apply(server, configMap(test.name, nil), "one", document, client.DryRunAll)
			if test.fails == nil {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(test.fails(err)).To(BeTrue(), "%v", err)
		})
	}
}

func TestDeletionWaitsForFinalizers(t *testing.T) {
	g, server, d := NewWithT(t), newServer(ssatest.Options{}), deployment("web", 1)
	d.Finalizers = []string{"example.com/a"}
	g.Expect(server.Create(ctx, d)).To(Succeed())

	other := types.UID("other")
	g.Expect(apierrors.IsConflict(server.Delete(ctx, d, client.Preconditions{UID: &other}))).To(BeTrue())
	g.Expect(server.Delete(ctx, d, client.DryRunAll)).To(Succeed())
	g.Expect(exists(server, d) && d.DeletionTimestamp == nil).To(BeTrue())
	g.Expect(server.Delete(ctx, d, client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion})).To(Succeed())

	g.Expect(exists(server, d)).To(BeTrue())
	g.Expect(d.DeletionTimestamp.Time).To(BeTemporally("==", now))
	g.Expect(d.Generation).To(Equal(int64(2)))
	d.Finalizers = append(d.Finalizers, "example.com/b")
	g.Expect(apierrors.IsInvalid(server.Update(ctx, d))).To(BeTrue())
	d.Finalizers = nil
	g.Expect(server.Update(ctx, d)).To(Succeed())
	g.Expect(exists(server, d)).To(BeFalse())
	g.Expect(apierrors.IsNotFound(server.Delete(ctx, d))).To(BeTrue())
}

func TestSlowDeletion(t *testing.T) {
	g, server, c := NewWithT(t), newServer(ssatest.Options{}), configMap("c", nil)
	server.SlowDeletion(func(o client.Object) bool { return o.GetName() == "c" })
	g.Expect(server.Create(ctx, c)).To(Succeed())
	g.Expect(server.Delete(ctx, c)).To(Succeed())
	g.Expect(exists(server, c) && c.DeletionTimestamp != nil).To(BeTrue())

	server.SlowDeletion(nil)

	g.Expect(exists(server, c)).To(BeFalse())
}

func TestGarbageCollection(t *testing.T) {
	for name, test := range map[string]struct {
		collects        bool
		policy          metav1.DeletionPropagation
		owner, child    bool // exist afterwards
		childIsOrphaned bool
	}{
		"background":                {collects: true, policy: metav1.DeletePropagationBackground},
		"foreground":                {collects: true, policy: metav1.DeletePropagationForeground},
		"orphan":                    {collects: true, policy: metav1.DeletePropagationOrphan, child: true, childIsOrphaned: true},
		"background, not collected": {policy: metav1.DeletePropagationBackground, child: true},
		"foreground, not collected": {policy: metav1.DeletePropagationForeground, owner: true, child: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, server, owner := NewWithT(t), newServer(ssatest.Options{GarbageCollection: test.collects}), configMap("owner", nil)
			g.Expect(server.Create(ctx, owner)).To(Succeed())
			child := ownedBy(configMap("child", nil), owner)
			g.Expect(server.Create(ctx, child)).To(Succeed())

			g.Expect(server.Delete(ctx, owner, client.PropagationPolicy(test.policy))).To(Succeed())

			g.Expect(exists(server, owner)).To(Equal(test.owner))
			g.Expect(exists(server, child)).To(Equal(test.child))
			g.Expect(len(child.OwnerReferences) == 0).To(Equal(test.childIsOrphaned))
			if !test.childIsOrphaned {
				server.CollectGarbage()
				g.Expect(exists(server, owner) || exists(server, child)).To(BeFalse())
			}
		})
	}
}

// A foreground deletion ends when the dependents are gone, and not before.
func TestForegroundDeletionWaitsForDependents(t *testing.T) {
	g, server, owner := NewWithT(t), newServer(ssatest.Options{GarbageCollection: true}), configMap("owner", nil)
	g.Expect(server.Create(ctx, owner)).To(Succeed())
	child := ownedBy(configMap("child", nil), owner)
	child.Finalizers = []string{"example.com/a"}
	g.Expect(server.Create(ctx, child)).To(Succeed())
	g.Expect(server.Delete(ctx, owner, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
	g.Expect(exists(server, owner)).To(BeTrue())
	g.Expect(exists(server, child) && child.DeletionTimestamp != nil).To(BeTrue())

	child.Finalizers = nil
	g.Expect(server.Update(ctx, child)).To(Succeed())

	g.Expect(exists(server, owner) || exists(server, child)).To(BeFalse())
}

func TestCacheLagsWhileFrozen(t *testing.T) {
	g, server := NewWithT(t), newServer(ssatest.Options{})
	cache, c := server.Cache(), configMap("c", nil)
	cache.Freeze()
	g.Expect(server.Create(ctx, c)).To(Succeed())
	g.Expect(exists(cache, c.DeepCopy())).To(BeFalse())

	cache.Thaw()
	cache.Freeze()
	g.Expect(exists(cache, c.DeepCopy())).To(BeTrue())
	g.Expect(server.Delete(ctx, c)).To(Succeed())
	g.Expect(exists(cache, c.DeepCopy())).To(BeTrue())

	cache.Thaw()
	g.Expect(exists(cache, c.DeepCopy())).To(BeFalse())
}

func TestCacheListsByIndex(t *testing.T) {
	g, server, owner := NewWithT(t), newServer(ssatest.Options{}), configMap("owner", nil)
	g.Expect(server.Create(ctx, owner)).To(Succeed())
	mine := ownedBy(configMap("mine", nil), owner)
	mine.Labels = map[string]string{"a": "b"}
	for _, c := range []*corev1.ConfigMap{mine, configMap("unmanaged", nil)} {
		g.Expect(server.Create(ctx, c)).To(Succeed())
	}
	owned := func() ([]client.Object, error) {
		return ssa.OwnedIn(ctx, server.Cache(), owner, owner.GetNamespace(), &corev1.ConfigMapList{})
	}
	_, err := owned()
	g.Expect(err).To(MatchError(ContainSubstring("Index with name field:" + ssa.ControllerIndex + " does not exist")))

	g.Expect(ssa.IndexController(ctx, server, &corev1.ConfigMap{})).To(Succeed())

	found, err := owned()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(HaveExactElements(HaveField("Name", "mine")))
	g.Expect(server.List(ctx, &corev1.ConfigMapList{}, client.MatchingFields{ssa.ControllerIndex: "x"})).NotTo(Succeed(), "the API server has no indexes")
	list := &corev1.ConfigMapList{}
	g.Expect(server.List(ctx, list, client.MatchingLabels{"a": "b"}, client.InNamespace("default"))).To(Succeed())
	g.Expect(list.Items).To(HaveLen(1))
	g.Expect(server.List(ctx, list, client.InNamespace("other"))).To(Succeed())
	g.Expect(list.Items).To(BeEmpty())
}

func TestOwnedInListsOneNamespaceOfAClusterScopedOwner(t *testing.T) {
	g, server, owner := NewWithT(t), newServer(ssatest.Options{}), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	g.Expect(server.Create(ctx, owner)).To(Succeed())
	g.Expect(ssa.IndexController(ctx, server, &corev1.ConfigMap{})).To(Succeed())
	for _, key := range []client.ObjectKey{{Namespace: "a", Name: "shop"}, {Namespace: "a", Name: "c"}, {Namespace: "b", Name: "shop"}, {Namespace: "b", Name: "d"}} {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("Namespace"))}
		g.Expect(server.Create(ctx, c)).To(Succeed())
	}

	found, err := ssa.OwnedIn(ctx, server.Cache(), owner, "a", &corev1.ConfigMapList{})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(ConsistOf(
		And(HaveField("Namespace", "a"), HaveField("Name", "shop")),
		And(HaveField("Namespace", "a"), HaveField("Name", "c"))))
}

func TestInterceptFailsRequestsAndLosesAnswers(t *testing.T) {
	g := NewWithT(t)
	lost := errors.New("the connection was closed")
	failing := "create ConfigMap c"
	var calls []string
	server := newServer(ssatest.Options{Intercept: func(call ssatest.Call) error {
		calls = append(calls, call.String())
		if call.String() == failing && !call.Done || "done "+call.String() == failing && call.Done {
			return lost
		}
		return nil
	}})
	c := configMap("c", nil)
	g.Expect(server.Create(ctx, c)).To(MatchError(lost))
	g.Expect(exists(server, c)).To(BeFalse())

	failing = "done create ConfigMap c"
	g.Expect(server.Create(ctx, c)).To(MatchError(lost))
	g.Expect(exists(server, c)).To(BeTrue(), "only the answer was lost")
	g.Expect(calls).To(Equal([]string{"create ConfigMap c", "get ConfigMap c", "create ConfigMap c", "create ConfigMap c", "get ConfigMap c", "get ConfigMap c"}))
}
