package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

const (
	// capabilitiesVariable is the environment variable that makes the bridge of a test run with some capabilities, given
	// as a JSON list.
	capabilitiesVariable = "TEST_CAPABILITIES"
	// shellMarker is the first argument that makes the test binary run as a server that runs shell commands.
	shellMarker = "be-shell-server"
)

// bridgeCapabilities are those that a container of an MCPServer with a user per session has.
var bridgeCapabilities = []int{unix.CAP_CHOWN, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID}

// dropCapabilities executes this program again with the capabilities of the environment variable, if it is set.
func dropCapabilities() {
	list, ok := os.LookupEnv(capabilitiesVariable)
	if !ok {
		return
	}
	var keep []int
	if err := errors.Join(os.Unsetenv(capabilitiesVariable), json.Unmarshal([]byte(list), &keep)); err != nil {
		panic(err)
	}
	runtime.LockOSThread() // The bounding set is that of the thread. Root gets it by executing a program.
	for capability := range unix.CAP_LAST_CAP + 1 {
		if !slices.Contains(keep, capability) {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
				panic(err)
			}
		}
	}
	panic(syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// withCapabilities is the environment variable for some capabilities.
func withCapabilities(g *WithT, capabilities []int) string {
	list, err := json.Marshal(capabilities)
	g.Expect(err).NotTo(HaveOccurred())
	return string(list)
}

// serveShell responds to each request with the output of its method, which is a shell command.
func serveShell() {
	// By its name, which some servers use.
	if err := os.WriteFile("/dev/stderr", fmt.Appendln(nil, "user", os.Getuid()), 0); err != nil {
		panic(err)
	}
	requests := json.NewDecoder(os.Stdin)
	for {
		var request struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if requests.Decode(&request) != nil {
			return
		}
		if request.ID == nil {
			continue
		}
		if request.Method == "initialize" || request.Method == "server/discover" {
			request.Method = "echo ready"
		}
		out, err := exec.Command("sh", "-c", request.Method).CombinedOutput()
		if err != nil {
			out = fmt.Appendf(out, "%v", err)
		}
		response, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": request.ID, "result": map[string]any{"output": string(out)}})
		if err != nil {
			panic(err)
		}
		fmt.Println(string(response))
	}
}

// shell is a session in which shell commands run.
type shell struct {
	g       *WithT
	address string
	id      string
}

func (s *shell) request(method, message string) (*http.Response, string) {
	request, err := http.NewRequest(method, s.address+"/mcp", strings.NewReader(message))
	s.g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if s.id != "" {
		request.Header.Set("Mcp-Session-Id", s.id)
	}
	response, err := http.DefaultClient.Do(request)
	s.g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	s.g.Expect(err).NotTo(HaveOccurred())
	return response, string(body)
}

// open starts a session, and uses it, so that it is not evicted.
func (s *shell) open() int {
	response, _ := s.request(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	s.id = response.Header.Get("Mcp-Session-Id")
	if s.id != "" {
		s.request(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return response.StatusCode
}

// run returns the output of a shell command, and why it failed.
func (s *shell) run(format string, args ...any) string {
	message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 2, "method": fmt.Sprintf(format, args...)})
	s.g.Expect(err).NotTo(HaveOccurred())
	_, body := s.request(http.MethodPost, string(message))
	_, data, _ := strings.Cut(body, "data: ")
	var response struct {
		Result struct{ Output string }
		Error  struct{ Message string }
	}
	s.g.Expect(json.NewDecoder(strings.NewReader(data)).Decode(&response)).To(Succeed(), body)
	return strings.TrimSpace(response.Result.Output + response.Error.Message)
}

func (s *shell) close() {
	response, _ := s.request(http.MethodDelete, "")
	s.g.Expect(response.StatusCode).To(Equal(http.StatusNoContent))
}

// folderOfAll returns a new directory that all users pass, with a copy of the test binary that they can run.
func folderOfAll(t *testing.T, g *WithT) (folder, copied string) {
	t.Helper()
	folder = t.TempDir()
	g.Expect(os.Chmod(filepath.Dir(folder), 0o755)).To(Succeed())
	g.Expect(os.Mkdir(filepath.Join(folder, "tmp"), 0o777)).To(Succeed())
	g.Expect(os.Chmod(filepath.Join(folder, "tmp"), 0o777)).To(Succeed()) // as an emptyDir volume
	copied = filepath.Join(folder, "test")
	g.Expect(install(copied)).To(Succeed())
	return folder, copied
}

// hasProcesses reports whether a user has processes, including those that are not reaped.
func hasProcesses(user int) bool {
	_, err := unix.Getpriority(unix.PRIO_USER, user)
	return !errors.Is(err, unix.ESRCH)
}

func TestSessionsRunAsUsersOfTheirOwn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to run processes as other users; .ci/run requires root")
	}
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(testTimeout)
	const (
		denied  = "Permission denied"
		noRight = "Operation not permitted"
	)
	first := 1_000_000_000 + 10*os.Getpid() // which no other run of this test has
	folder, copied := folderOfAll(t, g)
	t.Setenv("TMPDIR", filepath.Join(folder, "tmp"))
	t.Setenv("HOME", "/root")
	t.Setenv(capabilitiesVariable, withCapabilities(g, bridgeCapabilities))
	homes := filepath.Join(folder, "tmp", "mcp-bridge-"+strconv.Itoa(first))
	g.Expect(os.MkdirAll(filepath.Join(homes, "of a bridge that was killed"), 0o700)).To(Succeed())
	cmd, out, address, _ := serving(t, g, []string{copied, shellMarker}, "-first-session-user", strconv.Itoa(first), "-max-sessions", "2", "-max-sessions-per-caller", "2", "-drain-idle-timeout", "100ms")
	g.Expect(out.String()).To(ContainSubstring(fmt.Sprintf(`"session":"check","line":"user %d"`, first+2)), "a user without a session")
	one, other := &shell{g: g, address: address}, &shell{g: g, address: address}
	g.Expect(one.open()).To(Equal(http.StatusOK))
	g.Expect(other.open()).To(Equal(http.StatusOK))

	t.Log("each has a user and a group of its own, and no privileges")
	for i, s := range []*shell{one, other} {
		g.Expect(s.run("id -u; id -g; id -G")).To(Equal(strings.TrimSpace(strings.Repeat(fmt.Sprintf("%d\n", first+i), 3))))
		g.Expect(strings.Fields(s.run("grep -hE 'CapPrm|CapEff|CapAmb|NoNewPrivs' /proc/self/status"))).To(Equal(
			strings.Fields("CapPrm: 0000000000000000 CapEff: 0000000000000000 CapAmb: 0000000000000000 NoNewPrivs: 1")))
		g.Expect(s.run(`test "$HOME" = "$TMPDIR" && env | grep -c -e ^HOME= -e ^TMPDIR=`)).To(Equal("2"))
	}

	t.Log("no session reads the files and the environment of another one, or signals it or the bridge")
	home, pid := one.run("echo $TMPDIR"), one.run("echo $PPID")
	g.Expect(filepath.Dir(home)).To(Equal(homes))
	g.Expect(one.run(`umask 0; echo mine >"$TMPDIR/note"; cat "$TMPDIR/note"`)).To(Equal("mine"))
	g.Expect(one.run("tr '\\0' '\\n' </proc/%s/environ | grep ^HOME=", pid)).To(Equal("HOME=" + home))
	for _, attempt := range []string{"cat %[1]s/note", "ls %[1]s", "touch %[1]s/other", "mv %[1]s %[1]s-2", "rmdir %[1]s", "ls %[2]s", "mv %[2]s %[2]s-2", "cat /proc/%[3]s/environ", "ls /proc/%[3]s/fd", "cat /proc/%[4]d/environ",
		"kill -9 %[3]s", "kill -9 -%[3]s", "kill -9 %[4]d"} {
		g.Expect(other.run(attempt, home, homes, pid, cmd.Process.Pid)).To(Or(ContainSubstring(denied), ContainSubstring(noRight)), attempt)
	}
	g.Expect(one.run("cat $HOME/note; echo $PPID")).To(Equal("mine\n"+pid), "unchanged")

	t.Log("the limit of users is that of sessions")
	g.Expect((&shell{g: g, address: address}).open()).To(Equal(http.StatusServiceUnavailable))

	t.Log("nothing is left of a session: no daemon, no process that forks all the time, no directory")
	g.Expect(one.run(`setsid sh -c 'trap "" TERM HUP; echo $$ >"$HOME/daemon"; while :; do sleep 1; done' >/dev/null 2>&1 </dev/null & while [ ! -s "$HOME/daemon" ]; do :; done`)).To(BeEmpty())
	g.Expect(one.run(`printf '#!/bin/sh\necho >>"$HOME/forks"\n"$0" &\n' >"$HOME/fork"; chmod 755 "$HOME/fork"
		setsid "$HOME/fork" >/dev/null 2>&1 </dev/null & while [ ! -s "$HOME/forks" ]; do :; done`)).To(BeEmpty())
	g.Expect(one.run(`cd "$HOME" && mkdir -p a/b sticky && touch a/b/c sticky/d && ln -s %s a/outside && chmod 1777 sticky && chmod 0 a/b a`, copied)).To(BeEmpty())
	one.close()
	g.Eventually(func() bool { return hasProcesses(first) }).Should(BeFalse(), out.String)
	g.Eventually(home).ShouldNot(BeADirectory(), out.String)
	g.Expect(copied).To(BeARegularFile())
	g.Expect(other.run("echo still here")).To(Equal("still here"))

	t.Log("then its user is free, with a new directory")
	next := &shell{g: g, address: address}
	g.Eventually(next.open).Should(Equal(http.StatusOK))
	g.Expect(next.run("id -u")).To(Equal(strconv.Itoa(first)))
	g.Expect(next.run("ls -A $HOME; echo $HOME")).To(And(HavePrefix(homes), Not(Equal(home))))

	t.Log("a session that signals everything ends alone")
	g.Expect(other.run("kill -9 -1")).To(Equal("the MCP server process exited: signal: killed"))
	g.Expect(next.run("echo still here")).To(Equal("still here"))

	t.Log("nothing is left of the bridge")
	g.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(cmd.Wait()).To(Succeed(), out.String())
	for user := first; user <= first+3; user++ {
		g.Expect(hasProcesses(user)).To(BeFalse())
	}
	g.Expect(homes).NotTo(BeADirectory())
	g.Expect(out.String()).NotTo(ContainSubstring("Failed"))
}

