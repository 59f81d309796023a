package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/fixpoint-dev/fixpoint/test/lockfile"
)

// KubernetesVersion is the version that the binaries report. test/kube/go.mod pins the sources to it.
const KubernetesVersion = "v1.37.1"

// kubeModule is the module of the binaries.
const kubeModule = "github.com/fixpoint-dev/fixpoint/test/kube"

// programs are the names under which the one binary can be called.
var programs = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok"}

// Build builds the binaries of the cluster if necessary and returns their directory. The first build takes minutes. It is
// repeated when the pin changes: the versions, checksums or sources in test/kube. Several processes can call it at the
// same time.
func Build(ctx context.Context, progress func(line string)) (string, error) {
	source, err := kubeSource()
	if err != nil {
		return "", err
	}
	pin, err := pinOf(source)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(filepath.Dir(source), "bin")
	target := filepath.Join(bin, pin)
	if built(target) {
		return target, nil
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("creating the directory of the binaries: %w", err)
	}
	unlock, err := awaitBuildLock(ctx, bin, progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if built(target) { // by the other process
		return target, nil
	}
	removeUnfinished(bin)
	b := &builder{source: source, bin: bin, progress: progress}
	if err := b.build(ctx, target); err != nil {
		return "", fmt.Errorf("building the local cluster: %w", err)
	}
	return target, nil
}

// built relies on the atomic rename of the directory.
func built(target string) bool {
	_, err := os.Stat(filepath.Join(target, programs[0]))
	return err == nil
}

// kubeSource searches for test/kube upwards from the working directory, which is the package directory in tests. The path
// that the compiler records is not available with -trimpath.
func kubeSource() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the sources of the local cluster: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		for _, candidate := range []string{filepath.Join(dir, "kube"), filepath.Join(dir, "test", "kube")} {
			if isKubeModule(candidate) {
				return candidate, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding the sources of the local cluster: no test/kube at or above %s", wd)
		}
	}
}

func isKubeModule(dir string) bool {
	content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && bytes.Contains(content, []byte("module "+kubeModule+"\n"))
}

// pinOf returns a digest of all inputs of the build.
func pinOf(source string) (string, error) {
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", fmt.Errorf("listing the sources of the local cluster: %w", err)
	}
	files = append(files, filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum"))
	digest := sha256.New()
	fmt.Fprintln(digest, runtime.GOOS, runtime.GOARCH, linkerFlags())
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("reading the pin of the local cluster: %w", err)
		}
		fmt.Fprintf(digest, "%s %d\n%s", filepath.Base(file), len(content), content)
	}
	return fmt.Sprintf("%s-%x", KubernetesVersion, digest.Sum(nil)[:6]), nil
}

