package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// oneReconcile measures a reconcile of one Ready AppService, with the caches of a manager in this process.
func oneReconcile(ctx context.Context) (row measure.Row, err error) {
	c, err := cluster.Start(ctx, cluster.Options{Parts: cluster.All, CRDPaths: []string{filepath.Join("..", "config", "crd", "bases")}})
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	mgr, err := controllers.NewManager(ctx, c.Admin(), controllers.Options{Controllers: []string{appservice.Name}})
	if err != nil {
		return row, err
	}
	managing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(managing) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	app, err := readyApp(ctx, c)
	if err != nil {
		return row, err
	}
	return reconciles(ctx, mgr, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(app)})
}

// readyApp creates an AppService and waits until it is Ready.
func readyApp(ctx context.Context, c *cluster.Cluster) (*v1beta1.AppService, error) {
	const interval, timeout = 100 * time.Millisecond, time.Minute
	user, err := client.New(c.Admin(), client.Options{Scheme: controllers.NewScheme()})
	if err != nil {
		return nil, err
	}
	app := &v1beta1.AppService{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "shop"},
		Spec: v1beta1.AppServiceSpec{
			Image:    "registry.example/shop:1",
			Replicas: ptr.To[int32](2),
			Config:   map[string]string{"LOG_LEVEL": "info", "GREETING": "hello"},
		},
	}
	if err := user.Create(ctx, app); err != nil {
		return nil, err
	}
	return app, wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		err := user.Get(ctx, client.ObjectKeyFromObject(app), app)
		return err == nil && harness.IsReady(app), err
	})
}

func reconciles(ctx context.Context, mgr ctrl.Manager, request reconcile.Request) (measure.Row, error) {
	engine, err := appservice.NewEngine(mgr, appservice.Options{})
	if err != nil {
		return measure.Row{}, err
	}
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
	return measure.Row{
		What:     "a reconcile of a Ready AppService with config, cache reads included",
		Bar:      fmt.Sprintf("at most %d µs", bar),
		Measured: fmt.Sprintf("%.0f µs", took),
		OK:       took <= bar,
	}, failure
}
