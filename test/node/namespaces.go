package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// tunables are kernel settings that a kubelet requires and would set for the whole machine. In the sandbox, files with
// these values are mounted over them.
var tunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// setUpNamespaces prepares the new namespaces of a sandbox.
func setUpNamespaces(state string) error {
	// Mounts are invisible outside and shared with containers.
	if err := mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", 0); err != nil {
		return err
	}
	// Programs keep sockets, locks and logs at these fixed paths.
	for _, dir := range []string{"/run", "/var/log"} {
		if err := mount("tmpfs", dir, "tmpfs", 0); err != nil {
			return err
		}
	}
	if err := coverTunables(filepath.Join(state, "tunables")); err != nil {
		return err
	}
	if err := mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED); err != nil {
		return err
	}
	return createNetwork()
}

func coverTunables(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	for name, value := range tunables {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("writing a tunable: %w", err)
		}
		if err := mount(file, filepath.Join("/proc/sys", name), "", syscall.MS_BIND); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, target, kind string, flags uintptr) error {
	if err := syscall.Mount(source, target, kind, flags, ""); err != nil {
		return fmt.Errorf("mounting %s in the sandbox: %w", target, err)
	}
	return nil
}
