package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/contest"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// The rows of AppServices.
const (
	rowReady            = "created and Ready, all at once"
	rowReadyProcessor   = "processor time of the manager for that"
	rowResident         = "resident memory after that"
	rowAnonymous        = "anonymous memory after that"
	rowPeak             = "peak of the resident memory"
	rowStartRepair      = "started over all: until a drift is repaired"
	rowStartWrites      = "started over all: writes"
	rowStartRequests    = "started over all: requests other than lists, watches and discovery"
	rowStartProcessor   = "started over all: processor time"
	rowChurnDriftMedian = "drift repaired under churn, p50"
	rowChurnDriftTail   = "drift repaired under churn, p99"
	rowChurnEditMedian  = "Ready again after an edit under churn, p50"
	rowChurnEditTail    = "Ready again after an edit under churn, p99"
	rowChurnDrifts      = "drifts per second"
	rowChurnEdits       = "edits per second"
	rowChurnShare       = "share of a core under churn"
)

func appRows() []measure.Comparison {
	const mostTime, mostMemory = 1.25, 1.0
	const mostUntilRepair, mostRepair = 15, 1
	return []measure.Comparison{
		{What: rowReady, Format: measure.Seconds, MostRatio: mostTime},
		{What: rowReadyProcessor, Format: measure.Seconds},
		{What: rowResident, Format: measure.Megabytes, MostRatio: mostMemory},
		{What: rowAnonymous, Format: measure.Megabytes},
		{What: rowPeak, Format: measure.Megabytes},
		{What: rowStartRepair, Format: measure.Seconds, MostValue: mostUntilRepair},
		{What: rowStartWrites, Format: measure.Number, Zero: true},
		{What: rowStartRequests, Format: measure.Number, Zero: true},
		{What: rowStartProcessor, Format: measure.Seconds},
		{What: rowChurnDriftMedian, Format: measure.Seconds},
		{What: rowChurnDriftTail, Format: measure.Seconds, MostValue: mostRepair},
		{What: rowChurnEditMedian, Format: measure.Seconds},
		{What: rowChurnEditTail, Format: measure.Seconds},
		{What: rowChurnDrifts, Format: measure.Number},
		{What: rowChurnEdits, Format: measure.Number},
		{What: rowChurnShare, Format: measure.Percent},
	}
}

// column is what is measured of one manager.
type column struct {
	settings
	*environment
	program contest.Program
	manager *contest.Running
	values  map[string]float64
	// memory and latency are lines over the number of Ready AppServices.
	memory, latency measure.Line
}

