package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// program is a Go program in a module of its own.
type program struct {
	// name is the name of the binary, or of the directory for a module's tools.
	name string
	// dir is the directory of the module below test/.
	dir  string
	args []string
}

var programs = []program{
	{name: "kubernetes", dir: "node/kubernetes", args: []string{"-ldflags", versionFlags(), "."}},
	{name: "coredns", dir: "node/coredns", args: []string{"-ldflags", "-s -w", "."}},
	// The excluded snapshotters need libraries and file systems of the machine.
	{name: "", dir: "node/containerd", args: []string{"-ldflags", "-s -w", "-tags", "no_btrfs,no_zfs,no_devmapper,no_aufs", "tool"}},
}

// links are the names under which the Kubernetes binary is called.
var links = []string{"kubelet", "kube-proxy"}

// Build builds the programs of the node and returns their directory. The first build takes minutes. It must be called
// outside of the sandbox, which has no network, in test/ or below.
func Build(ctx context.Context, progress func(line string)) (string, error) {
	root, err := testDirectory()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin", "node")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("creating the directory of the node's programs: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(bin, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("locking the directory of the node's programs: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("locking the directory of the node's programs: %w", err)
	}
	for _, p := range programs {
		progress("building " + filepath.Base(p.dir) + " (some minutes the first time)")
		output := filepath.Join(bin, p.name)
		if p.name == "" {
			output += "/"
		}
		if err := GoBuild(ctx, filepath.Join(root, p.dir), output, nil, p.args...); err != nil {
			return "", err
		}
	}
	for _, name := range links {
		if err := os.Symlink("kubernetes", filepath.Join(bin, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("linking %s: %w", name, err)
		}
	}
	return bin, nil
}

// GoBuild builds static programs of the module in dir, regardless of how the calling program is built. Without -trimpath,
// packages that package cluster also needs are compiled once. Up-to-date binaries are not rebuilt.
func GoBuild(ctx context.Context, dir, output string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-buildvcs=false", "-o", output}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"GOFLAGS", "GOOS", "GOARCH", "GOEXPERIMENT", "GODEBUG", "PWD"}, name)
	}), "GOFLAGS=-mod=readonly", "GOWORK=off", "CGO_ENABLED=0")
	cmd.Env = append(cmd.Env, env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// versionFlags sets the version, which the API server compares with its own.
func versionFlags() string {
	const at = "k8s.io/component-base/version"
	parts := strings.Split(strings.TrimPrefix(cluster.KubernetesVersion, "v"), ".")
	return fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitTreeState=clean",
		at, cluster.KubernetesVersion, parts[0], parts[1])
}

// testDirectory searches for test/ upwards from the working directory.
func testDirectory() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the sources of the node: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		for _, candidate := range []string{dir, filepath.Join(dir, "test")} {
			if _, err := os.Stat(filepath.Join(candidate, "node", "kubernetes", "go.mod")); err == nil {
				return candidate, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding the sources of the node: no test/node at or above %s", wd)
		}
	}
}
