package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// lap is what one round of one of the two took.
type lap struct {
	took     time.Duration
	requests cluster.Requests
	cpu      cpuTimes
}

// race makes many MCPServers and many sets of the same children, in turn, and in another order every
// other round, since a cluster grows slower.
func (a *arena) race(ctx context.Context, s settings) ([]measure.Row, string, error) {
	children, err := a.children(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("finding out the children: %w", err)
	}
	contestants := []func(context.Context, string) error{
		func(ctx context.Context, namespace string) error { return a.bare(ctx, namespace, s.count, children) },
		func(ctx context.Context, namespace string) error { return a.managed(ctx, namespace, s.count) },
	}
	laps := make([][]lap, len(contestants))
	for round := range s.rounds {
		order := []int{0, 1}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			one, err := a.lap(ctx, contestants[i], profileName(s.profiles, round, i))
			if err != nil {
				return nil, "", err
			}
			laps[i] = append(laps[i], one)
		}
	}
	return compare(s.count, laps[0], laps[1]), split(s.count, laps[0], laps[1]), nil
}

func (a *arena) lap(ctx context.Context, run func(context.Context, string) error, profiles string) (lap, error) {
	namespace, err := a.newNamespace(ctx, "race-")
	if err != nil {
		return lap{}, err
	}
	if err := a.settle(ctx); err != nil {
		return lap{}, err
	}
	mark, err := a.cluster.Audit().Mark()
	if err != nil {
		return lap{}, err
	}
	profiled, err := a.profile(ctx, profiles)
	if err != nil {
		return lap{}, err
	}
	cpu, started := readCPU(), time.Now()
	if err := run(ctx, namespace); err != nil {
		return lap{}, err
	}
	took := time.Since(started)
	cpu = readCPU().minus(cpu)
	if err := profiled(); err != nil {
		return lap{}, err
	}
	if err := a.settle(ctx); err != nil {
		return lap{}, err
	}
	requests, err := a.cluster.Audit().Since(mark)
	ofTheLap := func(r cluster.Request) bool {
		return r.Namespace == namespace || r.User == managerUser || r.User == bareUser
	}
	return lap{took: took, requests: requests.Where(ofTheLap), cpu: cpu}, err
}

// each does something for every name, as many at a time as the manager has workers.
func each(ctx context.Context, count int, do func(ctx context.Context, name string) error) error {
	failures := make([]error, count)
	workqueue.ParallelizeUntil(ctx, concurrency, count, func(i int) { failures[i] = do(ctx, fmt.Sprintf("server-%d", i)) })
	return errors.Join(failures...)
}

// managed makes MCPServers and waits until all are Ready.
func (a *arena) managed(ctx context.Context, namespace string, count int) error {
	return a.untilAll(ctx, namespace, count, &v1beta1.MCPServerList{}, func(o client.Object) bool {
		server, ok := o.(*v1beta1.MCPServer)
		return ok && isReady(server)
	}, func(ctx context.Context, name string) error { return a.user.Create(ctx, newServer(namespace, name)) })
}

// bare applies the children with nothing around it, and waits for the same Deployments.
func (a *arena) bare(ctx context.Context, namespace string, count int, children []string) error {
	api, err := client.New(a.cluster.Config(bareUser, cluster.Masters), client.Options{})
	if err != nil {
		return err
	}
	return a.untilAll(ctx, namespace, count, &appsv1.DeploymentList{}, func(o client.Object) bool {
		deployment, ok := o.(*appsv1.Deployment)
		return ok && deployment.Status.AvailableReplicas > 0
	}, func(ctx context.Context, name string) error {
		for _, text := range children {
			object := &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte(strings.NewReplacer("NAMESPACE", namespace, model, name).Replace(text)), &object.Object); err != nil {
				return err
			}
			if err := api.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(bareUser), client.ForceOwnership); err != nil {
				return err
			}
		}
		return nil
	})
}

// untilAll does something for every name, and waits until a watch has shown that all are well.
func (a *arena) untilAll(ctx context.Context, namespace string, count int, list client.ObjectList, isWell func(client.Object) bool, do func(context.Context, string) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	w, err := a.user.Watch(ctx, list, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	defer w.Stop()
	done := make(chan error, 1)
	go func() { done <- each(ctx, count, do) }()
	well := map[string]bool{}
	for len(well) < count {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			done = nil
		case event, open := <-w.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended with %d of %d well", len(well), count)
			}
			if o, ok := event.Object.(client.Object); ok && isWell(o) {
				well[o.GetName()] = true
			}
		}
	}
	return nil
}

func compare(count int, bare, managed []lap) []measure.Row {
	const mostWrites, mostTimes = 7.0, 1.4
	var writes, bares, manageds, ratios, processor []float64
	for i := range managed {
		writes = append(writes, float64(len(managed[i].requests.By(managerUser).Except("events.events.k8s.io").Writes()))/float64(count))
		bares = append(bares, bare[i].took.Seconds())
		manageds = append(manageds, managed[i].took.Seconds())
		ratios = append(ratios, managed[i].took.Seconds()/bare[i].took.Seconds())
		processor = append(processor, managed[i].cpu.total()/bare[i].cpu.total())
	}
	return []measure.Row{
		{
			What: fmt.Sprintf("%d MCPServers from the first create to all Ready: writes by the manager for each", count),
			Bar:  fmt.Sprintf("at most %.0f", mostWrites), Measured: fmt.Sprintf("%.2f", slices.Max(writes)), OK: slices.Max(writes) <= mostWrites,
		},
		{
			What: fmt.Sprintf("the same, wall time as a multiple of a bare client's: median of %d rounds (all of them)", len(ratios)),
			Bar:  fmt.Sprintf("at most %.2f", mostTimes),
			Measured: fmt.Sprintf("%.2f (%s): %.1f s, the bare client %.1f s",
				measure.Median(ratios), spread(ratios), measure.Median(manageds), measure.Median(bares)),
			OK: measure.Median(ratios) <= mostTimes,
		},
		{
			What: "the same, processor time of all processes of the cluster and of the client as a multiple, which other load does not change",
			Bar:  "-", Measured: fmt.Sprintf("%.2f (%s)", measure.Median(processor), spread(processor)), OK: true,
		},
	}
}

func spread(values []float64) string {
	var texts []string
	for _, value := range values {
		texts = append(texts, fmt.Sprintf("%.2f", value))
	}
	return strings.Join(texts, ", ")
}

// split says where the time goes: processor time by process, and requests by client.
func split(count int, bare, managed []lap) string {
	var b strings.Builder
	b.WriteString("Processor time in seconds, median of the rounds:\n\n| process | bare client | MCPServers |\n| --- | --- | --- |\n")
	for _, name := range processNames(bare, managed) {
		fmt.Fprintf(&b, "| %s | %.2f | %.2f |\n", name, medianCPU(bare, name), medianCPU(managed, name))
	}
	b.WriteString("\nRequests for each in the last round, watches aside:\n\n| client | request | bare client | MCPServers |\n| --- | --- | --- | --- |\n")
	last := len(managed) - 1
	byClient := func(r cluster.Request) string { return r.User + " | " + measure.ByTarget(r) }
	b.WriteString(measure.RequestTable(count, bare[last].requests, managed[last].requests, byClient))
	return b.String()
}

func medianCPU(laps []lap, name string) float64 {
	var values []float64
	for _, l := range laps {
		values = append(values, l.cpu[name].Seconds())
	}
	return measure.Median(values)
}
