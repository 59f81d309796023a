package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/fixpoint-dev/fixpoint/test/node"
)

const (
	// projectImage contains the manager and the bridge.
	projectImage = "ghcr.io/fixpoint-dev/fixpoint:e2e"
	// cloudImage contains the fake cloud.
	cloudImage = "fixpoint.test/fake-cloud:1"
	// subjectImage and otherSubjectImage contain the program in subject/.
	subjectImage      = "fixpoint.test/subject:1"
	otherSubjectImage = "fixpoint.test/subject:2"
	// webImage and otherWebImage contain a web application.
	webImage      = "fixpoint.test/web:1"
	otherWebImage = "fixpoint.test/web:2"
	// stdioImage contains an MCP server on standard input and output, without the bridge.
	stdioImage = "fixpoint.test/stdio:1"
)

// packed are the images of the tests. Some replace the images of the samples, which the sandbox cannot pull.
var packed = []struct {
	file       string
	names      []string
	program    string
	entrypoint []string
}{
	{"pause.tar", []string{node.PauseImage}, "subject", []string{"/subject", "pause"}},
	{"coredns.tar", []string{node.DNSImage}, "coredns", []string{"/coredns"}},
	{"fake-cloud.tar", []string{cloudImage}, "fake-cloud", []string{"/fake-cloud"}},
	{"subject.tar", []string{subjectImage, otherSubjectImage}, "subject", []string{"/subject"}},
	{"stdio.tar", []string{stdioImage}, "subject", []string{"/subject", "stdio"}},
	{"web.tar", []string{webImage, otherWebImage, "docker.io/nginxinc/nginx-unprivileged:1.30-alpine"}, "subject", []string{"/subject", "web"}},
	// The samples run npx, which is found in the image's PATH.
	{"node.tar", []string{"docker.io/library/node:22-alpine"}, "npx", []string{"/npx"}},
}

// makeImages builds all images into a directory and returns the archives.
func makeImages(ctx context.Context, programs, dir string) ([]string, error) {
	tool, err := filepath.Abs("../../hack/image")
	if err != nil {
		return nil, err
	}
	builder := filepath.Join(dir, "image")
	if err := node.GoBuild(ctx, tool, builder, nil, "."); err != nil {
		return nil, err
	}
	subject := filepath.Join(dir, "subject")
	if err := node.GoBuild(ctx, ".", subject, nil, "-ldflags", "-s -w", "./subject"); err != nil {
		return nil, err
	}
	cloud := filepath.Join(dir, "fake-cloud")
	if err := node.GoBuild(ctx, "../..", cloud, nil, "-ldflags", "-s -w", "./cmd/fake-cloud"); err != nil {
		return nil, err
	}
	from := map[string]string{"fake-cloud": cloud, "subject": subject, "npx": subject, "coredns": filepath.Join(programs, "coredns")}
	var archives []string
	errs := make([]error, len(packed)+1)
	var builds sync.WaitGroup
	for i, image := range packed {
		out := filepath.Join(dir, image.file)
		archives = append(archives, out)
		args := []string{"pack", "-out", out, "-env", "PATH=/"}
		for _, name := range image.names {
			args = append(args, "-name", name)
		}
		for _, word := range image.entrypoint {
			args = append(args, "-entrypoint", word)
		}
		args = append(args, "/"+image.program+"="+from[image.program])
		builds.Go(func() { errs[i] = command(ctx, tool, builder, args...) })
	}
	builds.Go(func() {
		errs[len(packed)] = command(ctx, tool, builder, "build", "-out", dir, "-tag", projectImage, "-platforms", "linux/"+runtime.GOARCH)
	})
	builds.Wait()
	return append(archives, filepath.Join(dir, "fixpoint-"+runtime.GOARCH+".tar")), errors.Join(errs...)
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w\n%s", filepath.Base(name), args, err, out)
	}
	return nil
}
