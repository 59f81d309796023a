// Bench-securestorage measures the SecureStorage controller against the fake cloud, with a real API
// server and a manager with all rights, and prints what it finds beside the bars as a table.
//
//	go run ./cmd/bench-securestorage -objects 1000 -compress 5
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

func main() {
	objects := flag.Int("objects", 1000, "How many SecureStorages meet the throttling cloud.")
	compress := flag.Float64("compress", 5, "How many times faster than the real one the throttling cloud is.")
	crds := flag.String("crds", filepath.Join("..", "config", "crd", "bases"), "`Folder` of the custom resource definitions.")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if err := run(context.Background(), *crds, *objects, *compress); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// row is a line of the table.
type row struct{ what, bar, found string }

func run(ctx context.Context, crds string, objects int, compress float64) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{CRDPaths: []string{crds}})
	if err != nil {
		return err
	}
	defer func() {
		if stopped := c.Stop(); err == nil {
			err = stopped
		}
	}()
	var rows []row
	for _, measure := range []func(context.Context, *cluster.Cluster) ([]row, error){
		measureOne,
		measureDemo,
		func(ctx context.Context, c *cluster.Cluster) ([]row, error) {
			return measureMany(ctx, c, objects, compress)
		},
	} {
		found, err := measure(ctx, c)
		if err != nil {
			return err
		}
		rows = append(rows, found...)
	}
	printTable(os.Stdout, rows)
	return nil
}

func printTable(out io.Writer, rows []row) {
	fmt.Fprintln(out, "| what | bar | found |\n| --- | --- | --- |")
	for _, r := range rows {
		fmt.Fprintln(out, "| "+strings.Join([]string{r.what, r.bar, r.found}, " | ")+" |")
	}
}

// measureOne follows one object from nothing to Ready, at rest, and to its end.
func measureOne(ctx context.Context, c *cluster.Cluster) ([]row, error) {
	knobs := fakecloud.Realistic().Compress(10)
	knobs.AccountCreation = fakecloud.Fixed(10 * time.Second)
	knobs.PollInterval = fakecloud.Fixed(2 * time.Second) // five polls
	knobs.GrantDelay = fakecloud.Fixed(2 * time.Second)
	b, err := newBench(ctx, c, "one", knobs)
	if err != nil {
		return nil, err
	}
	defer b.close()
	const poll, polls = 10 * time.Second, 3
	if err := b.create(ctx, 1, poll); err != nil {
		return nil, err
	}
	if _, err := b.untilReady(ctx, 1); err != nil {
		return nil, err
	}
	calls := b.server.Total("").Calls()
	b.server.ResetCounts()
	select {
	case <-time.After(polls * poll):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	atRest := float64(b.server.Total("").Calls()) / polls
	if err := b.deleteAll(ctx); err != nil {
		return nil, err
	}
	return []row{
		{"calls from nothing to Ready, provisioning of 5 polls", "at most 25", fmt.Sprint(calls)},
		{"calls at rest, per object and poll interval", "at most 3", fmt.Sprintf("%.1f", atRest)},
		{"accounts created for it", "exactly 1", fmt.Sprint(b.server.Created("/storageaccounts/"))},
		{"orphans after deletion with policy Delete", "0", fmt.Sprint(len(b.server.Orphans()) + len(b.server.State().Accounts) + len(b.server.State().Assignments))},
	}, nil
}

// measureDemo is what `make run` shows.
func measureDemo(ctx context.Context, c *cluster.Cluster) ([]row, error) {
	b, err := newBench(ctx, c, "demo", fakecloud.Realistic().Compress(100))
	if err != nil {
		return nil, err
	}
	defer b.close()
	began := time.Now()
	if err := b.create(ctx, 1, time.Minute); err != nil {
		return nil, err
	}
	at, err := b.untilReady(ctx, 1)
	return []row{{"realistic delays compressed 100 times", "Ready in under 10 s", at.Sub(began).Round(time.Millisecond).String()}}, err
}

// measureMany lets many objects meet a cloud that throttles as the real one does.
func measureMany(ctx context.Context, c *cluster.Cluster, objects int, compress float64) ([]row, error) {
	knobs := fakecloud.Realistic().Compress(compress)
	knobs.GrantDelay = fakecloud.Between(0, 2*time.Second) // short beside the time that the throttle takes
	b, err := newBench(ctx, c, "many", knobs)
	if err != nil {
		return nil, err
	}
	defer b.close()
	began := time.Now()
	if err := b.create(ctx, objects, time.Hour); err != nil {
		return nil, err
	}
	at, err := b.untilReady(ctx, objects)
	if err != nil {
		return nil, err
	}
	total := b.server.Total("")
	allowed := max((float64(total.Reads)-knobs.Reads.Capacity)/knobs.Reads.PerSecond, (float64(total.Writes)-knobs.Writes.Capacity)/knobs.Writes.PerSecond)
	took := at.Sub(began).Seconds()
	what := fmt.Sprintf("%d SecureStorages, limits of the cloud times %g", objects, compress)
	return []row{
		{what + ": 429s answered by an early retry", "0", fmt.Sprintf("%d (of %d)", total.EarlyRetries, total.Throttled)},
		{what + ": time by what the throttle allows", "at most 1.3", fmt.Sprintf("%.2f (%.1f s by %.1f s)", took/allowed, took, allowed)},
		{what + ": calls per object", "at most 25", fmt.Sprintf("%.1f", float64(total.Calls())/float64(objects))},
		{what + ": accounts created", fmt.Sprint(objects), fmt.Sprint(b.server.Created("/storageaccounts/"))},
	}, nil
}
