// Package plugin_test runs each command of the kubectl plugin against a real cluster with the manager: a complete
// local cluster with simulated nodes, and the fake cloud.
package plugin_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

var (
	suite  *harness.Suite
	shared *cluster.Cluster
	// api is an administrator's client.
	api client.WithWatch
)

func TestMain(m *testing.M) {
	const parallel = 8
	options := harness.Options{Cluster: cluster.Options{Parts: cluster.All, Audit: true}, Parallel: parallel}
	harness.Run(m, options, func(s *harness.Suite) error {
		suite, shared, api = s, s.Cluster, s.API
		return nil
	})
}
