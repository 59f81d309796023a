package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// drift is something done by hand to a child, and how one sees that it is put right.
type drift struct {
	name     string
	list     client.ObjectList
	meddle   func(ctx context.Context, c client.Client, server *v1alpha1.MCPServer) error
	repaired func(client.Object) bool
}

var drifts = []drift{
	{
		"image", &appsv1.DeploymentList{},
		edit(func(d *appsv1.Deployment) { container(d).Image = foreign }),
		seen(func(d *appsv1.Deployment) bool { return container(d).Image != foreign }),
	},
	{
		"scale", &appsv1.DeploymentList{},
		scale,
		seen(func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == replicas }),
	},
	{
		"env", &appsv1.DeploymentList{},
		edit(func(d *appsv1.Deployment) { container(d).Env[0].Value = foreign }),
		seen(func(d *appsv1.Deployment) bool { return container(d).Env[0].Value != foreign }),
	},
	{
		"selector", &corev1.ServiceList{},
		edit(func(s *corev1.Service) { s.Spec.Selector[workload.LabelName] = foreign }),
		seen(func(s *corev1.Service) bool { return s.Spec.Selector[workload.LabelName] != foreign }),
	},
	{
		"port", &corev1.ServiceList{},
		edit(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString(foreign) }),
		seen(func(s *corev1.Service) bool { return s.Spec.Ports[0].TargetPort.StrVal != foreign }),
	},
	{"Deployment deleted", &appsv1.DeploymentList{}, remove[*appsv1.Deployment](), nil},
	{"Service deleted", &corev1.ServiceList{}, remove[*corev1.Service](), nil},
	{"ConfigMap deleted", &corev1.ConfigMapList{}, remove[*corev1.ConfigMap](), nil},
}

const (
	// foreign is what others write; it is a valid image, value, label and port name.
	foreign  = "elsewhere"
	replicas = 2
)

// container is the server's.
func container(d *appsv1.Deployment) *corev1.Container { return &d.Spec.Template.Spec.Containers[0] }

// newDrifter is an MCPServer that has each kind of child that is meddled with.
func newDrifter(namespace string) *v1alpha1.MCPServer {
	server := newServer(namespace, "drifter")
	server.Spec.Replicas = ptr.To[int32](replicas)
	server.Spec.Env = []corev1.EnvVar{{Name: "MODE", Value: "fast"}}
	server.Spec.Files = []v1alpha1.MCPServerFile{{Path: "/etc/tools/config.json", Content: "{}"}}
	return server
}

// seen asks a question about an object of one type; one of another type is not repaired.
func seen[P client.Object](repaired func(P) bool) func(client.Object) bool {
	return func(o client.Object) bool {
		typed, ok := o.(P)
		return ok && repaired(typed)
	}
}

type object[T any] interface {
	*T
	client.Object
}

func edit[T any, P object[T]](mutate func(P)) func(context.Context, client.Client, *v1alpha1.MCPServer) error {
	return func(ctx context.Context, c client.Client, server *v1alpha1.MCPServer) error {
		live := P(new(T))
		if err := c.Get(ctx, client.ObjectKeyFromObject(server), live); err != nil {
			return err
		}
		before, ok := live.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("copying a %T", live)
		}
		mutate(live)
		return c.Patch(ctx, live, client.MergeFrom(before), client.FieldOwner("kubectl-edit"))
	}
}

func remove[P object[T], T any]() func(context.Context, client.Client, *v1alpha1.MCPServer) error {
	return func(ctx context.Context, c client.Client, server *v1alpha1.MCPServer) error {
		live := P(new(T))
		live.SetName(server.Name)
		live.SetNamespace(server.Namespace)
		return c.Delete(ctx, live)
	}
}

