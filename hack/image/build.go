package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// programs are the project's commands that the image holds, each at the root. The
// first is what the image runs. The fake cloud is not among them: it has no
// authentication.
var programs = []string{"manager", "mcp-bridge", "console"}

const unknown = "unknown"

// stamp is the version information of the programs.
type stamp struct {
	version, commit string
	date            time.Time
}

// platformImage is the image for one platform.
type platformImage struct {
	platform v1.Platform
	image    v1.Image
}

func parsePlatforms(list string) ([]v1.Platform, error) {
	var platforms []v1.Platform
	for item := range strings.SplitSeq(list, ",") {
		platform, err := v1.ParsePlatform(strings.TrimSpace(item))
		if err != nil || platform.OS != "linux" || platform.Architecture == "" || platform.Variant != "" {
			return nil, fmt.Errorf("-platforms: %q is not supported: use linux/ARCHITECTURE, such as linux/amd64", item)
		}
		platforms = append(platforms, *platform)
	}
	return platforms, nil
}

// readStamp reads commit and date from git. SOURCE_DATE_EPOCH, the convention of
// reproducible builds, overrides the date.
func readStamp(ctx context.Context, source, version, commit string) (stamp, error) {
	git := func(args ...string) string {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", source}, args...)...).Output()
		if err != nil { // no repository: the value is unknown
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	s := stamp{
		version: cmp.Or(version, git("describe", "--tags", "--always", "--dirty"), unknown),
		commit:  cmp.Or(commit, git("rev-parse", "HEAD"), unknown),
	}
	seconds, given := os.LookupEnv("SOURCE_DATE_EPOCH")
	if !given {
		if seconds = git("log", "-1", "--format=%ct"); seconds == "" {
			return s, errors.New("the date of the image is unknown: build in a git checkout, or set SOURCE_DATE_EPOCH")
		}
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, fmt.Errorf("SOURCE_DATE_EPOCH is %q: use seconds since 1970", seconds)
	}
	s.date = time.Unix(epoch, 0).UTC()
	return s, nil
}

// buildImages builds the project's image for each of the platforms. The programs and
// the SBOM of a platform stay in the folder of its architecture in work.
func buildImages(ctx context.Context, source, work string, platforms []v1.Platform, s stamp) ([]platformImage, error) {
	var images []platformImage
	for _, platform := range platforms {
		bin := filepath.Join(work, platform.Architecture)
		if err := compile(ctx, source, bin, platform, s, programs); err != nil {
			return nil, err
		}
		image, err := projectImage(bin, platform, s)
		if err != nil {
			return nil, err
		}
		images = append(images, platformImage{platform, image})
	}
	return images, nil
}

func projectImage(bin string, platform v1.Platform, s stamp) (v1.Image, error) {
	files := programFiles(bin)
	sbom, err := billOfMaterials(bin, platform, s)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(bin, sbomFile), sbom, 0o600); err != nil {
		return nil, fmt.Errorf("writing the bill of materials: %w", err)
	}
	roots, err := certificates()
	if err != nil {
		return nil, err
	}
	return compose(append(files,
		file{path: sbomPath, content: sbom, mode: 0o644},
		file{path: rootsPath, content: roots, mode: 0o644},
	), settings{
		platform: platform, user: nonroot, entrypoint: []string{"/" + programs[0]}, created: s.date,
		labels: map[string]string{
			"org.opencontainers.image.title":    "Fixpoint",
			"org.opencontainers.image.source":   "https://github.com/fixpoint-dev/fixpoint",
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version":  s.version,
			"org.opencontainers.image.revision": s.commit,
			"org.opencontainers.image.created":  s.date.Format(time.RFC3339),
		},
		comment: "make image",
	}, gzip.BestCompression)
}

// programFiles are the programs in the folder bin, to be laid at the root.
func programFiles(bin string) []file {
	var files []file
	for _, program := range programs {
		files = append(files, file{path: "/" + program, from: filepath.Join(bin, program), mode: 0o755})
	}
	return files
}

// moduleSettings are where the go command finds modules and compiled packages. What it builds does not depend on them.
var moduleSettings = []string{
	"GOAUTH", "GOCACHE", "GOINSECURE", "GOMODCACHE", "GONOPROXY", "GONOSUMDB", "GOPRIVATE", "GOPROXY", "GOSUMDB", "GOTOOLCHAIN", "GOVCS",
}

// buildEnvironment has the settings of this machine that only say where the go command finds things, and fixed ones
// otherwise: GOENV=off leaves out those of `go env -w`, which an empty variable does not override.
func buildEnvironment(ctx context.Context, platform v1.Platform) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"env"}, moduleSettings...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("asking go env: %w", err)
	}
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"GOEXPERIMENT", "GODEBUG", "PWD"}, name)
	})
	for i, value := range strings.SplitN(string(out), "\n", len(moduleSettings)) {
		env = append(env, moduleSettings[i]+"="+strings.TrimSpace(value))
	}
	return append(env, "GOENV=off", "GOFLAGS=-mod=readonly", "GOWORK=off", "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture,
		"GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off"), nil
}

// compile builds the programs reproducibly in any environment: no paths of this
// machine, no dynamic linking, and nothing of the repository but the stamp.
func compile(ctx context.Context, source, bin string, platform v1.Platform, s stamp, programs []string) error {
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("creating a folder: %w", err)
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", linkerFlags(s), "-o", bin + "/"}
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = source
	env, err := buildEnvironment(ctx, platform)
	if err != nil {
		return err
	}
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building for %s: %w\n%s", platform.String(), err, out)
	}
	return nil
}

// linkerFlags omit the symbol table and set the output of `manager --version`.
func linkerFlags(s stamp) string {
	const at = "github.com/fixpoint-dev/fixpoint/internal/buildinfo"
	return fmt.Sprintf("-s -w -X %[1]s.version=%[2]s -X %[1]s.commit=%[3]s -X %[1]s.date=%[4]s", at, s.version, s.commit, s.date.Format(time.RFC3339))
}
