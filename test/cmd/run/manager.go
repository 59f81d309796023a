package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// managerUser is the user name of the manager.
const managerUser = "fixpoint-manager"

// managerGrace is how long the manager may take to stop.
const managerGrace = 5 * time.Second

// manager is the running manager.
type manager struct {
	process *cluster.Process
	log     string
}

func startManager(ctx context.Context, c *cluster.Cluster, o options, external *externalServices, say *display) (*manager, error) {
	program := o.manager
	if program == "" {
		say.progress("building the manager")
		built, err := buildManager(ctx, o.root, c.Dir())
		if err != nil {
			return nil, err
		}
		program = built
	}
	if err := grant(ctx, c, o.roles, say); err != nil {
		return nil, err
	}
	kubeconfig, err := c.Kubeconfig(managerUser)
	if err != nil {
		return nil, err
	}
	services, err := external.flags(c.Dir())
	if err != nil {
		return nil, err
	}
	m := &manager{log: filepath.Join(c.Dir(), "manager.log")}
	say.progress("starting the manager")
	arguments := append(services,
		"--kubeconfig="+kubeconfig,
		"--metrics-bind-address=0",
		"--health-probe-bind-address=0",
		"--leader-elect=false",
	)
	m.process, err = cluster.StartProcess("manager", m.log, managerEnvironment(c.Dir()), program, arguments...)
	if err != nil {
		return nil, err
	}
	say.line("manager log: " + m.log)
	return m, nil
}

// managerEnvironment contains neither the user's home directory nor KUBECONFIG.
func managerEnvironment(dir string) []string {
	return []string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=/usr/bin:/bin"}
}

func buildManager(ctx context.Context, root, dir string) (string, error) {
	program := filepath.Join(dir, "manager")
	// Without cgo and -trimpath, packages that are built for the local cluster are reused.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath=false", "-o", program, "./cmd/manager")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the manager: %w\n%s", err, output)
	}
	return program, nil
}

func (m *manager) stop() { _ = m.process.Stop(managerGrace) }

// explain adds the tail of the manager's log to an error.
func (m *manager) explain(err error) error {
	if err == nil || errors.Is(err, errManagerEnded) || errors.Is(err, context.Canceled) {
		return err
	}
	return m.process.Failure(err)
}

// grant binds the manager to its generated ClusterRoles, so that a missing permission
// shows here.
func grant(ctx context.Context, c *cluster.Cluster, directory string, say *display) error {
	clientset, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		return fmt.Errorf("listing the manager's ClusterRoles: %w", err)
	}
	if len(files) == 0 {
		say.line(directory + " has no ClusterRoles: binding the manager to cluster-admin")
		return bind(ctx, clientset, "cluster-admin")
	}
	for _, file := range files {
		role, err := readRole(file)
		if err != nil {
			return err
		}
		if _, err := clientset.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating the manager's ClusterRole %s: %w", role.Name, err)
		}
		if err := bind(ctx, clientset, role.Name); err != nil {
			return err
		}
	}
	return nil
}

func readRole(file string) (*rbacv1.ClusterRole, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the manager's ClusterRole: %w", err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(content, role); err != nil {
		return nil, fmt.Errorf("parsing the manager's ClusterRole in %s: %w", file, err)
	}
	return role, nil
}

func bind(ctx context.Context, clientset kubernetes.Interface, role string) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: managerUser + "-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: managerUser}},
	}
	if _, err := clientset.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("binding the manager's ClusterRole %s: %w", role, err)
	}
	return nil
}
