// Package ha_test shows what happens to the manager's replicas when the leader is killed, stopped,
// frozen or cut off: real manager processes, a real API server, a cloud that keeps a ledger.
//
// Each process is a user of its own, for the API server and for the cloud. So the audit log and the
// ledger tell who has written what and when, and two leaders at a time would be seen there.
//
// FIXPOINT_HA_ROUNDS says how often each fault happens (2), and FIXPOINT_HA_LEASE=default makes the
// replicas elect with the durations that users have, in place of shorter ones. Whoever sets the rounds
// also wants the bars of time to be kept; without, they are stretched, for machines that have a lot
// else to do.
package ha_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	// managerGroup has the rights of a manager. Each replica is in it, under a name of its own.
	managerGroup = "fixpoint-managers"
	patience     = 90 * time.Second
	interval     = 50 * time.Millisecond
	// atATime is how many tests run at the same time. They wait far more than they work.
	atATime = "4"
)

var (
	shared *cluster.Cluster
	// api is the client by which tests look, and act as a user.
	api client.WithWatch
	// managerProgram is the real manager.
	managerProgram string
)

func TestMain(m *testing.M) {
	if isUnguarded() {
		os.Exit(runUnguarded())
	}
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(interval)
	must(flag.Set("test.parallel", atATime)) // the command line wins
	folder, err := os.MkdirTemp("", "fixpoint-ha-")
	must(err)
	managerProgram, err = buildManager(folder)
	must(err)
	options := cluster.Options{Parts: cluster.All, Audit: true, CRDPaths: []string{"../../config/crd/bases"}}
	cluster.RunTests(cleaning{m, folder}, options, func(c *cluster.Cluster) {
		shared = c
		api, err = client.NewWithWatch(c.Admin(), client.Options{Scheme: controllers.NewScheme()})
		must(err)
		must(furnish(context.Background()))
	})
}

// cleaning removes a folder after the tests.
type cleaning struct {
	tests  *testing.M
	folder string
}

// Run runs the tests.
func (c cleaning) Run() int {
	defer os.RemoveAll(c.folder)
	return c.tests.Run()
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func buildManager(folder string) (string, error) {
	program := filepath.Join(folder, "manager")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X "+buildinfo+".version=v0.0.0-test -X "+buildinfo+".commit=0123abc -X "+buildinfo+".date=2026-01-02T03:04:05Z",
		"-o", program, "./cmd/manager")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the manager: %w\n%s", err, output)
	}
	return program, nil
}

const buildinfo = "github.com/fixpoint-dev/fixpoint/internal/buildinfo"

// furnish gives the managers the rights that they are shipped with.
func furnish(ctx context.Context) error {
	for _, file := range []string{"role", "leader_election_role", "metrics_auth_role"} {
		if err := grant(ctx, filepath.Join("..", "..", "config", "rbac", file+".yaml")); err != nil {
			return err
		}
	}
	return nil
}

func grant(ctx context.Context, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading a role: %w", err)
	}
	// The rights on Leases are those of a Role, whose namespace the tests have not made yet.
	role := &rbacv1.ClusterRole{}
	if err := yaml.Unmarshal(content, role); err != nil {
		return fmt.Errorf("parsing %s: %w", file, err)
	}
	role.TypeMeta, role.Namespace = metav1.TypeMeta{}, ""
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: managerGroup}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := api.Create(ctx, object); err != nil {
			return fmt.Errorf("making %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}
