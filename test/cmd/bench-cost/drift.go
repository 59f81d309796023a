package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/contest"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

const (
	foreignImage = "elsewhere.example/x:1"
	nameLabel    = "app.kubernetes.io/name"
)

var drifts = []measure.Drift{
	{
		Name: rowDriftImage, List: &appsv1.DeploymentList{},
		Meddle:   measure.Edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = foreignImage }),
		Repaired: measure.Seen(func(d *appsv1.Deployment) bool { return d.Spec.Template.Spec.Containers[0].Image == contest.Image }),
	},
	{
		Name: rowDriftScale, List: &appsv1.DeploymentList{},
		Meddle:   measure.Scale(contest.Replicas + 3),
		Repaired: measure.Seen(func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == contest.Replicas }),
	},
	{
		Name: rowDriftSelector, List: &corev1.ServiceList{},
		Meddle:   measure.Edit(func(s *corev1.Service) { s.Spec.Selector[nameLabel] = "elsewhere" }),
		Repaired: measure.Seen(func(s *corev1.Service) bool { return s.Spec.Selector[nameLabel] == s.Name }),
	},
	{
		Name: rowDriftConfig, List: &corev1.ConfigMapList{},
		Meddle:   measure.Edit(func(c *corev1.ConfigMap) { c.Data[contest.Setting] = "debug" }),
		Repaired: measure.Seen(func(c *corev1.ConfigMap) bool { return c.Data[contest.Setting] == contest.Value }),
	},
	{Name: rowDriftDeployment, List: &appsv1.DeploymentList{}, Meddle: measure.Remove[*appsv1.Deployment]()},
	{Name: rowDriftService, List: &corev1.ServiceList{}, Meddle: measure.Remove[*corev1.Service]()},
	{Name: rowDriftConfigMap, List: &corev1.ConfigMapList{}, Meddle: measure.Remove[*corev1.ConfigMap]()},
}

// drift measures the repair of what others change, among all AppServices.
func (c *column) drift(ctx context.Context) error {
	namespace, err := c.newNamespace(ctx)
	if err != nil {
		return err
	}
	app := contest.NewApp(namespace, "drifting")
	if err := c.user.Create(ctx, app); err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(app)
	took, err := measure.Repairs{
		User: c.user, Key: key, Drifts: drifts, Rounds: c.repairs, Timeout: timeout,
		Ready: func(ctx context.Context) error {
			return poll(ctx, func(ctx context.Context) (bool, error) { return c.isComplete(ctx, key) })
		},
	}.Times(ctx)
	if err != nil {
		return err
	}
	for name, times := range took {
		c.values[name] = measure.Median(times)
	}
	if err := c.user.Delete(ctx, app); err != nil {
		return err
	}
	_, err = c.untilGone(ctx, namespace)
	return err
}

// isComplete reports whether an AppService is Ready, its rollout complete, and whether it has its other children.
func (c *column) isComplete(ctx context.Context, key client.ObjectKey) (bool, error) {
	app, deployment, service, config := contest.NewApp("", ""), &appsv1.Deployment{}, &corev1.Service{}, &corev1.ConfigMap{}
	for _, object := range []client.Object{app, deployment, service, config} {
		if err := c.user.Get(ctx, key, object); err != nil {
			return false, client.IgnoreNotFound(err)
		}
	}
	status, desired := deployment.Status, int32(contest.Replicas)
	rolledOut := status.ObservedGeneration == deployment.Generation && status.Replicas == desired &&
		status.UpdatedReplicas == desired && status.AvailableReplicas == desired
	return contest.IsReady(app) && rolledOut, nil
}
