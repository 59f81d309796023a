package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroups are the control groups of all pods of one node: a directory with the same name in each hierarchy.
type cgroups struct{ dirs []string }

func newCgroups(name string) (*cgroups, error) {
	hierarchies, err := hierarchies()
	if err != nil {
		return nil, err
	}
	g := &cgroups{}
	for _, hierarchy := range hierarchies {
		dir := filepath.Join(hierarchy, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, errors.Join(fmt.Errorf("creating a control group: %w", err), g.remove())
		}
		g.dirs = append(g.dirs, dir)
	}
	return g, nil
}

// hierarchies returns the roots of the control groups: one, or with cgroup v1 one per set of controllers.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return []string{cgroupRoot}, nil
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("finding the control groups: %w", err)
	}
	var found []string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 3 && (fields[2] == "cgroup" || fields[2] == "cgroup2") && strings.HasPrefix(fields[1], cgroupRoot+"/") {
			found = append(found, fields[1])
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("finding the control groups: none is mounted below %s", cgroupRoot)
	}
	return found, nil
}

// remove removes the control groups. Their processes have exited, but the kernel can be late to notice.
func (g *cgroups) remove() error {
	var errs []error
	for _, dir := range g.dirs {
		errs = append(errs, removeCgroup(dir))
	}
	return errors.Join(errs...)
}

func removeCgroup(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing control groups: %w", err)
	}
	slices.Reverse(dirs)
	for _, dir := range dirs {
		err := retry(func() error { return syscall.Rmdir(dir) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the control group %s: %w", dir, err)
		}
	}
	return nil
}
