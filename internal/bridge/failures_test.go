package bridge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
)

func TestCrashEndsTheSession(t *testing.T) {
	w := newTestBridge(t, server("sdk"))
	s := w.connect(client{version: "2025-11-25", quiet: true})

	_, err := callTool(t.Context(), s, "crash", toolInput{})
	w.Expect(err).To(MatchError(ContainSubstring("the MCP server process exited: exit status 9")))

	_, err = callTool(t.Context(), s, "echo", toolInput{})
	w.Expect(errors.Is(err, mcp.ErrSessionMissing)).To(BeTrue(), "got %v", err)
	w.Eventually(func() float64 { return w.metric("child_crashes_total") }).Should(Equal(1.0))
	w.Eventually(func() float64 { return w.metric("sessions_ended_total", reasonServerExited) }).Should(Equal(1.0))
	w.Eventually(w.logs.String).Should(ContainSubstring("out of cheese"))
}

// A descendant that has left the process group keeps standard output and standard error open.
func TestCrashIsReportedDespiteADaemon(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			w := newTestBridge(t, server("sdk"))
			s := w.connect(client{version: version, quiet: true})
			said, err := callTool(t.Context(), s, "daemon", toolInput{})
			w.Expect(err).NotTo(HaveOccurred())
			pid, err := strconv.Atoi(said)
			w.Expect(err).NotTo(HaveOccurred())
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })

			failed := make(chan error, 1)
			go func() {
				_, err := callTool(t.Context(), s, "crash", toolInput{})
				failed <- err
			}()

			w.Eventually(failed, time.Minute).Should(Receive(MatchError(ContainSubstring("exit status 9"))))
			w.Expect(w.logs.String()).To(ContainSubstring("out of cheese"))
			w.Expect(alive(pid)).To(BeTrue())
		})
	}
}

func TestOutputOfEndedServersIsClosed(t *testing.T) {
	w := newTestBridge(t, tinyServer())
	id := w.session()
	inSession := w.bridge.lookup(id).child
	worker, f := w.bridge.shared.get(t.Context())
	w.Expect(f).To(BeNil())

	w.open(http.MethodDelete, "", headerSession, id).Body.Close()
	w.bridge.Close()

	for _, c := range []*child{inSession, worker.child} {
		w.Eventually(func() error { _, err := c.stdout.Stat(); return err }).Should(MatchError(os.ErrClosed))
	}
}

// newScripted has a server that is a shell script, and is killed soon after it was asked to exit.
func newScripted(t *testing.T, script string) *testBridge {
	t.Helper()
	return newTestBridge(t, []string{"sh", "-c", script}, func(o *Options) { o.StopGrace = 50 * time.Millisecond })
}

// A process that cannot be reached would keep its requests without a response.
func TestServerThatClosesItsInputIsStopped(t *testing.T) {
	const closes = "exec <&-; echo closed >&2; exec sleep 3600"
	fails := func(w *testBridge, message string, headers ...string) {
		w.Eventually(w.logs.String).Should(ContainSubstring("closed"))
		reply := make(chan string, 1)
		go func() { reply <- w.post(message, headers...).Body }()
		w.Eventually(reply).Should(Receive(ContainSubstring(reasonServerExited)))
		w.Eventually(func() float64 { return w.metric("children") }).Should(BeZero())
	}
	t.Run("with a session", func(t *testing.T) {
		w := newScripted(t, `read first; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; `+closes)
		id := w.session()
		fails(w, ping, headerSession, id)
	})
	t.Run("without a session", func(t *testing.T) {
		w := newScripted(t, closes)
		w.bridge.speaks.Store(&generations{stateless: []string{"2026-07-28"}})
		_, f := w.bridge.shared.get(t.Context())
		w.Expect(f).To(BeNil())
		fails(w, statelessCall, statelessHeaders...)
	})
}

// Otherwise another one would be started beside it for the next request.
func TestServerThatClosesItsOutputIsStopped(t *testing.T) {
	const closes = "exec >&-; exec sleep 3600"
	t.Run("with a session", func(t *testing.T) {
		w := newScripted(t, `read first; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; `+closes)
		w.session()
		w.Eventually(func() float64 { return w.metric("children") }).Should(BeZero())
	})
	t.Run("without a session", func(t *testing.T) {
		w := newScripted(t, closes)
		_, f := w.bridge.shared.get(t.Context())
		w.Expect(f).To(BeNil())
		w.Eventually(func() float64 { return w.metric("children") }, time.Minute).Should(BeZero())
	})
}

