package chart_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

func TestReleasedPackageIsTheChartWithItsVersion(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "fixpoint-9.8.7.tgz")
	pack := exec.CommandContext(t.Context(), "go", "run", ".", "chart", "-source", "../..", "-version", "v9.8.7", "-out", file)
	pack.Dir = root + "/hack/image"
	out, err := pack.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))

	packaged, err := loader.Load(file)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(packaged.Validate()).To(Succeed())
	source := load(g)
	g.Expect(packaged.Metadata.Version).To(Equal("9.8.7"))
	g.Expect(packaged.Metadata.AppVersion).To(Equal("v9.8.7"), "the image's tag, unless a value says otherwise")
	packaged.Metadata.Version, packaged.Metadata.AppVersion = source.Metadata.Version, source.Metadata.AppVersion
	g.Expect(packaged.Metadata).To(Equal(source.Metadata))
	g.Expect(contentOf(packaged)).To(Equal(contentOf(source)))
}

// TestReleasedPackageNamesTheImageByDigest renders the chart of a release, which knows the digest of its image.
func TestReleasedPackageNamesTheImageByDigest(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "fixpoint-9.8.7.tgz")
	digest, other := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64)
	pack := exec.CommandContext(t.Context(), "go", "run", ".", "chart", "-source", "../..", "-version", "v9.8.7", "-digest", digest, "-out", file)
	pack.Dir = root + "/hack/image"
	out, err := pack.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))

	for text, want := range map[string]string{
		"":                                   "ghcr.io/fixpoint-dev/fixpoint:v9.8.7@" + digest,
		`{image: {repository: a.test/b}}`:    "a.test/b:v9.8.7@" + digest,
		`{image: {tag: v2}}`:                 "ghcr.io/fixpoint-dev/fixpoint:v2",
		`{image: {digest: "` + other + `"}}`: "ghcr.io/fixpoint-dev/fixpoint@" + other,
	} {
		packaged, err := loader.Load(file)
		g.Expect(err).NotTo(HaveOccurred())
		objects, err := renderChart(g, packaged, text)
		g.Expect(err).NotTo(HaveOccurred())
		deployment, err := json.Marshal(objects["Deployment "+system+"/fixpoint-controller-manager"])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(deployment)).To(And(ContainSubstring(`"image":"`+want+`"`), ContainSubstring(`"name":"BRIDGE_IMAGE","value":"`+want+`"`)), text)
	}
}

// contentOf is what a chart installs, by file.
func contentOf(c *chart.Chart) map[string]string {
	content := map[string]string{"values": fmt.Sprint(c.Values)}
	for _, file := range append(c.Templates, c.Files...) {
		content[file.Name] = string(file.Data)
	}
	return content
}
