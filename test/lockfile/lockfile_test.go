package lockfile

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
)

func TestOnlyOneHoldsTheLock(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "a.lock")
	first, err := New(path)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = Try(path)
	g.Expect(err).To(MatchError(ErrLocked))
	g.Expect(first.Close()).To(Succeed())
	second, err := Try(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second.Close()).To(Succeed())
}

func TestBadPathIsAnError(t *testing.T) {
	_, err := New(filepath.Join(t.TempDir(), "missing", "a.lock"))
	NewWithT(t).Expect(err).To(MatchError(os.ErrNotExist))
}

// Sweepers remove every file that they can lock, while others create and hold them.
func TestNewFileIsNeverRemovedAsUnlocked(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	over := make(chan struct{})
	var sweepers, makers sync.WaitGroup
	for range 4 {
		sweepers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					sweep(folder)
				}
			}
		})
	}
	gone := make(chan string, 1000)
	for maker := range 4 {
		makers.Go(func() {
			for n := range 200 {
				path := filepath.Join(folder, fmt.Sprintf("%d-%d.lock", maker, n))
				file, err := New(path)
				if err != nil {
					gone <- err.Error()
					return
				}
				if _, err := os.Stat(path); err != nil {
					gone <- err.Error()
				}
				_ = file.Close()
			}
		})
	}
	makers.Wait()
	close(over)
	sweepers.Wait()
	g.Expect(gone).To(BeEmpty())
}

func sweep(folder string) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.lock"))
	if err != nil {
		return
	}
	for _, path := range paths {
		if file, err := Try(path); err == nil {
			_ = os.Remove(path)
			_ = file.Close()
		}
	}
}
