package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
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

// drift measures the repair of what others change, among all AppServices. Then it stops the manager, and measures how
// long the one request takes with which the manager repairs it: an update or a create, or an apply. That is the part of
// the API server.
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
	if err := c.repairsOf(ctx, key, drifts); err != nil {
		return err
	}
	if err := c.stop(); err != nil {
		return err
	}
	if err := c.repairsOf(ctx, key, c.bareDrifts()); err != nil {
		return err
	}
	if err := c.start(ctx); err != nil {
		return err
	}
	if err := c.user.Delete(ctx, app); err != nil {
		return err
	}
	_, err = c.untilGone(ctx, namespace)
	return err
}

// repairsOf measures drifts one at a time, each on a cluster at rest: a Deployment is rolled out, or reported, for some
// time after its repair.
func (c *column) repairsOf(ctx context.Context, key client.ObjectKey, drifts []measure.Drift) error {
	const quiet = 300 * time.Millisecond
	took, err := measure.Repairs{
		User: c.user, Key: key, Drifts: drifts, Rounds: c.repairs, Timeout: timeout,
		Ready: func(ctx context.Context) error {
			if err := poll(ctx, func(ctx context.Context) (bool, error) { return c.isComplete(ctx, key) }); err != nil {
				return err
			}
			return contest.Settle(ctx, c.cluster, c.manager, quiet)
		},
	}.Times(ctx)
	for name, times := range took {
		c.values[name] = measure.Median(times)
	}
	return err
}

// bareDrifts are the drifts, each repaired by one request of the benchmark itself.
func (c *column) bareDrifts() []measure.Drift {
	bare := slices.Clone(drifts)
	for i := range bare {
		d, before := &bare[i], client.Object(nil)
		meddle, isRemoved := d.Meddle, d.Repaired == nil
		d.Name = bareRow(d.Name)
		d.Meddle = func(ctx context.Context, user client.Client, key client.ObjectKey) error {
			var err error
			if before, err = readItem(ctx, user, d.List, key); err != nil {
				return err
			}
			return meddle(ctx, user, key)
		}
		d.Repair = func(ctx context.Context, user client.Client, _ client.ObjectKey) error {
			if c.program.Name == c.textbook.Name {
				return c.write(ctx, user, before, isRemoved)
			}
			return apply(ctx, user, before)
		}
	}
	return bare
}

// readItem reads an object of the kind that a list has.
func readItem(ctx context.Context, user client.Client, list client.ObjectList, key client.ObjectKey) (client.Object, error) {
	kind, err := user.GroupVersionKindFor(list)
	if err != nil {
		return nil, err
	}
	item, err := user.Scheme().New(kind.GroupVersion().WithKind(strings.TrimSuffix(kind.Kind, "List")))
	if err != nil {
		return nil, err
	}
	object, ok := item.(client.Object)
	if !ok {
		return nil, fmt.Errorf("the items of %T are no objects", list)
	}
	return object, user.Get(ctx, key, object)
}

// write writes a child as the textbook controller does.
func (c *column) write(ctx context.Context, user client.Client, child client.Object, create bool) error {
	child.SetResourceVersion("") // which the edit has changed
	if !create {
		return user.Update(ctx, child, client.FieldOwner(c.program.Name))
	}
	child.SetUID("")
	if service, ok := child.(*corev1.Service); ok {
		service.Spec.ClusterIP, service.Spec.ClusterIPs = "", nil
	}
	return user.Create(ctx, child, client.FieldOwner(c.program.Name))
}

// apply writes a child as Fixpoint does.
func apply(ctx context.Context, user client.Client, child client.Object) error {
	var configuration any
	var err error
	switch child := child.(type) {
	case *appsv1.Deployment:
		configuration, err = appsv1ac.ExtractDeployment(child, appservice.FieldManager)
	case *corev1.Service:
		configuration, err = corev1ac.ExtractService(child, appservice.FieldManager)
	case *corev1.ConfigMap:
		configuration, err = corev1ac.ExtractConfigMap(child, appservice.FieldManager)
	default:
		err = fmt.Errorf("a %T has no apply configuration here", child)
	}
	if err != nil {
		return err
	}
	body, err := json.Marshal(configuration)
	if err != nil {
		return err
	}
	// The options of client.Apply have no validation of fields.
	return user.Patch(ctx, child, client.RawPatch(types.ApplyPatchType, body),
		client.FieldOwner(appservice.FieldManager), client.ForceOwnership, client.FieldValidation(metav1.FieldValidationIgnore))
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
