package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	. "github.com/onsi/gomega"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
)

const (
	testTag    = "registry.test/fixpoint:v1.2.3"
	testCommit = "0123456789abcdef0123456789abcdef01234567"
	// bar is the most that a node may have to pull, in bytes.
	bar = 60e6
)

// built is where the image was built. TestReleaseHoldsEverythingAndIsReproducible builds it twice.
var built string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	work, err := os.MkdirTemp("", "fixpoint-image-test-")
	if err == nil {
		defer os.RemoveAll(work)
		built = filepath.Join(work, "image")
		err = build()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func build() error {
	if err := os.Setenv("SOURCE_DATE_EPOCH", "1700000000"); err != nil {
		return err
	}
	return run(context.Background(), []string{"build", "-source", "../..", "-out", built, "-tag", testTag, "-version", "v1.2.3", "-commit", testCommit}, io.Discard, os.Stderr)
}

var platforms = []string{"amd64", "arm64"}

// imageOf reads the image of one platform from what was written.
func imageOf(g Gomega, architecture string) v1.Image {
	root, err := layout.ImageIndexFromPath(filepath.Join(built, "oci"))
	g.Expect(err).NotTo(HaveOccurred())
	top, err := root.IndexManifest()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(top.Manifests).To(HaveLen(1))
	g.Expect(top.Manifests[0].Annotations).To(HaveKeyWithValue(referenceName, testTag))
	index, err := root.ImageIndex(top.Manifests[0].Digest)
	g.Expect(err).NotTo(HaveOccurred())
	manifest, err := index.IndexManifest()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manifest.Manifests).To(HaveLen(len(platforms)))
	for _, m := range manifest.Manifests {
		if m.Platform.String() == "linux/"+architecture {
			image, err := index.Image(m.Digest)
			g.Expect(err).NotTo(HaveOccurred())
			return image
		}
	}
	g.Expect(manifest.Manifests).To(BeEmpty(), "no image for %s", architecture)
	return nil
}

// contents are the files of an image, with the headers that they have in its layer.
func contents(g Gomega, image v1.Image) (map[string][]byte, []*tar.Header) {
	layers, err := image.Layers()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(layers).To(HaveLen(1))
	stream, err := layers[0].Uncompressed()
	g.Expect(err).NotTo(HaveOccurred())
	defer stream.Close()
	files := map[string][]byte{}
	var headers []*tar.Header
	reader := tar.NewReader(stream)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files, headers
		}
		g.Expect(err).NotTo(HaveOccurred())
		headers = append(headers, header)
		if header.Typeflag == tar.TypeReg {
			content, err := io.ReadAll(reader)
			g.Expect(err).NotTo(HaveOccurred())
			files["/"+header.Name] = content
		}
	}
}

func TestImageIsSmallAndRunsAsNonroot(t *testing.T) {
	for _, architecture := range platforms {
		t.Run(architecture, func(t *testing.T) {
			g := NewWithT(t)
			image := imageOf(g, architecture)

			size, err := compressed(image)
			g.Expect(err).NotTo(HaveOccurred())
			t.Logf("%.1f MB compressed", float64(size)/1e6)
			g.Expect(size).To(BeNumerically("<=", int64(bar)))

			config, err := image.ConfigFile()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(config.OS).To(Equal("linux"))
			g.Expect(config.Architecture).To(Equal(architecture))
			g.Expect(config.Config.User).To(Equal("65532:65532"))
			g.Expect(config.Config.Entrypoint).To(Equal([]string{"/manager"}))
			g.Expect(config.Config.Cmd).To(BeEmpty())
			g.Expect(config.Created.UTC()).To(Equal(time.Unix(1700000000, 0).UTC()))
			g.Expect(config.Config.Labels).To(And(
				HaveKeyWithValue("org.opencontainers.image.version", "v1.2.3"),
				HaveKeyWithValue("org.opencontainers.image.revision", testCommit),
				HaveKeyWithValue("org.opencontainers.image.created", "2023-11-14T22:13:20Z")))
		})
	}
}

