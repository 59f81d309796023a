package tenant_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// remote is a client of the bridge, which has no rights in the cluster.
const remote = "client"

// bridgeAttempts attack the bridge of the other team's MCPServer. It runs as a process, with the arguments of the
// Deployment.
func bridgeAttempts() []attempt {
	return []attempt{
		{"send requests from a web page, by DNS rebinding or from another origin", remote, "403: the message names the host or the origin, and the field that allows it", func(a *trial) {
			b := a.startBridge()
			for _, host := range []string{"evil.example.com", "bridged.evil", "bridged.victim.svc.evil.example.com", "localhost.evil.example.com", "bridged:x", "127.0.0.1.evil.example.com:80"} {
				status, text := b.post(a, hello, "Host", host)
				a.Expect(status).To(Equal(http.StatusForbidden), host)
				a.Expect(text).To(And(ContainSubstring("host "), ContainSubstring("is not allowed"), ContainSubstring("spec.bridge.allowedHosts")))
			}
			for _, origin := range []string{"https://evil.example.com", "null", "http://bridged.victim.svc.evil.example.com", "http://127.0.0.1@evil.example.com", "file://"} {
				status, text := b.post(a, hello, "Origin", origin)
				a.Expect(status).To(Equal(http.StatusForbidden), origin)
				a.Expect(text).To(And(ContainSubstring("origin "), ContainSubstring("is not allowed"), ContainSubstring("spec.bridge.allowedOrigins")))
			}
			status, text := b.post(a, hello, "Host", "bridged.victim.svc:8080", "Origin", "http://bridged.victim.svc:8080")
			a.Expect(status).To(Equal(http.StatusOK), text)
		}},
		{"read the metrics or the health of the bridge where it serves clients, or leave its path", remote, "404", func(a *trial) {
			b := a.startBridge()
			for _, path := range []string{"/metrics", "/healthz", "/readyz", "/debug/pprof/", "/", "/mcp/../metrics", "/mcp/", "/mcp%2f..%2fmetrics"} {
				response, err := b.client.Get("http://" + b.address + path)
				a.Expect(err).NotTo(HaveOccurred())
				a.Expect(response.Body.Close()).To(Succeed())
				a.Expect(response.StatusCode).To(Equal(http.StatusNotFound), path)
			}
		}},
		{"bypass a proxy that decides by the headers, with members that servers read in another way", remote, "400: the message names the member or the header", func(a *trial) {
			b := a.startBridge()
			const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":%s}`
			for params, member := range map[string]string{
				`{"name":"delete_everything","Name":"read_file"}`:             "Name",
				`{"name":"delete_everything","name":"read_file"}`:             "name",
				`{"name":"delete_everything","n\u0061me":"read_file"}`:        "name",
				`{"name":"delete_everything"}`:                                "Mcp-Name",
				`{"name":"read_file"},"params":{"name":"delete"}`:             "params",
				`{"name":"read_file"},"method":"resources/read"`:              "method",
				`{"name":"read_file"},"Method":"resources/read"`:              "Method",
				`{"name":"read_file"}}` + "\n" + fmt.Sprintf(call, "{}")[:20]: "",
			} {
				status, text := b.post(a, fmt.Sprintf(call, params), "Mcp-Method", "tools/call", "Mcp-Name", "read_file", "Mcp-Session-Id", b.session(a))
				a.Expect(status).To(Equal(http.StatusBadRequest), "%s: %s", params, text)
				a.Expect(text).To(ContainSubstring(member))
			}
		}},
		{"use the session of another client by its id", remote, "404, unless the whole id is known", func(a *trial) {
			b := a.startBridge()
			session := b.session(a)
			for _, id := range []string{session[:len(session)-1], session + "0", strings.ToUpper(session), strings.Repeat("0", len(session)), "*", "../" + session} {
				if id == session {
					continue // an id without letters
				}
				status, text := b.post(a, ping, "Mcp-Session-Id", id)
				a.Expect(status).To(Equal(http.StatusNotFound), "%s: %s", id, text)
			}
		}},
		{"hold all places with slow bodies, and all sessions", remote, "a new client is served while all are held", func(a *trial) {
			b := a.startBridge()
			var opening sync.WaitGroup
			for range 8 {
				opening.Go(func() {
					for range 25 {
						b.session(a)
					}
				})
			}
			opening.Wait()
			honest := b.from("127.0.0.2")
			// The bridge ends slow bodies after 5 s. If that happens before the new client is served, which is also the case
			// on a busy machine, it is not known whether the client waited for it: then all are held again.
			a.Eventually(func() int {
				held := b.slowBodies(a)
				defer held.leave()
				began := time.Now()
				status, text := honest.post(a, ping, "Mcp-Session-Id", honest.session(a))
				ended := held.ended(a)
				a.t.Logf("a new client is served after %s, when %d of %d slow bodies have ended", time.Since(began).Round(time.Millisecond), ended, len(held))
				a.Expect(status).To(Equal(http.StatusOK), text)
				return ended
			}).Should(BeZero(), "slow bodies that ended before the new client was served")
		}},
		{"make the bridge keep large messages, ids or texts", remote, "400 or 413: the message names the limit, and later messages are served", func(a *trial) {
			b := a.startBridge()
			session := b.session(a)
			large := func(n int) string { return strings.Repeat("x", n) }
			for body, c := range map[string]struct {
				status int
				text   string
			}{
				`{"jsonrpc":"2.0","id":"` + large(1025) + `","method":"ping"}`:                                        {http.StatusBadRequest, "1024"},
				`{"jsonrpc":"2.0","id":3,"method":"ping","params":{"_meta":{"progressToken":"` + large(1025) + `"}}}`: {http.StatusBadRequest, "1024"},
				`{"jsonrpc":"2.0","id":3,"method":"ping","params":{"text":"` + large(4<<20) + `"}}`:                   {http.StatusRequestEntityTooLarge, "4194304"},
				`{"jsonrpc":"2.0","id":3,"method":"ping","params":` + strings.Repeat("[", 100_000):                    {http.StatusBadRequest, ""},
			} {
				status, text := b.post(a, body, "Mcp-Session-Id", session)
				a.Expect(status).To(Equal(c.status), "%.100s: %s", body, text)
				a.Expect(text).To(ContainSubstring(c.text))
			}
			status, text := b.post(a, ping, "Mcp-Session-Id", session)
			a.Expect(status).To(Equal(http.StatusOK), text)
		}},
	}
}

