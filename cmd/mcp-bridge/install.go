package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// install copies this program to the path, or into the directory at the path. It
// replaces the file atomically, because another container may read it.
func install(path string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, filepath.Base(self))
	}
	in, err := os.Open(self)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(path), ".mcp-bridge-*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copying to %s: %w", path, err)
	}
	// Executable by all users, because the server image determines the user.
	if err := out.Chmod(0o755); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("copying to %s: %w", path, err)
	}
	return os.Rename(out.Name(), path)
}
