package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
)

func TestPinFollowsSourcesVersionsAndChecksums(t *testing.T) {
	g := NewWithT(t)
	source := t.TempDir()
	write := func(name, content string) string {
		g.Expect(os.WriteFile(filepath.Join(source, name), []byte(content), 0o600)).To(Succeed())
		pin, err := pinOf(source)
		if err != nil {
			return ""
		}
		return pin
	}
	write("go.mod", "module m")
	write("go.sum", "sums")
	pins := []string{
		write("main.go", "package main"),
		write("go.mod", "module n"),
		write("go.sum", "other sums"),
		write("main.go", "package main // changed"),
	}
	g.Expect(slices.Compact(slices.Sorted(slices.Values(pins)))).To(HaveLen(len(pins)), "each change has a pin of its own")
	g.Expect(write("main_of_readme.md", "no source")).To(Equal(pins[3]))
	g.Expect(pins[3]).To(HavePrefix(KubernetesVersion + "-"))
}

func TestBuildIsIndependentOfHowTestsAreBuilt(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("GOFLAGS", "-race -mod=vendor")
	t.Setenv("GOARCH", "mips")
	env := (&builder{source: "."}).goCommand(t.Context(), "env").Env
	g.Expect(env).To(ContainElements("GOFLAGS=-mod=readonly", "CGO_ENABLED=0", "GOWORK=off"))
	g.Expect(env).NotTo(ContainElement(HavePrefix("GOARCH=")))
	g.Expect(env).NotTo(ContainElement(ContainSubstring("-race")))
}

func TestBuildReportsProgressAndErrors(t *testing.T) {
	g := NewWithT(t)
	var reported []string
	b := &builder{bin: t.TempDir(), progress: func(line string) { reported = append(reported, line) }}
	complaints := b.follow(strings.NewReader("k8s.io/api\n# k8s.io/bad\nbad.go:1: no such thing\n"+kubeModule+"\n"), 7)
	g.Expect(reported).To(Equal([]string{"building the local cluster: 1 of 7 packages", "building the local cluster: linking"}))
	g.Expect(complaints).To(Equal([]string{"# k8s.io/bad", "bad.go:1: no such thing"}))
}

func TestAFailedBuildShowsTheCompilersMessageAndLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	source, bin := filepath.Join(root, "kube"), filepath.Join(root, "bin")
	g.Expect(os.MkdirAll(source, 0o700)).To(Succeed())
	g.Expect(os.MkdirAll(filepath.Join(bin, ".unfinished-killed"), 0o700)).To(Succeed()) // by a process that was killed
	for name, content := range map[string]string{
		"go.mod":  "module " + kubeModule + "\n\ngo 1.26\n",
		"go.sum":  "",
		"main.go": "package main\nfunc main() { missing() }\n",
	} {
		g.Expect(os.WriteFile(filepath.Join(source, name), []byte(content), 0o600)).To(Succeed())
	}
	t.Chdir(root)

	var all sync.WaitGroup
	var errs [2]error
	for i := range errs { // the second one waits for the first
		all.Go(func() { _, errs[i] = Build(t.Context(), func(string) {}) })
	}
	all.Wait()

	for _, err := range errs {
		g.Expect(err).To(MatchError(And(ContainSubstring("building the local cluster: compiling"), ContainSubstring("undefined: missing"))))
	}
	left, err := os.ReadDir(bin)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(HaveLen(1), "the lock alone is left")
}

func TestKubebuilderAssetsServeClustersOfTwoParts(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("KUBEBUILDER_ASSETS", "/some/assets")
	bin, err := binaries(t.Context(), Options{Parts: EtcdAndAPI})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bin).To(Equal("/some/assets"))
	bin, err = binaries(t.Context(), Options{Parts: All, Progress: func(line string) { t.Log(line) }})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bin).NotTo(Equal("/some/assets"))
}

func TestPortsAreNotGivenTwice(t *testing.T) {
	g := NewWithT(t)
	given := map[int]bool{}
	for range 50 {
		p, err := freePort()
		g.Expect(err).NotTo(HaveOccurred())
		defer p.release()
		g.Expect(given).NotTo(HaveKey(p.number))
		given[p.number] = true
	}
}
