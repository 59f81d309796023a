package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/contest"
	"github.com/fixpoint-dev/fixpoint/test/harness"
	"github.com/fixpoint-dev/fixpoint/test/standin"
)

const (
	namespace = metav1.NamespaceDefault
	// timeout limits each wait for all objects.
	timeout = time.Hour
)

// environment is a cluster with the stand-in.
type environment struct {
	cluster *cluster.Cluster
	user    client.WithWatch
	// close stops both.
	close func() error
}

// newEnvironment starts a cluster. The context that it returns ends with the stand-in.
func newEnvironment(ctx context.Context) (context.Context, *environment, error) {
	c, err := cluster.Start(ctx, cluster.Options{
		Audit: true, CRDPaths: []string{filepath.Join("..", "config", "crd", "bases")},
	})
	if err != nil {
		return ctx, nil, err
	}
	user, err := client.NewWithWatch(c.Config("user", cluster.Masters), client.Options{Scheme: controllers.NewScheme()})
	if err != nil {
		return ctx, nil, errors.Join(err, c.Stop())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := standin.Run(ctx, c.Config("stand-in", cluster.Masters)); err != nil {
			cancel(err)
		}
	}()
	return ctx, &environment{cluster: c, user: user, close: func() error {
		cancel(nil)
		<-ended
		return c.Stop()
	}}, nil
}

// untilReady waits until so many objects of a list are Ready.
func (e *environment) untilReady(ctx context.Context, list client.ObjectList, count int) error {
	const interval = 2 * time.Second
	ready := 0
	err := wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		if err := e.user.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		ready = countReady(list)
		return ready == count, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("%d of %d objects are Ready: %w", ready, count, err), context.Cause(ctx))
	}
	return nil
}

func countReady(list client.ObjectList) int {
	ready := 0
	// The function never fails.
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok && harness.IsReady(object) {
			ready++
		}
		return nil
	})
	return ready
}

// settle waits until nothing is written any more, and the manager is idle; nil is a manager that is never idle.
func (e *environment) settle(ctx context.Context, manager *contest.Running) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return contest.Settle(ctx, e.cluster, manager, contest.Quiet)
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// pause waits for a while.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func objectName(i int) string { return fmt.Sprintf("object-%05d", i) }