func TestUserPerSessionNeedsPrivileges(t *testing.T) {
	g := NewWithT(t)
	_, copied := folderOfAll(t, g)
	attempts := map[string]*exec.Cmd{"user": exec.Command(copied, bridgeMarker)}
	if os.Getuid() == 0 {
		attempts["user"].SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		for _, dropped := range bridgeCapabilities {
			kept := slices.DeleteFunc(slices.Clone(bridgeCapabilities), func(c int) bool { return c == dropped })
			cmd := exec.Command(copied, bridgeMarker)
			cmd.Env = append(os.Environ(), capabilitiesVariable+"="+withCapabilities(g, kept))
			attempts[fmt.Sprintf("capability %d", dropped)] = cmd
		}
	}
	for name, cmd := range attempts {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cmd.Args = append(cmd.Args, "serve", "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0", "-termination-log", "", "-first-session-user", "100000", "--", "true")

			out, err := cmd.CombinedOutput()

			g.Expect(err).To(HaveOccurred())
			g.Expect(cmd.ProcessState.ExitCode()).To(Equal(exitFailed), string(out))
			g.Expect(string(out)).To(Equal("mcp-bridge: configuring the bridge: -first-session-user (spec.bridge.firstSessionUser) requires user 0 and the capabilities " +
				"CHOWN, KILL, SETGID and SETUID: set runAsUser and capabilities.add in the security context of the container, or do not set it\n"))
		})
	}
}
