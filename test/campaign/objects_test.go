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

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// object is one of our kinds as a user has it: a name, and specs that are put there.
type object struct {
	client dynamic.Interface
	// seen is a cache, which costs the API server nothing to look at.
	seen client.Reader
	kind string
	types.NamespacedName
}

func (o object) String() string { return o.kind + " " + o.NamespacedName.String() }

func (o object) access() dynamic.ResourceInterface {
	return o.client.Resource(v1alpha1.SchemeGroupVersion.WithResource(strings.ToLower(o.kind) + "s")).Namespace(o.Namespace)
}

// put makes the object, or gives the one that is there another spec, and returns it. It does what
// `kubectl replace` does.
func (o object) put(ctx context.Context, spec any) (*unstructured.Unstructured, error) {
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

// until looks at the object until it is as it is waited for, since a generation of it, and says at
// last how it was.
func (o object) until(ctx context.Context, since int64, is func(*unstructured.Unstructured) bool) error {
	live := build(o.kind, o.Name, map[string]any{})
	err := wait.PollUntilContextTimeout(ctx, interval, patience, true, func(ctx context.Context) (bool, error) {
		err := o.seen.Get(ctx, o.NamespacedName, live)
		if apierrors.IsNotFound(err) {
			return false, nil // it was made a moment ago
		}
		return err == nil && live.GetGeneration() >= since && is(live), err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w; it is %s", o, err, describe(live))
	}
	return nil
}

// settles waits until the object, with its generation, is ready or says why it does not become so.
func (o object) settles(ctx context.Context, since int64) (*unstructured.Unstructured, error) {
	var settled *unstructured.Unstructured
	err := o.until(ctx, since, func(live *unstructured.Unstructured) bool {
		settled = live
		return isSettled(live)
	})
	return settled, err
}

// remove deletes the object, and returns when it is gone.
func (o object) remove(ctx context.Context) error {
	if err := o.access().Delete(ctx, o.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s: %w", o, err)
	}
	live, isAbandoned := build(o.kind, o.Name, map[string]any{}), false
	err := wait.PollUntilContextTimeout(ctx, interval, patience, true, func(ctx context.Context) (bool, error) {
		err := o.seen.Get(ctx, o.NamespacedName, live)
		if apierrors.IsNotFound(err) {
			return o.isGone(ctx) // it may have been made a moment ago
		}
		if err == nil && !isAbandoned && waitsForCredentials(live) {
			isAbandoned = true
			return false, o.abandon(ctx)
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to go: %w; it is %s", o, err, describe(live))
	}
	return nil
}

// isGone asks the API server.
func (o object) isGone(ctx context.Context) (bool, error) {
	_, err := o.access().Get(ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// waitsForCredentials says whether a SecureStorage cannot be deleted because nobody knows, without its
// credentials, what of it is in the cloud.
func waitsForCredentials(live *unstructured.Unstructured) bool {
	return live.GetDeletionTimestamp() != nil && conditions(live)["Ready"].Reason == v1alpha1.ReasonCredentialsMissing
}

// abandon gives up what cannot be reached, as a person does who reads why a deletion waits.
func (o object) abandon(ctx context.Context) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationAbandon)
	if _, err := o.access().Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("abandoning %s: %w", o, err)
	}
	return nil
}

// watchKinds is a cache of the objects of our kinds and of what is made for them, as they are, for the
// time of a test.
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

// conditions of an object, by their types.
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

// isSeen says whether the status is about the spec.
func isSeen(live *unstructured.Unstructured) bool {
	observed, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
	return observed == live.GetGeneration() && conditions(live)["Ready"].ObservedGeneration == live.GetGeneration()
}

// isReady says whether all is as the spec declares.
func isReady(live *unstructured.Unstructured) bool {
	return isSeen(live) && conditions(live)["Ready"].Status == metav1.ConditionTrue
}

// passing are the reasons of what is only a matter of time.
var passing = map[string]bool{
	v1alpha1.ReasonProgressing: true, v1alpha1.ReasonRolloutProgressing: true, v1alpha1.ReasonRecreating: true, v1alpha1.ReasonPruning: true,
	v1alpha1.ReasonProtocolPending: true, v1alpha1.ReasonCreating: true, v1alpha1.ReasonUpdating: true, v1alpha1.ReasonWaitingForPrincipal: true,
	v1alpha1.ReasonGranting: true, v1alpha1.ReasonPropagating: true, v1alpha1.ReasonEncrypting: true, v1alpha1.ReasonOperationInProgress: true,
	v1alpha1.ReasonThrottled: true, v1alpha1.ReasonEncryptionDrifted: true, v1alpha1.ReasonAPIUnavailable: true,
}

// isSettled says whether it is ready, or says why it does not become so.
func isSettled(live *unstructured.Unstructured) bool {
	return isSeen(live) && !passing[conditions(live)["Ready"].Reason]
}

// describe is for messages.
func describe(live *unstructured.Unstructured) string {
	if live == nil {
		return "not there"
	}
	text, err := json.Marshal(map[string]any{"generation": live.GetGeneration(), "spec": live.Object["spec"], "status": live.Object["status"]})
	if err != nil {
		return err.Error()
	}
	return string(text)
}
