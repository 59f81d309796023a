package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	. "github.com/onsi/gomega"
	spdxjson "github.com/spdx/tools-golang/json"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"
)

// The files with the version of the image, besides the changelog.
const (
	chartFile         = "charts/fixpoint/Chart.yaml"
	kustomizationFile = "config/manager/kustomization.yaml"
)

const testChangelog = `# Changelog

## [Unreleased]

## [9.8.7] - 2026-11-21

### Added

- A thing.

## [9.8.6] - 2026-11-20

- An older thing.
`

// git runs git as an author whose commits are always the same.
func git(t *testing.T, root string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", root, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE=2026-11-21T12:00:00Z", "GIT_COMMITTER_DATE=2026-11-21T12:00:00Z")
	out, err := cmd.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(out))
}

// checkout copies the sources as they are now into a repository of one commit, with a
// changelog that has a section for v9.8.7.
func checkout(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	root := t.TempDir()
	listed, err := exec.Command("git", "-C", "../..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	g.Expect(err).NotTo(HaveOccurred())
	for path := range strings.SplitSeq(strings.TrimRight(string(listed), "\x00"), "\x00") {
		from, to := filepath.Join("../..", path), filepath.Join(root, path)
		info, err := os.Lstat(from)
		if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		g.Expect(err).NotTo(HaveOccurred())
		content, err := os.ReadFile(from)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.MkdirAll(filepath.Dir(to), 0o750)).To(Succeed())
		g.Expect(os.WriteFile(to, content, info.Mode().Perm())).To(Succeed())
	}
	g.Expect(os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte(testChangelog), 0o600)).To(Succeed())
	for name, line := range map[string]*regexp.Regexp{chartFile: appVersion, kustomizationFile: newTag} {
		path := filepath.Join(root, name)
		content := line.ReplaceAllFunc(read(g, path), func(line []byte) []byte {
			name, _, _ := strings.Cut(string(line), ": ")
			return []byte(name + ": v9.8.7")
		})
		g.Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	}
	git(t, root, "init", "-q", "-b", "main")
	git(t, root, "add", "-A")
	git(t, root, "commit", "-q", "-m", "sources")
	return root
}

