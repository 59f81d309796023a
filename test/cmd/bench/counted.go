package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// writesToReady counts what one AppService after another costs, from its creation until it is Ready.
func (a *arena) writesToReady(ctx context.Context) ([]measure.Row, error) {
	namespace, err := a.newNamespace(ctx)
	if err != nil {
		return nil, err
	}
	const samples, bar = 10, 7
	var counts []int
	var worst cluster.Requests
	for i := range samples {
		mark, err := a.cluster.Audit().Mark()
		if err != nil {
			return nil, err
		}
		app := newApp(namespace, fmt.Sprintf("app-%d", i))
		if err := a.user.Create(ctx, app); err != nil {
			return nil, err
		}
		if err := a.untilReady(ctx, app); err != nil {
			return nil, err
		}
		requests, err := a.requestsSince(mark)
		if err != nil {
			return nil, err
		}
		writes := requests.Writes()
		if len(counts) == 0 || len(writes) > len(worst) {
			worst = writes
		}
		counts = append(counts, len(writes))
	}
	if len(worst) > bar {
		fmt.Fprintln(os.Stderr, worst)
	}
	return []measure.Row{{
		What:     "writes from create to Ready, AppService with config, replicas 3",
		Bar:      fmt.Sprintf("at most %d", bar),
		Measured: fmt.Sprintf("median %d, most %d", measure.Median(counts), len(worst)),
		OK:       len(worst) <= bar,
	}}, nil
}

// requestsSince are the manager's, leases, Events and watches aside.
func (a *arena) requestsSince(mark cluster.Mark) (cluster.Requests, error) {
	requests, err := a.cluster.Audit().Since(mark)
	if err != nil {
		return nil, err
	}
	return requests.By(managerUser).Except("leases.coordination.k8s.io", "events.events.k8s.io").
		Where(func(r cluster.Request) bool { return r.Verb != "watch" }), nil
}

// atRest counts the requests for many Ready AppServices when all of them are reconciled again, in a running
// manager and in one that has just started, and measures how long one reconcile takes.
func (a *arena) atRest(ctx context.Context, count int) ([]measure.Row, error) {
	namespace, err := a.newNamespace(ctx)
	if err != nil {
		return nil, err
	}
	apps := make([]*v1alpha1.AppService, count)
	started := time.Now()
	for i := range apps {
		apps[i] = newApp(namespace, fmt.Sprintf("app-%d", i))
		if err := a.user.Create(ctx, apps[i]); err != nil {
			return nil, err
		}
	}
	if err := a.untilReady(ctx, apps...); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "%d AppServices are Ready after %s\n", count, time.Since(started).Round(time.Second))

	resync, err := a.resync(ctx, count)
	if err != nil {
		return nil, err
	}
	restart, err := a.restart(ctx, namespace, count)
	if err != nil {
		return nil, err
	}
	one, err := a.oneReconcile(ctx, apps[0])
	return append(append(resync, restart...), one...), err
}

// resync runs a manager that reconciles every object every few seconds, and counts from its second
// round on.
func (a *arena) resync(ctx context.Context, count int) ([]measure.Row, error) {
	if err := a.stopManager(); err != nil {
		return nil, err
	}
	const period = 5 * time.Second
	if err := a.startManager(ctx, period); err != nil {
		return nil, err
	}
	if err := untilReconciled(ctx, count); err != nil {
		return nil, err
	}
	mark, err := a.cluster.Audit().Mark()
	if err != nil {
		return nil, err
	}
	if err := untilReconciled(ctx, 2*count); err != nil {
		return nil, err
	}
	requests, err := a.requestsSince(mark)
	if err != nil {
		return nil, err
	}
	if len(requests) > 0 {
		fmt.Fprintln(os.Stderr, requests)
	}
	return []measure.Row{{
		What:     fmt.Sprintf("requests by the manager over %d Ready AppServices in a forced resync of all", count),
		Bar:      "0",
		Measured: fmt.Sprint(len(requests)),
		OK:       len(requests) == 0,
	}}, nil
}

// restart restarts the manager, and checks that it writes nothing and that no object changes.
func (a *arena) restart(ctx context.Context, namespace string, count int) ([]measure.Row, error) {
	if err := a.stopManager(); err != nil {
		return nil, err
	}
	before, err := a.versions(ctx, namespace)
	if err != nil {
		return nil, err
	}
	mark, err := a.cluster.Audit().Mark()
	if err != nil {
		return nil, err
	}
	if err := a.startManager(ctx, 0); err != nil {
		return nil, err
	}
	if err := untilReconciled(ctx, count); err != nil {
		return nil, err
	}
	requests, err := a.requestsSince(mark)
	if err != nil {
		return nil, err
	}
	after, err := a.versions(ctx, namespace)
	if err != nil {
		return nil, err
	}
	moved := 0
	for object, version := range before {
		if after[object] != version {
			moved++
		}
	}
	writes := len(requests.Writes())
	return []measure.Row{{
		What:     "the same after a restart of the manager: applies; resourceVersions moved",
		Bar:      "0; 0",
		Measured: fmt.Sprintf("%d; %d of %d", writes, moved, len(before)),
		OK:       writes == 0 && moved == 0,
	}}, nil
}

func (a *arena) versions(ctx context.Context, namespace string) (map[string]string, error) {
	versions := map[string]string{}
	add := func(kind string, o client.Object) { versions[kind+"/"+o.GetName()] = o.GetResourceVersion() }
	var apps v1alpha1.AppServiceList
	var deployments appsv1.DeploymentList
	var services corev1.ServiceList
	var configs corev1.ConfigMapList
	for _, list := range []client.ObjectList{&apps, &deployments, &services, &configs} {
		if err := a.user.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
	}
	for i := range apps.Items {
		add("AppService", &apps.Items[i])
	}
	for i := range deployments.Items {
		add("Deployment", &deployments.Items[i])
	}
	for i := range services.Items {
		add("Service", &services.Items[i])
	}
	for i := range configs.Items {
		add("ConfigMap", &configs.Items[i])
	}
	return versions, nil
}

// oneReconcile measures a reconcile of one Ready AppService, with the manager's own caches.
func (a *arena) oneReconcile(ctx context.Context, app *v1alpha1.AppService) ([]measure.Row, error) {
	engine, err := appservice.NewEngine(a.manager, appservice.Options{})
	if err != nil {
		return nil, err
	}
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(app)}
	var failure error
	var times []float64
	for range 5 {
		outcome := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				if _, err := engine.Reconcile(ctx, request); err != nil {
					failure = err
				}
			}
		})
		times = append(times, float64(outcome.NsPerOp())/1000)
	}
	const bar = 150
	took := measure.Median(times)
	return []measure.Row{{
		What:     "a reconcile of a Ready AppService with config, cache reads included",
		Bar:      fmt.Sprintf("at most %d µs", bar),
		Measured: fmt.Sprintf("%.0f µs", took),
		OK:       took <= bar,
	}}, failure
}
