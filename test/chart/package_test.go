package chart_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
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

// contentOf is what a chart installs, by file.
func contentOf(c *chart.Chart) map[string]string {
	content := map[string]string{"values": fmt.Sprint(c.Values)}
	for _, file := range append(c.Templates, c.Files...) {
		content[file.Name] = string(file.Data)
	}
	return content
}
