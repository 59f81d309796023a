// Package contest runs Fixpoint and the textbook controller as processes of their own against a local cluster, so that
// a benchmark can measure the same of both.
package contest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// Program is a manager that is measured as a process of its own.
type Program struct {
	// Name is the name in the tables. User is the name of the manager in the audit log.
	Name, User string
	// Path is the binary. Args are its flags, without those for the cluster and the endpoints.
	Path string
	Args []string
}

// Managers builds both managers, with their controllers of AppServices.
func Managers(ctx context.Context, dir string) (textbook, fixpoint Program, err error) {
	textbook = Program{Name: "textbook", User: "textbook-manager"}
	fixpoint = Program{Name: "Fixpoint", User: "fixpoint-manager", Args: []string{"--controllers=appservice"}}
	if textbook.Path, err = build(ctx, ".", "./cmd/textbook", dir); err != nil {
		return textbook, fixpoint, err
	}
	fixpoint.Path, err = build(ctx, "..", "./cmd/manager", dir)
	return textbook, fixpoint, err
}

// build builds a stripped binary of a package below root.
func build(ctx context.Context, root, pkg, dir string) (string, error) {
	path := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, pkg)
	cmd.Dir = root
	// Without cgo it shares the packages that the local cluster is built of.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, output)
	}
	return path, nil
}

// Running is a program that runs.
type Running struct {
	*cluster.Process
	// Pprof is the URL of its pprof endpoint.
	Pprof   string
	release func()
}

// Start starts the program with all permissions.
func (p Program) Start(c *cluster.Cluster) (*Running, error) {
	kubeconfig, err := c.Kubeconfig(p.User, cluster.Masters)
	if err != nil {
		return nil, err
	}
	pprof, release, err := cluster.FreeAddress()
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"--kubeconfig=" + kubeconfig, "--pprof-bind-address=" + pprof, "--health-probe-bind-address=0",
	}, p.Args...)
	env := []string{"HOME=" + c.Dir(), "TMPDIR=" + c.Dir(), "PATH=/usr/bin:/bin"}
	process, err := cluster.StartProcess(p.Name, filepath.Join(c.Dir(), p.User+".log"), env, p.Path, args...)
	if err != nil {
		release()
		return nil, err
	}
	return &Running{Process: process, Pprof: "http://" + pprof, release: release}, nil
}

// Stop stops the program.
func (r *Running) Stop() error {
	const grace = 15 * time.Second
	defer r.release()
	return r.Process.Stop(grace)
}

// ProcessorTime is what the program has used so far.
func (r *Running) ProcessorTime() (time.Duration, error) {
	if !r.Running() {
		return 0, r.Failure(errors.New("the manager has ended"))
	}
	return measure.ProcessorTime(r.PID())
}
