package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

var drifts = []measure.Drift{
	{
		Name: "image", List: &appsv1.DeploymentList{},
		Meddle:   measure.Edit(func(d *appsv1.Deployment) { container(d).Image = foreign }),
		Repaired: measure.Seen(func(d *appsv1.Deployment) bool { return container(d).Image != foreign }),
	},
	{
		Name: "scale", List: &appsv1.DeploymentList{},
		Meddle:   measure.Scale(replicas + 3),
		Repaired: measure.Seen(func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == replicas }),
	},
	{
		Name: "env", List: &appsv1.DeploymentList{},
		Meddle:   measure.Edit(func(d *appsv1.Deployment) { container(d).Env[0].Value = foreign }),
		Repaired: measure.Seen(func(d *appsv1.Deployment) bool { return container(d).Env[0].Value != foreign }),
	},
	{
		Name: "selector", List: &corev1.ServiceList{},
		Meddle:   measure.Edit(func(s *corev1.Service) { s.Spec.Selector[workload.LabelName] = foreign }),
		Repaired: measure.Seen(func(s *corev1.Service) bool { return s.Spec.Selector[workload.LabelName] != foreign }),
	},
	{
		Name: "port", List: &corev1.ServiceList{},
		Meddle:   measure.Edit(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString(foreign) }),
		Repaired: measure.Seen(func(s *corev1.Service) bool { return s.Spec.Ports[0].TargetPort.StrVal != foreign }),
	},
	{Name: "Deployment deleted", List: &appsv1.DeploymentList{}, Meddle: measure.Remove[*appsv1.Deployment]()},
	{Name: "Service deleted", List: &corev1.ServiceList{}, Meddle: measure.Remove[*corev1.Service]()},
	{Name: "ConfigMap deleted", List: &corev1.ConfigMapList{}, Meddle: measure.Remove[*corev1.ConfigMap]()},
}

const (
	// foreign is what others write; it is a valid image, value, label and port name.
	foreign  = "elsewhere"
	replicas = 2
)

// container is the server's.
func container(d *appsv1.Deployment) *corev1.Container { return &d.Spec.Template.Spec.Containers[0] }

// newDrifter is an MCPServer that has each kind of child that is meddled with.
func newDrifter(namespace string) *v1beta1.MCPServer {
	server := newServer(namespace, "drifter")
	server.Spec.Replicas = ptr.To[int32](replicas)
	server.Spec.Env = []corev1.EnvVar{{Name: "MODE", Value: "fast"}}
	server.Spec.Files = []v1beta1.MCPServerFile{{Path: "/etc/tools/config.json", Content: "{}"}}
	return server
}

// driftRepair measures how long what others did to an MCPServer's children stands.
func (a *arena) driftRepair(ctx context.Context, rounds int) ([]measure.Row, error) {
	namespace, err := a.newNamespace(ctx, "drift-")
	if err != nil {
		return nil, err
	}
	server := newDrifter(namespace)
	if err := a.user.Create(ctx, server); err != nil {
		return nil, err
	}
	return measure.Repairs{
		User: a.user, Key: client.ObjectKeyFromObject(server), Drifts: drifts, Rounds: rounds, Timeout: timeout,
		Ready: func(ctx context.Context) error { return a.untilReady(ctx, server) },
	}.Measure(ctx)
}
