package ssa_test

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

const (
	teardown = "test.example/teardown"
	second   = "test.example/second"
)

func (s *scenario) appService(who string, finalizers ...string) *v1beta1.AppService {
	s.create(who, &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: finalizers}, Spec: v1beta1.AppServiceSpec{Image: "registry.example/a:1"}})
	return get(s, &v1beta1.AppService{}, "a")
}

func TestEnsureFinalizerAppliesNothingElse(t *testing.T) {
	s := newScenario(t, nil)
	live := s.appService("kubectl-create")

	ensured, err := s.applier.EnsureFinalizer(s, live, teardown)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(ensured.GetFinalizers()).To(ConsistOf(teardown))
	s.Expect(as[*v1beta1.AppService](ensured).Spec).To(Equal(live.Spec))
	s.Expect(s.requests()).To(Equal(1))
	again, err := s.applier.EnsureFinalizer(s, ensured, teardown)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(again).To(BeIdenticalTo(ensured))
	s.Expect(s.requests()).To(BeZero())

	s.Expect(s.applier.RemoveFinalizer(s, ensured, teardown)).To(Succeed())
	s.Expect(s.requests()).To(Equal(1))
	freed := get(s, &v1beta1.AppService{}, "a")
	s.Expect(freed.Finalizers).To(BeEmpty())
	s.Expect(s.applier.RemoveFinalizer(s, freed, teardown)).To(Succeed())
	s.Expect(s.requests()).To(BeZero())
}

func TestOtherFinalizersStay(t *testing.T) {
	s := newScenario(t, nil)
	live := s.appService("kubectl-create", "others.example/finalizer")
	one, err := s.applier.EnsureFinalizer(s, live, teardown)
	s.Expect(err).NotTo(HaveOccurred())
	both, err := s.applier.EnsureFinalizer(s, one, second)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(both.GetFinalizers()).To(ConsistOf("others.example/finalizer", teardown, second))

	s.Expect(s.applier.RemoveFinalizer(s, both, teardown)).To(Succeed())

	s.Expect(get(s, &v1beta1.AppService{}, "a").Finalizers).To(ConsistOf("others.example/finalizer", second))
	s.delete(both)
	s.Expect(s.applier.RemoveFinalizer(s, get(s, &v1beta1.AppService{}, "a"), second)).To(Succeed())
}

// A restored backup and a copied manifest bring the finalizer along, and the API server holds it for
// who created them.
func TestRemovesFinalizerThatAnotherManagerAdded(t *testing.T) {
	for name, put := range map[string]func(s *scenario) *v1beta1.AppService{
		"created with it": func(s *scenario) *v1beta1.AppService { return s.appService("kubectl-create", teardown) },
		"added by the applier, then co-owned": func(s *scenario) *v1beta1.AppService {
			live := s.appService("kubectl-create")
			_, err := s.applier.EnsureFinalizer(s, live, teardown)
			s.Expect(err).NotTo(HaveOccurred())
			s.applyAs("velero", live, "apiVersion: fixpoint.dev/v1beta1\nkind: AppService\nmetadata: {name: a, finalizers: [test.example/teardown]}")
			return get(s, &v1beta1.AppService{}, "a")
		},
		"added by the applier, then wiped": func(s *scenario) *v1beta1.AppService {
			live, err := s.applier.EnsureFinalizer(s, s.appService("kubectl-create"), teardown)
			s.Expect(err).NotTo(HaveOccurred())
			s.wipeManagedFields(live)
			return get(s, &v1beta1.AppService{}, "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, nil)
			put(s)
			s.delete(get(s, &v1beta1.AppService{}, "a"))
			live := get(s, &v1beta1.AppService{}, "a")
			s.Expect(live.DeletionTimestamp).NotTo(BeNil())

			s.Expect(s.applier.RemoveFinalizer(s, live, teardown)).To(Succeed())

			err := api.Get(s, client.ObjectKeyFromObject(live), &v1beta1.AppService{})
			s.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		})
	}
}
