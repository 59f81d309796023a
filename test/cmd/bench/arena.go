package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

const (
	managerUser = "fixpoint-manager"
	userUser    = "user"
	timeout     = 5 * time.Minute
	pollEvery   = 5 * time.Millisecond
)

// arena is a whole cluster, with a manager in this process.
type arena struct {
	cluster *cluster.Cluster
	user    client.WithWatch
	manager *runningManager
}

func newArena(ctx context.Context) (*arena, error) {
	c, err := cluster.Start(ctx, cluster.Options{
		Parts:    cluster.All,
		Audit:    true,
		Nodes:    10,
		CRDPaths: []string{filepath.Join(root(), "config/crd/bases")},
		Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
	})
	if err != nil {
		return nil, err
	}
	user, err := client.NewWithWatch(c.Config(userUser, cluster.Masters), client.Options{Scheme: controllers.NewScheme()})
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	a := &arena{cluster: c, user: user}
	if err := a.startManager(ctx, 0); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return a, nil
}

func (a *arena) close() error {
	return errors.Join(a.stopManager(), a.cluster.Stop())
}

// runningManager is a manager and the way to end it.
type runningManager struct {
	ctrl.Manager
	cancel context.CancelFunc
	ended  chan error
}

func (a *arena) startManager(ctx context.Context, sync time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	mgr, err := controllers.NewManager(ctx, a.cluster.Config(managerUser, cluster.Masters), controllers.Options{SyncPeriod: sync})
	if err != nil {
		cancel()
		return err
	}
	a.manager = &runningManager{Manager: mgr, cancel: cancel, ended: make(chan error, 1)}
	go func() { a.manager.ended <- mgr.Start(ctx) }()
	return nil
}

func (a *arena) stopManager() error {
	if a.manager == nil {
		return nil
	}
	a.manager.cancel()
	err := <-a.manager.ended
	a.manager = nil
	return err
}

func (a *arena) newNamespace(ctx context.Context) (string, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	err := a.user.Create(ctx, namespace)
	return namespace.Name, err
}

// newApp is the AppService of the bars: with a config, and 3 replicas.
func newApp(namespace, name string) *v1alpha1.AppService {
	return &v1alpha1.AppService{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.AppServiceSpec{
			Image:    "registry.example/shop:1",
			Replicas: ptr.To[int32](3),
			Config:   map[string]string{"LOG_LEVEL": "info", "GREETING": "hello"},
		},
	}
}

func (a *arena) untilReady(ctx context.Context, apps ...*v1alpha1.AppService) error {
	for _, app := range apps {
		err := poll(ctx, func(ctx context.Context) (bool, error) {
			if err := a.user.Get(ctx, client.ObjectKeyFromObject(app), app); err != nil {
				return false, err
			}
			return app.Status.ObservedGeneration == app.Generation && meta.IsStatusConditionTrue(app.Status.Conditions, v1alpha1.ConditionReady), nil
		})
		if err != nil {
			return fmt.Errorf("waiting until %s is Ready: %w", app.Name, err)
		}
	}
	return nil
}

func poll(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, pollEvery, timeout, true, condition)
}

// untilReconciled waits until the controller has finished so many more reconciles.
func untilReconciled(ctx context.Context, more int) error {
	before, err := measure.Reconciles()
	if err != nil {
		return err
	}
	return poll(ctx, func(context.Context) (bool, error) {
		now, err := measure.Reconciles()
		return now >= before+float64(more), err
	})
}

// root is the folder of the project's main module: this one's parent.
func root() string {
	folder, err := os.Getwd()
	if err != nil {
		return ".."
	}
	return filepath.Dir(folder)
}
