package faults

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// externalAction is a step that does not change the spec. The object must be Ready again afterwards. Done
// waits until the history contains the write.
func externalAction(kind string, do func(context.Context, *Environment) (revision string, err error), also ...func(*Environment) bool) Step {
	const acted = "revision of the external action"
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			revision, err := do(ctx, env)
			if err != nil {
				return err
			}
			env.setValue(acted, revision)
			return nil
		},
		Done: func(env *Environment) bool {
			if !env.hasSeen(env.value(acted)) || !env.ReadyWith(kind, objectName, 1) {
				return false
			}
			for _, check := range also {
				if !check(env) {
					return false
				}
			}
			return true
		},
	}
}

// setValue stores a value for later steps.
func (env *Environment) setValue(name, value string) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.values[name] = value
}

func (env *Environment) value(name string) string {
	env.mu.Lock()
	defer env.mu.Unlock()
	return env.values[name]
}

// hasSeen reports whether an event at or after the revision has arrived. It is true without a revision.
func (env *Environment) hasSeen(revision string) bool {
	if revision == "" {
		return true
	}
	want, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("the revision %q: %v", revision, err)) // the API server sets it
	}
	env.history.mu.Lock()
	defer env.history.mu.Unlock()
	for i := len(env.history.versions) - 1; i >= 0; i-- {
		if env.history.versions[i].Revision >= want {
			return true
		}
	}
	return false
}

// editAs changes an object under another field manager and returns the new resource version.
func editAs[T client.Object](ctx context.Context, env *Environment, manager, name string, object T, change func(T)) (string, error) {
	err := Edit(ctx, env, manager, name, object, change)
	return object.GetResourceVersion(), err
}

// deleteChild deletes a child as another client. The step is done when the child was recreated.
func deleteChild(primary, kind string, object func() client.Object) Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error { return env.Delete(ctx, object(), objectName) },
		Done: func(env *Environment) bool {
			return env.Created(kind, objectName) > 1 && env.Get(kind, objectName) != nil && env.ReadyWith(primary, objectName, 1)
		},
	}
}

// Field returns the value at a path.
func Field(object *unstructured.Unstructured, path ...string) (value any, found bool, err error) {
	return unstructured.NestedFieldCopy(object.Object, path...)
}

// field returns the value at a path as text, or an empty string without an object.
func field(object *unstructured.Unstructured, path ...string) string {
	if object == nil {
		return ""
	}
	value, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
	return fmt.Sprint(value)
}
