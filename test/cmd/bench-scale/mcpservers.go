package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/test/contest"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// benchServers measures what it costs to probe MCPServers. One server with sessions answers for all of them.
func benchServers(ctx context.Context, s settings) (table string, err error) {
	ctx, e, err := newEnvironment(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	outside, err := deploy.StartOutside()
	if err != nil {
		return "", err
	}
	defer outside.Stop()
	_, program, err := contest.Managers(ctx, e.cluster.Dir())
	if err != nil {
		return "", err
	}
	arguments, err := outside.Arguments(ctx, program.Path)
	if err != nil {
		return "", err
	}
	program.Args = append(arguments, "--controllers="+mcpserver.Name)
	manager, err := program.Start(e.cluster)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, manager.Stop()) }()
	progress("creating MCPServers")
	err = contest.Each(ctx, s.servers, func(ctx context.Context, i int) error { return e.user.Create(ctx, newServer(i)) })
	if err != nil {
		return "", err
	}
	if err := e.untilReady(ctx, &v1beta1.MCPServerList{}, s.servers); err != nil {
		return "", manager.Failure(err)
	}
	if err := e.settle(ctx, nil); err != nil {
		return "", err
	}
	progress("measuring the processor time of probing")
	rows, err := probing(ctx, s, manager, outside)
	return measure.Table(rows), err
}

const probeInterval = 30 * time.Second

func newServer(i int) *v1beta1.MCPServer {
	return &v1beta1.MCPServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objectName(i)},
		Spec: v1beta1.MCPServerSpec{
			Image:    "registry.example/tools:1",
			Replicas: ptr.To[int32](1),
			Protocol: v1beta1.MCPServerProtocol{Interval: metav1.Duration{Duration: probeInterval}, Timeout: metav1.Duration{Duration: probeInterval / 6}},
		},
	}
}

func probing(ctx context.Context, s settings, manager *contest.Running, outside *deploy.Outside) ([]measure.Row, error) {
	before, err := manager.ProcessorTime()
	if err != nil {
		return nil, err
	}
	served := outside.MCPRequests()
	if err := pause(ctx, s.probing); err != nil {
		return nil, err
	}
	after, err := manager.ProcessorTime()
	if err != nil {
		return nil, err
	}
	served = outside.MCPRequests() - served
	memory, err := measure.MemoryOf(manager.PID())
	const most = 0.05
	share := (after - before).Seconds() / s.probing.Seconds()
	return []measure.Row{
		{
			What: fmt.Sprintf("%d MCPServers probed every %s: share of a core", s.servers, probeInterval),
			Bar:  "at most " + measure.Percent(most), Measured: measure.Percent(share), OK: share <= most,
		},
		{
			What: "requests to an MCPServer in an interval", Bar: "-", OK: true,
			Measured: fmt.Sprintf("%.1f", float64(served)/float64(s.servers)/(s.probing.Seconds()/probeInterval.Seconds())),
		},
		{What: "resident memory of the manager", Bar: "-", Measured: measure.Megabytes(memory.Resident), OK: true},
	}, err
}