func TestReleaseHoldsEverythingAndIsReproducible(t *testing.T) {
	g := NewWithT(t)
	g.Expect(os.Unsetenv("SOURCE_DATE_EPOCH")).To(Succeed())
	t.Setenv("GOFLAGS", "")
	// The modules of all platforms: building for this one does not download those of others.
	download := exec.CommandContext(t.Context(), "go", "mod", "download")
	download.Dir = "../.."
	out, err := download.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	t.Setenv("GOPROXY", "off") // no network from here on
	t.Setenv("GOVULNDB", "file://"+vulnerabilities(t, nil))
	first := checkout(t)
	out, err = exec.CommandContext(t.Context(), "make", "-C", first, "release", "VERSION=v9.8.7").CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	folder := filepath.Join(first, "dist", "release", "v9.8.7")

	entries, err := os.ReadDir(folder)
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	g.Expect(names).To(ConsistOf("install.yaml", "CHANGES.md", "checksums.txt", "provenance.json", "fixpoint-9.8.7.tgz", "fixpoint-v9.8.7-oci.tar",
		"fixpoint-v9.8.7-linux-amd64.tar.gz", "fixpoint-v9.8.7-linux-amd64.spdx.json",
		"fixpoint-v9.8.7-linux-arm64.tar.gz", "fixpoint-v9.8.7-linux-arm64.spdx.json", "krew.yaml",
		"kubectl-fixpoint-v9.8.7-linux-amd64.tar.gz", "kubectl-fixpoint-v9.8.7-linux-arm64.tar.gz", "kubectl-fixpoint-v9.8.7-darwin-amd64.tar.gz",
		"kubectl-fixpoint-v9.8.7-darwin-arm64.tar.gz", "kubectl-fixpoint-v9.8.7-windows-amd64.tar.gz"))
	installsThePlugin(g, folder)
	g.Expect(string(read(g, folder, "CHANGES.md"))).To(Equal("### Added\n\n- A thing.\n"))

	digest := digestOfArchive(t, filepath.Join(folder, "fixpoint-v9.8.7-oci.tar"))
	pinned := "ghcr.io/fixpoint-dev/fixpoint:v9.8.7@" + digest
	manifest := string(read(g, folder, "install.yaml"))
	g.Expect(strings.Count(manifest, pinned)).To(Equal(2), "the manager's image, and the bridge's")
	g.Expect(unpinned.FindAllString(manifest, -1)).To(HaveEach(repository+":v9.8.7"), "no other version")

	chart := unpack(g, read(g, folder, "fixpoint-9.8.7.tgz"))
	g.Expect(string(chart["fixpoint/Chart.yaml"])).To(And(
		ContainSubstring("\nversion: 9.8.7\n"), ContainSubstring("\nappVersion: v9.8.7\n"), ContainSubstring("\nname: fixpoint\n"),
		ContainSubstring("\nannotations:\n  fixpoint.dev/image-digest: "+digest+"\n")))
	g.Expect(chart).To(And(HaveKey("fixpoint/values.yaml"), HaveKey("fixpoint/values.schema.json"), HaveKey("fixpoint/templates/deployment.yaml")))

	for _, architecture := range platforms {
		base := "fixpoint-v9.8.7-linux-" + architecture
		binaries := unpack(g, read(g, folder, base+".tar.gz"))
		for _, program := range programs {
			g.Expect(binaries).To(HaveKey(program))
		}
		g.Expect(bytes.Contains(binaries["manager"], []byte("v9.8.7"))).To(BeTrue(), "the manager knows its version")
		bill, err := spdxjson.Read(bytes.NewReader(read(g, folder, base+".spdx.json")))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(bill.DocumentName).To(Equal("fixpoint-" + architecture))
	}

	head, err := exec.CommandContext(t.Context(), "git", "-C", first, "rev-parse", "HEAD").Output()
	g.Expect(err).NotTo(HaveOccurred())
	describesTheRelease(g, read(g, folder, "provenance.json"), names, digest, strings.TrimSpace(string(head)))

	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "checksums.txt")
	check.Dir = folder
	out, err = check.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	g.Expect(strings.Count(string(out), ": OK")).To(Equal(len(names)-1), "every file but the list itself")

	// When another checkout of the same commit is released, at its tag, where the environment differs
	second := t.TempDir()
	git(t, first, "clone", "-q", ".", second)
	git(t, second, "tag", "v9.8.7")
	write(g, second, ".git/info/exclude", "ignored*\n")
	for _, name := range []string{"charts/fixpoint/templates/ignored.yaml", "cmd/manager/ignored.go", "internal/console/web/dist/ignored.js"} {
		write(g, second, name, "ignored")
	}
	for name, value := range map[string]string{"TZ": "Asia/Tokyo", "GOFLAGS": "-buildvcs=true", "LANG": "de_DE.UTF-8"} {
		t.Setenv(name, value)
	}
	again := t.TempDir()
	g.Expect(run(t.Context(), []string{"release", "-source", second, "-out", again, "-version", "v9.8.7"}, io.Discard, os.Stderr)).To(Succeed())

	// Then it is the same, byte for byte
	g.Expect(string(read(g, again, "v9.8.7", "checksums.txt"))).To(Equal(string(read(g, folder, "checksums.txt"))))
}

