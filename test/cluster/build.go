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

// KubernetesVersion is what the cluster's programs say they are. The sources they
// are built from are pinned, to the same version, by test/kube/go.mod.
const KubernetesVersion = "v1.37.1"

// kubeModule is the module of the cluster's programs.
const kubeModule = "github.com/fixpoint-dev/fixpoint/test/kube"

// programs are the names under which the one program that is built can be called.
var programs = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok"}

// Build makes sure that the cluster's programs are there, and returns the folder
// that has them. The first time it compiles Kubernetes, which takes minutes; after
// that it returns at once, until the pin changes: the versions, checksums or
// sources in test/kube. Several processes may call it at the same time.
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
		return "", fmt.Errorf("making the folder of the local cluster's programs: %w", err)
	}
	unlock, err := awaitBuildLock(ctx, bin, progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if built(target) { // by the process that was waited for
		return target, nil
	}
	b := &builder{source: source, bin: bin, progress: progress}
	if err := b.build(ctx, target); err != nil {
		return "", fmt.Errorf("building the local cluster: %w", err)
	}
	return target, nil
}

// built relies on the folder appearing as a whole, by a rename.
func built(target string) bool {
	_, err := os.Stat(filepath.Join(target, programs[0]))
	return err == nil
}

// kubeSource finds test/kube from the working directory upwards: tests run in
// their package's folder, commands in test/ or above. The path that the compiler
// recorded would not do, since -trimpath removes it.
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

// pinOf is a digest of all that decides what is built.
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

// linkerFlags set the version: kubectl and others refuse to compare the
// placeholder that a plain build has.
func linkerFlags() string {
	const version = "k8s.io/component-base/version"
	major, rest, _ := strings.Cut(strings.TrimPrefix(KubernetesVersion, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitTreeState=clean",
		version, KubernetesVersion, major, minor)
}

// statusFile is where a build says how far it is, for the processes that wait.
const statusFile = ".building"

// awaitBuildLock takes the build's lock. While another process has it, that one's
// progress is passed on.
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

// builder does one build.
type builder struct {
	source, bin string
	progress    func(string)
}

func (b *builder) build(ctx context.Context, target string) error {
	// The thread must live as long as the compiler: see Process.live.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer os.Remove(filepath.Join(b.bin, statusFile))
	b.report("building the local cluster: fetching its sources (the first build takes some minutes)")
	total, err := b.countPackages(ctx)
	if err != nil {
		return err
	}
	unfinished, err := os.MkdirTemp(b.bin, ".unfinished-")
	if err != nil {
		return fmt.Errorf("making a folder to build in: %w", err)
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
		return fmt.Errorf("opening the folder of programs to all users: %w", err)
	}
	if err := os.Rename(unfinished, target); err != nil {
		return fmt.Errorf("putting the programs in place: %w", err)
	}
	b.report("building the local cluster: done")
	return nil
}

func (b *builder) report(line string) {
	b.progress(line)
	// Only other processes' progress display suffers if this cannot be written.
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
	// -v names each package as it is compiled: those in the build cache are not
	// named, so a build that starts warm ends before the count does.
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

// follow reports the packages that go build names, now and then, and returns what
// else it says: nothing, unless the build fails.
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

// isPackage tells an import path, which go build -v prints alone on a line, from
// a message.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " :#\t")
}

// goCommand runs the go command in test/kube, independent of how the calling
// process is built: a run of the tests with -race or -mod must not rebuild
// Kubernetes that way.
func (b *builder) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.source
	cmd.Env = append(without(os.Environ(), "GOFLAGS", "GOOS", "GOARCH", "GOEXPERIMENT", "GODEBUG", "PWD"),
		// Not empty: an empty one would bring in what `go env -w` has stored.
		"GOFLAGS=-mod=readonly", "GOWORK=off", "CGO_ENABLED=0")
	// The compiler's own children are in its group, and end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// without returns the environment less the named variables.
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
