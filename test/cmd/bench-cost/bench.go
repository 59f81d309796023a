package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

const (
	// clients is how many requests the user sends at a time.
	clients = 10
	// timeout limits each wait.
	timeout = 20 * time.Minute
	// quiet is how long nothing happens before the cluster counts as settled.
	quiet = 3 * time.Second
)

// bench is a cluster, and the two managers that run on it in turn.
type bench struct {
	settings
	cluster            *cluster.Cluster
	user               client.WithWatch
	textbook, fixpoint measure.Program
}

func newBench(ctx context.Context, s settings) (*bench, error) {
	c, err := cluster.Start(ctx, cluster.Options{
		Parts: cluster.All, Audit: true, Nodes: 10,
		CRDPaths: []string{filepath.Join("..", "config", "crd", "bases")},
		Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
	})
	if err != nil {
		return nil, err
	}
	b := &bench{settings: s, cluster: c}
	if err := b.prepare(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return b, nil
}

// prepare builds both managers.
func (b *bench) prepare(ctx context.Context) error {
	b.textbook = measure.Program{Name: "textbook", User: "textbook-manager"}
	b.fixpoint = measure.Program{Name: "Fixpoint", User: "fixpoint-manager", Args: []string{"--controllers=appservice"}}
	var err error
	if b.textbook.Path, err = measure.Build(ctx, ".", "./cmd/textbook", b.cluster.Dir()); err != nil {
		return err
	}
	if b.fixpoint.Path, err = measure.Build(ctx, "..", "./cmd/manager", b.cluster.Dir()); err != nil {
		return err
	}
	b.user, err = client.NewWithWatch(b.cluster.Config("user", cluster.Masters), client.Options{Scheme: controllers.NewScheme()})
	return err
}

// newNamespace creates a namespace and waits until pods can be created in it.
func (b *bench) newNamespace(ctx context.Context) (string, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := b.user.Create(ctx, namespace); err != nil {
		return "", err
	}
	account := client.ObjectKey{Namespace: namespace.Name, Name: "default"}
	return namespace.Name, poll(ctx, func(ctx context.Context) (bool, error) {
		err := b.user.Get(ctx, account, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
}

// newApp is the AppService of the bars: with a config, and 2 replicas.
func newApp(namespace, name string) *v1alpha1.AppService {
	return &v1alpha1.AppService{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.AppServiceSpec{
			Image:    image,
			Replicas: ptr.To[int32](replicas),
			Config:   map[string]string{setting: "info", "GREETING": "hello"},
		},
	}
}

const (
	image    = "registry.example/shop:1"
	replicas = 2
	setting  = "LOG_LEVEL"
)

func poll(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	const interval = 5 * time.Millisecond
	return wait.PollUntilContextTimeout(ctx, interval, timeout, true, condition)
}

// settle waits until nobody has written anything for a while, and a manager has used almost no processor time. Leases
// are written all the time.
func (b *bench) settle(ctx context.Context, manager *measure.Running) error {
	const almostNone = 30 * time.Millisecond
	position, err := b.cluster.Audit().Mark()
	if err != nil {
		return err
	}
	var used time.Duration
	since := time.Now()
	return wait.PollUntilContextTimeout(ctx, quiet/10, timeout, true, func(context.Context) (bool, error) {
		recorded, err := b.cluster.Audit().Since(position)
		if err != nil {
			return false, err
		}
		position += cluster.Mark(len(recorded))
		now, err := processorTime(manager)
		if len(recorded.Writes().Except("leases.coordination.k8s.io")) > 0 || now > used+almostNone {
			used, since = now, time.Now()
		}
		return time.Since(since) > quiet, err
	})
}

// processorTime is that of a manager, or nothing if none runs.
func processorTime(manager *measure.Running) (time.Duration, error) {
	if manager == nil {
		return 0, nil
	}
	if !manager.Running() {
		return 0, manager.Failure(errors.New("the manager has ended"))
	}
	return measure.ProcessorTime(manager.PID())
}
