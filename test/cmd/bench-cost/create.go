package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// events is the resource of the Events that managers send.
const events = "events.events.k8s.io"

// each does something for the name of every AppService.
func (c *column) each(ctx context.Context, do func(ctx context.Context, name string) error) error {
	failures := make([]error, c.count)
	workqueue.ParallelizeUntil(ctx, clients, c.count, func(i int) { failures[i] = do(ctx, fmt.Sprintf("app-%d", i)) })
	return errors.Join(failures...)
}

// create measures the way of all AppServices to Ready.
func (c *column) create(ctx context.Context) error {
	var err error
	if c.emptyHeap, err = measure.LiveHeap(ctx, c.manager.Pprof); err != nil {
		return err
	}
	mark, err := c.cluster.Audit().Mark()
	if err != nil {
		return err
	}
	before, err := processorTime(c.manager)
	if err != nil {
		return err
	}
	server := measure.ProcessorTimes()[apiServer]
	profiled := c.profile(ctx)
	latencies, took, err := c.untilReady(ctx)
	if err := errors.Join(err, profiled()); err != nil {
		return err
	}
	if err := c.settle(ctx, c.manager); err != nil {
		return err
	}
	after, err := processorTime(c.manager)
	if err != nil {
		return err
	}
	if c.created, err = c.requests(mark); err != nil {
		return err
	}
	count := float64(c.count)
	c.values[rowReady] = took.Seconds()
	c.values[rowReadyMedian], c.values[rowReadyTail] = measure.Quantile(latencies, 0.5), measure.Quantile(latencies, 0.99)
	c.values[rowReadyProcessor] = (after - before).Seconds()
	c.values[rowReadyServer] = (measure.ProcessorTimes()[apiServer] - server).Seconds()
	c.values[rowReadyWrites] = float64(len(c.created.Except(events).Writes())) / count
	c.values[rowReadyEvents] = float64(len(c.created.Of(events).Writes())) / count
	return c.memory(ctx)
}

// apiServer is the name of its process.
const apiServer = "kube-apiserver"

// memory measures the memory of the manager with all AppServices.
func (c *column) memory(ctx context.Context) error {
	memory, err := measure.MemoryOf(c.manager.PID())
	if err != nil {
		return err
	}
	heap, err := measure.LiveHeap(ctx, c.manager.Pprof)
	if err != nil {
		return err
	}
	c.values[rowAnonymous], c.values[rowResident], c.values[rowPeak] = memory.Anonymous, memory.Resident, memory.Peak
	c.values[rowHeap] = (heap - c.emptyHeap) / float64(c.count)
	if c.profiles == "" {
		return nil
	}
	profile, err := measure.Profile(ctx, http.DefaultClient, c.manager.Pprof, "heap?gc=1")
	return errors.Join(err, os.WriteFile(filepath.Join(c.profiles, c.program.Name+"-heap.pprof"), profile, 0o600))
}

// untilReady creates all AppServices and returns the seconds that each took to become Ready, and the time until all
// were.
func (c *column) untilReady(ctx context.Context) (latencies []float64, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	w, err := c.user.Watch(ctx, &v1alpha1.AppServiceList{}, client.InNamespace(c.namespace))
	if err != nil {
		return nil, 0, err
	}
	defer w.Stop()
	var sent sync.Map // of the times at which the creates were sent, by name
	began, created := time.Now(), make(chan error, 1)
	go func() {
		created <- c.each(ctx, func(ctx context.Context, name string) error {
			sent.Store(name, time.Now())
			return c.user.Create(ctx, newApp(c.namespace, name))
		})
	}()
	ready := map[string]bool{}
	for len(ready) < c.count {
		select {
		case err := <-created:
			if err != nil {
				return nil, 0, fmt.Errorf("creating AppServices: %w", err)
			}
			created = nil
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("%d of %d AppServices are Ready: %w", len(ready), c.count, ctx.Err())
		case event, open := <-w.ResultChan():
			if !open {
				return nil, 0, fmt.Errorf("the watch ended with %d of %d AppServices Ready", len(ready), c.count)
			}
			app, ok := event.Object.(*v1alpha1.AppService)
			if !ok || ready[app.Name] || !isReady(app) {
				continue
			}
			ready[app.Name] = true
			if at, ok := sent.Load(app.Name); ok {
				latencies = append(latencies, time.Since(at.(time.Time)).Seconds())
			}
		}
	}
	return latencies, time.Since(began), nil
}

func isReady(app *v1alpha1.AppService) bool {
	return app.Status.ObservedGeneration == app.Generation && meta.IsStatusConditionTrue(app.Status.Conditions, v1alpha1.ConditionReady)
}

// profile writes CPU profiles of the manager and of the API server, of a few seconds each, until the function that it
// returns is called. `go tool pprof` merges profiles that it is given together.
func (c *column) profile(ctx context.Context) func() error {
	if c.profiles == "" {
		return func() error { return nil }
	}
	ended := make(chan struct{})
	var failures [2]error
	var group sync.WaitGroup
	group.Go(func() { failures[0] = c.profileUntil(ctx, ended, http.DefaultClient, c.manager.Pprof, "manager") })
	group.Go(func() {
		server, err := rest.HTTPClientFor(c.cluster.Admin())
		if err == nil {
			err = c.profileUntil(ctx, ended, server, c.cluster.URL(), apiServer)
		}
		failures[1] = err
	})
	return func() error {
		close(ended)
		group.Wait()
		return errors.Join(failures[:]...)
	}
}

func (c *column) profileUntil(ctx context.Context, ended <-chan struct{}, server *http.Client, url, name string) error {
	for i := 1; ; i++ {
		profile, err := measure.Profile(ctx, server, url, "profile?seconds=2")
		if err != nil {
			return err
		}
		file := filepath.Join(c.profiles, fmt.Sprintf("%s-%s-%02d.pprof", c.program.Name, name, i))
		if err := os.WriteFile(file, profile, 0o600); err != nil {
			return err
		}
		select {
		case <-ended:
			return nil
		default:
		}
	}
}
