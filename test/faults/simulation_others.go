package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// stranger is the field manager of somebody who edits children by hand.
const stranger = "kubectl-edit"

// happening is what others do.
type happening struct {
	what string
	// loses is for what can only be mended by making an account anew.
	loses bool
	do    func(context.Context, *World, *subject) error
}

// drifts are what others do to children, which may not be there, or not be there yet.
var drifts = []happening{
	{what: "edits the pods", do: drift(&appsv1.Deployment{}, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = "registry.test/other:1"
		d.Labels["app.kubernetes.io/name"] = "other"
	})},
	{what: "edits the Service", do: drift(&corev1.Service{}, func(s *corev1.Service) { s.Spec.Selector["app.kubernetes.io/name"] = "other" })},
	{what: "gives the Service another port", do: drift(&corev1.Service{}, func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })},
	{what: "edits the ConfigMap", do: drift(&corev1.ConfigMap{}, func(c *corev1.ConfigMap) {
		for key := range c.Data {
			c.Data[key] = "other"
		}
	})},
	{what: "scales the Deployment", do: rescale},
	{what: "deletes the Deployment", do: loss(func() client.Object { return &appsv1.Deployment{} })},
	{what: "deletes the Service", do: loss(func() client.Object { return &corev1.Service{} })},
	{what: "deletes the ConfigMap", do: loss(func() client.Object { return &corev1.ConfigMap{} })},
	{what: "deletes the autoscaler", do: loss(func() client.Object { return &autoscalingv2.HorizontalPodAutoscaler{} })},
	{what: "deletes the disruption budget", do: loss(func() client.Object { return &policyv1.PodDisruptionBudget{} })},
	{what: "deletes the Ingress", do: loss(func() client.Object { return &networkingv1.Ingress{} })},
}

// notThen turns what keeps others from doing what they would do into that.
func notThen(err error) error {
	if isLate(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return errNotThen
	}
	return err
}

func drift[T client.Object](child T, change func(T)) func(context.Context, *World, *subject) error {
	return func(ctx context.Context, w *World, s *subject) error {
		live, ok := child.DeepCopyObject().(T)
		if !ok {
			return fmt.Errorf("%T is no object", child)
		}
		return notThen(Edit(ctx, w, stranger, s.Name, live, change))
	}
}

func loss(child func() client.Object) func(context.Context, *World, *subject) error {
	return func(ctx context.Context, w *World, s *subject) error {
		return notThen(w.Delete(ctx, child(), s.Name, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}
}

func rescale(ctx context.Context, w *World, s *subject) error {
	const many = 7
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: w.Namespace}}
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: many}}
	return notThen(w.As("kubectl").SubResource("scale").Update(ctx, d, client.WithSubResourceBody(scale)))
}

// meddlings are what others do in the cloud. The manager is made to look afterwards, since nothing tells
// it.
var meddlings = []happening{
	{what: "platform keys", do: meddled((*fakecloud.Server).UsePlatformKeys)},
	{what: "no tags", do: meddled(func(c *fakecloud.Server, account string) error { return c.SetTags(account, nil) })},
	{what: "no grants", do: meddled(func(c *fakecloud.Server, account string) error { return c.RemoveGrants(c.Principal(account)) })},
	{what: "no identity", do: meddled((*fakecloud.Server).DropIdentity)},
	{what: "a new version of the key", do: func(_ context.Context, w *World, _ *subject) error {
		_, err := w.Cloud.RotateKey(w.Demo.Vault, w.Demo.Key)
		return err
	}},
	{what: "the account is lost", loses: true, do: accountLoss},
}

// accountLoss is waited out: whoever forbids in the meantime that another account is made has none.
func accountLoss(ctx context.Context, w *World, s *subject) error {
	if err := meddled((*fakecloud.Server).DeleteAccount)(ctx, w, s); err != nil {
		return err
	}
	if !w.Await(stamina, func() bool { return w.isWhole(s.Name) }) {
		return errors.New("no other account was ever made")
	}
	return nil
}

// meddled waits until the account is whole, but not for ever: of an account without a tag and with
// another identity, nothing tells any more whose it is, and it would rightly be left alone.
func meddled(meddle func(*fakecloud.Server, string) error) func(context.Context, *World, *subject) error {
	return func(ctx context.Context, w *World, s *subject) error {
		const patience = 4 * time.Second
		live := &v1alpha1.SecureStorage{}
		if err := w.Bench.API.Get(ctx, w.Key(s.Name), live); err != nil {
			return err
		}
		if !w.Await(patience, func() bool { return w.ReadyWith(SecureStorage, s.Name, live.Generation) && w.isWhole(s.Name) }) {
			return errNotThen
		}
		if err := meddle(w.Cloud, w.Account(s.Name)); err != nil {
			return err
		}
		_, err := w.Poke(ctx, s.Name)
		return err
	}
}

// isWhole says whether a SecureStorage has an account that is known to be its own, with a grant and the
// customer's key.
func (w *World) isWhole(name string) bool {
	live := w.Get(SecureStorage, name)
	if live == nil || !saysReady(live) {
		return false
	}
	account, ok := w.Cloud.Account(accountOf(live))
	principal := account.Identity.PrincipalID
	return ok && principal != "" && principal == field(live, "status", "principalID") && account.Tags[cloud.OwnerTag] == string(live.GetUID()) &&
		account.Key != string(v1alpha1.EncryptionPlatformKeys) && account.ProvisioningState == "Succeeded" &&
		len(grantsOf(w.Cloud, principal)) > 0
}
