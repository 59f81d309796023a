// Package mcpserver_test runs the MCPServer controller as its users do: a real API server with the
// real controller manager and scheduler, simulated nodes, and the manager with the rights that are
// generated for it and no others. On simulated nodes no server runs, so probes go to one beside the
// cluster, which each test has to itself.
package mcpserver_test

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
	const parallel = 14
	// The Gateway API is not installed: see TestGatewayAPIIsNoticedWhenInstalledAndRemoved.
	options := harness.Options{Cluster: cluster.Options{Parts: cluster.All, Audit: true}, Parallel: parallel}
	harness.Run(m, options, func(s *harness.Suite) error {
		suite, shared, api = s, s.Cluster, s.API
		return nil
	})
}
