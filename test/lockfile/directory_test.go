package lockfile

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

const prefix = "lockfile-test-"

// remaining are the names in a directory.
func remaining(g Gomega, parent string) []string {
	entries, err := os.ReadDir(parent)
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestOnlyDirectoriesThatNoProcessHoldsAreAbandoned(t *testing.T) {
	g := NewWithT(t)
	parent := t.TempDir()
	killed, err := NewDirectory(parent, prefix)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(killed.Path, "log"), nil, 0o600)).To(Succeed())
	g.Expect(killed.lock.Close()).To(Succeed()) // as the end of the process does
	held, err := NewDirectory(parent, prefix)
	g.Expect(err).NotTo(HaveOccurred())
	RemoveAbandoned(parent, prefix)
	g.Expect(remaining(g, parent)).To(ConsistOf(filepath.Base(held.Path), filepath.Base(held.Path)+suffix))
	g.Expect(held.Remove()).To(Succeed())
	g.Expect(remaining(g, parent)).To(BeEmpty())
}

func TestAKeptDirectoryIsNotAbandoned(t *testing.T) {
	g := NewWithT(t)
	parent := t.TempDir()
	d, err := NewDirectory(parent, prefix)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Keep()).To(Succeed())
	RemoveAbandoned(parent, prefix)
	g.Expect(remaining(g, parent)).To(ConsistOf(filepath.Base(d.Path)))
}

// A directory that is busy, such as one with a mount, could not be found any more.
func TestADirectoryThatCannotBeRemovedKeepsItsLock(t *testing.T) {
	g := NewWithT(t)
	path := t.TempDir() + "/." // which os.RemoveAll refuses
	lock, err := New(path + suffix)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect((&Directory{Path: path, lock: lock}).Remove()).NotTo(Succeed())
	g.Expect(path + suffix).To(BeAnExistingFile())
}
