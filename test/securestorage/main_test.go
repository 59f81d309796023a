// Package securestorage_test shows SecureStorages as a user meets them: a real API server, the manager
// with the rights that are generated for it and no others, and the fake cloud, which is spoken to by
// the official SDK.
//
// Each test has a namespace, a cloud and a manager of its own, so that tests run in parallel, and each
// ledger is about one test.
package securestorage_test

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const (
	// managerUser is whom the API server and its RBAC know the manager as.
	managerUser = "fixpoint-manager"
	patience    = 60 * time.Second
	interval    = 50 * time.Millisecond
	// atATime is how many tests run at the same time. They wait far more than they work.
	atATime = "8"
)

var (
	shared *cluster.Cluster
	// api is the client by which tests look, and act as a user.
	api client.WithWatch
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(interval)
	must(flag.Set("test.parallel", atATime)) // the command line wins
	options := cluster.Options{Parts: cluster.EtcdAndAPI, CRDPaths: []string{"../../config/crd/bases"}}
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

// furnish gives the manager its rights.
func furnish(ctx context.Context) error {
	content, err := os.ReadFile("../../config/rbac/role.yaml")
	if err != nil {
		return fmt.Errorf("reading the role: %w", err)
	}
	role := &rbacv1.ClusterRole{}
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
