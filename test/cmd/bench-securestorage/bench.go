package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// bench is a cloud, and a manager for one namespace that works on it.
type bench struct {
	api       client.Client
	namespace string
	server    *fakecloud.Server
	demo      fakecloud.Demo
	close     func()
}

func newBench(ctx context.Context, c *cluster.Cluster, namespace string, knobs fakecloud.Knobs) (*bench, error) {
	api, err := client.New(c.Admin(), client.Options{Scheme: controllers.NewScheme()})
	if err != nil {
		return nil, err
	}
	if err := api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return nil, err
	}
	b := &bench{api: api, namespace: namespace, server: fakecloud.New(fakecloud.Options{Knobs: knobs, Seed: 1})}
	b.demo = b.server.SeedDemo()
	endpoint := b.server.StartHTTP()
	config := cloud.Config{Cloud: endpoint.Cloud(), AllowHTTP: true, Transport: endpoint.Client(), Limits: cloud.Limits{
		WritesPerSecond: knobs.Writes.PerSecond, WritesBurst: int(knobs.Writes.Capacity),
		ReadsPerSecond: knobs.Reads.PerSecond, ReadsBurst: int(knobs.Reads.Capacity),
	}}
	stop, err := startManager(ctx, c, namespace, config)
	if err != nil {
		endpoint.Close()
		return nil, err
	}
	b.close = func() {
		stop()
		endpoint.Close()
	}
	return b, nil
}

func startManager(ctx context.Context, c *cluster.Cluster, namespace string, config cloud.Config) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	const workers = 20
	mgr, err := controllers.NewManager(ctx, c.Admin(), controllers.Options{
		Namespaces: []string{namespace}, Controllers: []string{securestorage.Name}, Concurrency: workers,
		Cloud: config, Credentials: cloud.TokenCredentials{Token: fakecloud.Token("manager")}, AmbientScopes: harness.AmbientScopes(), Logger: logr.Discard(),
	})
	if err != nil {
		cancel()
		return nil, err
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		// A manager that cannot work shows in objects that never become Ready.
		_ = mgr.Start(ctx)
	}()
	return func() {
		cancel()
		<-stopped
	}, nil
}

func (b *bench) create(ctx context.Context, objects int, poll time.Duration) error {
	for i := range objects {
		err := b.api.Create(ctx, &v1beta1.SecureStorage{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%05d", i), Namespace: b.namespace},
			Spec: v1beta1.SecureStorageSpec{
				Provider:       v1beta1.SecureStorageProvider{SubscriptionID: b.demo.Subscription, ResourceGroup: b.demo.Group, Location: b.demo.Location},
				Key:            v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: b.demo.Vault}, Name: b.demo.Key},
				DeletionPolicy: v1beta1.DeletionDelete,
				PollInterval:   metav1.Duration{Duration: poll},
			},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// untilReady returns when so many objects are Ready.
func (b *bench) untilReady(ctx context.Context, objects int) (time.Time, error) {
	return b.until(ctx, func(list []v1beta1.SecureStorage) bool {
		ready := 0
		for i := range list {
			if meta.IsStatusConditionTrue(list[i].Status.Conditions, v1beta1.ConditionReady) {
				ready++
			}
		}
		return ready == objects
	})
}

func (b *bench) deleteAll(ctx context.Context) error {
	if err := b.api.DeleteAllOf(ctx, &v1beta1.SecureStorage{}, client.InNamespace(b.namespace)); err != nil {
		return err
	}
	_, err := b.until(ctx, func(list []v1beta1.SecureStorage) bool { return len(list) == 0 })
	return err
}

func (b *bench) until(ctx context.Context, check func([]v1beta1.SecureStorage) bool) (time.Time, error) {
	const timeout, interval = 10 * time.Minute, 250 * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("the objects did not reach the expected state"))
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		var list v1beta1.SecureStorageList
		if err := b.api.List(ctx, &list, client.InNamespace(b.namespace)); err != nil {
			return time.Time{}, err
		}
		if check(list.Items) {
			return time.Now(), nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
}