func TestImageContainsThePrograms(t *testing.T) {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for _, architecture := range platforms {
		t.Run(architecture, func(t *testing.T) {
			g := NewWithT(t)
			files, headers := contents(g, imageOf(g, architecture))

			var names []string
			for _, header := range headers {
				names = append(names, header.Name)
				g.Expect(header.Uid+header.Gid).To(BeZero(), header.Name)
				g.Expect(header.FileInfo().Mode().Perm()&0o022).To(BeZero(), "%s is writable by root alone", header.Name)
				g.Expect(header.ModTime.UTC()).To(Equal(time.Unix(1700000000, 0).UTC()), header.Name)
			}
			g.Expect(names).To(Equal([]string{
				"console", "etc/", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt",
				"manager", "mcp-bridge",
				"usr/", "usr/share/", "usr/share/sbom/", "usr/share/sbom/fixpoint.spdx.json",
			}), "exactly these files, in order")
			for _, program := range programs {
				binary, err := elf.NewFile(bytes.NewReader(files["/"+program]))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(binary.Machine).To(Equal(machines[architecture]), program)
				g.Expect(binary.Section(".interp")).To(BeNil(), "%s is static", program)
				info, err := buildinfo.Read(bytes.NewReader(files["/"+program]))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(info.Path).To(Equal(mainModule + "/cmd/" + program))
			}
			g.Expect(string(files["/manager"])).To(And(ContainSubstring(testCommit), ContainSubstring("v1.2.3")), "the manager knows what it is")
		})
	}
}

func TestBillOfMaterialsListsEveryModuleOfThePrograms(t *testing.T) {
	for _, architecture := range platforms {
		t.Run(architecture, func(t *testing.T) {
			g := NewWithT(t)
			files, _ := contents(g, imageOf(g, architecture))

			bill, err := spdxjson.Read(bytes.NewReader(files[sbomPath]))

			g.Expect(err).NotTo(HaveOccurred(), "it is valid SPDX")
			g.Expect(bill.SPDXVersion).To(Equal("SPDX-2.3"))
			g.Expect(bill.DocumentNamespace).To(HavePrefix("https://"))
			ids := map[spdx.ElementID]string{"DOCUMENT": "the document"}
			packages := map[string]bool{}
			for _, p := range bill.Packages {
				g.Expect(ids).NotTo(HaveKey(p.PackageSPDXIdentifier), "identifiers are unique")
				ids[p.PackageSPDXIdentifier] = p.PackageName
				packages[p.PackageName+"@"+p.PackageVersion] = true
				if len(p.PackageChecksums) == 0 {
					g.Expect(p.PackageExternalReferences).To(ConsistOf(HaveField("Locator", "pkg:golang/"+p.PackageName+"@"+p.PackageVersion)))
				}
			}
			depends := map[string]bool{}
			for _, r := range bill.Relationships {
				g.Expect(ids).To(HaveKey(r.RefA.ElementRefID))
				g.Expect(ids).To(HaveKey(r.RefB.ElementRefID))
				depends[ids[r.RefA.ElementRefID]+" "+r.Relationship+" "+ids[r.RefB.ElementRefID]] = true
			}
			modules := map[string]bool{}
			for _, program := range programs {
				info, err := buildinfo.Read(bytes.NewReader(files["/"+program]))
				g.Expect(err).NotTo(HaveOccurred())
				for _, module := range info.Deps {
					modules[module.Path+"@"+module.Version] = true
					g.Expect(depends).To(HaveKey(program + " DEPENDS_ON " + module.Path))
				}
				g.Expect(packages).To(HaveKey(program + "@v1.2.3"))
				g.Expect(depends).To(HaveKey("the document DESCRIBES " + program))
			}
			g.Expect(modules).NotTo(BeEmpty())
			for module := range modules {
				g.Expect(packages).To(HaveKey(module))
			}
			// The programs, the standard library and the bundle of authorities.
			g.Expect(packages).To(HaveLen(len(modules) + len(programs) + 2))
		})
	}
}