// linkerFlags sets the version, because kubectl and others refuse the default.
func linkerFlags() string {
	const version = "k8s.io/component-base/version"
	major, rest, _ := strings.Cut(strings.TrimPrefix(KubernetesVersion, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitTreeState=clean",
		version, KubernetesVersion, major, minor)
}

// statusFile contains the progress of a build for the processes that wait.
const statusFile = ".building"

// awaitBuildLock acquires the lock of the build and reports the progress of another process that holds it.
func awaitBuildLock(ctx context.Context, bin string, progress func(string)) (unlock func(), err error) {
	var last string
	for {
		lock, err := lockfile.Try(filepath.Join(bin, ".lock"))
		if err == nil {
			return func() { _ = lock.Close() }, nil
		}
		if !errors.Is(err, lockfile.ErrLocked) {
			return nil, fmt.Errorf("locking the build of the local cluster: %w", err)
		}
		if status, err := os.ReadFile(filepath.Join(bin, statusFile)); err == nil && string(status) != last {
			last = string(status)
			progress(last + " (by another process)")
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another process to build the local cluster: %w", ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// unfinishedPrefix begins the name of the directory of a build in progress.
const unfinishedPrefix = ".unfinished-"

// removeUnfinished removes what builds of killed processes have left. The caller holds the lock, so none is in progress.
func removeUnfinished(bin string) {
	left, err := filepath.Glob(filepath.Join(bin, unfinishedPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range left {
		_ = os.RemoveAll(path) // the next build tries again
	}
}

// builder performs one build.
type builder struct {
	source, bin string
	progress    func(string)
}

func (b *builder) build(ctx context.Context, target string) error {
	// The thread must exist as long as the compiler: see Process.live.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer os.Remove(filepath.Join(b.bin, statusFile))
	b.report("building the local cluster: fetching its sources (the first build takes some minutes)")
	total, err := b.countPackages(ctx)
	if err != nil {
		return err
	}
	unfinished, err := os.MkdirTemp(b.bin, unfinishedPrefix)
	if err != nil {
		return fmt.Errorf("creating a build directory: %w", err)
	}
	defer os.RemoveAll(unfinished)
	if err := b.compile(ctx, filepath.Join(unfinished, "kube"), total); err != nil {
		return err
	}
	for _, name := range programs {
		if err := os.Symlink("kube", filepath.Join(unfinished, name)); err != nil {
			return fmt.Errorf("linking %s: %w", name, err)
		}
	}
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return fmt.Errorf("setting the permissions of the binaries: %w", err)
	}
	if err := os.Rename(unfinished, target); err != nil {
		return fmt.Errorf("installing the binaries: %w", err)
	}
	b.report("building the local cluster: done")
	return nil
}

func (b *builder) report(line string) {
	b.progress(line)
	// Only the progress in other processes depends on it.
	_ = os.WriteFile(filepath.Join(b.bin, statusFile), []byte(line), 0o644)
}

func (b *builder) countPackages(ctx context.Context) (int, error) {
	cmd := b.goCommand(ctx, "list", "-deps", ".")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("listing packages: %w\n%s", err, stderr.Bytes())
	}
	return bytes.Count(output, []byte("\n")), nil
}

func (b *builder) compile(ctx context.Context, output string, total int) error {
	// -v prints each package that is compiled, but not those in the build cache, so that a warm build ends before the count.
	cmd := b.goCommand(ctx, "build", "-v", "-buildvcs=false", "-ldflags", linkerFlags(), "-o", output, ".")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("reading the compiler's output: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the compiler: %w", err)
	}
	complaints := b.follow(stderr, total)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("compiling: %w\n%s", err, strings.Join(complaints, "\n"))
	}
	return nil
}

// follow reports the packages that go build prints, and returns all other output, which is empty unless the build fails.
func (b *builder) follow(output io.Reader, total int) (complaints []string) {
	const interval = 2 * time.Second
	done, reported := 0, time.Time{}
	for scanner := bufio.NewScanner(output); scanner.Scan(); {
		line := scanner.Text()
		switch {
		case line == kubeModule:
			b.report("building the local cluster: linking")
		case isPackage(line):
			done++
			if time.Since(reported) >= interval {
				reported = time.Now()
				b.report(fmt.Sprintf("building the local cluster: %d of %d packages", done, total))
			}
		default:
			complaints = append(complaints, line)
		}
	}
	return complaints
}

// isPackage distinguishes an import path, which go build -v prints alone on a line, from a message.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " :#\t")
}

// goCommand runs the go command in test/kube without the settings of the calling process: running the tests with -race
// or -mod must not rebuild Kubernetes in that way.
func (b *builder) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.source
	cmd.Env = append(without(os.Environ(), "GOFLAGS", "GOOS", "GOARCH", "GOEXPERIMENT", "GODEBUG", "PWD"),
		// An empty value would use the settings of `go env -w`.
		"GOFLAGS=-mod=readonly", "GOWORK=off", "CGO_ENABLED=0")
	// The child processes of the compiler are in its process group and are killed with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// without returns the environment without the named variables.
func without(env []string, names ...string) []string {
	var kept []string
next:
	for _, entry := range env {
		for _, name := range names {
			if strings.HasPrefix(entry, name+"=") {
				continue next
			}
		}
		kept = append(kept, entry)
	}
	return kept
}
