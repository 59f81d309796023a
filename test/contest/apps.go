package contest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// What the AppServices have.
const (
	Image    = "registry.example/shop:1"
	Replicas = 2
	Setting  = "LOG_LEVEL"
	Value    = "info"
)

// clients is how many requests the user sends at a time.
const clients = 10

// NewApp is the AppService of the benchmarks: with a config, and 2 replicas.
func NewApp(namespace, name string) *v1beta1.AppService {
	return &v1beta1.AppService{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.AppServiceSpec{
			Image:    Image,
			Replicas: ptr.To[int32](Replicas),
			Config:   map[string]string{Setting: Value, "GREETING": "hello"},
		},
	}
}

// AppName is the name of the AppService with a number.
func AppName(i int) string { return fmt.Sprintf("app-%05d", i) }

// IsReady reports whether an AppService is Ready for the spec that it has.
func IsReady(app *v1beta1.AppService) bool {
	return app.Status.ObservedGeneration == app.Generation && meta.IsStatusConditionTrue(app.Status.Conditions, v1beta1.ConditionReady)
}

// Each does something for each number, as many at a time as the user has clients.
func Each(ctx context.Context, count int, do func(ctx context.Context, i int) error) error {
	failures := make([]error, count)
	workqueue.ParallelizeUntil(ctx, clients, count, func(i int) { failures[i] = do(ctx, i) })
	return errors.Join(failures...)
}

// Readiness is how one AppService became Ready: when, since the first was created, and how long after its own creation.
type Readiness struct{ At, Took time.Duration }

// CreateApps creates AppServices and waits until all are Ready. The result is in the order in which they became Ready.
func CreateApps(ctx context.Context, user client.WithWatch, namespace string, count int) ([]Readiness, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := user.Watch(ctx, &v1beta1.AppServiceList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	var sent sync.Map // of the times at which the creates were sent, by name
	began, created := time.Now(), make(chan error, 1)
	go func() {
		created <- Each(ctx, count, func(ctx context.Context, i int) error {
			sent.Store(AppName(i), time.Now())
			return user.Create(ctx, NewApp(namespace, AppName(i)))
		})
	}()
	var all []Readiness
	ready := map[string]bool{}
	for len(ready) < count {
		select {
		case err := <-created:
			if err != nil {
				return nil, fmt.Errorf("creating AppServices: %w", err)
			}
			created = nil
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d AppServices are Ready: %w", len(ready), count, context.Cause(ctx))
		case event, open := <-w.ResultChan():
			if !open {
				return nil, fmt.Errorf("the watch ended with %d of %d AppServices Ready", len(ready), count)
			}
			app, ok := event.Object.(*v1beta1.AppService)
			if !ok || ready[app.Name] || !IsReady(app) {
				continue
			}
			ready[app.Name] = true
			at, _ := sent.Load(app.Name)
			if at, ok := at.(time.Time); ok {
				all = append(all, Readiness{At: time.Since(began), Took: time.Since(at)})
			}
		}
	}
	return all, nil
}

// Quiet is how long nothing happens on a cluster at rest.
const Quiet = 3 * time.Second

// Settle waits until nobody has written anything for as long as quiet says, and the program has used almost no
// processor time; nil is no program. Leases are written all the time.
func Settle(ctx context.Context, c *cluster.Cluster, program *Running, quiet time.Duration) error {
	const almostNone = 30 * time.Millisecond
	position, err := c.Audit().Mark()
	if err != nil {
		return err
	}
	var used time.Duration
	since := time.Now()
	return wait.PollUntilContextCancel(ctx, quiet/10, true, func(context.Context) (bool, error) {
		recorded, err := c.Audit().Since(position)
		if err != nil {
			return false, err
		}
		position += cluster.Mark(len(recorded))
		now := used
		if program != nil {
			if now, err = program.ProcessorTime(); err != nil {
				return false, err
			}
		}
		if len(recorded.Writes().Except("leases.coordination.k8s.io")) > 0 || now > used+almostNone {
			used, since = now, time.Now()
		}
		return time.Since(since) > quiet, nil
	})
}
