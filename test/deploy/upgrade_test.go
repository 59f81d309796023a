package deploy_test

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
)

// upgradeFrom is the variable that names another commit to upgrade from.
const upgradeFrom = "FIXPOINT_UPGRADE_FROM"

// TestUpgradeFromThePreviousCommit installs what the commit before this one made, with every sample, and
// then this one over it.
func TestUpgradeFromThePreviousCommit(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.apply(ingressClass)
	source := w.previous()
	before, err := deploy.Build(w.ctx, source, t.TempDir())
	w.Expect(err).NotTo(HaveOccurred())

	// Given the previous version with resources
	w.kustomizeFrom(source, "resources: [CONFIG/default]\n")
	// Another bridge rolls the pods of stdio servers, so both have the same, as the documentation recommends.
	const bridge = "--bridge-image=registry.test/fixpoint:1"
	old := w.startPod(deploy.Pod{Program: before, Namespace: system, Name: "old", Args: []string{"--leader-election-namespace=" + system, bridge}})
	objects := w.samples()
	w.ready(objects...)
	w.quiet(old)
	pods := w.pods("default")
	w.Expect(pods).NotTo(BeEmpty())
	mark := w.mark()

	// When this one is put in its place, as a Deployment does: the new pod comes before the old one goes
	w.install("default")
	m := w.startPod(deploy.Pod{Program: w.program(), Namespace: system, Name: "new", Args: []string{bridge}})
	w.handOver(old)
	w.quiet(m)

	// Then no pod was replaced, and no child was written, but for what the documentation announces.
	announced := w.announced(source)
	w.Expect(without(w.pods("default"), announced)).To(Equal(without(pods, announced)))
	writes := w.audited(mark, m.User).Writes().Except("leases.coordination.k8s.io", "events", "events.events.k8s.io").
		Where(func(r cluster.Request) bool { return !slices.Contains(announced, r.Name) })
	children := writes.Where(func(r cluster.Request) bool { return r.Group != "fixpoint.dev" })
	w.Expect(children).To(BeEmpty(), "children that the new version has written")
	// At most the status tells something else, and then comes to rest.
	const settling = 3
	for key, times := range writes.Count() {
		w.Expect(key.Subresource).To(Equal("status"), "%+v", key)
		w.Expect(times).To(BeNumerically("<=", settling), "%+v", key)
	}
	w.ready(objects...)
	w.Expect(w.denied(mark, m.User)).To(BeEmpty())
}

var replaced = regexp.MustCompile("(?m)^.*\\(sample `([a-z0-9-]+)`\\).*$")

// announced are the samples whose pods docs/operations.md says are replaced, on a line that it did not have in the
// version before: so an announcement holds for one upgrade, and covers up for nothing later.
func (w *fixture) announced(before string) []string {
	w.t.Helper()
	read := func(root string) [][]string {
		page, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		w.Expect(err).NotTo(HaveOccurred())
		return replaced.FindAllStringSubmatch(string(page), -1)
	}
	earlier := read(before)
	var announced []string
	for _, line := range read(deploy.Root) {
		if !slices.ContainsFunc(earlier, func(old []string) bool { return old[0] == line[0] }) {
			announced = append(announced, line[1])
		}
	}
	w.t.Logf("the documentation announces new pods of %q", announced)
	return announced
}

// without leaves out the pods of objects.
func without(pods map[string]types.UID, names []string) map[string]types.UID {
	kept := maps.Clone(pods)
	maps.DeleteFunc(kept, func(pod string, _ types.UID) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(pod, name+"-") })
	})
	return kept
}

// pods are those of a namespace, by UID.
func (w *fixture) pods(namespace string) map[string]types.UID {
	w.t.Helper()
	list := &corev1.PodList{}
	w.Expect(w.api.List(w.ctx, list)).To(Succeed())
	pods := map[string]types.UID{}
	for i := range list.Items {
		if list.Items[i].Namespace == namespace {
			pods[list.Items[i].Name] = list.Items[i].UID
		}
	}
	return pods
}

// previous writes the source of the commit to upgrade from into a folder: the one that upgradeFrom names,
// else the one before what is checked out; or, where tracked files have been edited since, what is checked
// out. Without history nothing can be upgraded, and the test fails.
func (w *fixture) previous() string {
	w.t.Helper()
	revision := os.Getenv(upgradeFrom)
	if revision == "" {
		revision = "HEAD"
		if edits, err := w.git("status", "--porcelain", "--untracked-files=no"); err == nil && edits == "" && w.servesBeta("HEAD~1") {
			revision = "HEAD~1"
		}
	}
	return w.sourceOf(revision)
}

// servesBeta reports whether the samples of a commit are those of this version. Upgrades from a commit without v1beta1
// have a test of their own.
func (w *fixture) servesBeta(revision string) bool {
	_, err := w.git("cat-file", "-e", revision+":apis/"+beta)
	return err == nil
}

// sourceOf writes the source of a commit into a folder.
func (w *fixture) sourceOf(revision string) string {
	w.t.Helper()
	if _, err := w.git("rev-parse", "--verify", "--quiet", revision+"^{commit}"); err != nil {
		w.t.Fatalf("the upgrade starts from the commit %s, which this source does not have: run the test in a git clone with history "+
			"(git fetch --unshallow completes a shallow one), or name another commit in %s", revision, upgradeFrom)
	}
	w.t.Logf("upgrading from %s", revision)
	dir := w.t.TempDir()
	archive := filepath.Join(dir, "source.tar")
	_, err := w.git("archive", "--format=tar", "--output="+archive, revision)
	w.Expect(err).NotTo(HaveOccurred())
	output, err := exec.CommandContext(w.ctx, "tar", "-xf", archive, "-C", dir).CombinedOutput()
	w.Expect(err).NotTo(HaveOccurred(), string(output))
	return dir
}

func (w *fixture) git(args ...string) (string, error) {
	cmd := exec.CommandContext(w.ctx, "git", args...)
	root, err := filepath.Abs(deploy.Root)
	w.Expect(err).NotTo(HaveOccurred())
	cmd.Dir = root
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	err = cmd.Run()
	return strings.TrimSpace(stdout.String()), err
}
