package harness

import (
	"context"
	"fmt"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/record"
)

// env is an [Env], or a type of a suite that embeds one.
type env interface{ environment() *Env }

func (e *Env) environment() *Env { return e }

// Read reads an object of the namespace, which has to exist.
func Read[T client.Object](in env, name string, into T) T {
	e := in.environment()
	e.T.Helper()
	e.Expect(e.Suite.API.Get(e.Ctx, e.Key(name), into)).To(gomega.Succeed())
	return into
}

// Eventually waits until the check of an object succeeds, and returns it.
func Eventually[T client.Object](in env, name string, empty T, check func(g gomega.Gomega, live T)) T {
	e := in.environment()
	e.T.Helper()
	var found T
	e.Eventually(func(g gomega.Gomega) {
		live := clone(empty) // fields of an earlier read must not remain
		g.Expect(e.Suite.API.Get(e.Ctx, e.Key(name), live)).To(gomega.Succeed())
		check(g, live)
		found = live
	}).Should(gomega.Succeed())
	return found
}

// Update reads an object, changes it and writes it under a field manager, until no other write came in
// between.
func Update[T client.Object](in env, manager, name string, empty T, change func(T)) T {
	e := in.environment()
	e.T.Helper()
	var updated T
	e.Eventually(func() error {
		updated = clone(empty)
		if err := e.Suite.API.Get(e.Ctx, e.Key(name), updated); err != nil {
			return err
		}
		change(updated)
		return e.As(manager).Update(e.Ctx, updated)
	}).Should(gomega.Succeed())
	return updated
}

// Versions collects every version of an object that the API server shows from now on, until the
// function that it returns is called.
func Versions[T client.Object](in env, list client.ObjectList, name string) func() []T {
	e := in.environment()
	e.T.Helper()
	stop, err := record.Versions[T](e.Ctx, e.Suite.API, list, client.InNamespace(e.Namespace), client.MatchingFields{"metadata.name": name})
	e.Expect(err).NotTo(gomega.HaveOccurred())
	e.T.Cleanup(func() { stop() })
	return stop
}

// As is a client that writes under a field manager of that name, as kubectl and others do.
func (e *Env) As(manager string) client.Client { return client.WithFieldOwner(e.Suite.API, manager) }

// Scale sets the number of pods of an object through its scale subresource, as `kubectl scale` and
// autoscalers do.
func (e *Env) Scale(manager string, object client.Object, replicas int32) {
	e.T.Helper()
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	e.Expect(e.As(manager).SubResource("scale").Update(e.Ctx, object, client.WithSubResourceBody(scale))).To(gomega.Succeed())
}

// IsGone is for Eventually.
func (e *Env) IsGone(name string, object client.Object) func() error {
	return func() error { return Gone(e.Ctx, e.Suite.API, e.Key(name), object) }
}

// Gone is nil if the object does not exist, nor its kind.
func Gone(ctx context.Context, reader client.Reader, key client.ObjectKey, object client.Object) error {
	err := reader.Get(ctx, key, object)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil
	case err == nil:
		return fmt.Errorf("%T %s exists, with finalizers %q", object, key, object.GetFinalizers())
	}
	return err
}

func clone[T client.Object](object T) T {
	copied, ok := object.DeepCopyObject().(T)
	if !ok {
		panic(fmt.Sprintf("the deep copy of a %T is of another type", object))
	}
	return copied
}

// AtRest waits until the controllers of Kubernetes have done, and said in the status, all that there is to do for the
// Deployments of these names and their PodDisruptionBudgets, if any. Nothing but a manager changes their resource versions
// from then on, autoscalers aside. [Env.Settled] waits for managers alone, so it comes after this.
func (e *Env) AtRest(names ...string) {
	e.T.Helper()
	for _, name := range names {
		deployment := Eventually(e, name, &appsv1.Deployment{}, func(g gomega.Gomega, d *appsv1.Deployment) {
			g.Expect(d.Status.ObservedGeneration).To(gomega.Equal(d.Generation))
			for _, pods := range []int32{d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas} {
				g.Expect(pods).To(gomega.Equal(*d.Spec.Replicas))
			}
			g.Expect(ptr.Deref(d.Status.TerminatingReplicas, 0)).To(gomega.BeZero())
		})
		e.Eventually(func(g gomega.Gomega) {
			budget := &policyv1.PodDisruptionBudget{}
			if e.IsGone(name, budget)() == nil {
				return // it has none
			}
			g.Expect(budget.Status.ObservedGeneration).To(gomega.Equal(budget.Generation))
			g.Expect(budget.Status.ExpectedPods).To(gomega.Equal(*deployment.Spec.Replicas))
			g.Expect(budget.Status.CurrentHealthy).To(gomega.Equal(*deployment.Spec.Replicas))
		}).Should(gomega.Succeed())
	}
}
