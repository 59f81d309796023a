// Package faults_test holds the campaigns. How each is replayed, its failures say.
package faults_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/faults"
)

// atATime is how many worlds there are at the same time. They wait far more than they work.
const parallelEnvironments = "24"

// gcPercent spends memory, up to some gigabytes, on fewer garbage collections: they were a fifth of all work.
const gcPercent = 400

var testCluster *faults.Cluster

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	must(flag.Set("test.parallel", parallelEnvironments)) // the command line wins
	// Lists are served from the past here, which a list that comes as a watch does not know.
	must(os.Setenv("KUBE_FEATURE_WatchListClient", "false"))
	debug.SetGCPercent(gcPercent)
	options := cluster.Options{Parts: cluster.EtcdAndAPI, GCPercent: gcPercent, CRDPaths: []string{"../../config/crd/bases"}}
	cluster.RunTests(m, options, func(c *cluster.Cluster) {
		var err error
		testCluster, err = faults.NewCluster(context.Background(), c)
		must(err)
	})
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
