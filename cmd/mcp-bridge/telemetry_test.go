package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/telemetry"
)

// auditLine is a line of the audit.
type auditLine struct {
	Audit                          string
	Sequence                       uint64
	Tool, Method, Outcome, Session string
	Server, Namespace              string
}

// auditLines are the complete lines of a process. The last one may have been cut off when the process was killed.
func auditLines(g Gomega, out *output) (requests []auditLine, told uint64, last string) {
	for text := range strings.Lines(out.String()) {
		if !strings.HasSuffix(text, "\n") {
			break
		}
		var line auditLine
		g.Expect(json.Unmarshal([]byte(text), &line)).To(Succeed(), text)
		told, last = max(told, line.Sequence), line.Audit
		if line.Audit == "request" {
			requests = append(requests, line)
		}
	}
	return requests, told, last
}

// auditedProxy runs a proxy in front of a server whose tool hang does not respond, and which counts the calls that reach it.
func auditedProxy(t *testing.T, g *WithT, flags ...string) (cmd *exec.Cmd, lines *output, address, admin string, served *atomic.Int64) {
	t.Helper()
	served = &atomic.Int64{}
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		served.Add(1)
		if strings.Contains(string(body), `"hang"`) {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	t.Cleanup(behind.Close)
	cmd, out := proxyOf(t, g, behind.URL, append([]string{"-audit", "Digest"}, flags...)...)
	lines = &output{}
	cmd.Stdout = lines
	address, admin = startProxy(t, g, cmd, out)
	return cmd, lines, address, admin, served
}

func callOf(address, tool string) (int, error) {
	message := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, tool)
	response, err := http.Post(address+"/mcp", "application/json", strings.NewReader(message))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// With kill -9 in the middle of calls, the lines and the gap that they tell of are all calls that the server got.
func TestAuditLinesAndGapEqualCallsOfAKilledProxy(t *testing.T) {
	g := NewWithT(t)
	cmd, lines, address, _, served := auditedProxy(t, g)
	const clients, hanging = 8, 3
	var sent, completed atomic.Int64
	var all sync.WaitGroup
	for range hanging {
		all.Go(func() {
			sent.Add(1)
			_, _ = callOf(address, "hang")
		})
	}
	g.Eventually(served.Load, testTimeout).Should(BeEquivalentTo(hanging))
	for client := range clients {
		all.Go(func() {
			for i := 0; ; i++ {
				sent.Add(1)
				code, err := callOf(address, fmt.Sprintf("t-%d-%d", client, i))
				if err != nil || code != http.StatusOK {
					return
				}
				completed.Add(1)
			}
		})
	}
	g.Eventually(completed.Load, testTimeout).Should(BeNumerically(">", 500))
	g.Expect(cmd.Process.Kill()).To(Succeed())
	_ = cmd.Wait() // It was killed.
	all.Wait()

	requests, told, last := auditLines(g, lines)
	g.Expect(last).NotTo(Equal("end"))
	tools := map[string]bool{}
	for _, line := range requests {
		g.Expect(line.Outcome).To(Equal("ok"))
		tools[line.Tool] = true
	}
	g.Expect(tools).To(HaveLen(len(requests)), "each call has one line")
	gap := told - uint64(len(requests))
	t.Logf("%d lines and a gap of %d, of %d calls that reached the server", len(requests), gap, served.Load())
	g.Expect(gap).To(BeNumerically(">=", hanging))
	g.Expect(gap).To(BeNumerically("<=", hanging+100), "those in flight, and lines that were not written yet")
	g.Expect(told).To(BeNumerically(">=", served.Load()), "the server got no call that is not told of")
	g.Expect(told).To(BeNumerically("<=", served.Load()+clients), "others were about to be forwarded")
	g.Expect(told).To(BeNumerically("<=", sent.Load()))
}

func TestAuditEndsWithTheProcess(t *testing.T) {
	g := NewWithT(t)
	cmd, lines, address, admin, served := auditedProxy(t, g, "-drain-timeout", "2s", "-server-name", "tools", "-server-namespace", "acme", "-deny-tool", "hidden")
	for _, tool := range []string{"get", "hidden"} {
		code, err := callOf(address, tool)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(code).To(Equal(http.StatusOK))
	}
	metrics, err := http.Get(admin + "/metrics")
	g.Expect(err).NotTo(HaveOccurred())
	text, err := io.ReadAll(metrics.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(metrics.Body.Close()).To(Succeed())
	g.Expect(string(text)).To(And(
		ContainSubstring(`fixpoint_endpoint_refused_requests_total{by="policy",reason="ToolNotSelected"} 1`),
		ContainSubstring(`fixpoint_endpoint_audit_lines_total{result="written"}`)))
	var client sync.WaitGroup
	client.Go(func() { _, _ = callOf(address, "hang") })
	g.Eventually(served.Load, testTimeout).Should(BeEquivalentTo(2))

	g.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(cmd.Wait()).To(Succeed())
	client.Wait()

	requests, told, last := auditLines(g, lines)
	g.Expect(last).To(Equal("end"))
	g.Expect(told).To(BeEquivalentTo(3))
	g.Expect(requests).To(HaveExactElements(
		And(HaveField("Tool", "get"), HaveField("Outcome", "ok"), HaveField("Server", "tools"), HaveField("Namespace", "acme")),
		And(HaveField("Tool", "hidden"), HaveField("Outcome", "refused")),
		And(HaveField("Tool", "hang"), HaveField("Outcome", BeElementOf("canceled", "interrupted"))),
	))
}

func TestAuditOfTheBridge(t *testing.T) {
	g := NewWithT(t)
	lines := &output{}
	self, out := program(t, append([]string{
		"serve", "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0", "-drain-timeout", "1s", "-drain-idle-timeout", "100ms", "-stop-grace", "100ms", "-audit", "Full", "--",
	}, tiny...)...)
	self.Stdout = lines
	g.Expect(self.Start()).To(Succeed())
	t.Cleanup(func() { _ = self.Process.Kill() })
	g.Eventually(out.String, testTimeout).Should(ContainSubstring(`"msg":"Ready"`))
	address := "http://" + regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(out.String())[1]

	code, header := send(g, address, initializeMessage, "", "")
	g.Expect(code).To(Equal(http.StatusOK))
	session := header.Get("Mcp-Session-Id")
	code, _ = send(g, address, deleteMessage, "", session)
	g.Expect(code).To(Equal(http.StatusOK))
	code, _ = send(g, address, pingMessage, "", "no-such-session")
	g.Expect(code).To(Equal(http.StatusNotFound))
	g.Expect(self.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(self.Wait()).To(Succeed())

	requests, told, last := auditLines(g, lines)
	g.Expect(last).To(Equal("end"))
	g.Expect(told).To(BeEquivalentTo(3))
	g.Expect(requests).To(HaveExactElements(
		And(HaveField("Method", "initialize"), HaveField("Outcome", "ok"), HaveField("Session", Not(BeEmpty()))),
		And(HaveField("Method", "tools/call"), HaveField("Tool", "delete_all"), HaveField("Outcome", "ok"), HaveField("Session", requests[0].Session)),
		HaveField("Outcome", "refused"),
	))
	g.Expect(lines.String()).NotTo(ContainSubstring(session))
}

func TestFlagsOfTelemetry(t *testing.T) {
	g := NewWithT(t)
	args := []string{
		"--audit", "None", "--server-name", "tools", "--server-namespace", "acme", "--otlp-endpoint", "http://collector:4318",
		"--otlp-headers", "/h", "--otlp-ca", "/c", "--otlp-sample-percent", "0",
	}
	want := telemetryFlags{server: "tools", namespace: "acme", arguments: "None",
		otlp: telemetry.OTLP{Endpoint: "http://collector:4318", HeadersFile: "/h", CAFile: "/c"}}
	served, err := parse(append(args, "--", "true"), io.Discard)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(served.protection.telemetry).To(Equal(want))
	proxied, err := parseProxy(append(args, "--server-port", "8080"), io.Discard)
	g.Expect(err).NotTo(HaveOccurred(), "records need no issuer")
	g.Expect(proxied.protection.telemetry).To(Equal(want))

	none, err := parse([]string{"--", "true"}, io.Discard)
	g.Expect(err).NotTo(HaveOccurred())
	front, err := newProtection(io.Discard, newLogger(io.Discard, 0), &none.protection, 1)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(front.recorder).To(BeNil())
	mux := http.NewServeMux()
	g.Expect(front.protectProxy(mux)).To(BeIdenticalTo(mux), "nothing is in the chain")
	g.Expect(none.protection.telemetry.drainTimeout(time.Minute)).To(Equal(time.Minute))
	g.Expect(want.drainTimeout(time.Minute)).To(Equal(time.Minute - recordTimeout))
	g.Expect(want.drainTimeout(time.Second)).To(Equal(750 * time.Millisecond))
}
