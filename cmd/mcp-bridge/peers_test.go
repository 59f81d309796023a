package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/peers/peerstest"
)

// Two proxies serve the session that one of their servers has begun.
func TestProxiesForwardSessions(t *testing.T) {
	g := NewWithT(t)
	keys := peerstest.Keys(t, time.Now().Add(-time.Hour))
	start := func(id string) (address string, stop func()) {
		behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if sent := r.Header.Get("Mcp-Session-Id"); sent != "" && sent != id {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			w.Header().Set("Mcp-Session-Id", id)
		}))
		t.Cleanup(behind.Close)
		cmd, out, address, _ := proxying(t, g, behind.URL,
			"-session-keys", keys, "-server-id", "acme/tools", "-peer-listen", "127.0.0.1:0", "-peer-ip", "127.0.0.1")
		return address, func() {
			g.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
			// Two signals at the same time count as one.
			g.Eventually(out.String, testTimeout).Should(ContainSubstring(`"msg":"Draining"`))
			g.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
			g.Expect(cmd.Wait()).To(Succeed(), out.String())
		}
	}
	owner, stop := start("own")
	other, _ := start("other")
	code, header := send(g, owner, initializeMessage, "", "")
	g.Expect(code).To(Equal(http.StatusOK))
	session := header.Get("Mcp-Session-Id")
	g.Expect(session).NotTo(Or(BeEmpty(), Equal("own")))

	code, header = send(g, other, pingMessage, "", session)
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(header.Get("Mcp-Session-Id")).To(Equal(session))
	code, _ = send(g, other, pingMessage, "", "own")
	g.Expect(code).To(Equal(http.StatusNotFound))

	stop()
	g.Eventually(func() int {
		code, _ := send(g, other, pingMessage, "", session)
		return code
	}, time.Minute).Should(Equal(http.StatusNotFound), "the replica is gone, once the other has noticed that its connections have ended")
}

func TestInvalidPeersOfTheProxy(t *testing.T) {
	for name, c := range map[string]struct {
		flags   []string
		message string
	}{
		"no address": {nil, "reading -peer-ip"},
		"no keys":    {[]string{"-peer-ip", "127.0.0.1", "-server-id", "a"}, "reading the session keys"},
		"no server":  {[]string{"-peer-ip", "127.0.0.1"}, "set -server-id"},
		"bad port":   {[]string{"-peer-ip", "127.0.0.1", "-peer-listen", "127.0.0.1:x"}, "listening for other replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			flags := append([]string{"-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0", "-peer-listen", "127.0.0.1:0", "-server-port", "8080", "-session-keys", t.TempDir()}, c.flags...)
			cfg, err := parseProxy(flags, io.Discard)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(proxy(t.Context(), t.Context(), cfg, io.Discard, io.Discard)).To(MatchError(ContainSubstring(c.message)), fmt.Sprint(flags))
		})
	}
}
