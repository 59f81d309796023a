package faults

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// act is a step of something else than the user's own objects, after which the object is Ready again.
// What the world shows is only judged once it shows what the act has written.
func act(kind string, do func(context.Context, *World) (revision string, err error), also ...func(*World) bool) Step {
	const acted = "acted at "
	return Step{
		Do: func(ctx context.Context, w *World) error {
			revision, err := do(ctx, w)
			if err != nil {
				return err
			}
			w.keep(acted, revision)
			return nil
		},
		Done: func(w *World) bool {
			if !w.hasSeen(w.kept(acted)) || !w.ReadyWith(kind, objectName, 1) {
				return false
			}
			for _, check := range also {
				if !check(w) {
					return false
				}
			}
			return true
		},
	}
}

// keep keeps a value under a name, and kept gives it back.
func (w *World) keep(name, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes[name] = value
}

func (w *World) kept(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notes[name]
}

// hasSeen says whether an event of the revision, or of a later one, has arrived. Without a revision
// there is nothing to wait for.
func (w *World) hasSeen(revision string) bool {
	if revision == "" {
		return true
	}
	want, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("the revision %q: %v", revision, err)) // the API server's own
	}
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	for i := len(w.history.versions) - 1; i >= 0; i-- {
		if w.history.versions[i].Revision >= want {
			return true
		}
	}
	return false
}

// others changes an object in the name of somebody else, and gives the revision of that.
func others[T client.Object](ctx context.Context, w *World, manager, name string, object T, change func(T)) (string, error) {
	err := Edit(ctx, w, manager, name, object, change)
	return object.GetResourceVersion(), err
}

// deletedByOthers deletes a child of the kind, as somebody does who takes it for useless. What tells that
// it has been noticed is that it is there a second time.
func deletedByOthers(primary, kind string, object func() client.Object) Step {
	return Step{
		Do: func(ctx context.Context, w *World) error { return w.Delete(ctx, object(), objectName) },
		Done: func(w *World) bool {
			return w.Times(kind, objectName) > 1 && w.Get(kind, objectName) != nil && w.ReadyWith(primary, objectName, 1)
		},
	}
}

// Field is what an object has at a path.
func Field(object *unstructured.Unstructured, path ...string) (value any, found bool, err error) {
	return unstructured.NestedFieldCopy(object.Object, path...)
}

// field is a leaf of an object that is there.
func field(object *unstructured.Unstructured, path ...string) string {
	if object == nil {
		return ""
	}
	value, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
	return fmt.Sprint(value)
}
