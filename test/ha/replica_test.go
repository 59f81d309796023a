package ha_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// replica is one process. It is never started again: a new one takes its place, under a new name.
type replica struct {
	// name is whom the API server and the cloud know it as.
	name    string
	process *cluster.Process
	link    *link
	log     string
	health  string
	// stopping says that it was asked to end.
	stopping bool
}

// startReplica starts a process of the program with the arguments that all have, and its own.
func startReplica(t *testing.T, name, program string, env []string, args ...string) *replica {
	t.Helper()
	way, err := newLink(strings.TrimPrefix(shared.URL(), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(way.close)
	folder := t.TempDir()
	r := &replica{name: name, link: way, log: filepath.Join(folder, name+".log"), health: harness.FreeAddress(t)}
	token, err := fakecloud.WriteToken(folder, name)
	if err != nil {
		t.Fatal(err)
	}
	args = append(slices.Clone(args),
		"--kubeconfig="+kubeconfigBy(t, name, way.address()),
		"--health-probe-bind-address="+r.health,
		"--cloud-token-file="+token,
		"--ambient-credentials=*=/subscriptions/"+fakecloud.DemoSubscription,
	)
	env = append(slices.Clone(env), "HOME="+folder, "TMPDIR="+folder, "PATH=/usr/bin:/bin")
	if r.process, err = cluster.StartProcess(name, r.log, env, program, args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.process.Stop(0) })
	return r
}

// kubeconfigBy is a kubeconfig for another address of the API server.
func kubeconfigBy(t *testing.T, user, address string) string {
	t.Helper()
	path, err := shared.Kubeconfig(user, harness.ManagerGroup)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server = "https://" + address
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// isReady asks as a kubelet does.
func (r *replica) isReady() bool { return r.answers("/readyz") }

func (r *replica) answers(path string) bool {
	impatient := &http.Client{Timeout: time.Second}
	response, err := impatient.Get("http://" + r.health + path)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// signal returns false if the process has ended: a leader that loses its Lease ends by itself.
func (r *replica) signal(t *testing.T, signal syscall.Signal) bool {
	t.Helper()
	err := syscall.Kill(r.process.PID(), signal)
	if errors.Is(err, syscall.ESRCH) {
		<-r.process.Ended() // the process is gone before its parent knows
		return false
	}
	if err != nil {
		t.Fatalf("sending %s to %s: %v", signal, r.name, err)
	}
	return true
}

// tail is the end of its log.
func (r *replica) tail(lines int) string {
	all := r.lines()
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (r *replica) lines() []string {
	content, err := os.ReadFile(r.log)
	if err != nil {
		return []string{err.Error()}
	}
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

// count is how many lines of its log hold the text.
func (r *replica) count(text string) int {
	count := 0
	for _, line := range r.lines() {
		if strings.Contains(line, text) {
			count++
		}
	}
	return count
}

// What the log says of the Lease.
const (
	released    = "Released the Lease"
	lost        = "Lost the Lease to another replica"
	notRenewed  = "Failed to renew lease"
	notReleased = "Failed to release lease"
)

// couldNotRelease says whether a leader that was asked to end had a reason not to release the Lease: the API server, or the
// machine, did not answer in time.
func (r *replica) couldNotRelease() bool {
	for _, reason := range []string{"error retrieving resource lock", notReleased, "Not releasing the Lease", lost} {
		if r.count(reason) > 0 {
			return true
		}
	}
	return false
}

// hasLostLease says whether the replica was a leader that could not renew its Lease in time, and so had to end.
func (r *replica) hasLostLease() bool { return r.count(notRenewed)+r.count(lost) > 0 }

func (r *replica) String() string {
	return fmt.Sprintf("%s (pid %d, running %t)", r.name, r.process.PID(), r.process.Running())
}
