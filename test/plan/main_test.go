// Package plan_test compares what kubectl fixpoint plan says with what the manager then does: after random edits of
// specs and children, the plan, field by field, is what the next reconcile changes.
//
// No other controllers run, so that nothing else changes. The manager can write only while a test lets it, and until
// the end of one reconcile.
package plan_test

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
	harness.Run(m, harness.Options{Cluster: cluster.Options{Parts: cluster.EtcdAndAPI}}, func(s *harness.Suite) error {
		suite, shared, api = s, s.Cluster, s.API
		return createManagerObjects()
	})
}
