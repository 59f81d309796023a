// Command bench measures the bridge and the proxy: what they add to a tool call, the memory that they take with many
// sessions, and how many calls the proxy forwards.
//
//	cd test && go run ./mcp/bench
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == serverMarker {
		playServer()
		return
	}
	if len(os.Args) > 2 && os.Args[1] == httpServerMarker {
		fmt.Fprintln(os.Stderr, playHTTPServer(os.Args[2]))
		os.Exit(1)
	}
	calls := flag.Int("calls", 3000, "tool calls to time in each way")
	sessions := flag.Int("sessions", 500, "sessions to measure the memory of the bridge with")
	idle := flag.Int("idle", 1000, "sessions to measure the memory of the proxy with")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, *calls, *sessions, *idle)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(1)
	}
	if !ok {
		os.Exit(2)
	}
}

// row is a line of the table.
type row struct {
	what, bar, measured string
	ok                  bool
}

func run(ctx context.Context, calls, sessions, idle int) (bool, error) {
	folder, err := os.MkdirTemp("", "fixpoint-mcp-bench-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(folder)
	program := filepath.Join(folder, "mcp-bridge")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./cmd/mcp-bridge")
	build.Dir = ".." // the module of the bridge: this program runs in test
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return false, fmt.Errorf("building the bridge: %w\n%s", err, out)
	}
	latency, err := measureLatency(ctx, program, calls)
	if err != nil {
		return false, fmt.Errorf("measuring the latency: %w", err)
	}
	memory, err := measureMemory(ctx, program, sessions)
	if err != nil {
		return false, fmt.Errorf("measuring the memory: %w", err)
	}
	proxy, err := measureProxy(ctx, program, folder, calls, idle)
	if err != nil {
		return false, fmt.Errorf("measuring the proxy: %w", err)
	}
	forwarding, err := measureForwarding(ctx, program, folder, calls)
	if err != nil {
		return false, fmt.Errorf("measuring forwarded calls: %w", err)
	}
	return show(slices.Concat(latency, memory, proxy, forwarding)), nil
}

func show(rows []row) bool {
	ok := true
	fmt.Println("| what | bar | measured | |\n| --- | --- | --- | --- |")
	for _, r := range rows {
		verdict := "met"
		switch {
		case r.bar == "":
			verdict = ""
		case !r.ok:
			verdict, ok = "MISSED", false
		}
		fmt.Printf("| %s | %s | %s | %s |\n", r.what, r.bar, r.measured, verdict)
	}
	return ok
}

// startBridge runs the bridge until it is stopped.
func startBridge(ctx context.Context, program string, env []string, args ...string) (*exec.Cmd, string, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"serve", "-listen", address, "-admin-listen", admin, "-drain-idle-timeout", "10ms"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	for {
		if ready(ctx, "http://"+admin+"/readyz") {
			return cmd, "http://" + address + "/mcp", nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, "", ctx.Err()
		}
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func stopBridge(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return cmd.Wait()
}
