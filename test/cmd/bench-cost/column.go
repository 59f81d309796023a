package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/contest"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// column is what one round measures of one manager.
type column struct {
	*bench
	program   contest.Program
	manager   *contest.Running
	namespace string
	// values are measurements by the name of their row.
	values map[string]float64
	// created and deleted are the requests of the manager on the way to Ready and while all are deleted.
	created, deleted cluster.Requests
	// emptyHeap is the live heap before the first AppService.
	emptyHeap float64
}

func values(columns []column) []map[string]float64 {
	var all []map[string]float64
	for _, c := range columns {
		all = append(all, c.values)
	}
	return all
}

// measure runs the selected parts with one manager. Unless it is the last to run, it leaves no AppService behind.
func (b *bench) measure(ctx context.Context, p contest.Program, last bool) (column, error) {
	c := &column{bench: b, program: p, values: map[string]float64{}}
	defer func() {
		if c.manager != nil {
			_ = c.manager.Stop() // after an error, which says more
		}
	}()
	if err := c.run(ctx, last); err != nil {
		if c.manager != nil && !c.manager.Running() {
			err = c.manager.Failure(err)
		}
		return *c, err
	}
	return *c, nil
}

func (c *column) run(ctx context.Context, last bool) error {
	size, err := os.Stat(c.program.Path)
	if err != nil {
		return err
	}
	c.values[rowBinary] = float64(size.Size())
	if c.namespace, err = c.newNamespace(ctx); err != nil {
		return err
	}
	if c.selects(partEmpty) {
		if err := c.empty(ctx); err != nil {
			return fmt.Errorf("measuring an empty manager: %w", err)
		}
	}
	if err := c.start(ctx); err != nil {
		return err
	}
	populated := c.selects(partCreate, partRest, partRestart, partDelete)
	for _, step := range []struct {
		part     string
		selected bool
		do       func(context.Context) error
	}{
		{partCreate, populated, c.create},
		{partRest, c.selects(partRest), c.atRest},
		{partRest, c.selects(partRest), c.resync},
		{partRestart, c.selects(partRestart), c.restart},
		{partDrift, c.selects(partDrift), c.drift},
		{partDelete, populated && (c.selects(partDelete) || !last), c.delete},
	} {
		if !step.selected {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", c.program.Name, step.part)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("part %s: %w", step.part, err)
		}
	}
	return c.stop()
}

func (c *column) start(ctx context.Context) error {
	manager, err := c.program.Start(c.cluster)
	if err != nil {
		return err
	}
	c.manager = manager
	return c.settle(ctx, manager)
}

func (c *column) stop() error {
	manager := c.manager
	c.manager = nil
	return manager.Stop()
}

// empty measures a manager with all of its controllers before there is any object.
func (c *column) empty(ctx context.Context) error {
	all := c.program
	all.Args = nil
	manager, err := all.Start(c.cluster)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Stop()) }()
	if err := c.settle(ctx, manager); err != nil {
		return err
	}
	memory, err := measure.MemoryOf(manager.PID())
	c.values[rowEmptyAnonymous], c.values[rowEmptyResident] = memory.Anonymous, memory.Resident
	return err
}

// requests are those of the manager since the mark.
func (c *column) requests(since cluster.Mark) (cluster.Requests, error) {
	all, err := c.cluster.Audit().Since(since)
	return all.By(c.program.User), err
}

// atRest counts requests while nothing changes.
func (c *column) atRest(ctx context.Context) error {
	if err := c.settle(ctx, c.manager); err != nil {
		return err
	}
	requests, used, err := c.observe(ctx, c.rest)
	c.values[rowRest], c.values[rowRestProcessor] = float64(len(requests)), used.Seconds()
	return err
}

// resync counts requests while the manager reconciles all AppServices again and again, although nothing changes.
func (c *column) resync(ctx context.Context) error {
	const period, start, window = 5 * time.Second, 8 * time.Second, 12 * time.Second
	if err := c.stop(); err != nil {
		return err
	}
	resyncing := c.program
	resyncing.Args = append(slices.Clone(resyncing.Args), "--sync-period="+period.String())
	var err error
	if c.manager, err = resyncing.Start(c.cluster); err != nil {
		return err
	}
	if _, _, err := c.observe(ctx, start); err != nil {
		return err
	}
	requests, used, err := c.observe(ctx, window)
	if err != nil {
		return err
	}
	c.values[rowResync], c.values[rowResyncProcessor] = float64(len(requests)), used.Seconds()
	if err := c.stop(); err != nil {
		return err
	}
	return c.start(ctx)
}

// observe returns the requests other than watches that the manager sends in a while, and the processor time that it
// uses.
func (c *column) observe(ctx context.Context, window time.Duration) (cluster.Requests, time.Duration, error) {
	mark, err := c.cluster.Audit().Mark()
	if err != nil {
		return nil, 0, err
	}
	before, err := c.manager.ProcessorTime()
	if err != nil {
		return nil, 0, err
	}
	select {
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	case <-time.After(window):
	}
	requests, err := c.requests(mark)
	if err != nil {
		return nil, 0, err
	}
	after, err := c.manager.ProcessorTime()
	return requests.WithoutWatches(), after - before, err
}

// restart measures the start of the manager over all AppServices.
func (c *column) restart(ctx context.Context) error {
	if err := c.stop(); err != nil {
		return err
	}
	mark, err := c.cluster.Audit().Mark()
	if err != nil {
		return err
	}
	if err := c.start(ctx); err != nil {
		return err
	}
	requests, err := c.requests(mark)
	if err != nil {
		return err
	}
	used, err := c.manager.ProcessorTime()
	c.values[rowRestartRequests] = float64(len(requests.Where(cluster.Request.IsSingle)))
	c.values[rowRestartWrites] = float64(len(requests.Writes()))
	c.values[rowRestartProcessor] = used.Seconds()
	return err
}