func scale(ctx context.Context, c client.Client, server *v1alpha1.MCPServer) error {
	target := &appsv1.Deployment{}
	target.Name, target.Namespace = server.Name, server.Namespace
	body := &autoscalingv1.Scale{}
	body.Name, body.Namespace, body.Spec.Replicas = server.Name, server.Namespace, replicas+3
	return c.SubResource("scale").Update(ctx, target, client.WithSubResourceBody(body), client.FieldOwner("kubectl-scale"))
}

// driftRepair measures from the answer to the edit until a watch shows the repair, for each drift
// many times, and one raw apply between them.
func (a *arena) driftRepair(ctx context.Context, rounds int) ([]measurement, error) {
	namespace, err := a.newNamespace(ctx, "drift-")
	if err != nil {
		return nil, err
	}
	server := newDrifter(namespace)
	if err := a.user.Create(ctx, server); err != nil {
		return nil, err
	}
	const bar = 3.0
	var raw []float64
	took := map[string][]float64{}
	for round := range rounds {
		for _, d := range drifts {
			if err := a.untilReady(ctx, server); err != nil {
				return nil, err
			}
			apply, err := a.rawApply(ctx, namespace, fmt.Sprint(round, d.name))
			if err != nil {
				return nil, err
			}
			raw = append(raw, apply)
			repair, err := a.repair(ctx, d, server)
			if err != nil {
				return nil, fmt.Errorf("drift %q: %w", d.name, err)
			}
			took[d.name] = append(took[d.name], repair)
		}
	}
	one := median(raw)
	rows := []measurement{{what: "one raw apply of a Deployment", bar: "-", measured: fmt.Sprintf("%.1f ms", one), ok: true}}
	for _, d := range drifts {
		m := median(took[d.name])
		rows = append(rows, measurement{
			what:     "what others did, put right: " + d.name,
			bar:      fmt.Sprintf("median at most %.0f raw applies", bar),
			measured: fmt.Sprintf("%.1f (%.1f ms)", m/one, m),
			ok:       m <= bar*one,
		})
	}
	return rows, nil
}

// rawApply times one apply that changes a Deployment, past everything of ours, in milliseconds.
func (a *arena) rawApply(ctx context.Context, namespace, value string) (float64, error) {
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "raw", "namespace": namespace, "annotations": map[string]any{"round": value}},
		"spec": map[string]any{
			"replicas": 0,
			"selector": map[string]any{"matchLabels": map[string]any{"app": "raw"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "raw"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "raw", "image": "raw:1"}}},
			},
		},
	})
	if err != nil {
		return 0, err
	}
	target := &appsv1.Deployment{}
	target.Name, target.Namespace = "raw", namespace
	started := time.Now()
	err = a.user.Patch(ctx, target, client.RawPatch(types.ApplyPatchType, raw), client.FieldOwner("raw"), client.ForceOwnership)
	return milliseconds(time.Since(started)), err
}

func (a *arena) repair(ctx context.Context, d drift, server *v1alpha1.MCPServer) (float64, error) {
	w, err := a.user.Watch(ctx, d.list, client.InNamespace(server.Namespace), client.MatchingFields{"metadata.name": server.Name})
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	if err := d.meddle(ctx, a.user, server); err != nil {
		return 0, err
	}
	started := time.Now()
	meddled := false
	for {
		select {
		case event, open := <-w.ResultChan():
			if !open {
				return 0, fmt.Errorf("the watch ended")
			}
			live, ok := event.Object.(client.Object)
			if !ok {
				return 0, fmt.Errorf("the watch showed a %T", event.Object)
			}
			if isRepaired(d, event.Type, live, meddled) {
				return milliseconds(time.Since(started)), nil
			}
			meddled = meddled || event.Type == watch.Deleted || (d.repaired != nil && !d.repaired(live))
		case <-time.After(patience):
			return 0, fmt.Errorf("not repaired within %s", patience)
		}
	}
}

// isRepaired: what was edited is as it was, or what was deleted is there again.
func isRepaired(d drift, event watch.EventType, live client.Object, meddled bool) bool {
	if !meddled || event == watch.Deleted {
		return false
	}
	return d.repaired == nil || d.repaired(live)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
