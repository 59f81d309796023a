// Package faults_test holds the fault campaigns.
package faults_test

import (
	"context"
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/faults"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// parallelEnvironments is the default number of parallel subtests. They spend most of their time waiting: one needs about
// a quarter of a second of processor time.
const parallelEnvironments = "40"

// gcPercent trades memory for fewer garbage collections, which took a fifth of the processor time.
const gcPercent = 400

var testCluster *faults.Cluster

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	harness.Must(flag.Set("test.parallel", parallelEnvironments)) // the command line overrides it
	// Stale caches are lists at an old resource version, which streaming lists do not support.
	harness.Must(os.Setenv("KUBE_FEATURE_WatchListClient", "false"))
	debug.SetGCPercent(gcPercent)
	options := cluster.Options{Parts: cluster.EtcdAndAPI, CRDPaths: []string{"../../config/crd/bases"}}
	cluster.RunTests(m, options, func(c *cluster.Cluster) {
		var err error
		testCluster, err = faults.NewCluster(context.Background(), c)
		harness.Must(err)
	})
}
