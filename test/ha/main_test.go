// Package ha_test shows what happens to the manager's replicas when the leader is killed, stopped,
// frozen or cut off: real manager processes, a real API server, a cloud that keeps a ledger.
//
// Each process is a user of its own, for the API server and for the cloud. So the audit log and the
// ledger tell who has written what and when, and two leaders at a time would be seen there.
//
// FIXPOINT_HA_ROUNDS says how often each fault happens (2), and FIXPOINT_HA_LEASE=default makes the
// replicas elect with the durations that users have, in place of shorter ones.
package ha_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// timeout bounds every wait of a test.
const timeout = 3 * time.Minute

var (
	shared *cluster.Cluster
	// api is the client by which tests look, and act as a user.
	api client.WithWatch
	// managerProgram is the real manager.
	managerProgram string
)

func TestMain(m *testing.M) {
	if isUnguarded() {
		os.Exit(runUnguarded())
	}
	folder, err := os.MkdirTemp("", "fixpoint-ha-")
	harness.Must(err)
	managerProgram, err = buildManager(folder)
	harness.Must(err)
	const parallel = 4
	options := harness.Options{Cluster: cluster.Options{Parts: cluster.All, Audit: true}, Parallel: parallel, Timeout: timeout}
	harness.Run(cleaning{m, folder}, options, func(s *harness.Suite) error {
		shared, api = s.Cluster, s.API
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

func buildManager(folder string) (string, error) {
	program := filepath.Join(folder, "manager")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X "+buildinfo+".version=v0.0.0-test -X "+buildinfo+".commit=0123abc -X "+buildinfo+".date=2026-01-02T03:04:05Z",
		"-o", program, "./cmd/manager")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the manager: %w\n%s", err, output)
	}
	return program, nil
}

const buildinfo = "github.com/fixpoint-dev/fixpoint/internal/buildinfo"
