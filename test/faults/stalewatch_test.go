package faults_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/faults"
)

const name = "web"

var deleteInBackground = client.PropagationPolicy(metav1.DeletePropagationBackground)

// newApp returns an environment with a Ready AppService that has all options, and its manager.
func newApp(t *testing.T) (*faults.Environment, *faults.Manager, Gomega) {
	t.Helper()
	ctx := context.Background()
	g := NewWithT(t)
	env, err := testCluster.NewEnvironment(ctx, faults.AppService)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(env.Report())
		}
		// Each kind has a watch of its own: a status can arrive before the object that it describes.
		env.WaitUntil(faults.Timeout, func() bool { return len(env.Violations()) == 0 })
		for _, violation := range env.Violations() {
			t.Error(violation)
		}
		if err := env.Close(); err != nil {
			t.Error(err)
		}
	})
	m, err := env.Start()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(env.Create(ctx, faults.NewAppService(name, faults.AllOptions))).To(Succeed())
	kinds := childKinds(t)
	g.Expect(env.WaitUntil(faults.Timeout, func() bool {
		return env.ReadyWith(faults.AppService, name, 1) && m.IdleFor() > 300*time.Millisecond &&
			slices.Equal(kindsOf(env.Children(faults.AppService, name)), kinds)
	})).To(BeTrue(), "the AppService did not become Ready with all children")
	return env, m, g
}

// childKinds returns the kinds of the children that an AppService with all options has.
func childKinds(t *testing.T) []string {
	t.Helper()
	var kinds []string
	for object := range baselineOf(t, createAll(faults.AppService)).Then.Objects {
		if kind, isOfApp := strings.CutSuffix(object, "/"+name); isOfApp && faults.IsChildKind(kind) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// unmanagedCopy returns an object with the content of a child, but without its metadata.
func unmanagedCopy(child *unstructured.Unstructured) *unstructured.Unstructured {
	unmanaged := child.DeepCopy()
	delete(unmanaged.Object, "metadata")
	delete(unmanaged.Object, "status")
	unstructured.RemoveNestedField(unmanaged.Object, "spec", "clusterIP")
	unstructured.RemoveNestedField(unmanaged.Object, "spec", "clusterIPs")
	unmanaged.SetName(child.GetName())
	return unmanaged
}

// emptyOf returns an empty object of the kind of a child.
func emptyOf(child *unstructured.Unstructured) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(child.GroupVersionKind())
	return object
}

// changeEveryChild changes the spec so that the manager must apply every child.
func changeEveryChild(a *v1beta1.AppService) {
	a.Spec.Image = "registry.test/shop:2"
	a.Spec.Port = 9090
	a.Spec.Config["MORE"] = "yes"
	a.Spec.Autoscaling.MaxReplicas = 6
	a.Spec.DisruptionBudget.MaxUnavailable = ptr.To(intstr.FromInt32(2))
	a.Spec.Ingress.Host = "other.example.com"
}

// waitForReconcile waits until the manager has reconciled more often than before and is idle or blocked.
func waitForReconcile(env *faults.Environment, m *faults.Manager, before int) {
	began := time.Now()
	env.WaitUntil(2*time.Second, func() bool {
		return m.Reconciles(name) > before && m.IdleFor() > 200*time.Millisecond || time.Since(began) > 1500*time.Millisecond
	})
}

// deletions returns the delete calls of the managers.
func deletions(env *faults.Environment) []faults.Call {
	return slices.DeleteFunc(env.Calls(), func(c faults.Call) bool { return c.Verb != "delete" })
}

// TestLeavesUnmanagedReplacementOfChild replaces a child by an unmanaged object with the same name while the
// manager's watch is held back.
func TestLeavesUnmanagedReplacementOfChild(t *testing.T) {
	for _, kind := range childKinds(t) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			env, m, g := newApp(t)
			child := env.Get(kind, name)
			g.Expect(child).NotTo(BeNil())
			unmanaged := unmanagedCopy(child)
			// given a cache that contains the child
			resource, before := faults.ResourceOf(kind), m.Reconciles(name)
			m.HoldWatch(resource)
			g.Expect(env.Delete(ctx, emptyOf(child), name, deleteInBackground)).To(Succeed())
			g.Expect(env.Create(ctx, unmanaged)).To(Succeed())
			// when the manager must change the child
			g.Expect(faults.Edit(ctx, env, "user", name, &v1beta1.AppService{}, changeEveryChild)).To(Succeed())
			waitForReconcile(env, m, before)
			m.ReleaseWatch(resource)
			// then the unmanaged object is reported and not changed
			g.Expect(env.WaitUntil(faults.Timeout, func() bool { return env.HasReason(faults.AppService, name, v1beta1.ReasonNotOwned) })).To(BeTrue(), "no condition has the reason NotOwned")
			live := env.Get(kind, name)
			g.Expect(live.GetUID()).To(Equal(unmanaged.GetUID()))
			g.Expect(live.GetOwnerReferences()).To(BeEmpty())
			for _, entry := range live.GetManagedFields() {
				g.Expect(entry.Manager).NotTo(HavePrefix("fixpoint"))
			}
			// and the child is created once the name is free
			g.Expect(env.Delete(ctx, emptyOf(child), name, deleteInBackground)).To(Succeed())
			g.Expect(env.WaitUntil(faults.Timeout, func() bool { return env.ReadyWith(faults.AppService, name, 2) })).To(BeTrue(), "the AppService did not become Ready again")
			g.Expect(deletions(env)).To(HaveEach(HaveField("Resource", "jobs")), "only the Job of the previous version is no longer desired")
		})
	}
}

