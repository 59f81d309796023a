package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/test/contest"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// events is the resource of the Events that managers send.
const events = "events.events.k8s.io"

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
	before, err := c.manager.ProcessorTime()
	if err != nil {
		return err
	}
	server := measure.ProcessorTimes()[apiServer]
	profiled := c.profile(ctx, partCreate)
	ready, err := c.createApps(ctx)
	if err := errors.Join(err, profiled()); err != nil {
		return err
	}
	if err := c.settle(ctx, c.manager); err != nil {
		return err
	}
	after, err := c.manager.ProcessorTime()
	if err != nil {
		return err
	}
	if c.created, err = c.requests(mark); err != nil {
		return err
	}
	count := float64(c.count)
	var latencies []float64
	for _, one := range ready {
		latencies = append(latencies, one.Took.Seconds())
	}
	c.values[rowReady] = ready[len(ready)-1].At.Seconds()
	c.values[rowReadyMedian], c.values[rowReadyTail] = measure.Quantile(latencies, 0.5), measure.Quantile(latencies, 0.99)
	c.values[rowReadyProcessor] = (after - before).Seconds()
	c.values[rowReadyServer] = (measure.ProcessorTimes()[apiServer] - server).Seconds()
	c.values[rowReadyWrites] = float64(len(c.created.Except(events).Writes())) / count
	c.values[rowReadyEvents] = float64(len(c.created.Of(events).Writes())) / count
	return c.memory(ctx)
}

func (c *column) createApps(ctx context.Context) ([]contest.Readiness, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return contest.CreateApps(ctx, c.user, c.namespace, c.count)
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

// profile writes CPU profiles of the manager and of the API server, of a few seconds each, until the function that it
// returns is called. `go tool pprof` merges profiles that it is given together.
func (c *column) profile(ctx context.Context, part string) func() error {
	if c.profiles == "" {
		return func() error { return nil }
	}
	ended := make(chan struct{})
	var failures [2]error
	var group sync.WaitGroup
	group.Go(func() { failures[0] = c.profileUntil(ctx, ended, http.DefaultClient, c.manager.Pprof, part+"-manager") })
	group.Go(func() {
		server, err := rest.HTTPClientFor(c.cluster.Admin())
		if err == nil {
			err = c.profileUntil(ctx, ended, server, c.cluster.URL(), part+"-"+apiServer)
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
