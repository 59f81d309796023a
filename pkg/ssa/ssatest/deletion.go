package ssatest

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SlowDeletion makes objects for which slow is true stay terminating after their last finalizer, as
// pods and namespaces do. Terminating objects for which it is not true are removed at once; nil ends
// all slow deletion. slow gets unstructured objects, and must not use the Server.
func (s *Server) SlowDeletion(slow func(client.Object) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = slow
	for _, key := range s.objects.sorted() {
		s.finish(key)
	}
	if s.options.GarbageCollection {
		s.collectGarbage()
	}
}

// CollectGarbage does what the garbage collector of a cluster would, until nothing is left to do: it
// deletes objects whose owners do not exist, deletes the dependents of objects that are deleted in
// the foreground before these, and removes the owner references to objects that are deleted with
// the policy Orphan.
func (s *Server) CollectGarbage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collectGarbage()
}

func (s *Server) collectGarbage() {
	for before := -1; before != s.version; {
		before = s.version
		for _, key := range s.objects.sorted() {
			if object, ok := s.objects[key]; ok {
				s.collect(key, object)
			}
		}
	}
}

func (s *Server) collect(key objectKey, object *unstructured.Unstructured) {
	updated := object
	switch finalizers := object.GetFinalizers(); {
	case object.GetDeletionTimestamp() != nil && slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		blocked := false
		for _, dependent := range s.dependents(object.GetUID()) {
			blocked = true
			if live := s.objects[dependent]; live.GetDeletionTimestamp() == nil {
				s.store(dependent, live, s.terminating(live, metav1.DeletePropagationForeground), false)
			}
		}
		if !blocked {
			updated = object.DeepCopy()
			updated.SetFinalizers(without(finalizers, metav1.FinalizerDeleteDependents))
		}
	case object.GetDeletionTimestamp() != nil && slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		for _, dependent := range s.dependents(object.GetUID()) {
			orphan := s.objects[dependent].DeepCopy()
			orphan.SetOwnerReferences(slices.DeleteFunc(orphan.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == object.GetUID() }))
			s.store(dependent, s.objects[dependent], orphan, false)
		}
		updated = object.DeepCopy()
		updated.SetFinalizers(without(finalizers, metav1.FinalizerOrphanDependents))
	case object.GetDeletionTimestamp() == nil && len(object.GetOwnerReferences()) > 0 && !s.anyExists(object.GetOwnerReferences()):
		updated = s.terminating(object, metav1.DeletePropagationBackground)
	}
	s.store(key, object, updated, false)
}

func (s *Server) dependents(owner types.UID) []objectKey {
	return slices.DeleteFunc(s.objects.sorted(), func(key objectKey) bool {
		return !slices.ContainsFunc(s.objects[key].GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner })
	})
}

func (s *Server) anyExists(references []metav1.OwnerReference) bool {
	return slices.ContainsFunc(references, func(r metav1.OwnerReference) bool {
		for _, object := range s.objects {
			if object.GetUID() == r.UID {
				return true
			}
		}
		return false
	})
}

// terminating is the object as its deletion leaves it, until its last finalizer is removed.
func (s *Server) terminating(live *unstructured.Unstructured, propagation metav1.DeletionPropagation) *unstructured.Unstructured {
	deleted := live.DeepCopy()
	finalizers := without(without(live.GetFinalizers(), metav1.FinalizerDeleteDependents), metav1.FinalizerOrphanDependents)
	switch propagation {
	case metav1.DeletePropagationForeground:
		finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationOrphan:
		finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
	}
	deleted.SetFinalizers(finalizers)
	if deleted.GetDeletionTimestamp() == nil {
		now := metav1.NewTime(s.options.Clock.Now())
		deleted.SetDeletionTimestamp(&now)
		deleted.SetDeletionGracePeriodSeconds(new(int64))
		if deleted.GetGeneration() > 0 {
			deleted.SetGeneration(deleted.GetGeneration() + 1)
		}
	}
	return deleted
}

func without(list []string, item string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == item })
}
