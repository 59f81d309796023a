// Package npm installs the npm packages that tests run.
package npm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

var errNeeded = errors.New("these tests run npm packages: install Node.js 20 or later with npm, and let npm reach a registry")

// Install installs the packages of a package-lock.json into node_modules beside it, unless it has installed them
// already.
func Install(dir string) error {
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(lock)
	stamp := filepath.Join(dir, "node_modules", ".fixpoint-lock")
	if have, err := os.ReadFile(stamp); err == nil && string(have) == hex.EncodeToString(sum[:]) {
		return nil
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return fmt.Errorf("%w: %w", errNeeded, err)
	}
	const attempts = 3 // a registry can fail for a while
	for range attempts {
		if err = download(dir); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNeeded, err)
	}
	return os.WriteFile(stamp, []byte(hex.EncodeToString(sum[:])), 0o644)
}

// download replaces node_modules.
func download(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	return Run(cmd)
}

// Run runs a command. Its error contains what the command printed.
func Run(cmd *exec.Cmd) error {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s: %w\n%s", strings.Join(cmd.Args, " "), err, out.String())
	}
	return nil
}
