package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/measure"
)

var drifts = []measure.Drift{
	{
		Name: "image", List: &appsv1.DeploymentList{},
		Meddle:   measure.Edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = foreignImage }),
		Repaired: measure.Seen(func(d *appsv1.Deployment) bool { return d.Spec.Template.Spec.Containers[0].Image != foreignImage }),
	},
	{
		Name: "scale", List: &appsv1.DeploymentList{},
		Meddle:   measure.Scale(5),
		Repaired: measure.Seen(func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 3 }),
	},
	{
		Name: "selector", List: &corev1.ServiceList{},
		Meddle:   measure.Edit(func(s *corev1.Service) { s.Spec.Selector[nameLabel] = "nobody" }),
		Repaired: measure.Seen(func(s *corev1.Service) bool { return s.Spec.Selector[nameLabel] != "nobody" }),
	},
	{
		Name: "data", List: &corev1.ConfigMapList{},
		Meddle:   measure.Edit(func(c *corev1.ConfigMap) { c.Data["LOG_LEVEL"] = "debug" }),
		Repaired: measure.Seen(func(c *corev1.ConfigMap) bool { return c.Data["LOG_LEVEL"] == "info" }),
	},
	{Name: "Deployment deleted", List: &appsv1.DeploymentList{}, Meddle: measure.Remove[*appsv1.Deployment]()},
	{Name: "Service deleted", List: &corev1.ServiceList{}, Meddle: measure.Remove[*corev1.Service]()},
	{Name: "ConfigMap deleted", List: &corev1.ConfigMapList{}, Meddle: measure.Remove[*corev1.ConfigMap]()},
}

const (
	foreignImage = "elsewhere.example/x:1"
	nameLabel    = "app.kubernetes.io/name"
)

// driftRepair measures how long what others did to an AppService's children stands.
func (a *arena) driftRepair(ctx context.Context) ([]measure.Row, error) {
	namespace, err := a.newNamespace(ctx)
	if err != nil {
		return nil, err
	}
	app := newApp(namespace, "drifter")
	if err := a.user.Create(ctx, app); err != nil {
		return nil, err
	}
	const rounds = 15
	return measure.Repairs{
		User: a.user, Key: client.ObjectKeyFromObject(app), Drifts: drifts, Rounds: rounds, Timeout: timeout,
		Ready: func(ctx context.Context) error { return a.untilReady(ctx, app) },
	}.Measure(ctx)
}