// benchApps measures both managers, each on a cluster of its own.
func benchApps(ctx context.Context, s settings) (string, error) {
	dir, err := os.MkdirTemp("", "fixpoint-bench-scale-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	textbook, fixpoint, err := contest.Managers(ctx, dir)
	if err != nil {
		return "", err
	}
	order := []contest.Program{textbook, fixpoint}
	if s.fixpointFirst {
		slices.Reverse(order)
	}
	columns := map[string]*column{}
	for _, program := range order {
		c := &column{settings: s, program: program, values: map[string]float64{}}
		if err := c.run(ctx); err != nil {
			return "", fmt.Errorf("measuring %s: %w", program.Name, err)
		}
		columns[program.Name] = c
	}
	left, right := columns[textbook.Name], columns[fixpoint.Name]
	table := fmt.Sprintf("%d AppServices:\n\n", s.apps) + measure.Compare(textbook.Name, fixpoint.Name, appRows(),
		[]map[string]float64{left.values}, []map[string]float64{right.values})
	if s.picture == "" {
		return table, nil
	}
	picture, err := measure.SVG([]measure.Chart{
		{Title: "Resident memory of the manager", X: "AppServices", Y: "MB", Lines: []measure.Line{left.memory, right.memory}},
		{Title: "From creation to Ready, median", X: "AppServices", Y: "seconds", Lines: []measure.Line{left.latency, right.latency}},
	})
	if err != nil {
		return "", err
	}
	return table, os.WriteFile(s.picture, []byte(picture), 0o600)
}

func (c *column) run(ctx context.Context) (err error) {
	if ctx, c.environment, err = newEnvironment(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	defer func() {
		if c.manager == nil {
			return
		}
		if err != nil && !c.manager.Running() {
			err = c.manager.Failure(err)
		}
		err = errors.Join(err, c.manager.Stop())
	}()
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"starting the manager", c.start},
		{"creating AppServices", c.create},
		{"restarting the manager", c.restart},
		{"restarting the manager over a drift", c.restartOverDrift},
		{"editing AppServices and their children", c.churnApps},
	} {
		progress("%s: %s", c.program.Name, step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

func (c *column) start(ctx context.Context) error {
	var err error
	if c.manager, err = c.program.Start(c.cluster); err != nil {
		return err
	}
	return c.settle(ctx, c.manager)
}

func (c *column) stop() error {
	manager := c.manager
	c.manager = nil
	return manager.Stop()
}

// create creates all AppServices at once.
func (c *column) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sampled := c.sample(ctx)
	ready, err := contest.CreateApps(ctx, c.user, namespace, c.apps)
	samples := sampled()
	if err != nil {
		return err
	}
	c.draw(ready, samples)
	c.values[rowReady] = ready[len(ready)-1].At.Seconds()
	if err := c.settle(ctx, c.manager); err != nil {
		return err
	}
	used, err := c.manager.ProcessorTime()
	if err != nil {
		return err
	}
	memory, err := measure.MemoryOf(c.manager.PID())
	c.values[rowReadyProcessor] = used.Seconds()
	c.values[rowResident], c.values[rowAnonymous], c.values[rowPeak] = memory.Resident, memory.Anonymous, memory.Peak
	return err
}

// sample is the resident memory at a time since the beginning.
type sample struct {
	at       time.Duration
	resident float64
}

// sample samples the memory until the function that it returns is called.
func (c *column) sample(ctx context.Context) func() []sample {
	const interval = 200 * time.Millisecond
	var samples []sample
	began, ended, stopped := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-ended:
				return
			case <-ctx.Done():
				return
			case <-time.After(interval):
			}
			if memory, err := measure.MemoryOf(c.manager.PID()); err == nil {
				samples = append(samples, sample{time.Since(began), memory.Resident})
			}
		}
	}()
	return func() []sample {
		close(ended)
		<-stopped
		return samples
	}
}

// draw makes lines of what was measured while AppServices were created.
func (c *column) draw(ready []contest.Readiness, samples []sample) {
	const points = 50
	c.memory, c.latency = measure.Line{Name: c.program.Name}, measure.Line{Name: c.program.Name}
	each := max(1, len(ready)/points)
	for end := each; end <= len(ready); end += each {
		var latencies []float64
		for _, one := range ready[end-each : end] {
			latencies = append(latencies, one.Took.Seconds())
		}
		c.latency.Points = append(c.latency.Points, measure.Point{X: float64(end), Y: measure.Median(latencies)})
		if resident, ok := residentAt(samples, ready[end-1].At); ok {
			c.memory.Points = append(c.memory.Points, measure.Point{X: float64(end), Y: resident / 1e6})
		}
	}
}

// residentAt is the last sample until then.
func residentAt(samples []sample, at time.Duration) (float64, bool) {
	i, _ := slices.BinarySearchFunc(samples, at, func(s sample, at time.Duration) int { return int(s.at - at) })
	if i == 0 {
		return 0, false
	}
	return samples[i-1].resident, true
}

// restart starts the manager over all AppServices.
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
	all, err := c.cluster.Audit().Since(mark)
	if err != nil {
		return err
	}
	requests := all.By(c.program.User)
	used, err := c.manager.ProcessorTime()
	c.values[rowStartWrites] = float64(len(requests.Writes()))
	c.values[rowStartRequests] = float64(len(requests.Where(cluster.Request.IsSingle)))
	c.values[rowStartProcessor] = used.Seconds()
	return err
}

// restartOverDrift starts the manager over all AppServices, one of which has drifted, and which the manager reads
// neither first nor last.
func (c *column) restartOverDrift(ctx context.Context) error {
	if err := c.stop(); err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: namespace, Name: contest.AppName(c.apps / 2)}
	w, err := c.user.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": key.Name})
	if err != nil {
		return err
	}
	defer w.Stop()
	repair := measure.Repair{Drift: imageDrift}
	if err := repair.Meddle(ctx, c.user, key); err != nil {
		return err
	}
	began := time.Now()
	if c.manager, err = c.program.Start(c.cluster); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(timeout):
			return fmt.Errorf("not repaired within %s", timeout)
		case event, open := <-w.ResultChan():
			if !open {
				return errors.New("the watch ended")
			}
			if repair.Observe(event) {
				c.values[rowStartRepair] = time.Since(began).Seconds()
				return c.settle(ctx, c.manager)
			}
		}
	}
}
