package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const (
	managerUser = "fixpoint-manager"
	bareUser    = "bare"
	// concurrency is that of the manager's workers, of the user and of the bare client.
	concurrency = 10
	// timeout is how long all objects together may take to become Ready.
	timeout   = 5 * time.Minute
	pollEvery = 5 * time.Millisecond
)

// arena is a whole cluster, with a manager of MCPServers in this process.
type arena struct {
	cluster *cluster.Cluster
	user    client.WithWatch
	// stopManager ends the manager; nil if none runs.
	stopManager func() error
}

func newArena(ctx context.Context) (*arena, error) {
	c, err := cluster.Start(ctx, cluster.Options{
		Parts: cluster.All, Audit: true, Nodes: 10,
		CRDPaths: []string{filepath.Join("..", "config", "crd", "bases")},
		Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
	})
	if err != nil {
		return nil, err
	}
	user, err := client.NewWithWatch(c.Config("user", cluster.Masters), client.Options{Scheme: controllers.NewScheme()})
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	a := &arena{cluster: c, user: user}
	if err := a.startManager(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return a, nil
}

func (a *arena) close() error {
	var err error
	if a.stopManager != nil {
		err = a.stopManager()
	}
	return errors.Join(err, a.cluster.Stop())
}

// startManager runs a manager in this process until it is stopped, and waits until its caches are full.
func (a *arena) startManager(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	mgr, err := controllers.NewManager(ctx, a.cluster.Config(managerUser, cluster.Masters), controllers.Options{
		Controllers: []string{mcpserver.Name}, Concurrency: concurrency, Logger: logr.Discard(),
	})
	if err != nil {
		cancel()
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	a.stopManager = func() error {
		cancel()
		a.stopManager = nil
		return <-ended
	}
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the manager's caches do not fill")
	}
	return nil
}

// newNamespace makes a namespace and waits until pods can be made in it.
func (a *arena) newNamespace(ctx context.Context, prefix string) (string, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	if err := a.user.Create(ctx, namespace); err != nil {
		return "", err
	}
	account := client.ObjectKey{Namespace: namespace.Name, Name: "default"}
	return namespace.Name, poll(ctx, func(ctx context.Context) (bool, error) {
		err := a.user.Get(ctx, account, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
}

func newServer(namespace, name string) *v1beta1.MCPServer {
	server := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	server.Spec.Image = "registry.test/tools:1"
	server.Spec.Protocol = v1beta1.MCPServerProtocol{
		Probe: v1beta1.ProbeDisabled, Interval: metav1.Duration{Duration: 30 * time.Second}, Timeout: metav1.Duration{Duration: 5 * time.Second}}
	return server
}

func isReady(server *v1beta1.MCPServer) bool {
	return server.Status.ObservedGeneration == server.Generation && meta.IsStatusConditionTrue(server.Status.Conditions, v1beta1.ConditionReady)
}

func (a *arena) untilReady(ctx context.Context, server *v1beta1.MCPServer) error {
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		err := a.user.Get(ctx, client.ObjectKeyFromObject(server), server)
		return err == nil && isReady(server), err
	})
	if err != nil {
		return fmt.Errorf("waiting until %s is Ready: %w", server.Name, err)
	}
	return nil
}

func poll(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, pollEvery, timeout, true, condition)
}

// requests are those of the manager, watches and Events aside.
func (a *arena) requests(mark cluster.Mark) (cluster.Requests, error) {
	all, err := a.cluster.Audit().Since(mark)
	if err != nil {
		return nil, err
	}
	return all.By(managerUser).Except("events.events.k8s.io").Where(func(r cluster.Request) bool { return r.Verb != "watch" }), nil
}

// settle waits until the manager has sent nothing for a while.
func (a *arena) settle(ctx context.Context) error {
	const quiet = 3 * time.Second
	mark, err := a.cluster.Audit().Mark()
	if err != nil {
		return err
	}
	seen, since := 0, time.Now()
	return wait.PollUntilContextTimeout(ctx, quiet/10, timeout, true, func(context.Context) (bool, error) {
		all, err := a.cluster.Audit().Since(mark)
		if sent := len(all.By(managerUser)); sent != seen {
			seen, since = sent, time.Now()
		}
		return time.Since(since) > quiet, err
	})
}
