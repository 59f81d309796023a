package securestorage

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// What this controller writes itself triggers no reconcile.
func TestUpdatesThatNeedAReconcile(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*v1beta1.SecureStorage)
		want bool
	}{
		"resync":               {func(s *v1beta1.SecureStorage) { s.ResourceVersion = "1" }, true},
		"spec":                 {func(s *v1beta1.SecureStorage) { s.Generation++ }, true},
		"annotation":           {func(s *v1beta1.SecureStorage) { s.Annotations = map[string]string{v1beta1.AnnotationAbandon: "true"} }, true},
		"finalizer removed":    {func(s *v1beta1.SecureStorage) { s.Finalizers = []string{"other"} }, true},
		"status":               {func(s *v1beta1.SecureStorage) { s.Status.AccountID = "a" }, false},
		"other finalizer":      {func(s *v1beta1.SecureStorage) { s.Finalizers = append(s.Finalizers, "other") }, false},
		"label":                {func(s *v1beta1.SecureStorage) { s.Labels = map[string]string{"a": "b"} }, false},
		"other manager's name": {func(s *v1beta1.SecureStorage) { s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := newScope().storage
			before.ResourceVersion, before.Finalizers = "1", []string{Finalizer}
			after := before.DeepCopy()
			after.ResourceVersion = "2"
			c.edit(after)
			NewWithT(t).Expect(needsReconcile.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(c.want))
		})
	}
	// An object without the finalizer has not lost it.
	without, again := newScope().storage, newScope().storage
	without.ResourceVersion, again.ResourceVersion = "1", "2"
	NewWithT(t).Expect(needsReconcile.Update(event.UpdateEvent{ObjectOld: without, ObjectNew: again})).To(BeFalse())
	// The finalizer that is added is written by this controller.
	before, after := newScope().storage, newScope().storage
	before.ResourceVersion, after.ResourceVersion, after.Finalizers = "1", "2", []string{Finalizer}
	NewWithT(t).Expect(needsReconcile.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeFalse())
}

// A routine reconcile waits for the next poll while Azure shows that nothing changed, and for the request limit of the
// subscription. One that a user waits for does not.
func TestPostponesRoutineReconciles(t *testing.T) {
	newReady := func(t *testing.T) (*fixture, func(edits ...func(*v1beta1.SecureStorage)) time.Duration) {
		t.Helper()
		f := newFixture(t, fastCloud())
		f.runUntilReady()
		f.poll() // finds nothing to do, which is recorded
		f.clock.Step(2 * f.storage.Spec.PollInterval.Duration)
		return f, func(edits ...func(*v1beta1.SecureStorage)) time.Duration {
			s := &scope{storage: f.storage.DeepCopy(), access: f.process.access, clock: f.clock}
			for _, edit := range edits {
				edit(s.storage)
			}
			return s.postpone(t.Context())
		}
	}
	waitedFor := map[string]func(*v1beta1.SecureStorage){
		"changed":   func(s *v1beta1.SecureStorage) { s.Generation++ },
		"deleted":   func(s *v1beta1.SecureStorage) { s.DeletionTimestamp = &metav1.Time{Time: noon} },
		"suspended": func(s *v1beta1.SecureStorage) { s.Spec.Suspend = true },
	}
	t.Run("nothing changed", func(t *testing.T) {
		f, postpone := newReady(t)
		f.Expect(postpone()).To(And(BeNumerically(">", 0), BeNumerically("<=", 5*time.Minute+30*time.Second)))
		for name, edit := range waitedFor {
			f.Expect(postpone(edit)).To(BeZero(), name)
		}
		f.Expect(f.server.SetTags(f.name(), nil)).To(Succeed())
		f.clock.Step(2 * f.storage.Spec.PollInterval.Duration)
		f.Expect(postpone()).To(BeZero())
	})
	t.Run("request limit of another subscription used up", func(t *testing.T) {
		f, postpone := newReady(t)
		f.process.access.cloud.Forget(string(f.storage.UID))
		credential, err := f.process.access.credential(t.Context(), f.storage)
		f.Expect(err).NotTo(HaveOccurred())
		client, err := f.process.access.cloud.Client(otherSubscription, credential)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(client.ReserveReads("other", 200)).To(Succeed())
		f.Expect(client.ReserveReads("next", 100)).NotTo(Succeed())
		f.Expect(postpone()).To(BeZero())
	})
	t.Run("request limit used up", func(t *testing.T) {
		f, postpone := newReady(t)
		f.process.access.cloud.Forget(string(f.storage.UID))
		f.Expect(postpone()).To(BeZero())
		credential, err := f.process.access.credential(t.Context(), f.storage)
		f.Expect(err).NotTo(HaveOccurred())
		client, err := f.process.access.cloud.Client(f.demo.Subscription, credential)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(client.ReserveReads("other", 200)).To(Succeed())
		f.Expect(client.ReserveReads("next", 100)).NotTo(Succeed(), "at 25 reads a second, they take 4 s")
		f.Expect(postpone()).To(And(BeNumerically(">=", 4*time.Second), BeNumerically("<=", 6*time.Second)))
		for name, edit := range waitedFor {
			f.Expect(postpone(edit)).To(BeZero(), name)
		}
	})
}
