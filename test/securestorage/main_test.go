// Package securestorage_test runs the SecureStorage controller as its users do: a real API server and controller manager
// of Kubernetes, the manager with the rights that are generated for it and no others, and the fake cloud, with which the
// official SDK talks.
//
// Each test has a namespace, a cloud and a manager of its own, so that tests run in parallel and each
// ledger is about one test.
package securestorage_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

var (
	suite  *harness.Suite
	shared *cluster.Cluster
	// api is a client of a user with all rights.
	api client.WithWatch
)

func TestMain(m *testing.M) {
	// From 8 on, client-go logs the bodies of all answers, those with Secrets among them.
	const parallel, mostVerbose = 12, 7
	options := harness.Options{Cluster: cluster.Options{Parts: cluster.EtcdAndAPI | cluster.ControllerManager}, Parallel: parallel, Verbosity: mostVerbose}
	harness.Run(m, options, func(s *harness.Suite) error {
		suite, shared, api = s, s.Cluster, s.API
		return nil
	})
}