// The race detector checks that the keep-alive and the output of the server do not access the stream at once.
func TestServerRejectsInitializeDuringAKeepAlive(t *testing.T) {
	w := newTestBridge(t, tinyServer())
	s, f := w.bridge.begin(t.Context(), honestAddress)
	w.Expect(f).To(BeNil())
	line := []byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}`)
	rejected, err := parse(line)
	w.Expect(err).NotTo(HaveOccurred())
	for range 100 {
		recorder := httptest.NewRecorder()
		out := newStream(recorder, time.Second)
		out.sessionID = s.id
		var both sync.WaitGroup
		both.Go(func() { _ = out.comment(": keep-alive\n\n") })
		both.Go(func() { s.initializeAnswered(&call{initialize: true, stream: out}, &rejected, line) })
		both.Wait()
		w.Expect(recorder.Body.String()).To(ContainSubstring(`"message":"no"`))
	}
}

func TestKilledServerIsReported(t *testing.T) {
	w := newTestBridge(t, server("sdk"))
	s := w.connect(client{version: "2025-11-25", quiet: true})
	pid, err := callTool(t.Context(), s, "pid", toolInput{})
	w.Expect(err).NotTo(HaveOccurred())
	number, err := strconv.Atoi(pid)
	w.Expect(err).NotTo(HaveOccurred())
	failed := make(chan error, 1)
	go func() {
		_, err := callTool(t.Context(), s, "hang", toolInput{Text: "in flight"})
		failed <- err
	}()
	w.Eventually(w.logs.String).Should(ContainSubstring("hanging in flight"))

	w.Expect(syscall.Kill(number, syscall.SIGKILL)).To(Succeed())

	w.Eventually(failed).Should(Receive(MatchError(ContainSubstring("signal: killed"))))
	w.Eventually(func() bool { return alive(number) }).Should(BeFalse())
}

func TestSharedServerIsRestartedAfterACrash(t *testing.T) {
	t.Parallel()
	w := newTestBridge(t, server("sdk"))
	connected := time.Now()
	s := w.connect(client{version: "2026-07-28"})
	w.Expect(callTool(t.Context(), s, "count", toolInput{})).To(Equal("1"))
	shared := w.bridge.shared
	shared.mu.Lock()
	started := shared.worker.child.started
	shared.worker.child.started = time.Now().Add(time.Hour) // so that the exit is quick, however late the call is
	shared.mu.Unlock()
	called := time.Now()
	w.Expect(started).To(BeTemporally("~", connected, called.Sub(connected)))
	_, err := callTool(t.Context(), s, "crash", toolInput{})
	w.Expect(err).To(MatchError(ContainSubstring("exit status 9")))

	// It exited soon after its start, so the next start is delayed.
	shared.mu.Lock()
	nextStart := shared.nextStart
	shared.nextStart = time.Now().Add(time.Hour) // longer than this test takes
	shared.mu.Unlock()
	w.Expect(nextStart).To(BeTemporally(">=", called.Add(minDelay)))
	reply := w.post(statelessCall, statelessHeaders...)
	w.Expect(reply.Status).To(Equal(http.StatusServiceUnavailable))
	w.Expect(reply.Header.Get("Retry-After")).NotTo(BeEmpty())
	shared.mu.Lock()
	shared.nextStart = time.Now()
	shared.mu.Unlock()
	w.Expect(w.post(statelessCall, statelessHeaders...).Status).To(Equal(http.StatusOK))
	w.Eventually(func() float64 { return w.metric("child_crashes_total") }).Should(Equal(1.0))
}

const statelessCall = `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"},"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
	`"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"}}}}`

var statelessHeaders = []string{headerVersion, "2026-07-28", headerMethod, "tools/call", headerName, "echo"}

func TestGrandchildrenEndWithTheirSession(t *testing.T) {
	w := newTestBridge(t, server("sdk"))
	s := w.connect(client{version: "2025-11-25"})
	said, err := callTool(t.Context(), s, "grandchild", toolInput{})
	w.Expect(err).NotTo(HaveOccurred())
	pid, err := strconv.Atoi(said)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(alive(pid)).To(BeTrue())
	w.Expect(s.Close()).To(Succeed())
	w.Eventually(func() bool { return alive(pid) }, "20s").Should(BeFalse(), "also if it ignores SIGTERM")
}

