package ssa_test

import (
	"context"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// indexed reads as a cache does that has the controller index.
type indexed struct{ client.Reader }

func (i indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	uid, ok := options.FieldSelector.RequiresExactMatch(ssa.ControllerIndex)
	if !ok {
		panic("not selected by controller: " + options.FieldSelector.String())
	}
	if options.LabelSelector != nil {
		panic("selected by label: " + options.LabelSelector.String())
	}
	if err := i.Reader.List(ctx, list, client.InNamespace(options.Namespace)); err != nil {
		return err
	}
	maps := as[*corev1.ConfigMapList](list)
	var owned []corev1.ConfigMap
	for _, item := range maps.Items {
		if metav1.IsControlledBy(&item, &metav1.ObjectMeta{UID: types.UID(uid)}) {
			owned = append(owned, item)
		}
	}
	maps.Items = owned
	return nil
}

// prune deletes what the owner controls and keep does not name.
func (s *scenario) prune(keep ...string) []string {
	owner := &metav1.ObjectMeta{Namespace: s.namespace, Name: s.owner.Name, UID: s.owner.UID}
	owned, err := ssa.OwnedIn(s, indexed{api}, owner, owner.GetNamespace(), &corev1.ConfigMapList{})
	s.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	var names []string
	for _, object := range owned {
		if !slices.Contains(keep, object.GetName()) {
			gone, err := s.applier.Delete(s, object, s.owner, metav1.DeletePropagationForeground)
			s.ExpectWithOffset(1, err).NotTo(HaveOccurred())
			s.ExpectWithOffset(1, gone).To(BeFalse(), "the garbage collector removes it")
			names = append(names, object.GetName())
		}
	}
	return names
}

func TestPruneDeletesOnlyChildrenOfTheOwner(t *testing.T) {
	s := newScenario(t, nil)
	labels := map[string]string{"app": "shared-by-all"}
	for _, name := range []string{"kept", "dropped"} {
		s.done(s.configMap(name, nil).WithLabels(labels), nil, ssa.ActionCreate)
	}
	other := newOwner(s, s, s.namespace, "other")
	s.create("robot", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "others", Labels: labels, OwnerReferences: []metav1.OwnerReference{other}}})
	s.create("robot", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "nobodys", Labels: labels}})

	s.Expect(s.prune("kept")).To(ConsistOf("dropped"))

	s.Expect(get(s, &corev1.ConfigMap{}, "dropped").DeletionTimestamp).NotTo(BeNil(), "it is removed when its dependents are")
	for _, name := range []string{"kept", "others", "nobodys"} {
		s.Expect(get(s, &corev1.ConfigMap{}, name).DeletionTimestamp).To(BeNil())
	}
	s.Expect(s.prune("kept")).To(ConsistOf("dropped"), "it is being deleted")
}

func (s *scenario) deleteChild(live client.Object) error {
	_, err := s.applier.Delete(s, live, s.owner, metav1.DeletePropagationBackground)
	return err
}

func TestDeleteSaysWhetherTheChildIsGone(t *testing.T) {
	for name, finalizers := range map[string][]string{"without finalizers": nil, "with a finalizer": {"example.com/slow"}} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, nil)
			live := as[*corev1.ConfigMap](s.done(s.configMap("c", nil), nil, ssa.ActionCreate).Live)
			// The cache shows the child as it was before kubectl-edit added a finalizer.
			editAs(s, "kubectl-edit", live, func(c *corev1.ConfigMap) { c.Finalizers = finalizers })

			gone, err := s.applier.Delete(s, live, s.owner, metav1.DeletePropagationBackground)

			s.Expect(err).NotTo(HaveOccurred())
			s.Expect(gone).To(Equal(finalizers == nil))
			err = api.Get(s, client.ObjectKeyFromObject(live), s.blankConfigMap("c"))
			s.Expect(apierrors.IsNotFound(err)).To(Equal(gone))
			if !gone {
				editAs(s, "kubectl-edit", get(s, &corev1.ConfigMap{}, "c"), func(c *corev1.ConfigMap) { c.Finalizers = nil })
			}
		})
	}
}

// A Namespace has no finalizers in its metadata, and stays until its content is gone.
func TestDeletedNamespaceIsNotGone(t *testing.T) {
	s := newScenario(t, nil)
	live := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "deleted-", OwnerReferences: []metav1.OwnerReference{s.owner}}}
	s.Expect(api.Create(s, live)).To(Succeed())
	s.Expect(live.Finalizers).To(BeEmpty())

	gone, err := s.applier.Delete(s, live, s.owner, metav1.DeletePropagationBackground)

	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(gone).To(BeFalse())
	s.Expect(api.Get(s, client.ObjectKeyFromObject(live), live)).To(Succeed(), "nothing but the Namespace controller removes it")
	s.Expect(live.DeletionTimestamp).NotTo(BeNil())
}

func TestDeleteOfADeletedChildIsNoError(t *testing.T) {
	s := newScenario(t, nil)
	live := s.done(s.configMap("c", nil), nil, ssa.ActionCreate).Live

	s.Expect(s.deleteChild(live)).To(Succeed())
	s.Expect(s.deleteChild(live)).To(Succeed())

	s.Expect(client.IgnoreNotFound(api.Get(s, client.ObjectKeyFromObject(live), s.blankConfigMap("c")))).To(Succeed())
	s.Expect(api.Get(s, client.ObjectKeyFromObject(live), s.blankConfigMap("c"))).NotTo(Succeed())
}

func TestDeleteLeavesAnotherObjectOfTheName(t *testing.T) {
	s := newScenario(t, nil)
	live := s.done(s.configMap("c", nil), nil, ssa.ActionCreate).Live
	s.delete(live)
	s.create("kubectl-create", s.blankConfigMap("c"))

	s.Expect(s.deleteChild(live)).To(Succeed())

	s.Expect(get(s, &corev1.ConfigMap{}, "c").UID).NotTo(Equal(live.GetUID()))
}

func TestDeleteLeavesAChildThatWasReleased(t *testing.T) {
	s := newScenario(t, nil)
	live := as[*corev1.ConfigMap](s.done(s.configMap("c", nil), nil, ssa.ActionCreate).Live)
	editAs(s, "kubectl-edit", live, func(c *corev1.ConfigMap) { c.OwnerReferences = nil })

	s.Expect(s.deleteChild(live)).To(Succeed())

	s.Expect(get(s, &corev1.ConfigMap{}, "c").DeletionTimestamp).To(BeNil())
}

func TestDeleteOfAChangedChild(t *testing.T) {
	s := newScenario(t, nil)
	live := as[*corev1.ConfigMap](s.done(s.configMap("c", nil), nil, ssa.ActionCreate).Live)
	editAs(s, "kubectl-edit", live, func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": "1"} })

	s.Expect(s.deleteChild(live)).To(Succeed())

	s.Expect(api.Get(s, client.ObjectKeyFromObject(live), s.blankConfigMap("c"))).NotTo(Succeed())
}
