// Package appservice_test runs the AppService controller as its users do: a real API server with the
// real controller manager and scheduler, simulated nodes, and the manager with the rights that are
// generated for it and no others.
//
// Each test has a namespace of its own and, unless it says otherwise, a manager of its own that
// watches that namespace. So tests run in parallel and can stop, restart and count their manager.
// What concerns the whole cluster, such as a default IngressClass or a manager that watches all
// namespaces, is tested by tests that are not parallel: those run before the parallel ones.
package appservice_test

import (
	"context"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// ingressClass exists for all tests. It is not a default one.
const ingressClass = "shared"

var (
	suite  *harness.Suite
	shared *cluster.Cluster
	// api is an administrator's client.
	api client.WithWatch
)

func TestMain(m *testing.M) {
	const parallel = 12
	options := harness.Options{Cluster: cluster.Options{Parts: cluster.All, Audit: true}, Parallel: parallel}
	harness.Run(m, options, func(s *harness.Suite) error {
		suite, shared, api = s, s.Cluster, s.API
		return api.Create(context.Background(), newIngressClass(ingressClass))
	})
}

func newIngressClass(name string) *networkingv1.IngressClass {
	return &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1.IngressClassSpec{Controller: "fixpoint.test/none"},
	}
}
