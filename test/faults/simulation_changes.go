package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// externalManager is the field manager of a client that edits children.
const externalManager = "kubectl-edit"

// externalChange is a change by another client.
type externalChange struct {
	description string
	// losesAccount is true if only a new account can fix the change.
	losesAccount bool
	run          func(context.Context, *Environment, *simulatedObject) error
}

// childChanges are changes of children, which may not exist at that time: edits of some fields, and the deletion of
// a child of each kind.
var childChanges = slices.Concat([]externalChange{
	{description: "edits the pod template", run: editChild(&appsv1.Deployment{}, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = "registry.test/other:1"
		d.Labels["app.kubernetes.io/name"] = "other"
	})},
	{description: "edits the Service", run: editChild(&corev1.Service{}, func(s *corev1.Service) { s.Spec.Selector["app.kubernetes.io/name"] = "other" })},
	{description: "changes the port of the Service", run: editChild(&corev1.Service{}, func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })},
	{description: "edits the ConfigMap", run: editChild(&corev1.ConfigMap{}, func(c *corev1.ConfigMap) {
		for key := range c.Data {
			c.Data[key] = "other"
		}
	})},
	{description: "scales the Deployment", run: scaleChild},
}, childDeletions())

func childDeletions() []externalChange {
	var changes []externalChange
	for _, kind := range childKinds {
		changes = append(changes, externalChange{description: "deletes the " + kind.Kind, run: deleteChildOf(kind)})
	}
	return changes
}

// ignoreMissing maps errors that are expected without the object to errNotPossible.
func ignoreMissing(err error) error {
	if isServerTimeout(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return errNotPossible
	}
	return err
}

func editChild[T client.Object](child T, change func(T)) func(context.Context, *Environment, *simulatedObject) error {
	return func(ctx context.Context, env *Environment, s *simulatedObject) error {
		live, ok := child.DeepCopyObject().(T)
		if !ok {
			return fmt.Errorf("%T is not a client.Object", child)
		}
		return ignoreMissing(Edit(ctx, env, externalManager, s.Name, live, change))
	}
}

func deleteChildOf(kind schema.GroupVersionKind) func(context.Context, *Environment, *simulatedObject) error {
	return func(ctx context.Context, env *Environment, s *simulatedObject) error {
		child := &unstructured.Unstructured{}
		child.SetGroupVersionKind(kind)
		return ignoreMissing(env.Delete(ctx, child, s.Name, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}
}

func scaleChild(ctx context.Context, env *Environment, s *simulatedObject) error {
	const many = 7
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: env.Namespace}}
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: many}}
	return ignoreMissing(env.As("kubectl").SubResource("scale").Update(ctx, d, client.WithSubResourceBody(scale)))
}

// cloudChanges are changes in the cloud, and of the exported objects. Each one in the cloud is followed by a reconcile, because
// the cloud sends no events.
var cloudChanges = []externalChange{
	{description: "switch to platform keys", run: changeCloudState((*fakecloud.Server).UsePlatformKeys)},
	{description: "remove the tags", run: changeCloudState(func(c *fakecloud.Server, account string) error { return c.SetTags(account, nil) })},
	{description: "remove the grants", run: changeCloudState(func(c *fakecloud.Server, account string) error { return c.RemoveGrants(c.Principal(account)) })},
	{description: "remove the identity", run: changeCloudState((*fakecloud.Server).DropIdentity)},
	{description: "rotate the key", run: func(_ context.Context, env *Environment, _ *simulatedObject) error {
		_, err := env.Cloud.RotateKey(env.Demo.Vault, env.Demo.Key)
		return err
	}},
	{description: "regenerate a key of the account", run: changeCloudState(func(c *fakecloud.Server, account string) error { return c.RegenerateKey(account, "key2") })},
	{description: "edits the exported ConfigMap", run: editChild(&corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data["blobEndpoint"] = "other" })},
	{description: "edits the exported Secret", run: editChild(&corev1.Secret{}, func(s *corev1.Secret) { s.Data["key1"] = []byte("other") })},
	{description: "deletes the exported ConfigMap", run: deleteChildOf(corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
	{description: "deletes the exported Secret", run: deleteChildOf(corev1.SchemeGroupVersion.WithKind("Secret"))},
	{description: "delete the account", losesAccount: true, run: accountLoss},
}

// accountLoss deletes the account and waits for the new one, because a later edit can forbid to recreate it.
func accountLoss(ctx context.Context, env *Environment, s *simulatedObject) error {
	if err := changeCloudState((*fakecloud.Server).DeleteAccount)(ctx, env, s); err != nil {
		return err
	}
	if !env.WaitUntil(simulationTimeout, func() bool { return env.isEncryptedAndGranted(s.Name) }) {
		return errors.New("the account was not recreated")
	}
	return nil
}

// changeCloudState waits for a complete account, for a limited time. If an account lost its tag and its identity
// at once, nothing would prove its ownership, and the manager would rightly not touch it.
func changeCloudState(change func(*fakecloud.Server, string) error) func(context.Context, *Environment, *simulatedObject) error {
	return func(ctx context.Context, env *Environment, s *simulatedObject) error {
		const timeout = 4 * time.Second
		live := &v1beta1.SecureStorage{}
		if err := env.Cluster.API.Get(ctx, env.Key(s.Name), live); err != nil {
			return err
		}
		if !env.WaitUntil(timeout, func() bool {
			return env.ReadyWith(SecureStorage, s.Name, live.Generation) && env.isEncryptedAndGranted(s.Name)
		}) {
			return errNotPossible
		}
		if err := change(env.Cloud, env.Account(s.Name)); err != nil {
			return err
		}
		_, err := env.TriggerReconcile(ctx, s.Name)
		return err
	}
}

// isEncryptedAndGranted reports whether a SecureStorage has an account with its owner tag, a grant and the
// customer-managed key.
func (env *Environment) isEncryptedAndGranted(name string) bool {
	live := env.Get(SecureStorage, name)
	if live == nil || !saysReady(live) {
		return false
	}
	account, ok := env.Cloud.Account(accountOf(live))
	principal := account.Identity.PrincipalID
	return ok && principal != "" && principal == field(live, "status", "principalID") && account.Tags[cloud.OwnerTag] == string(live.GetUID()) &&
		account.Key != string(v1beta1.EncryptionPlatformKeys) && account.ProvisioningState == "Succeeded" &&
		len(grantsOf(env.Cloud, principal)) > 0
}
