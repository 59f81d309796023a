// Package mcpserver_test shows MCPServer as a user meets it: a real API server with the real
// controller manager and scheduler, simulated nodes, and the manager with the rights that are
// generated for it and no others. On simulated nodes no server runs, so that probes are led to one
// beside the cluster, which each test has to itself.
package mcpserver_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const (
	// managerUser is whom the API server, its RBAC and its audit log know the manager as.
	managerUser = "fixpoint-manager"

	// patience is how long a test waits for what is bound to come.
	patience = 60 * time.Second
	// interval is how often a test looks.
	interval = 50 * time.Millisecond
	// atATime is how many tests run at the same time. They wait far more than they work.
	atATime = "12"
)

var (
	shared *cluster.Cluster
	// api is the client by which tests look, and act as an administrator.
	api client.WithWatch
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // client-go tells there of every watch that a stopped manager ends
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(interval)
	SetDefaultConsistentlyPollingInterval(interval)
	must(flag.Set("test.parallel", atATime)) // the command line wins
	// The Gateway API is not among them: see TestTheGatewayAPIComesAndGoes.
	options := cluster.Options{Parts: cluster.All, Audit: true, CRDPaths: []string{"../../config/crd/bases"}}
	cluster.RunTests(m, options, func(c *cluster.Cluster) {
		shared = c
		var err error
		api, err = client.NewWithWatch(c.Admin(), client.Options{Scheme: controllers.NewScheme()})
		must(err)
		must(furnish(context.Background()))
	})
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// furnish gives the manager the rights that are generated for it.
func furnish(ctx context.Context) error {
	role := &rbacv1.ClusterRole{}
	content, err := os.ReadFile("../../config/rbac/role.yaml")
	if err != nil {
		return fmt.Errorf("reading the role: %w", err)
	}
	if err := yaml.UnmarshalStrict(content, role); err != nil {
		return fmt.Errorf("parsing the role: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: managerUser}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := api.Create(ctx, object); err != nil {
			return fmt.Errorf("making %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

func definitionScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	must(apiextensionsv1.AddToScheme(scheme))
	return scheme
}
