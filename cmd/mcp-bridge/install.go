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
	// Executable by all users, because the server image determines the user.
	return installFile(self, path, 0o755)
}

// caCertificates are those of the image of the bridge. The image of a server may have none.
const caCertificates = "/etc/ssl/certs/ca-certificates.crt"

// installFile copies a file to a path.
func installFile(from, path string, mode os.FileMode) error {
	in, err := os.Open(from)
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
	if err := out.Chmod(mode); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("copying to %s: %w", path, err)
	}
	return os.Rename(out.Name(), path)
}
