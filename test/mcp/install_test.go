package mcp

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/npm"
)

// tools are the programs that the tests run.
type tools struct {
	bridge     string
	everything string
}

var built = sync.OnceValues(buildTools)

// given builds the programs and installs the packages, once.
func given(t *testing.T) (*WithT, tools) {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(3 * time.Minute)
	b, err := built()
	g.Expect(err).NotTo(HaveOccurred())
	return g, b
}

var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "fixpoint-mcp-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

func buildTools() (tools, error) {
	b := tools{bridge: filepath.Join(folder, "mcp-bridge"), everything: filepath.Join(folder, "everything-server")}
	if err := npm.Install("."); err != nil {
		return b, err
	}
	// The bridge belongs to another module than the tests, and needs packages that they do not.
	if err := build("../..", b.bridge, "./cmd/mcp-bridge"); err != nil {
		return b, err
	}
	return b, build(".", b.everything, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
}

// build builds a package of the module in a directory.
func build(dir, to, pkg string) error {
	cmd := exec.Command("go", "build", "-o", to, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return npm.Run(cmd)
}

// node is the Node.js 22 that the lock file pins: the conformance suite needs
// it, and the one of the machine may be older.
func node() string {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	path, err := filepath.Abs(filepath.Join("node_modules", "node-"+runtime.GOOS+"-"+arch, "bin", "node"))
	if err != nil {
		return "node"
	}
	if _, err := os.Stat(path); err != nil {
		return "node"
	}
	return path
}

// packageFile is the absolute path of a file of an npm package.
func packageFile(g *WithT, parts ...string) string {
	path, err := filepath.Abs(filepath.Join(append([]string{"node_modules", "@modelcontextprotocol"}, parts...)...))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(path).To(BeAnExistingFile())
	return path
}

// bridged serves a command through the bridge, and returns the URL.
func bridged(t *testing.T, g *WithT, b tools, flags []string, command ...string) string {
	t.Helper()
	args := append([]string{"serve", "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0", "-stop-grace", "5s", "-drain-idle-timeout", "100ms"}, flags...)
	out := serve(t, g, exec.Command(b.bridge, append(append(args, "--"), command...)...))
	var found []string
	g.Eventually(func() []string {
		found = addresses.FindStringSubmatch(string(out.Contents()))
		return found
	}).ShouldNot(BeEmpty())
	g.Eventually(func() bool { return answers("http://" + found[2] + "/readyz") }).Should(BeTrue())
	return "http://" + found[1] + "/mcp"
}

// addresses are what the bridge logs when it is ready.
var addresses = regexp.MustCompile(`"msg":"Ready".*"address":"([^"]+)","adminAddress":"([^"]+)"`)

// servedAt are what the proxy logs when it serves.
var servedAt = regexp.MustCompile(`"msg":"Serving","address":"([^"]+)","adminAddress":"([^"]+)"`)

// serve runs a server until the end of the test, and returns what it writes.
func serve(t *testing.T, g *WithT, cmd *exec.Cmd) *gbytes.Buffer {
	t.Helper()
	out := gbytes.NewBuffer()
	cmd.Stderr = out
	g.Expect(cmd.Start()).To(Succeed())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // It is ended by a signal.
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(2 * time.Minute):
			_ = cmd.Process.Kill()
			<-ended
			t.Error("the server did not end by itself")
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s", cmd.Path, out.Contents())
		}
	})
	return out
}

// answers reports whether an endpoint is served, and says it is well.
func answers(url string) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return !strings.HasSuffix(url, "/readyz") || resp.StatusCode == http.StatusOK
}

// freeAddress is a loopback address that is reserved until the test ends.
func freeAddress(t *testing.T, g *WithT) string {
	t.Helper()
	address, release, err := cluster.FreeAddress()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(release)
	return address
}