func TestStubbornServerIsKilled(t *testing.T) {
	w := newTestBridge(t, server("stubborn"), func(o *Options) { o.StopGrace = 50 * time.Millisecond })
	id := w.session()
	w.Expect(w.metric("children")).To(Equal(1.0))
	resp := w.open(http.MethodDelete, "", headerSession, id)
	defer resp.Body.Close()
	w.Expect(resp.StatusCode).To(Equal(http.StatusNoContent))
	w.Eventually(func() float64 { return w.metric("children") }).Should(BeZero())
}

// A server may need its grace to write what it has in memory.
func TestServersHaveTheirGraceToExit(t *testing.T) {
	const grace = time.Hour
	for name, c := range map[string]struct {
		after time.Duration
		sent  syscall.Signal // by the test, 0 for none
		ended string
	}{
		"during the grace it gets no signal": {grace - time.Minute, syscall.SIGUSR1, "signal: user defined signal 1"},
		"then it can handle the first one":   {grace + time.Minute, 0, "signal: terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				process, err := os.StartProcess("/bin/sleep", []string{"sleep", "3600"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
				g.Expect(err).NotTo(HaveOccurred())
				r := &reaper{running: map[int]func(syscall.WaitStatus){process.Pid: nil}}
				server := &child{pid: process.Pid, reaper: r, grace: grace, exited: make(chan struct{})}
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					server.stop()
				}()

				<-time.After(c.after) // in a bubble, which takes no time
				if c.sent != 0 {
					_ = process.Signal(c.sent)
				}

				// The first signal ends it. The clock stands still meanwhile.
				state, err := process.Wait()
				r.mu.Lock()
				clear(r.running)
				r.mu.Unlock()
				<-time.After(3 * grace)
				g.Expect(stopped).NotTo(BeClosed(), "its user and its place are not free yet")
				close(server.exited)
				<-stopped
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(state.String()).To(Equal(c.ended))
			})
		})
	}
}

func TestStartTimeout(t *testing.T) {
	w := newTestBridge(t, server("silent"), func(o *Options) { o.StartTimeout = 300 * time.Millisecond })
	reply := w.post(initMessage)
	w.Expect(reply.Body).To(ContainSubstring("did not respond to initialize within 300ms"))
	w.Eventually(func() float64 { return w.metric("sessions_ended_total", reasonStartTimeout) }).Should(Equal(1.0))
	w.Eventually(func() float64 { return w.metric("children") }).Should(BeZero())
}

func TestServerThatFailsToStart(t *testing.T) {
	w := newTestBridge(t, server("fails"))
	reply := w.post(initMessage)
	w.Expect(reply.Body).To(ContainSubstring(`"message":"the MCP server process exited: exit status 7"`))
	w.Expect(reply.Body).To(ContainSubstring(reasonServerExited))
}

func TestClientDisconnectsDuringInitialize(t *testing.T) {
	w := newTestBridge(t, server("silent"))
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(initMessage))
	w.Expect(err).NotTo(HaveOccurred())
	req.Header.Set("Content-Type", jsonType)
	req.Header.Set("Accept", "*/*")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	w.Eventually(func() float64 { return w.metric("sessions") }).Should(Equal(1.0))
	cancel()
	<-done
	w.Eventually(func() float64 { return w.metric("sessions_ended_total", reasonClientLeft) }).Should(Equal(1.0))
}

func TestCheck(t *testing.T) {
	folder := t.TempDir()
	script := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cases := map[string]struct {
		command []string
		message string
		missing bool
	}{
		"a command that is not there":     {[]string{"no-such-server"}, `the command "no-such-server" was not found in the image`, true},
		"a path that is not there":        {[]string{"/no/such/server"}, `was not found in the image`, true},
		"a file that may not be run":      {[]string{script("plain", "x", 0o644)}, "is not executable", false},
		"a script without an interpreter": {[]string{script("script", "#!/no/such/shell\n", 0o755)}, "its interpreter or dynamic loader", false},
		"a script without a first line":   {[]string{script("bare", "echo hi\n", 0o755)}, "not a program for this CPU architecture", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newTestBridge(t, c.command)
			err := w.bridge.Check(t.Context())
			var command *CommandError
			w.Expect(errors.As(err, &command)).To(BeTrue(), "got %v", err)
			w.Expect(err).To(MatchError(ContainSubstring(c.message)))
			w.Expect(command.Missing).To(Equal(c.missing))
			w.Eventually(func() float64 { return w.metric("child_start_failures_total") }).Should(Equal(1.0))
		})
	}
}

