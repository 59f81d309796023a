// Package split_test runs several releases of Fixpoint in one cluster, each for its namespaces: real manager
// processes and a real API server, whose audit log shows which release has written where and when.
//
// Each replica is a user of its own. FIXPOINT_SPLIT_OBJECTS is how many objects three releases divide (300).
package split_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// timeout bounds every wait of a test.
const timeout = 3 * time.Minute

var (
	suite *harness.Suite
	// managerProgram is the real manager.
	managerProgram string
)

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "fixpoint-split-")
	harness.Must(err)
	managerProgram = filepath.Join(folder, "manager")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", managerProgram, "./cmd/manager")
	build.Dir = harness.Root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		harness.Must(fmt.Errorf("building the manager: %w\n%s", err, output))
	}
	// Nothing acts on children: a release has done its part when they are applied.
	options := harness.Options{Cluster: cluster.Options{Audit: true}, Timeout: timeout}
	harness.Run(cleaning{m, folder}, options, func(s *harness.Suite) error {
		suite = s
		return nil
	})
}

// cleaning removes a folder after the tests.
type cleaning struct {
	tests  *testing.M
	folder string
}

// Run runs the tests.
func (c cleaning) Run() int {
	defer os.RemoveAll(c.folder)
	return c.tests.Run()
}
