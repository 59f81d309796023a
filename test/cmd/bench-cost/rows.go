package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// The rows of the table.
const (
	rowBinary           = "size of the stripped binary"
	rowEmptyAnonymous   = "anonymous memory of an empty manager with all controllers"
	rowEmptyResident    = "resident memory of the same"
	rowReady            = "all created and Ready"
	rowReadyMedian      = "from creation to Ready, p50"
	rowReadyTail        = "from creation to Ready, p99"
	rowReadyProcessor   = "processor time of the manager until all are Ready"
	rowReadyServer      = "processor time of the API server for the same"
	rowReadyWrites      = "writes per object until Ready, Events aside"
	rowReadyEvents      = "Events per object until Ready"
	rowAnonymous        = "anonymous memory with all AppServices"
	rowResident         = "resident memory with all AppServices"
	rowPeak             = "peak of the resident memory"
	rowHeap             = "live heap per AppService"
	rowRest             = "requests at rest"
	rowRestProcessor    = "processor time at rest"
	rowResync           = "requests in two forced resyncs"
	rowResyncProcessor  = "processor time of two forced resyncs"
	rowRestartProcessor = "processor time of a start over all AppServices"
	rowRestartRequests  = "requests of this start other than lists, watches and discovery"
	rowRestartWrites    = "writes of this start"
	rowDriftImage       = "image changed: repaired, median"
	rowDriftScale       = "scaled: repaired, median"
	rowDriftConfig      = "data of the ConfigMap changed: repaired, median"
	rowDriftConfigMap   = "ConfigMap deleted: recreated, median"
	rowDriftSelector    = "selector changed: repaired, median"
	rowDriftDeployment  = "Deployment deleted: recreated, median"
	rowDriftService     = "Service deleted: recreated, median"
	rowGone             = "all deleted: until nothing of them is left, pods included"
	rowGoneChildren     = "all deleted: until no AppService, ConfigMap, Service and Deployment is left"
	rowGoneDeployments  = "all deleted: until no Deployment is left"
	rowGoneProcessor    = "processor time of the manager for the deletion"
	rowGoneRequests     = "requests per object for the deletion"
	rowGoneWrites       = "writes per object for the deletion, Events aside"
)

// rows are the rows of the table with their bars. An AppService of the benchmark has three children.
func rows(s settings) []measure.Comparison {
	const mostTime, mostRepair, mostDeletion, mostProcessor = 1.25, 1.3, 1.3, 1.8
	const mostWrites, mostEvents, mostDeletionWrites = 6, 2, 3 + 1
	const mostAnonymous, mostHeap, mostBinary = 14e6, 14e3, 60e6
	const memoryFrom = 3000 // the bar on resident memory is for as many objects
	table := []measure.Comparison{
		{What: rowReady, Format: measure.Seconds, MostRatio: mostTime},
		{What: rowReadyMedian, Format: measure.Seconds},
		{What: rowReadyTail, Format: measure.Seconds},
		{What: rowReadyProcessor, Format: measure.Seconds, MostRatio: mostProcessor},
		{What: rowReadyServer, Format: measure.Seconds},
		{What: rowReadyWrites, Format: measure.Number, MostValue: mostWrites},
		{What: rowReadyEvents, Format: measure.Number, MostValue: mostEvents},
		{What: rowEmptyAnonymous, Format: measure.Megabytes, MostValue: mostAnonymous},
		{What: rowEmptyResident, Format: measure.Megabytes},
		{What: rowAnonymous, Format: measure.Megabytes},
		{What: rowResident, Format: measure.Megabytes},
		{What: rowPeak, Format: measure.Megabytes},
		{What: rowHeap, Format: measure.Kilobytes, MostValue: mostHeap},
		{What: rowBinary, Format: measure.Megabytes, MostValue: mostBinary},
		{What: rowGone, Format: measure.Seconds, MostRatio: mostDeletion},
		{What: rowGoneChildren, Format: measure.Seconds},
		{What: rowGoneDeployments, Format: measure.Seconds},
		{What: rowGoneProcessor, Format: measure.Seconds},
		{What: rowGoneRequests, Format: measure.Number},
		{What: rowGoneWrites, Format: measure.Number, MostValue: mostDeletionWrites},
		{What: rowRest, Format: measure.Number, Zero: true},
		{What: rowRestProcessor, Format: measure.Seconds},
		{What: rowResync, Format: measure.Number, Zero: true},
		{What: rowResyncProcessor, Format: measure.Seconds},
		{What: rowRestartProcessor, Format: measure.Seconds},
		{What: rowRestartRequests, Format: measure.Number, Zero: true},
		{What: rowRestartWrites, Format: measure.Number, Zero: true},
	}
	for _, drift := range drifts {
		table = append(table, measure.Comparison{What: drift.Name, Format: measure.Millis, MostRatio: mostRepair})
	}
	for _, drift := range drifts {
		table = append(table, measure.Comparison{What: bareRow(drift.Name), Format: measure.Millis})
	}
	if s.count >= memoryFrom {
		i := slices.IndexFunc(table, func(c measure.Comparison) bool { return c.What == rowResident })
		table[i].MostRatio = 1
	}
	return table
}

// bareRow is the row of the one request that repairs a drift.
func bareRow(drift string) string { return drift + ", by one request of a bare client" }

// requestTables count the requests of the last round.
func requestTables(s settings, peer, fixpoint []column) string {
	left, right := peer[len(peer)-1], fixpoint[len(fixpoint)-1]
	var b strings.Builder
	for _, table := range []struct {
		title       string
		left, right cluster.Requests
	}{
		{"until all are Ready", left.created, right.created},
		{"for the deletion of all", left.deleted, right.deleted},
	} {
		if len(table.left)+len(table.right) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\nRequests per AppService %s, watches aside:\n\n| request | %s | %s |\n| --- | --- | --- |\n",
			table.title, left.program.Name, right.program.Name)
		b.WriteString(measure.RequestTable(s.count, table.left, table.right, measure.ByTarget))
	}
	return b.String()
}
