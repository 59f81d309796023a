package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/contest"
	"github.com/fixpoint-dev/fixpoint/test/harness"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// benchStorages counts the requests to the cloud for SecureStorages that are settled. The cloud is a hundred times as
// fast as Azure, and so are the limits of requests, since those of Azure would let the creation take an hour.
func benchStorages(ctx context.Context, s settings) (table string, err error) {
	ctx, e, err := newEnvironment(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	const faster = 100
	knobs := fakecloud.Realistic().Compress(faster)
	server := fakecloud.New(fakecloud.Options{Knobs: knobs, Seed: 1})
	demo := server.SeedDemo()
	endpoint := server.StartHTTP()
	defer endpoint.Close()
	managing, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	defer func() {
		stop(nil)
		<-ended
	}()
	mgr, err := controllers.NewManager(managing, e.cluster.Config("fixpoint-manager", cluster.Masters), controllers.Options{
		Controllers: []string{securestorage.Name},
		Cloud: cloud.Config{Cloud: endpoint.Cloud(), AllowHTTP: true, Transport: endpoint.Client(), Limits: cloud.Limits{
			WritesPerSecond: knobs.Writes.PerSecond, WritesBurst: int(knobs.Writes.Capacity),
			ReadsPerSecond: knobs.Reads.PerSecond, ReadsBurst: int(knobs.Reads.Capacity),
		}},
		Credentials: cloud.TokenCredentials{Token: fakecloud.Token("manager")}, AmbientScopes: harness.AmbientScopes(),
		Logger: logr.Discard(),
	})
	if err != nil {
		close(ended)
		return "", err
	}
	go func() {
		defer close(ended)
		if err := mgr.Start(managing); err != nil {
			stop(err)
		}
	}()
	progress("creating SecureStorages")
	err = contest.Each(managing, s.storages, func(ctx context.Context, i int) error { return e.user.Create(ctx, newStorage(i, s, demo)) })
	if err != nil {
		return "", err
	}
	if err := e.untilReady(managing, &v1beta1.SecureStorageList{}, s.storages); err != nil {
		return "", err
	}
	progress("counting requests to the cloud")
	rows, err := polling(managing, s, server)
	return measure.Table(rows), err
}

func newStorage(i int, s settings, demo fakecloud.Demo) *v1beta1.SecureStorage {
	return &v1beta1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objectName(i)},
		Spec: v1beta1.SecureStorageSpec{
			Provider:     v1beta1.SecureStorageProvider{SubscriptionID: demo.Subscription, ResourceGroup: demo.Group, Location: demo.Location},
			Key:          v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: demo.Vault}, Name: demo.Key},
			PollInterval: metav1.Duration{Duration: s.poll},
		},
	}
}

// polling counts requests for one interval, after all objects have been polled once.
func polling(ctx context.Context, s settings, server *fakecloud.Server) ([]measure.Row, error) {
	if err := pause(ctx, s.poll); err != nil {
		return nil, err
	}
	server.ResetCounts()
	if err := pause(ctx, s.poll); err != nil {
		return nil, err
	}
	total := server.Total("")
	const most = 5
	perSecond := float64(total.Calls()) / s.poll.Seconds()
	return []measure.Row{
		{
			What: fmt.Sprintf("%d settled SecureStorages polled every %s: requests to the cloud per second", s.storages, s.poll),
			Bar:  fmt.Sprintf("at most %d", most), Measured: fmt.Sprintf("%.2f", perSecond), OK: perSecond <= most,
		},
		{What: "of these, writes", Bar: "0", Measured: fmt.Sprint(total.Writes), OK: total.Writes == 0},
	}, nil
}
