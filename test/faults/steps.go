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
func externalAction(kind string, do func(context.Context, *Environment) (revision string, err error), also ...func(*Environment) bool) Step {
	const acted = "acted at "
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

// keep keeps a value under a name, and kept gives it back.
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

// hasSeen says whether an event of the revision, or of a later one, has arrived. Without a revision
// there is nothing to wait for.
func (env *Environment) hasSeen(revision string) bool {
	if revision == "" {
		return true
	}
	want, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("the revision %q: %v", revision, err)) // the API server's own
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

// others changes an object in the name of somebody else, and gives the revision of that.
func editAs[T client.Object](ctx context.Context, env *Environment, manager, name string, object T, change func(T)) (string, error) {
	err := Edit(ctx, env, manager, name, object, change)
	return object.GetResourceVersion(), err
}

// deletedByOthers deletes a child of the kind, as somebody does who takes it for useless. What tells that
// it has been noticed is that it is there a second time.
func deleteChild(primary, kind string, object func() client.Object) Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error { return env.Delete(ctx, object(), objectName) },
		Done: func(env *Environment) bool {
			return env.Created(kind, objectName) > 1 && env.Get(kind, objectName) != nil && env.ReadyWith(primary, objectName, 1)
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