// vulnerabilities writes a database of the Go vulnerability project's schema, with entries by ID, each of the
// function ParsePlatform, which this program calls.
// installsThePlugin expects that krew finds in each archive what the manifest names.
func installsThePlugin(g Gomega, folder string) {
	var manifest krewPlugin
	g.Expect(yaml.UnmarshalStrict(read(g, folder, "krew.yaml"), &manifest)).To(Succeed())
	g.Expect(manifest.Spec.Version).To(Equal("v9.8.7"))
	g.Expect(manifest.Spec.Platforms).To(HaveLen(5))
	for _, platform := range manifest.Spec.Platforms {
		name := path.Base(platform.URI)
		content := read(g, folder, name)
		g.Expect(fmt.Sprintf("%x", sha256.Sum256(content))).To(Equal(platform.SHA256), name)
		files := unpack(g, content)
		g.Expect(files).To(And(HaveKey(platform.Bin), HaveKey("LICENSE"), HaveKey("kubectl_complete-fixpoint")), name)
		g.Expect(bytes.Contains(files[platform.Bin], []byte("v9.8.7"))).To(BeTrue(), "the plugin knows its version")
		const limit = 60 << 20
		g.Expect(len(files[platform.Bin])).To(BeNumerically("<", limit), name)
	}
}

func vulnerabilities(t *testing.T, ids []string) string {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	const module, modified = "github.com/google/go-containerregistry", "2026-11-20T00:00:00Z"
	modules, entries := "[]", ""
	for i, id := range ids {
		if i > 0 {
			entries += ","
		}
		entries += `{"id":"` + id + `","modified":"` + modified + `"}`
		write(g, dir, "ID/"+id+".json", `{"schema_version":"1.3.1","id":"`+id+`","modified":"`+modified+`","published":"`+modified+`","summary":"A test.","database_specific":{"url":"https://pkg.go.dev/vuln"},
			"affected":[{"package":{"name":"`+module+`","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
			"ecosystem_specific":{"imports":[{"path":"`+module+`/pkg/v1","symbols":["ParsePlatform"]}]}}]}`)
		modules = `[{"path":"` + module + `","vulns":[` + entries + `]}]`
	}
	write(g, dir, "index/db.json", `{"modified":"`+modified+`"}`)
	write(g, dir, "index/modules.json", modules)
	return dir
}

func write(g Gomega, dir, name, content string) {
	path := filepath.Join(dir, filepath.FromSlash(name))
	g.Expect(os.MkdirAll(filepath.Dir(path), 0o750)).To(Succeed())
	g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
}

func TestReleaseRefusesVulnerabilities(t *testing.T) {
	program := filepath.Join(t.TempDir(), "govulncheck")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "tool")
	build.Dir = "../tools/govulncheck"
	out, err := build.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(out))
	for name, c := range map[string]struct {
		args     []string
		database func(t *testing.T) string
		succeeds bool
		want     []string
	}{
		"a database without entries":  {nil, func(t *testing.T) string { return vulnerabilities(t, nil) }, true, []string{"No vulnerabilities found."}},
		"a function that is called":   {nil, func(t *testing.T) string { return vulnerabilities(t, []string{"GO-2026-0001"}) }, false, []string{"GO-2026-0001", "ParsePlatform"}},
		"no database":                 {nil, func(t *testing.T) string { return filepath.Join(t.TempDir(), "absent") }, true, []string{"govulncheck did NOT run", "Set GOVULNDB"}},
		"a release, without database": {[]string{"--strict"}, func(t *testing.T) string { return filepath.Join(t.TempDir(), "absent") }, false, []string{"govulncheck did NOT run", "Set GOVULNDB"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			check := exec.CommandContext(t.Context(), "../vulncheck.sh", c.args...)
			check.Env = append(os.Environ(), "GOVULNCHECK="+program, "GOVULNDB=file://"+c.database(t))

			out, err := check.CombinedOutput()

			g.Expect(err == nil).To(Equal(c.succeeds), string(out))
			for _, want := range c.want {
				g.Expect(string(out)).To(ContainSubstring(want))
			}
		})
	}
}