func TestCheckOfServersThatDoNotRespond(t *testing.T) {
	cases := map[string]struct{ behaviour, message string }{
		"fails":  {"fails", "it exited with exit status 7; stderr: cannot open the database"},
		"silent": {"silent", "no response within 200ms"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			timeout := time.Minute
			if c.behaviour == "silent" {
				timeout = 200 * time.Millisecond
			}
			w := newTestBridge(t, server(c.behaviour), func(o *Options) { o.StartTimeout = timeout })
			err := w.bridge.Check(t.Context())
			var handshake *HandshakeError
			w.Expect(errors.As(err, &handshake)).To(BeTrue(), "got %v", err)
			w.Expect(err).To(MatchError(ContainSubstring(c.message)))
		})
	}
}

func TestCheckDetectsTheSpecVersions(t *testing.T) {
	t.Parallel()
	for behaviour, c := range map[string]struct {
		speaks generations
		starts float64
	}{
		"sdk":                     {generations{true, []string{"2026-07-28"}}, 1},
		"sessions-only":           {generations{true, nil}, 1},
		"deaf-to-discover":        {generations{true, nil}, 1},
		"stateless-only":          {generations{false, []string{"2027-01-15", "2026-07-28"}}, 2},
		"stateless-versions-only": {generations{true, []string{"2026-07-28"}}, 2},
		"strict":                  {generations{true, nil}, 2},
	} {
		t.Run(behaviour, func(t *testing.T) {
			w := newTestBridge(t, server(behaviour))
			w.Expect(w.bridge.Check(t.Context())).To(Succeed())
			w.Expect(w.bridge.detect(t.Context())).To(HaveValue(Equal(c.speaks)))
			w.Eventually(func() float64 { return w.metric("child_starts_total") }).Should(Equal(c.starts))
			w.Expect(w.metric("child_start_duration_seconds")).To(BeNumerically(">", 0))
		})
	}
}

// A process that cannot be asked for initialize, or fails at it, may have sessions.
func TestSessionsAreRefusedOnlyIfInitializeIsRejected(t *testing.T) {
	discover := `{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"]}}`
	for name, c := range map[string]struct {
		initialize string
		rejected   bool
	}{
		"it exits":                 {`exit 1`, false},
		"an internal error":        {`echo '{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"no connection to the database"}}'`, false},
		"it does not know it":      {`echo '{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found"}}'`, true},
		"not an error of JSON-RPC": {`echo '{"jsonrpc":"2.0","id":2,"error":"no"}'`, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestBridge(t, []string{"sh", "-c", `read first; case "$first" in *discover*) echo '` + discover + `';; *) ` + c.initialize + `;; esac`})
			w.Expect(w.bridge.Check(t.Context())).To(Succeed())
			w.Expect(w.bridge.hasNoSessions()).To(Equal(c.rejected))
		})
	}
}

func TestStderrIsLoggedWithinBounds(t *testing.T) {
	w := newTestBridge(t, server("sdk"), func(o *Options) { o.StderrLinesPerSecond = 10 })
	s := w.connect(client{version: "2025-11-25"})
	w.Expect(callTool(t.Context(), s, "stderr", toolInput{Count: 5000})).To(BeEmpty())
	w.Expect(s.Close()).To(Succeed())
	w.Eventually(w.logs.String).Should(ContainSubstring("linesSuppressed"))
	w.Expect(w.logs.String()).To(ContainSubstring(`"line"="line 3"`))
	w.Expect(w.logs.String()).To(ContainSubstring(`"session"="`))
	w.Expect(w.logs.String()).NotTo(ContainSubstring(s.ID()), "whoever reads the log must not use the session")
	w.Expect(strings.Count(w.logs.String(), "Server wrote to stderr")).To(BeNumerically("<", 1000))
}

func TestProcessesThatExitTogetherAreAllReaped(t *testing.T) {
	for _, all := range []bool{true, false} {
		t.Run(fmt.Sprintf("all %t", all), func(t *testing.T) {
			g := NewWithT(t)
			r := &reaper{all: all, running: map[int]func(syscall.WaitStatus){}} // it reaps when the test says so
			var exited []int
			for code := range 3 {
				pid, err := r.start("/bin/sh", []string{"sh", "-c", fmt.Sprintf("exit %d", code)}, &syscall.ProcAttr{}, func(status syscall.WaitStatus) {
					exited = append(exited, status.ExitStatus())
				})
				g.Expect(err).NotTo(HaveOccurred())
				g.Eventually(func() bool { return alive(pid) }, testTimeout).Should(BeFalse())
			}

			r.reap()

			g.Expect(exited).To(ConsistOf(0, 1, 2))
			g.Expect(r.running).To(BeEmpty())
		})
	}
}

