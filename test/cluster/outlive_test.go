package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/test/lockfile"
)

// helperVariable makes the test binary start a cluster, say what it started, and
// then do as the variable says.
const helperVariable = "FIXPOINT_CLUSTER_TEST_HELPER"

// started is what the helper says.
type started struct {
	PIDs []int
	Dir  string
}

func TestMain(m *testing.M) {
	if how := os.Getenv(helperVariable); how != "" {
		helper(how)
		return
	}
	// Tests wait for clusters to start far more than they compute.
	if err := flag.Set("test.parallel", "6"); err != nil { // the command line is parsed later
		panic(err)
	}
	os.Exit(m.Run())
}

// helper is a test process that is going to end badly.
func helper(how string) {
	switch how {
	case "panic":
		c, err := Start(context.Background(), Options{})
		if err != nil {
			panic(err)
		}
		tell(c)
		_, _ = os.Stdin.Read(make([]byte, 1))
		panic("as told")
	default:
		RunTests(blockedTests{}, Options{}, tell)
	}
}

// blockedTests stand for tests that wait for something that does not come.
type blockedTests struct{}

func (blockedTests) Run() int { select {} }

func tell(c *Cluster) {
	_ = json.NewEncoder(os.Stdout).Encode(started{PIDs: c.pids(), Dir: c.Dir()})
}

func TestNoProcessOutlivesItsStarter(t *testing.T) {
	for how, end := range map[string]func(g *WithT, cmd *exec.Cmd, stdin io.Writer){
		"killed":      func(g *WithT, cmd *exec.Cmd, _ io.Writer) { g.Expect(cmd.Process.Kill()).To(Succeed()) },
		"interrupted": func(g *WithT, cmd *exec.Cmd, _ io.Writer) { g.Expect(cmd.Process.Signal(os.Interrupt)).To(Succeed()) },
		"terminated": func(g *WithT, cmd *exec.Cmd, _ io.Writer) {
			g.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		},
		"quit": func(g *WithT, cmd *exec.Cmd, _ io.Writer) {
			g.Expect(cmd.Process.Signal(syscall.SIGQUIT)).To(Succeed())
		},
		"panic": func(g *WithT, _ *exec.Cmd, stdin io.Writer) {
			_, err := stdin.Write([]byte("x"))
			g.Expect(err).NotTo(HaveOccurred())
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			temporary := t.TempDir()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), helperVariable+"="+how, "TMPDIR="+temporary)
			stdin, err := cmd.StdinPipe()
			g.Expect(err).NotTo(HaveOccurred())
			stdout, err := cmd.StdoutPipe()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cmd.Start()).To(Succeed())
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			var it started
			g.Expect(json.NewDecoder(bufio.NewReader(stdout)).Decode(&it)).To(Succeed())
			g.Expect(it.PIDs).To(HaveLen(2))
			for _, pid := range it.PIDs {
				g.Expect(alive(pid)).To(BeTrue())
			}

			end(g, cmd, stdin)
			g.Expect(cmd.Wait()).NotTo(Succeed())

			g.Eventually(func() (left []int) {
				for _, pid := range it.PIDs {
					if alive(pid) {
						left = append(left, pid)
					}
				}
				return left
			}).WithTimeout(timeout).Should(BeEmpty())
			// Whoever could not clean up has it done by the next cluster.
			lockfile.RemoveAbandoned(temporary, directoryPrefix)
			g.Expect(filepath.Glob(filepath.Join(temporary, directoryPrefix+"*"))).To(BeEmpty())
		})
	}
}
