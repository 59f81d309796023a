package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// ingressClass is the default IngressClass, which most clusters have.
//
//go:embed ingressclass.yaml
var ingressClass string

// applySamples applies files as a user would, with kubectl.
func applySamples(ctx context.Context, c *cluster.Cluster, o options, say *display) error {
	kubeconfig, err := c.Kubeconfig(cluster.Admin, cluster.Masters)
	if err != nil {
		return err
	}
	k := kubectl{program: c.Kubectl(), kubeconfig: kubeconfig, home: c.Dir()}
	if _, err := k.run(ctx, ingressClass, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	for _, sample := range o.samples {
		say.progress("applying " + sample)
		output, err := k.run(ctx, "", "apply", "--server-side", sourceFlag(sample), sample)
		if err != nil {
			return err
		}
		say.line(strings.TrimSpace(output))
	}
	return nil
}

// sourceFlag selects kustomize for a directory with a kustomization.
func sourceFlag(path string) string {
	if _, err := os.Stat(filepath.Join(path, "kustomization.yaml")); err == nil {
		return "-k"
	}
	return "-f"
}

// kubectl runs the kubectl of the local cluster without the user's settings.
type kubectl struct {
	program, kubeconfig, home string
}

func (k kubectl) run(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, k.program, append([]string{"--kubeconfig=" + k.kubeconfig}, args...)...)
	cmd.Env = []string{"HOME=" + k.home, "PATH=/usr/bin:/bin"}
	cmd.Stdin = strings.NewReader(input)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running kubectl %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}
