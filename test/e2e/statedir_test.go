package e2e_test

import (
	"fmt"
	"os"

	"github.com/fixpoint-dev/fixpoint/test/lockfile"
)

const statePrefix = "fixpoint-e2e-"

// newStateDir creates the directory of one run, which removes the directories of killed runs.
func newStateDir() (*lockfile.Directory, error) {
	state, err := lockfile.NewDirectory(os.TempDir(), statePrefix)
	if err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	// Containers access their root file systems through it.
	if err := os.Chmod(state.Path, 0o755); err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	return state, nil
}

// endStateDir removes the directory of the run, or keeps it, also from later runs.
func endStateDir(state *lockfile.Directory) {
	end := state.Remove
	if os.Getenv(keepVariable) != "" {
		progress("kept " + state.Path)
		end = state.Keep
	}
	if err := end(); err != nil {
		progress(err.Error())
	}
}
