package deploy

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// Root is the folder of the project, as seen from a package two folders below it.
const Root = "../.."

// Kubectl is the cluster's own kubectl, as an administrator, apart from all settings of the user.
type Kubectl struct {
	program, kubeconfig, home string
}

// NewKubectl makes one.
func NewKubectl(c *cluster.Cluster) (*Kubectl, error) {
	kubeconfig, err := c.Kubeconfig(cluster.Admin, cluster.Masters)
	if err != nil {
		return nil, err
	}
	return &Kubectl{program: c.Kubectl(), kubeconfig: kubeconfig, home: c.Dir()}, nil
}

// Run runs it, and returns what it prints to its standard output.
func (k *Kubectl) Run(ctx context.Context, args ...string) (string, error) {
	return k.Pipe(ctx, "", args...)
}

// Pipe runs it with an input.
func (k *Kubectl) Pipe(ctx context.Context, input string, args ...string) (string, error) {
	return k.run(ctx, input, k.program, args...)
}

// Shell runs a script, in which kubectl is this one.
func (k *Kubectl) Shell(ctx context.Context, dir, script string, env ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = dir
	return k.output(cmd, append(env, "PATH="+filepath.Dir(k.program)+":"+os.Getenv("PATH")))
}

func (k *Kubectl) run(ctx context.Context, input, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	return k.output(cmd, []string{"PATH=/usr/bin:/bin"})
}

func (k *Kubectl) output(cmd *exec.Cmd, env []string) (string, error) {
	cmd.Env = append(env, "HOME="+k.home, "KUBECONFIG="+k.kubeconfig)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("running %s: %w\n%s%s", strings.Join(cmd.Args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}
