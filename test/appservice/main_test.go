// Package appservice_test shows the controllers as a user meets them: a real API server with the
// real controller manager and scheduler, simulated nodes, and the manager with the rights that are
// generated for it and no others.
//
// Each test has a namespace of its own and, unless it says otherwise, a manager of its own that
// watches that namespace. So tests run in parallel and can stop, restart and count their manager.
// What concerns the whole cluster, such as a default IngressClass or a manager that watches all
// namespaces, is shown by tests that are not parallel: those run before the parallel ones.
package appservice_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
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
	// managerUser is whom the API server, its RBAC and its audit log know the manager as.
	managerUser = "fixpoint-manager"
	// managerGroup has the manager's rights, for tests that run two managers side by side.
	managerGroup = "fixpoint-managers"

	// ingressClass is there for all tests. It is not a default one.
	ingressClass = "shared"

	// patience is how long a test waits for what is bound to come. Nothing takes a tenth of it on
	// a machine that has time.
	patience = 60 * time.Second
	// interval is how often a test looks.
	interval = 50 * time.Millisecond
	// atATime is how many tests run at the same time. They wait far more than they work.
	atATime = "10"
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

// furnish puts into the cluster what all tests share.
func furnish(ctx context.Context) error {
	role := &rbacv1.ClusterRole{}
	if err := readYAML("../../config/rbac/role.yaml", role); err != nil {
		return err
	}
	election := &rbacv1.Role{}
	if err := readYAML("../../config/rbac/leader_election_role.yaml", election); err != nil {
		return err
	}
	// Leases live in namespaces that the tests make, so the role is given for all of them.
	leases := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: election.Name}, Rules: election.Rules}
	objects := []client.Object{
		role, bind(role.Name,
			rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: managerUser},
			rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: managerGroup}),
		// Only those who elect a leader have rights on leases.
		leases, bind(leases.Name, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: managerGroup}),
		newIngressClass(ingressClass),
	}
	for _, object := range objects {
		if err := api.Create(ctx, object); err != nil {
			return fmt.Errorf("making %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

func bind(role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}
}

func newIngressClass(name string) *networkingv1.IngressClass {
	return &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1.IngressClassSpec{Controller: "fixpoint.test/nobody"},
	}
}

func readYAML(file string, into any) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading a role: %w", err)
	}
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		return fmt.Errorf("parsing %s: %w", file, err)
	}
	return nil
}
