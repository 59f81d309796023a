package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// object is an object of a Fixpoint kind under test.
type object struct {
	client dynamic.Interface
	// cache serves reads without requests to the API server.
	cache client.Reader
	kind  string
	types.NamespacedName
}

func (o object) String() string { return o.kind + " " + o.NamespacedName.String() }

func (o object) access() dynamic.ResourceInterface {
	return o.client.Resource(v1beta1.SchemeGroupVersion.WithResource(strings.ToLower(o.kind) + "s")).Namespace(o.Namespace)
}

// apply creates the object or replaces its spec, like `kubectl replace`.
func (o object) apply(ctx context.Context, spec any) (*unstructured.Unstructured, error) {
	for {
		tree := specs.Clone(map[string]any{"spec": spec})
		live, err := o.access().Get(ctx, o.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return o.access().Create(ctx, build(o.kind, o.Name, tree), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", o, err)
		}
		live.Object["spec"] = tree["spec"]
		updated, err := o.access().Update(ctx, live, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
		if !apierrors.IsConflict(err) {
			return updated, err
		}
	}
}

// waitUntil waits until the object has at least the given generation and fulfills a predicate.
func (o object) waitUntil(ctx context.Context, since int64, is func(*unstructured.Unstructured) bool) error {
	live := build(o.kind, o.Name, map[string]any{})
	err := wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		err := o.cache.Get(ctx, o.NamespacedName, live)
		if apierrors.IsNotFound(err) {
			return false, nil // the cache can lag behind the creation
		}
		return err == nil && live.GetGeneration() >= since && is(live), err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w; it is %s", o, err, describe(live))
	}
	return nil
}

// waitSettled waits until the object is Ready or reports why it does not become Ready.
func (o object) waitSettled(ctx context.Context, since int64) (*unstructured.Unstructured, error) {
	var settled *unstructured.Unstructured
	err := o.waitUntil(ctx, since, func(live *unstructured.Unstructured) bool {
		settled = live
		return isSettled(live)
	})
	return settled, err
}

// remove deletes the object and waits until it is gone.
func (o object) remove(ctx context.Context) error {
	if err := o.access().Delete(ctx, o.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s: %w", o, err)
	}
	live, isAbandoned := build(o.kind, o.Name, map[string]any{}), false
	err := wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		err := o.cache.Get(ctx, o.NamespacedName, live)
		if apierrors.IsNotFound(err) {
			return o.isGone(ctx) // the cache can lag behind the creation
		}
		if err == nil && !isAbandoned && waitsForCredentials(live) {
			isAbandoned = true
			return false, o.abandon(ctx)
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to be deleted: %w; it is %s", o, err, describe(live))
	}
	return nil
}

// isGone reads from the API server.
func (o object) isGone(ctx context.Context) (bool, error) {
	_, err := o.access().Get(ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// waitsForCredentials reports whether a deletion of a SecureStorage waits because its credentials are missing.
func waitsForCredentials(live *unstructured.Unstructured) bool {
	return live.GetDeletionTimestamp() != nil && conditions(live)["Ready"].Reason == v1beta1.ReasonCredentialsMissing
}

// abandon sets the annotation that ends such a deletion.
func (o object) abandon(ctx context.Context) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1beta1.AnnotationAbandon)
	if _, err := o.access().Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("abandoning %s: %w", o, err)
	}
	return nil
}

// watchKinds returns a cache of all objects and children for the duration of a test.
func watchKinds(t *testing.T) client.Reader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	watched, err := cache.New(shared.Admin(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = watched.Start(ctx) }()
	var all []client.Object
	for _, kind := range kinds {
		all = append(all, build(kind.Name, "", map[string]any{}))
	}
	for _, kind := range childKinds() {
		child := &unstructured.Unstructured{}
		child.SetGroupVersionKind(kind)
		all = append(all, child)
	}
	for _, object := range all {
		if _, err := watched.GetInformer(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	return watched
}

// conditions returns the conditions of an object by type.
func conditions(live *unstructured.Unstructured) map[string]metav1.Condition {
	raw, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	text, err := json.Marshal(raw)
	if err != nil {
		return nil
	}
	var list []metav1.Condition
	if json.Unmarshal(text, &list) != nil {
		return nil
	}
	all := map[string]metav1.Condition{}
	for _, condition := range list {
		all[condition.Type] = condition
	}
	return all
}

// isObserved reports whether the status observes the current generation.
func isObserved(live *unstructured.Unstructured) bool {
	observed, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
	return observed == live.GetGeneration() && conditions(live)["Ready"].ObservedGeneration == live.GetGeneration()
}

// isReady reports whether Ready is True for the current generation.
func isReady(live *unstructured.Unstructured) bool {
	return isObserved(live) && conditions(live)["Ready"].Status == metav1.ConditionTrue
}

// transientReasons are reasons of conditions that change without further action.
var transientReasons = map[string]bool{
	v1beta1.ReasonProgressing: true, v1beta1.ReasonRolloutProgressing: true, v1beta1.ReasonRecreating: true, v1beta1.ReasonPruning: true,
	v1beta1.ReasonProtocolPending: true, v1beta1.ReasonCreating: true, v1beta1.ReasonUpdating: true, v1beta1.ReasonWaitingForPrincipal: true,
	v1beta1.ReasonGranting: true, v1beta1.ReasonPropagating: true, v1beta1.ReasonEncrypting: true, v1beta1.ReasonOperationInProgress: true,
	v1beta1.ReasonThrottled: true, v1beta1.ReasonEncryptionDrifted: true, v1beta1.ReasonAPIUnavailable: true,
}

// isSettled reports whether the object is Ready or reports why it does not become Ready.
func isSettled(live *unstructured.Unstructured) bool {
	return isObserved(live) && !transientReasons[conditions(live)["Ready"].Reason]
}

// describe returns the spec and the status for error messages.
func describe(live *unstructured.Unstructured) string {
	if live == nil {
		return "absent"
	}
	text, err := json.Marshal(map[string]any{"generation": live.GetGeneration(), "spec": live.Object["spec"], "status": live.Object["status"]})
	if err != nil {
		return err.Error()
	}
	return string(text)
}