func TestImageTrustsTheAuthoritiesOfAzure(t *testing.T) {
	g := NewWithT(t)
	files, _ := contents(g, imageOf(g, "amd64"))
	pool := x509.NewCertPool()

	g.Expect(pool.AppendCertsFromPEM(files[rootsPath])).To(BeTrue())

	text := string(files[rootsPath])
	g.Expect(strings.Count(text, "BEGIN CERTIFICATE")).To(BeNumerically(">", 80))
	found := 0
	for _, subject := range pool.Subjects() { //nolint:staticcheck // deprecated only for system pools
		for _, name := range []string{"DigiCert Global Root G2", "Microsoft RSA Root Certificate Authority 2017"} {
			if bytes.Contains(subject, []byte(name)) {
				found++
			}
		}
	}
	g.Expect(found).To(Equal(2))
}

func TestPushedImageIsTheOneThatWasBuilt(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New())
	defer server.Close()
	var images []platformImage
	for _, architecture := range platforms {
		images = append(images, platformImage{v1.Platform{OS: "linux", Architecture: architecture}, imageOf(g, architecture)})
	}
	to := strings.TrimPrefix(server.URL, "http://") + "/fixpoint:v1"
	var out bytes.Buffer

	g.Expect(pushImages(t.Context(), to, images, &out)).To(Succeed())

	reference, err := name.ParseReference(to)
	g.Expect(err).NotTo(HaveOccurred())
	pushed, err := remote.Index(reference)
	g.Expect(err).NotTo(HaveOccurred())
	want, err := newIndex(images).Digest()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pushed.Digest()).To(Equal(want))
	g.Expect(out.String()).To(ContainSubstring(want.String()))
}

func TestArchiveIsLoadable(t *testing.T) {
	g := NewWithT(t)
	tag, err := name.NewTag(testTag)
	g.Expect(err).NotTo(HaveOccurred())

	loaded, err := tarball.ImageFromPath(filepath.Join(built, "fixpoint-arm64.tar"), &tag)

	g.Expect(err).NotTo(HaveOccurred())
	want, err := imageOf(g, "arm64").ConfigName()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(loaded.ConfigName()).To(Equal(want))
}

func TestPackedImageHasTheGivenFiles(t *testing.T) {
	g := NewWithT(t)
	out := filepath.Join(t.TempDir(), "x.tar")
	program := filepath.Join(t.TempDir(), "program")
	g.Expect(os.WriteFile(program, []byte("content"), 0o600)).To(Succeed())

	g.Expect(run(t.Context(), []string{"pack", "-out", out, "-name", "a.test/x:1", "-name", "a.test/x:2", "-entrypoint", "/x", "-entrypoint", "y", "-env", "A=b", "/bin/x=" + program}, io.Discard, io.Discard)).To(Succeed())

	for _, n := range []string{"a.test/x:1", "a.test/x:2"} {
		tag, err := name.NewTag(n)
		g.Expect(err).NotTo(HaveOccurred())
		image, err := tarball.ImageFromPath(out, &tag)
		g.Expect(err).NotTo(HaveOccurred())
		config, err := image.ConfigFile()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(config.Config.Entrypoint).To(Equal([]string{"/x", "y"}))
		g.Expect(config.Config.Env).To(Equal([]string{"A=b"}))
		files, _ := contents(g, image)
		g.Expect(files).To(HaveKeyWithValue("/bin/x", []byte("content")))
	}
}