// Otherwise it could be reaped before the reaper knows it, and its exit would never be noticed.
func TestProcessIsNotReapedBeforeItIsRegistered(t *testing.T) {
	g := NewWithT(t)
	r := &reaper{running: map[int]func(syscall.WaitStatus){}}
	reaps := func() bool {
		if !r.mu.TryLock() {
			return false
		}
		r.mu.Unlock()
		return true
	}
	syscall.ForkLock.RLock() // no process can start
	starts := sync.OnceFunc(syscall.ForkLock.RUnlock)
	defer starts()
	started := make(chan error, 1)
	go func() {
		_, err := r.start("/no/such/server", []string{"server"}, &syscall.ProcAttr{}, nil)
		started <- err
	}()

	g.Eventually(reaps, "20s").Should(BeFalse())

	starts()
	g.Eventually(started, testTimeout).Should(Receive(HaveOccurred()))
}

func TestStatusOfFailures(t *testing.T) {
	g := NewWithT(t)
	g.Expect(badRequest(codeParse, "x")).To(Equal(&failure{Status: http.StatusBadRequest, Code: codeParse, Message: "x"}))
	g.Expect(refused(reasonIdle, "x", 3)).To(Equal(&failure{Status: http.StatusServiceUnavailable, Code: codeRefused, Reason: reasonIdle, Message: "x", RetryAfter: 3}))
	g.Expect(ended(reasonIdle, "x")).To(Equal(&failure{Status: http.StatusOK, Code: codeInternal, Reason: reasonIdle, Message: "x"}))
}

// Queries name the labels, too. Options.Collectors are served beside the metrics of the bridge.
func TestMetricsAreServed(t *testing.T) {
	other := prometheus.NewCounter(prometheus.CounterOpts{Name: "other_total"})
	w := newTestBridge(t, tinyServer(), func(o *Options) { o.Collectors = []prometheus.Collector{other} })
	w.bridge.metrics.relayed(toServer, 7)
	w.bridge.metrics.ended.WithLabelValues(reasonIdle).Inc()
	w.bridge.metrics.requests.WithLabelValues("session").Observe(0.0005)
	response := httptest.NewRecorder()
	w.bridge.AdminHandler().ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	for _, metric := range []string{
		"other_total 0", "fixpoint_bridge_sessions 0", "process_resident_memory_bytes ",
		`fixpoint_bridge_message_bytes_total{direction="to_server"} 7`,
		`fixpoint_bridge_sessions_ended_total{reason="` + reasonIdle + `"} 1`,
		`fixpoint_bridge_request_duration_seconds_bucket{mode="session",le="0.001"} 1`,
	} {
		w.Expect(response.Body.String()).To(ContainSubstring("\n" + metric))
	}
}

// A shell that starts a server does not pass signals on.
func TestAllProcessesOfAServerGetItsSignals(t *testing.T) {
	g := NewWithT(t)
	r := newReaper(false)
	defer r.close()
	out, stdout, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	defer out.Close()
	exited := make(chan struct{})
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, stdout.Fd(), 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	script := `exec 2>/dev/null; trap : TERM; (trap 'echo ended; exit' TERM; echo begun; while :; do sleep 1; done) & wait; wait`
	pid, err := r.start("/bin/sh", []string{"sh", "-c", script}, attr, func(syscall.WaitStatus) { close(exited) })
	_ = stdout.Close()
	g.Expect(err).NotTo(HaveOccurred())
	defer func() {
		r.kill(pid, syscall.SIGKILL)
		<-exited
	}()
	g.Expect(out.SetReadDeadline(time.Now().Add(20 * time.Second))).To(Succeed())
	lines := bufio.NewScanner(out)
	g.Expect(lines.Scan()).To(BeTrue())
	g.Expect(lines.Text()).To(Equal("begun"))
	r.kill(pid, syscall.SIGTERM)
	g.Expect(lines.Scan()).To(BeTrue())
	g.Expect(lines.Text()).To(Equal("ended"))
}