// TestOnlyReleasesAreCheckedForVulnerabilities reads what make would run: a release can be reproduced once a
// vulnerability in it is known.
func TestOnlyReleasesAreCheckedForVulnerabilities(t *testing.T) {
	g := NewWithT(t)
	commands := func(target string) string {
		program := filepath.Join(t.TempDir(), "govulncheck")
		g.Expect(os.WriteFile(program, nil, 0o600)).To(Succeed())
		out, err := exec.CommandContext(t.Context(), "make", "-n", "-C", "../..", target, "VERSION=v9.8.7", "GOVULNCHECK="+program).CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
		return string(out)
	}
	const build = `run \. release .* -version "v9\.8\.7"`
	g.Expect(commands("release")).To(MatchRegexp(`(?s)vulncheck\.sh --strict.*` + build))
	g.Expect(commands("reproduce")).To(And(MatchRegexp(build), Not(ContainSubstring("vulncheck"))))
}

// describesTheRelease reads the provenance as its consumers do.
func describesTheRelease(g Gomega, content []byte, names []string, image, commit string) {
	var provenance intoto.Statement
	g.Expect(protojson.Unmarshal(content, &provenance)).To(Succeed())
	g.Expect(provenance.Validate()).To(Succeed())
	g.Expect(provenance.PredicateType).To(Equal("https://slsa.dev/provenance/v1"))
	predicate, err := provenance.Predicate.MarshalJSON()
	g.Expect(err).NotTo(HaveOccurred())
	var built slsa.Provenance
	g.Expect(protojson.Unmarshal(predicate, &built)).To(Succeed())
	g.Expect(built.Validate()).To(Succeed())
	g.Expect(built.BuildDefinition.ResolvedDependencies).To(HaveLen(1))
	g.Expect(built.BuildDefinition.ResolvedDependencies[0].Digest).To(Equal(map[string]string{"gitCommit": commit}))

	digests := map[string]string{}
	for _, subject := range provenance.Subject {
		digests[subject.Name] = subject.Digest["sha256"]
	}
	g.Expect(digests).To(HaveKeyWithValue("ghcr.io/fixpoint-dev/fixpoint:v9.8.7", strings.TrimPrefix(image, "sha256:")))
	for _, name := range names {
		if name != provenanceFile && name != checksumsFile {
			g.Expect(digests).To(HaveKey(name))
		}
	}
	g.Expect(digests).To(HaveLen(len(names)-1), "the image, and all files but the provenance and the checksums")
}

func read(g Gomega, path ...string) []byte {
	content, err := os.ReadFile(filepath.Join(path...))
	g.Expect(err).NotTo(HaveOccurred())
	return content
}

// unpack reads a compressed archive.
func unpack(g Gomega, compressed []byte) map[string][]byte {
	stream, err := gzip.NewReader(bytes.NewReader(compressed))
	g.Expect(err).NotTo(HaveOccurred())
	return untar(g, stream)
}

func untar(g Gomega, stream io.Reader) map[string][]byte {
	files := map[string][]byte{}
	reader := tar.NewReader(stream)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		g.Expect(err).NotTo(HaveOccurred())
		if header.Typeflag == tar.TypeReg {
			content, err := io.ReadAll(reader)
			g.Expect(err).NotTo(HaveOccurred())
			files[header.Name] = content
		}
	}
}

// digestOfArchive is the digest of the index of all platforms in an OCI archive.
func digestOfArchive(t *testing.T, archive string) string {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(archive)
	g.Expect(err).NotTo(HaveOccurred())
	root := t.TempDir()
	for name, file := range untar(g, bytes.NewReader(content)) {
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o750)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(root, name), file, 0o600)).To(Succeed())
	}
	top, err := layout.ImageIndexFromPath(root)
	g.Expect(err).NotTo(HaveOccurred())
	manifest, err := top.IndexManifest()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manifest.Manifests).To(HaveLen(1))
	g.Expect(manifest.Manifests[0].Annotations).To(HaveKeyWithValue(referenceName, "ghcr.io/fixpoint-dev/fixpoint:v9.8.7"))
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	g.Expect(err).NotTo(HaveOccurred())
	images, err := index.IndexManifest()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(images.Manifests).To(HaveLen(len(platforms)))
	return manifest.Manifests[0].Digest.String()
}

