package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
)

// bridgeMarker is the first argument that makes the test binary run as the bridge.
const bridgeMarker = "be-mcp-bridge"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == bridgeMarker {
		dropCapabilities()
		recordTimeout = testTimeout
		os.Exit(run(os.Args[2:], os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == shellMarker {
		serveShell()
		return
	}
	if len(os.Args) > 1 && os.Args[1] == toolsMarker {
		serveTools()
		return
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// tiny is a server that responds to every request with an empty result.
var tiny = []string{"sed", "-u", "-n", `s/.*"id":\([0-9]*\).*/{"jsonrpc":"2.0","id":\1,"result":{}}/p`}

// output collects the output of a process.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func program(t *testing.T, args ...string) (*exec.Cmd, *output) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := &output{}
	cmd := exec.Command(self, append([]string{bridgeMarker}, args...)...)
	cmd.Stderr = out
	return cmd, out
}

// testTimeout is for a busy machine and the race detector.
const testTimeout = 2 * time.Minute

// serving runs a bridge, and returns the addresses at which it serves clients, and health and metrics.
func serving(t *testing.T, g *WithT, command []string, flags ...string) (cmd *exec.Cmd, out *output, address, admin string) {
	t.Helper()
	args := append([]string{"serve", "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0", "-stop-grace", "5s"}, flags...)
	cmd, out = program(t, append(append(args, "--"), command...)...)
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	g.Eventually(out.String, testTimeout).Should(ContainSubstring(`"msg":"Ready"`))
	address, admin = addresses(g, out)
	g.Eventually(func() int { return status(admin + "/readyz") }, testTimeout).Should(Equal(http.StatusOK), out.String)
	return cmd, out, address, admin
}

// proxying runs a proxy in front of the server at the URL until the test ends.
func proxying(t *testing.T, g *WithT, server string, flags ...string) (cmd *exec.Cmd, out *output, address, admin string) {
	t.Helper()
	cmd, out = proxyOf(t, g, server, flags...)
	address, admin = startProxy(t, g, cmd, out)
	return cmd, out, address, admin
}

// proxyOf is a proxy that has not started, in front of the server at the URL.
func proxyOf(t *testing.T, g *WithT, server string, flags ...string) (*exec.Cmd, *output) {
	t.Helper()
	at, err := url.Parse(server)
	g.Expect(err).NotTo(HaveOccurred())
	return program(t, append([]string{"proxy", "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0", "-server-port", at.Port()}, flags...)...)
}

// startProxy starts a proxy and returns where it serves.
func startProxy(t *testing.T, g *WithT, cmd *exec.Cmd, out *output) (address, admin string) {
	t.Helper()
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	g.Eventually(out.String, testTimeout).Should(ContainSubstring(`"msg":"Serving"`))
	return addresses(g, out)
}

// addresses are those in the log of a bridge or proxy that serves.
func addresses(g *WithT, out *output) (address, admin string) {
	found := regexp.MustCompile(`"address":"([^"]+)","adminAddress":"([^"]+)"`).FindStringSubmatch(out.String())
	g.Expect(found).NotTo(BeEmpty(), out.String())
	return "http://" + found[1], "http://" + found[2]
}

func status(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// controllers/mcpserver sets these for grace periods of pods.
func TestDrainsOfMCPServersAreValid(t *testing.T) {
	for name, args := range map[string][]string{
		"of a second":       {"--drain-timeout", "750ms", "--stop-grace", "187.5ms"},
		"of some seconds":   {"--drain-timeout", "7s", "--stop-grace", "1.75s"},
		"of ten seconds":    {"--drain-timeout", "8s"},
		"of thirty seconds": {"--drain-timeout", "28s"},
		"of an hour":        {"--drain-timeout", "59m28s"},
	} {
		for _, records := range []string{"", "Full"} {
			g := NewWithT(t)
			cfg, err := parse(append(args, "--audit", records, "--", "true"), io.Discard)
			g.Expect(err).NotTo(HaveOccurred())
			cfg.options.DrainTimeout = cfg.protection.telemetry.drainTimeout(cfg.options.DrainTimeout)
			b, err := bridge.New(cfg.options)
			g.Expect(err).NotTo(HaveOccurred(), name)
			b.Close()
		}
	}
}

func TestInvalidCommandsAreReported(t *testing.T) {
	notExecutable := filepath.Join(t.TempDir(), "server")
	if err := os.WriteFile(notExecutable, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		args    []string
		code    int
		message string
	}{
		"not found":             {[]string{"--", "no-such-server"}, exitNotFound, `the command "no-such-server" was not found in the image`},
		"not executable":        {[]string{"--", notExecutable}, exitCannotRun, "is not executable"},
		"no server":             {[]string{"--", "true"}, exitNoHandshake, "it exited with exit status 0"},
		"stderr of the command": {[]string{"--", "ls", "/no/such/folder"}, exitNoHandshake, "/no/such/folder"},
		"no command":            {nil, exitUsage, "no command"},
		"bad flag":              {[]string{"-max-sessions", "many", "--", "true"}, exitUsage, "invalid value"},
		"bad limit":             {[]string{"-max-sessions", "-1", "--", "true"}, exitFailed, "MaxSessions must not be negative"},
		"bad path":              {[]string{"-path", "mcp", "--", "true"}, exitFailed, "must start with /"},
		"bad host":              {[]string{"-allowed-host", "https://tools.example.com", "--", "true"}, exitFailed, "is not a host name"},
		"bad origin":            {[]string{"-allowed-origin", "tools.example.com", "--", "true"}, exitFailed, "is not an origin"},
		"no address for peers":  {[]string{"-session-keys", "/no/such/keys", "--", "true"}, exitFailed, "reading -peer-ip"},
		"no session keys":       {[]string{"-session-keys", "/no/such/keys", "-server-id", "a", "-peer-ip", "127.0.0.1", "-peer-listen", "127.0.0.1:0", "--", "true"}, exitFailed, "/no/such/keys"},
		"users of the system":   {[]string{"-first-session-user", "1000", "--", "true"}, exitFailed, "-first-session-user must be at least 10000"},
		"no time to drain":      {[]string{"-stop-grace", "15s", "--", "true"}, exitFailed, "-drain-timeout leaves 25s to drain, which must be more than twice -stop-grace (15s)"},
		"no time with records":  {[]string{"-drain-timeout", "5s", "-audit", "None", "--", "true"}, exitFailed, "-drain-timeout leaves 3.75s to drain"},
		"bad address":           {[]string{"-listen", "no-such-host.invalid:x", "--", "true"}, exitFailed, "listening"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			termination := filepath.Join(t.TempDir(), "termination-log")
			g.Expect(os.WriteFile(termination, []byte("older"), 0o644)).To(Succeed())
			args := append([]string{"serve", "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0", "-termination-log", termination}, c.args...)

			cmd, out := program(t, args...)
			err := cmd.Run()

			g.Expect(err).To(HaveOccurred())
			g.Expect(cmd.ProcessState.ExitCode()).To(Equal(c.code), out.String())
			g.Expect(out.String()).To(ContainSubstring(c.message))
			said, err := os.ReadFile(termination)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(said)).To(And(HavePrefix("mcp-bridge: "), ContainSubstring(c.message)))
		})
	}
}

func TestTerminationLogIsNotCreated(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "termination-log")
	cmd, _ := program(t, "serve", "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0", "-termination-log", path, "--", "no-such-server")
	g.Expect(cmd.Run()).NotTo(Succeed())
	g.Expect(path).NotTo(BeAnExistingFile())
}

func TestSignalDrains(t *testing.T) {
	g := NewWithT(t)
	cmd, out, _, _ := serving(t, g, tiny)
	g.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(cmd.Wait()).To(Succeed(), out.String())
	g.Expect(out.String()).To(ContainSubstring(`"msg":"Draining"`))
}

func TestOrphansAreReaped(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	server := filepath.Join(folder, "server")
	// The intermediate process exits immediately, so that the process in its own
	// session is an orphan, which the bridge must reap.
	text := "#!/bin/sh\n(setsid sh -c 'echo $$ >\"$1\"; exec sleep 0.2' - \"$1\" </dev/null >/dev/null 2>&1 &)\n" +
		// A process in the process group of the child would be killed with it.
		"while [ ! -s \"$1\" ]; do :; done\nshift\nexec \"$@\"\n"
	g.Expect(os.WriteFile(server, []byte(text), 0o755)).To(Succeed())
	note := filepath.Join(folder, "pid")
	_, out, _, _ := serving(t, g, append([]string{server, note}, tiny...))

	var pid int
	g.Eventually(func() error {
		raw, err := os.ReadFile(note)
		if err != nil {
			return err
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		return err
	}, testTimeout).Should(Succeed())
	// No zombie is left.
	g.Eventually(fmt.Sprintf("/proc/%d", pid), testTimeout).ShouldNot(BeADirectory(), out.String)
}

func TestSeparateAdminAddress(t *testing.T) {
	g := NewWithT(t)
	_, _, address, admin := serving(t, g, tiny, "-no-self-check")
	g.Expect(status(address + "/readyz")).To(Equal(http.StatusNotFound))
	g.Expect(status(admin + "/mcp")).To(Equal(http.StatusNotFound))
}

func TestInstall(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	target := filepath.Join(folder, "bridge")
	for range 2 { // the second one replaces the first
		cmd, out := program(t, "install", target)
		g.Expect(cmd.Run()).To(Succeed(), out.String())
	}
	info, err := os.Stat(target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o755)))
	g.Expect(exec.Command(target, bridgeMarker, "help").Run()).To(Succeed())
	left, err := os.ReadDir(folder)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(HaveLen(1))
}

func TestUsage(t *testing.T) {
	g := NewWithT(t)
	for _, args := range [][]string{nil, {"dance"}, {"install"}} {
		var out bytes.Buffer
		g.Expect(run(args, &out, &out)).To(Equal(exitUsage))
		g.Expect(out.String()).To(ContainSubstring("mcp-bridge serve [flags] -- command"))
	}
}