// TestCreatesNewChildrenForReplacedOwner replaces an AppService while no manager runs. The cache of the next
// manager lacks the replacement.
func TestCreatesNewChildrenForReplacedOwner(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	env, m, g := newApp(t)
	before := env.Get(faults.AppService, name)
	versions := env.Versions()
	kinds := kindsOf(env.Children(faults.AppService, name))
	m.Crash()
	// given
	g.Expect(faults.Edit(ctx, env, "user", name, &v1beta1.AppService{}, func(a *v1beta1.AppService) { a.Finalizers = nil })).To(Succeed())
	g.Expect(env.Delete(ctx, &v1beta1.AppService{}, name, deleteInBackground)).To(Succeed())
	g.Expect(env.Create(ctx, faults.NewAppService(name, faults.AllOptions, func(s *v1beta1.AppServiceSpec) { s.Image = "registry.test/shop:3" }))).To(Succeed())
	// when
	next, err := env.StartWithStaleCache(faults.StaleCache{faults.ResourceOf(faults.AppService): versions[len(versions)-1].Revision})
	g.Expect(err).NotTo(HaveOccurred())
	waitForReconcile(env, next, 0)
	next.ReleaseWatch(faults.ResourceOf(faults.AppService))
	// then
	g.Expect(env.WaitUntil(faults.Timeout, func() bool {
		app := env.Get(faults.AppService, name)
		return app != nil && app.GetUID() != before.GetUID() && env.ReadyWith(faults.AppService, name, 1) &&
			slices.Equal(kindsOf(env.Children(faults.AppService, name)), kinds)
	})).To(BeTrue(), "the AppService did not become Ready with children of its own")
	for _, kind := range kinds {
		child := env.Get(kind, name)
		g.Expect(child).NotTo(BeNil(), kind)
		g.Expect(child.GetOwnerReferences()).To(HaveExactElements(HaveField("UID", env.Get(faults.AppService, name).GetUID())), kind)
	}
}

// kindsOf returns the kinds of children. The Job of a hook is none.
func kindsOf(objects []*unstructured.Unstructured) []string {
	var kinds []string
	for _, object := range objects {
		if faults.IsChildKind(object.GetKind()) {
			kinds = append(kinds, object.GetKind())
		}
	}
	return kinds
}

// TestIgnoresRevertedChange changes an object and reverts the change before the manager observes either.
func TestIgnoresRevertedChange(t *testing.T) {
	for _, kind := range append(childKinds(t), faults.AppService) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			env, m, g := newApp(t)
			uids := uidsOf(env)
			// given
			resource, before := faults.ResourceOf(kind), m.Reconciles(name)
			m.HoldWatch(resource)
			g.Expect(changeAndRevert(ctx, env, kind)).To(Succeed())
			// when
			m.ReleaseWatch(resource)
			waitForReconcile(env, m, before)
			g.Expect(env.WaitUntil(faults.Timeout, func() bool {
				return env.ReadyWith(faults.AppService, name, 1) && m.IdleFor() > 1500*time.Millisecond
			})).To(BeTrue())
			// then
			g.Expect(uidsOf(env)).To(Equal(uids))
			g.Expect(deletions(env)).To(BeEmpty())
			containers, _, _ := faults.Field(env.Get("Deployment", name), "spec", "template", "spec", "containers")
			g.Expect(containers).To(ContainElement(HaveKeyWithValue("image", "registry.test/shop:1")))
		})
	}
}

func changeAndRevert(ctx context.Context, env *faults.Environment, kind string) error {
	for _, change := range []bool{true, false} {
		var err error
		pick := func(first, second string) string {
			if change {
				return second
			}
			return first
		}
		switch kind {
		case "Deployment":
			err = faults.Edit(ctx, env, "kubectl-edit", name, &appsv1.Deployment{}, func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image = pick("registry.test/shop:1", "registry.test/other:1")
			})
		case "ConfigMap":
			err = faults.Edit(ctx, env, "kubectl-edit", name, &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data["GREETING"] = pick("hello", "bye") })
		case faults.AppService:
			err = faults.Edit(ctx, env, "user", name, &v1beta1.AppService{}, func(a *v1beta1.AppService) {
				a.Spec.Image = pick("registry.test/shop:1", "registry.test/shop:2")
				if change {
					a.Spec.Ingress = nil
				} else {
					faults.AllOptions(&a.Spec)
				}
			})
		default:
			err = faults.Edit(ctx, env, "kubectl-edit", name, emptyOf(env.Get(kind, name)), func(child *unstructured.Unstructured) {
				labels := child.GetLabels()
				labels["app.kubernetes.io/name"] = pick(name, "other")
				child.SetLabels(labels)
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func uidsOf(env *faults.Environment) map[string]types.UID {
	uids := map[string]types.UID{}
	for _, child := range env.Children(faults.AppService, name) {
		uids[child.GetKind()] = child.GetUID()
	}
	return uids
}
