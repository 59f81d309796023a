package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// repository is where the project's image is published.
const repository = "ghcr.io/fixpoint-dev/fixpoint"

// release is one version of everything that is published.
type release struct {
	source, version string
	platforms       string
	pluginPlatforms string
	stamp           stamp
}

// number is the version without the v, as Helm and the changelog have it.
func (r release) number() string { return strings.TrimPrefix(r.version, "v") }

func runRelease(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("image release", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var r release
	flags.StringVar(&r.source, "source", "../..", "Folder of the project's sources, a git checkout.")
	flags.StringVar(&r.version, "version", "", "Version to release, such as v1.2.3.")
	flags.StringVar(&r.platforms, "platforms", "linux/amd64,linux/arm64", "Platforms, separated by commas.")
	flags.StringVar(&r.pluginPlatforms, "plugin-platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64", "Platforms of the kubectl plugin, separated by commas.")
	out := flags.String("out", "../../dist/release", "Folder in which the folder of the version is written; an earlier one is replaced.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	changes, err := r.check(ctx)
	if err != nil {
		return err
	}
	if r.stamp, err = readStamp(ctx, r.source, r.version, ""); err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return fmt.Errorf("creating %s: %w", *out, err)
	}
	unfinished, err := os.MkdirTemp(*out, ".unfinished-")
	if err != nil {
		return fmt.Errorf("creating a folder to build in: %w", err)
	}
	defer os.RemoveAll(unfinished)
	committed, err := os.MkdirTemp("", "fixpoint-commit-")
	if err != nil {
		return fmt.Errorf("creating a folder for the commit: %w", err)
	}
	defer os.RemoveAll(committed)
	if err := r.checkOut(ctx, committed); err != nil {
		return err
	}
	r.source = committed
	if err := r.write(ctx, unfinished, changes); err != nil {
		return err
	}
	final := filepath.Join(*out, r.version)
	if err := os.RemoveAll(final); err != nil {
		return fmt.Errorf("removing the earlier %s: %w", final, err)
	}
	if err := errors.Join(os.Rename(unfinished, final), os.Chmod(final, 0o755)); err != nil { //nolint:gosec // it is published
		return fmt.Errorf("naming %s: %w", final, err)
	}
	return r.list(stdout, final)
}

var versionPattern = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

// check returns the changelog's section of the version, or everything that is in the
// way of the release.
func (r release) check(ctx context.Context) (string, error) {
	if !versionPattern.MatchString(r.version) {
		return "", fmt.Errorf("-version is %q: give vMAJOR.MINOR.PATCH, such as v1.2.3", r.version)
	}
	var problems []error
	head, err := r.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := r.git(ctx, "status", "--porcelain", "--untracked-files=all")
	if err != nil {
		return "", err
	}
	if changed != "" {
		problems = append(problems, fmt.Errorf("the tree differs from its commit: commit or remove\n%s", changed))
	}
	if tagged, err := r.git(ctx, "rev-parse", "--quiet", "--verify", "refs/tags/"+r.version+"^{commit}"); err == nil && tagged != head {
		problems = append(problems, fmt.Errorf("the tag %s exists, on the commit %s: choose another version, or check the tag out", r.version, tagged))
	}
	changelog, err := os.ReadFile(filepath.Join(r.source, "CHANGELOG.md"))
	if err != nil {
		return "", fmt.Errorf("reading the changelog: %w", err)
	}
	changes := section(string(changelog), r.number())
	if changes == "" {
		problems = append(problems, fmt.Errorf("CHANGELOG.md has no section [%s], or an empty one: rename [Unreleased]", r.number()))
	}
	return changes, errors.Join(append(problems, r.checkTag("charts/fixpoint/Chart.yaml", appVersion), r.checkTag("config/manager/kustomization.yaml", newTag))...)
}

// checkTag returns an error if the line of the file that names the tag of the image does not end with the version:
// installations from the tag would use the image of another release.
func (r release) checkTag(file string, line *regexp.Regexp) error {
	content, err := os.ReadFile(filepath.Join(r.source, filepath.FromSlash(file)))
	if err != nil {
		return fmt.Errorf("reading the tag of the image: %w", err)
	}
	if found := string(bytes.TrimSpace(line.Find(content))); !strings.HasSuffix(found, ": "+r.version) {
		return fmt.Errorf("%s has %q: set %s, run 'make generate' and commit", file, found, r.version)
	}
	return nil
}

// newTag is the line with the tag of the manager's image in its kustomization.
var newTag = regexp.MustCompile(`(?m)^ +newTag: .*$`)

// checkOut clones the commit into the folder to, so that no file that git ignores gets into the release.
func (r release) checkOut(ctx context.Context, to string) error {
	source, err := filepath.Abs(r.source)
	if err != nil {
		return fmt.Errorf("locating the sources: %w", err)
	}
	clone := exec.CommandContext(ctx, "git", "clone", "--quiet", "--shared", source, to)
	if out, err := clone.CombinedOutput(); err != nil {
		return fmt.Errorf("cloning %s: %w\n%s", r.source, err, out)
	}
	checkOut := exec.CommandContext(ctx, "git", "-C", to, "checkout", "--quiet", "--detach", r.stamp.commit)
	if out, err := checkOut.CombinedOutput(); err != nil {
		return fmt.Errorf("checking out %s: %w\n%s", r.stamp.commit, err, out)
	}
	return nil
}

func (r release) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", r.source}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// section returns the text below the heading of a version, up to the next version.
func section(changelog, number string) string {
	var out []string
	inside := false
	for line := range strings.SplitSeq(changelog, "\n") {
		if strings.HasPrefix(line, "## ") {
			inside = strings.HasPrefix(line, "## ["+number+"]")
			continue
		}
		if inside {
			out = append(out, line)
		}
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

// write fills the folder out with the files of the release.
func (r release) write(ctx context.Context, out, changes string) error {
	work, err := os.MkdirTemp("", "fixpoint-release-")
	if err != nil {
		return fmt.Errorf("creating a folder to build in: %w", err)
	}
	defer os.RemoveAll(work)
	platforms, err := parsePlatforms(r.platforms)
	if err != nil {
		return err
	}
	images, err := buildImages(ctx, r.source, work, platforms, r.stamp)
	if err != nil {
		return err
	}
	if err := r.writeImages(out, work, images); err != nil {
		return err
	}
	digest, err := newIndex(images).Digest()
	if err != nil {
		return fmt.Errorf("computing the image's digest: %w", err)
	}
	if err := r.writeManifest(out, digest.String()); err != nil {
		return err
	}
	if err := packageChart(r.source, filepath.Join(out, "fixpoint-"+r.number()+".tgz"), r.version, digest.String(), r.stamp.date); err != nil {
		return err
	}
	if err := r.writePlugin(ctx, out, work); err != nil {
		return err
	}
	if err := publish(filepath.Join(out, "CHANGES.md"), []byte(changes+"\n")); err != nil {
		return err
	}
	if err := r.writeProvenance(out, digest); err != nil {
		return err
	}
	return writeChecksums(out)
}

// writeImages writes the OCI archive, and for each platform its SBOM and its programs.
func (r release) writeImages(out, work string, images []platformImage) error {
	base := filepath.Join(out, "fixpoint-"+r.version)
	oci := filepath.Join(work, "oci")
	if err := writeLayout(oci, repository+":"+r.version, images); err != nil {
		return err
	}
	files, err := filesBelow(oci, "")
	if err != nil {
		return err
	}
	content, err := archive(files, r.stamp.date)
	if err != nil {
		return err
	}
	if err := publish(base+"-oci.tar", content); err != nil {
		return err
	}
	for _, i := range images {
		bin := filepath.Join(work, i.platform.Architecture)
		name := base + "-linux-" + i.platform.Architecture
		sbom, err := os.ReadFile(filepath.Join(bin, sbomFile))
		if err != nil {
			return fmt.Errorf("reading the bill of materials: %w", err)
		}
		if err := publish(name+".spdx.json", sbom); err != nil {
			return err
		}
		if err := writeTarball(name+".tar.gz", programFiles(bin), r.stamp.date); err != nil {
			return err
		}
	}
	return nil
}

// unpinned is the image that dist/install.yaml names.
var unpinned = regexp.MustCompile(regexp.QuoteMeta(repository) + `:[A-Za-z0-9_.-]+`)

// writeManifest writes the install manifest with the image by version and digest.
func (r release) writeManifest(out, digest string) error {
	manifest, err := os.ReadFile(filepath.Join(r.source, "dist", "install.yaml"))
	if err != nil {
		return fmt.Errorf("reading the manifests: %w", err)
	}
	if !unpinned.Match(manifest) {
		return fmt.Errorf("dist/install.yaml does not name the image %s by tag: run 'make generate'", repository)
	}
	pinned := unpinned.ReplaceAllLiteral(manifest, fmt.Appendf(nil, "%s:%s@%s", repository, r.version, digest))
	return publish(filepath.Join(out, "install.yaml"), pinned)
}

// writeChecksums lists the files as sha256sum does.
func writeChecksums(out string) error {
	entries, err := os.ReadDir(out) // sorted
	if err != nil {
		return fmt.Errorf("listing %s: %w", out, err)
	}
	var sums bytes.Buffer
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(out, entry.Name()))
		if err != nil {
			return fmt.Errorf("reading %s: %w", entry.Name(), err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return publish(filepath.Join(out, checksumsFile), sums.Bytes())
}

func (r release) list(stdout io.Writer, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("listing %s: %w", folder, err)
	}
	fmt.Fprintf(stdout, "%s of commit %s in %s:\n", r.version, r.stamp.commit, folder)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return fmt.Errorf("listing %s: %w", folder, err)
		}
		fmt.Fprintf(stdout, "  %9.1f kB  %s\n", float64(info.Size())/1e3, entry.Name())
	}
	return nil
}

// filesBelow are the regular files of a folder, to be laid below the path to.
func filesBelow(folder, to string) ([]file, error) {
	var files []file
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		files = append(files, file{path: to + "/" + filepath.ToSlash(name), from: path, mode: 0o644})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", folder, err)
	}
	return files, nil
}

// writeTarball writes a compressed archive, the same bytes for the same files.
func writeTarball(to string, files []file, modified time.Time) error {
	content, err := archive(files, modified)
	if err != nil {
		return err
	}
	var compressed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return fmt.Errorf("compressing %s: %w", to, err)
	}
	if _, err := writer.Write(content); err != nil {
		return fmt.Errorf("compressing %s: %w", to, err)
	}
	if err := writer.Close(); err != nil {
		return fmt.Errorf("compressing %s: %w", to, err)
	}
	return publish(to, compressed.Bytes())
}

// publish writes a file that everybody may read.
func publish(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // it is published
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
