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

const groupsRoot = "/sys/fs/cgroup"

// groups are the control groups under which all pods of one node are: a folder of
// the same name in each hierarchy that the machine has.
type groups struct{ dirs []string }

func newGroups(name string) (*groups, error) {
	hierarchies, err := hierarchies()
	if err != nil {
		return nil, err
	}
	g := &groups{}
	for _, hierarchy := range hierarchies {
		dir := filepath.Join(hierarchy, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, errors.Join(fmt.Errorf("making a control group: %w", err), g.remove())
		}
		g.dirs = append(g.dirs, dir)
	}
	return g, nil
}

// hierarchies are the places at which control groups are: one, or with cgroup v1 one
// for each set of controllers.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(groupsRoot, "cgroup.controllers")); err == nil {
		return []string{groupsRoot}, nil
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("finding the control groups: %w", err)
	}
	var found []string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 3 && (fields[2] == "cgroup" || fields[2] == "cgroup2") && strings.HasPrefix(fields[1], groupsRoot+"/") {
			found = append(found, fields[1])
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("finding the control groups: none is mounted below %s", groupsRoot)
	}
	return found, nil
}

// remove removes the groups. Whatever was in them has ended by now; the kernel may
// take a moment to notice.
func (g *groups) remove() error {
	var errs []error
	for _, dir := range g.dirs {
		errs = append(errs, removeGroup(dir))
	}
	return errors.Join(errs...)
}

func removeGroup(root string) error {
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
