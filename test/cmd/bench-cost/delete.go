package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/contest"
)

// delete measures the deletion of all AppServices.
func (c *column) delete(ctx context.Context) error {
	if err := c.settle(ctx, c.manager); err != nil {
		return err
	}
	mark, err := c.cluster.Audit().Mark()
	if err != nil {
		return err
	}
	before, err := c.manager.ProcessorTime()
	if err != nil {
		return err
	}
	profiled := c.profile(ctx, partDelete)
	began, gone, waited := time.Now(), map[string]time.Time{}, make(chan error, 1)
	go func() {
		var err error
		gone, err = c.untilGone(ctx, c.namespace)
		waited <- err
	}()
	err = contest.Each(ctx, c.count, func(ctx context.Context, i int) error {
		return c.user.Delete(ctx, contest.NewApp(c.namespace, contest.AppName(i)))
	})
	if err = errors.Join(err, <-waited, profiled()); err != nil {
		return err
	}
	if err := c.settle(ctx, c.manager); err != nil {
		return err
	}
	after, err := c.manager.ProcessorTime()
	if err != nil {
		return err
	}
	if c.deleted, err = c.requests(mark); err != nil {
		return err
	}
	until := func(kinds ...string) float64 {
		var last time.Duration
		for _, kind := range kinds {
			last = max(last, gone[kind].Sub(began))
		}
		return last.Seconds()
	}
	c.values[rowGone] = until(slices.Collect(maps.Keys(gone))...)
	c.values[rowGoneChildren] = until(kindApp, kindConfig, kindService, kindDeployment)
	c.values[rowGoneDeployments] = until(kindDeployment)
	c.values[rowGoneProcessor] = (after - before).Seconds()
	c.values[rowGoneRequests] = float64(len(c.deleted.WithoutWatches())) / float64(c.count)
	c.values[rowGoneWrites] = float64(len(c.deleted.Except(events).Writes())) / float64(c.count)
	return nil
}

// The kinds that AppServices leave objects of.
const (
	kindApp        = "AppService"
	kindConfig     = "ConfigMap"
	kindService    = "Service"
	kindDeployment = "Deployment"
	kindReplicaSet = "ReplicaSet"
	kindPod        = "Pod"
)

// untilGone waits until no objects of AppServices are left in a namespace, and returns when the last of each kind
// was deleted.
func (b *bench) untilGone(ctx context.Context, namespace string) (map[string]time.Time, error) {
	const interval = 100 * time.Millisecond
	left := map[string]client.ObjectList{
		kindApp: &v1beta1.AppServiceList{}, kindConfig: &corev1.ConfigMapList{}, kindService: &corev1.ServiceList{},
		kindDeployment: &appsv1.DeploymentList{}, kindReplicaSet: &appsv1.ReplicaSetList{}, kindPod: &corev1.PodList{},
	}
	// Kubernetes creates this ConfigMap in each namespace.
	notOfKubernetes := client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("metadata.name", "kube-root-ca.crt")}
	gone := map[string]time.Time{}
	err := wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		for kind, list := range left {
			if err := b.user.List(ctx, list, client.InNamespace(namespace), client.Limit(1), notOfKubernetes); err != nil {
				return false, err
			}
			if meta.LenList(list) == 0 {
				gone[kind] = time.Now()
				delete(left, kind)
			}
		}
		return len(left) == 0, nil
	})
	return gone, err
}