func TestReleaseRefuses(t *testing.T) {
	cases := map[string]struct {
		version string
		given   func(t *testing.T, root string)
		want    []string
	}{
		"no version":                    {"", nil, []string{`-version is "": give vMAJOR.MINOR.PATCH`}},
		"a version without v":           {"9.8.7", nil, []string{`-version is "9.8.7"`}},
		"a version of two numbers":      {"v9.8", nil, []string{`-version is "v9.8"`}},
		"a version with a leading zero": {"v9.08.7", nil, []string{`-version is "v9.08.7"`}},
		"a changed file": {"v9.8.7", func(t *testing.T, root string) {
			NewWithT(t).Expect(os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte(testChangelog+"\n"), 0o600)).To(Succeed())
		}, []string{"the tree differs from its commit", "M CHANGELOG.md"}},
		"a file that is not committed": {"v9.8.7", func(t *testing.T, root string) {
			NewWithT(t).Expect(os.WriteFile(filepath.Join(root, "new.go"), nil, 0o600)).To(Succeed())
		}, []string{"?? new.go"}},
		"a file that is not committed, where git does not show such files": {"v9.8.7", func(t *testing.T, root string) {
			git(t, root, "config", "status.showUntrackedFiles", "no")
			write(NewWithT(t), root, "new/new.go", "")
		}, []string{"?? new/new.go"}},
		"a chart of another version": {"v9.8.7", func(t *testing.T, root string) {
			write(NewWithT(t), root, chartFile, "appVersion: v9.8.70\n")
			git(t, root, "commit", "-q", "-a", "-m", "another version")
		}, []string{`charts/fixpoint/Chart.yaml has "appVersion: v9.8.70": set v9.8.7, run 'make generate' and commit`}},
		"a kustomization of another version": {"v9.8.7", func(t *testing.T, root string) {
			write(NewWithT(t), root, kustomizationFile, "images:\n- name: controller\n  newTag: v9.8.6\n")
			git(t, root, "commit", "-q", "-a", "-m", "another version")
		}, []string{`config/manager/kustomization.yaml has "newTag: v9.8.6": set v9.8.7`}},
		"the tag of another commit": {"v9.8.7", func(t *testing.T, root string) {
			git(t, root, "tag", "v9.8.7")
			git(t, root, "commit", "-q", "--allow-empty", "-m", "next")
		}, []string{"the tag v9.8.7 exists, on the commit "}},
		"a version without changes":        {"v9.9.0", nil, []string{"CHANGELOG.md has no section [9.9.0]"}},
		"a version whose number begins so": {"v9.8.6-rc.1", nil, []string{"CHANGELOG.md has no section [9.8.6-rc.1]"}},
		"all problems at once": {"v9.9.0", func(t *testing.T, root string) {
			NewWithT(t).Expect(os.WriteFile(filepath.Join(root, "new.go"), nil, 0o600)).To(Succeed())
		}, []string{"?? new.go", "no section [9.9.0]"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			root, out := t.TempDir(), t.TempDir()
			write(g, root, "CHANGELOG.md", testChangelog)
			write(g, root, chartFile, "version: 0.1.0\nappVersion: v9.8.7\n")
			write(g, root, kustomizationFile, "images:\n- name: controller\n  newTag: v9.8.7\n")
			git(t, root, "init", "-q", "-b", "main")
			git(t, root, "add", "-A")
			git(t, root, "commit", "-q", "-m", "sources")
			if c.given != nil {
				c.given(t, root)
			}

			err := run(t.Context(), []string{"release", "-source", root, "-out", out, "-version", c.version}, io.Discard, io.Discard)

			for _, want := range c.want {
				g.Expect(err).To(MatchError(ContainSubstring(want)))
			}
			written, err := os.ReadDir(out)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(written).To(BeEmpty())
		})
	}
}
