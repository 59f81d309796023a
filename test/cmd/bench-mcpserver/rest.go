package main

import (
	"context"
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// atRest counts the requests for all MCPServers of the rounds while nothing changes, and those of a manager
// that has just started and has reconciled each.
func (a *arena) atRest(ctx context.Context, window time.Duration) ([]measure.Row, error) {
	if err := a.settle(ctx); err != nil {
		return nil, err
	}
	before, err := a.versions(ctx)
	if err != nil {
		return nil, err
	}
	mark, err := a.cluster.Audit().Mark()
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(window):
	}
	atRest, err := a.requests(mark)
	if err != nil {
		return nil, err
	}
	writes, err := a.restart(ctx)
	if err != nil {
		return nil, err
	}
	after, err := a.versions(ctx)
	if err != nil {
		return nil, err
	}
	moved := 0
	for object, version := range before {
		if after[object] != version {
			moved++
		}
	}
	return []measure.Row{
		{
			What: fmt.Sprintf("requests by the manager in %s at rest", window),
			Bar:  "0", Measured: fmt.Sprint(len(atRest)), OK: len(atRest) == 0,
		},
		{
			What: "writes after a restart of the manager; resourceVersions moved", Bar: "0; 0",
			Measured: fmt.Sprintf("%d; %d of %d", writes, moved, len(before)), OK: writes == 0 && moved == 0,
		},
	}, nil
}

// restart restarts the manager, and counts its writes until it has reconciled all objects.
func (a *arena) restart(ctx context.Context) (int, error) {
	if err := a.stopManager(); err != nil {
		return 0, err
	}
	var servers v1beta1.MCPServerList
	if err := a.user.List(ctx, &servers); err != nil {
		return 0, err
	}
	mark, err := a.cluster.Audit().Mark()
	if err != nil {
		return 0, err
	}
	before, err := measure.Reconciles()
	if err != nil {
		return 0, err
	}
	if err := a.startManager(ctx); err != nil {
		return 0, err
	}
	err = poll(ctx, func(context.Context) (bool, error) {
		now, err := measure.Reconciles()
		return now >= before+float64(len(servers.Items)), err
	})
	if err != nil {
		return 0, err
	}
	if err := a.settle(ctx); err != nil {
		return 0, err
	}
	requests, err := a.requests(mark)
	if writes := requests.Writes(); len(writes) > 0 {
		fmt.Fprintln(os.Stderr, writes)
	}
	return len(requests.Writes()), err
}

// versions are those of all MCPServers and of their children.
func (a *arena) versions(ctx context.Context) (map[string]string, error) {
	var servers v1beta1.MCPServerList
	var deployments appsv1.DeploymentList
	var services corev1.ServiceList
	if err := a.user.List(ctx, &servers); err != nil {
		return nil, err
	}
	if err := a.user.List(ctx, &deployments); err != nil {
		return nil, err
	}
	if err := a.user.List(ctx, &services); err != nil {
		return nil, err
	}
	versions := map[string]string{}
	add := func(kind string, o client.Object) {
		versions[kind+"/"+o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
	}
	for i := range servers.Items {
		add("MCPServer", &servers.Items[i])
	}
	for i := range deployments.Items {
		add("Deployment", &deployments.Items[i])
	}
	for i := range services.Items {
		add("Service", &services.Items[i])
	}
	return versions, nil
}