const (
	hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"remote","version":"1"}}}`
	ping  = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	// echo answers every request with the result of a handshake.
	echo = `s/.*"id":\([0-9]*\).*/{"jsonrpc":"2.0","id":\1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"echo","version":"1"}}}/p`
)

// buildBridge builds the program of the bridge.
func buildBridge(t *testing.T, g Gomega) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "mcp-bridge")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/mcp-bridge")
	build.Dir = harness.Root
	output, err := build.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(output))
	return program
}

// bridge is a process, seen by a client.
type bridge struct {
	address string
	client  *http.Client
}

// startBridge runs the bridge as a pod of the other team's MCPServer does, until the end of the attempt.
func (a *trial) startBridge() *bridge {
	a.t.Helper()
	deployment := &appsv1.Deployment{}
	a.Eventually(func() error { return a.read(deployment, victim, "bridged") }).Should(Succeed())
	args := slices.Clone(deployment.Spec.Template.Spec.Containers[0].Command[1:])
	b := &bridge{address: harness.FreeAddress(a.t)}
	admin := harness.FreeAddress(a.t)
	for flag, address := range map[string]string{"--listen": b.address, "--admin-listen": admin} {
		at := slices.Index(args, flag)
		a.Expect(at).To(BeNumerically(">=", 0), "%v", args)
		args[at+1] = address
	}
	process := exec.Command(a.bridge, args...)
	var output bytes.Buffer
	process.Stderr = &output
	a.Expect(process.Start()).To(Succeed())
	a.t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGTERM)
		_ = process.Process.Signal(syscall.SIGTERM) // the second one does not wait for sessions
		_ = process.Wait()
		if a.t.Failed() {
			a.t.Logf("%v\n%s", process.Args, output.String())
		}
	})
	b = b.from("127.0.0.1")
	a.Eventually(func(g Gomega) {
		response, err := http.Get("http://" + admin + "/readyz")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	}).Should(Succeed())
	return b
}

// from is the bridge for a client at another address.
func (b *bridge) from(address string) *bridge {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &bridge{address: b.address, client: &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}}
}

// post sends a message, and returns the status and the body of the answer.
func (b *bridge) post(a *trial, body string, headers ...string) (int, string) {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.ctx, http.MethodPost, "http://"+b.address+"/mcp", strings.NewReader(body))
	a.Expect(err).NotTo(HaveOccurred())
	response, text := b.send(a, request, headers...)
	return response.StatusCode, text
}

func (b *bridge) send(a *trial, request *http.Request, headers ...string) (*http.Response, string) {
	a.t.Helper()
	request.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	request.Host = request.Header.Get("Host")
	response, err := b.client.Do(request)
	a.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	a.Expect(err).NotTo(HaveOccurred())
	return response, string(text)
}

// session opens a session.
func (b *bridge) session(a *trial) string {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.ctx, http.MethodPost, "http://"+b.address+"/mcp", strings.NewReader(hello))
	a.Expect(err).NotTo(HaveOccurred())
	response, text := b.send(a, request)
	a.Expect(response.StatusCode).To(Equal(http.StatusOK), text)
	return response.Header.Get("Mcp-Session-Id")
}

// slowBodies are connections with requests whose bodies do not arrive.
type slowBodies []*net.TCPConn

// slowBodies begins requests of all sizes.
func (b *bridge) slowBodies(a *trial) slowBodies {
	a.t.Helper()
	var held slowBodies
	for range 64 {
		for _, beginning := range []string{"", `{"jsonrpc":"2.0","id":1,"method":"initialize"`, strings.Repeat(" ", 17<<10)} {
			held = append(held, b.slowBody(a, beginning))
		}
	}
	return held
}

// ended is how many of them the bridge has answered or closed.
func (s slowBodies) ended(a *trial) int {
	a.t.Helper()
	ended := 0
	for _, connection := range s {
		raw, err := connection.SyscallConn()
		a.Expect(err).NotTo(HaveOccurred())
		var received error
		a.Expect(raw.Read(func(fd uintptr) bool {
			// Unlike a read with a deadline, it always tells whether something has arrived, and never waits.
			_, _, received = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			return true
		})).To(Succeed())
		if !errors.Is(received, syscall.EAGAIN) {
			ended++
		}
	}
	return ended
}

func (s slowBodies) leave() {
	for _, connection := range s {
		_ = connection.Close()
	}
}

// slowBody begins a request and leaves it.
func (b *bridge) slowBody(a *trial, beginning string) *net.TCPConn {
	a.t.Helper()
	connection, err := (&net.Dialer{}).DialContext(a.ctx, "tcp", b.address)
	a.Expect(err).NotTo(HaveOccurred())
	a.t.Cleanup(func() { _ = connection.Close() })
	tcp, ok := connection.(*net.TCPConn)
	a.Expect(ok).To(BeTrue())
	_, err = fmt.Fprintf(connection, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: 1000000\r\n\r\n%s", beginning)
	a.Expect(err).NotTo(HaveOccurred())
	return tcp
}