func TestInvalidCommandLinesAreRejectedWithARemedy(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string
	}{
		"nothing":            {nil, "nothing to do"},
		"unknown command":    {[]string{"bake"}, `unknown command "bake"`},
		"another system":     {[]string{"build", "-platforms", "windows/amd64"}, `"windows/amd64" is not supported: use linux/ARCHITECTURE`},
		"an argument":        {[]string{"build", "all"}, `unexpected argument "all"`},
		"pack without files": {[]string{"pack", "-out", "x", "-name", "y"}, "at least one PATH=FILE"},
		"pack without path":  {[]string{"pack", "-out", "x", "-name", "y", "file"}, `"file": give /path/in/image=file`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(run(t.Context(), c.args, io.Discard, io.Discard)).To(MatchError(ContainSubstring(c.want)))
		})
	}
}

// TestSettingsOfGoEnvDoNotChangePrograms compiles a program where `go env -w` has set what changes programs.
func TestSettingsOfGoEnvDoNotChangePrograms(t *testing.T) {
	g := NewWithT(t)
	source, settings := t.TempDir(), t.TempDir()
	write(g, source, "go.mod", "module example.test/program\n\ngo 1.26\n")
	write(g, source, "cmd/program/main.go", "package main\n\nfunc main() {}\n")
	write(g, settings, "env", "GOAMD64=v3\nGOARM64=v9.0\nGOEXPERIMENT=nogreenteagc\nGOFIPS140=latest\nGOFLAGS=-tags=another\n")
	t.Setenv("GOENV", filepath.Join(settings, "env"))
	t.Setenv("GOFLAGS", "")
	for architecture, want := range map[string]debug.BuildSetting{
		"amd64": {Key: "GOAMD64", Value: "v1"},
		"arm64": {Key: "GOARM64", Value: "v8.0"},
	} {
		bin := t.TempDir()

		g.Expect(compile(t.Context(), source, bin, v1.Platform{OS: "linux", Architecture: architecture}, stamp{}, []string{"program"})).To(Succeed())

		info, err := buildinfo.ReadFile(filepath.Join(bin, "program"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Settings).To(ContainElement(want))
		for _, name := range []string{"GOEXPERIMENT", "GOFIPS140", "DefaultGODEBUG", "-tags"} {
			g.Expect(info.Settings).NotTo(ContainElement(HaveField("Key", name)))
		}
	}
}

func TestRejectsAnImageWithoutDate(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	_, err := readStamp(t.Context(), t.TempDir(), "", "")
	g.Expect(err).To(MatchError(`SOURCE_DATE_EPOCH is "yesterday": use seconds since 1970`))

	g.Expect(os.Unsetenv("SOURCE_DATE_EPOCH")).To(Succeed())
	_, err = readStamp(t.Context(), t.TempDir(), "", "")
	g.Expect(err).To(MatchError(ContainSubstring("set SOURCE_DATE_EPOCH")))
}

// An image that engines build has the toolchain of go.mod, by digest, and no base.
func TestDockerfileNamesImagesByDigest(t *testing.T) {
	g := NewWithT(t)
	dockerfile, err := os.ReadFile("../../Dockerfile")
	g.Expect(err).NotTo(HaveOccurred())
	module, err := os.ReadFile("../../go.mod")
	g.Expect(err).NotTo(HaveOccurred())
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(module)
	g.Expect(version).To(HaveLen(2))
	stages := []string{"scratch"}
	for _, from := range regexp.MustCompile(`(?m)^FROM (?:--\S+ )*(\S+)(?: AS (\S+))?$`).FindAllStringSubmatch(string(dockerfile), -1) {
		if image := from[1]; !slices.Contains(stages, image) {
			g.Expect(image).To(MatchRegexp(`^docker\.io/library/golang:%s@sha256:[0-9a-f]{64}$`, regexp.QuoteMeta(string(version[1]))))
		}
		stages = append(stages, from[2])
	}
	g.Expect(stages).To(HaveLen(1 + strings.Count(string(dockerfile), "\nFROM ")))
	g.Expect(regexp.MustCompile(`(?m)^COPY .*--from=(\S+)`).FindAllStringSubmatch(string(dockerfile), -1)).To(HaveEach(
		ContainElement(BeElementOf(stages))), "files come from stages, not from images")
}
