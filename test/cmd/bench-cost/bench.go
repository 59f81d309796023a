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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/contest"
)

// timeout limits each wait.
const timeout = 20 * time.Minute

// bench is a cluster, and the two managers that run on it in turn.
type bench struct {
	settings
	cluster            *cluster.Cluster
	user               client.WithWatch
	textbook, fixpoint contest.Program
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
	var err error
	if b.textbook, b.fixpoint, err = contest.Managers(ctx, b.cluster.Dir()); err != nil {
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

func poll(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	const interval = 5 * time.Millisecond
	return wait.PollUntilContextTimeout(ctx, interval, timeout, true, condition)
}

func (b *bench) settle(ctx context.Context, manager *contest.Running) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return contest.Settle(ctx, b.cluster, manager, contest.Quiet)
}
