package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fixpoint-dev/fixpoint/test/lockfile"
)

const directoryPrefix = "fixpoint-cluster-"

// directory is the directory of a cluster.
type directory struct {
	path string
	// temporary is nil if the directory is kept.
	temporary *lockfile.Directory
}

func newDirectory(kept string) (*directory, error) {
	if kept != "" {
		return keptDirectory(kept)
	}
	temporary, err := lockfile.NewDirectory(os.TempDir(), directoryPrefix)
	if err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	return &directory{path: temporary.Path, temporary: temporary}, nil
}

func keptDirectory(path string) (*directory, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding the directory %s: %w", path, err)
	}
	if err := os.MkdirAll(absolute, 0o700); err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	return &directory{path: absolute}, nil
}

func (d *directory) file(name string) string { return filepath.Join(d.path, name) }

// remove removes a temporary directory.
func (d *directory) remove() error {
	if d.temporary == nil {
		return nil
	}
	return d.temporary.Remove()
}
