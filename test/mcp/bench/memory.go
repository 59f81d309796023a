package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// barMemory is for the bridge alone, in KiB.
const barMemory = 60 << 10

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`

// measureMemory opens sessions with an idle child and an open event stream each,
// on one core, and asks the kernel for the bridge's resident memory.
func measureMemory(ctx context.Context, program string, sessions int) ([]row, error) {
	child := []string{"sed", "-u", "-n", `s/.*"id":\([0-9]*\).*/{"jsonrpc":"2.0","id":\1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"tiny","version":"1"}}}/p`}
	args := append([]string{"-max-sessions", fmt.Sprint(sessions), "-max-sessions-per-caller", fmt.Sprint(sessions), "--"}, child...)
	cmd, url, err := startBridge(ctx, program, []string{"GOMAXPROCS=1"}, args...)
	if err != nil {
		return nil, err
	}
	streams := &http.Client{}
	started := time.Now()
	for range sessions {
		if err := openSession(ctx, streams, url); err != nil {
			return nil, errors.Join(err, cmd.Process.Kill())
		}
	}
	opened := time.Since(started)
	rss, peak, err := resident(cmd.Process.Pid)
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill())
	}
	streams.CloseIdleConnections()
	if err := stopBridge(cmd); err != nil {
		return nil, err
	}
	return []row{
		{fmt.Sprintf("memory of the bridge with %d sessions on one core", sessions), "≤ 60 MiB", fmt.Sprintf("%.1f MiB (peak %.1f MiB)", float64(rss)/1024, float64(peak)/1024), rss <= barMemory},
		{fmt.Sprintf("to open the %d sessions one after another", sessions), "", opened.Round(time.Millisecond).String(), true},
	}, nil
}

// openSession begins a session and leaves its event stream open.
func openSession(ctx context.Context, c *http.Client, url string) error {
	resp, err := send(ctx, c, http.MethodPost, url, initialize, "")
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("a session was refused: %s", resp.Status)
	}
	stream, err := send(ctx, c, http.MethodGet, url, "", resp.Header.Get("Mcp-Session-Id"))
	if err != nil {
		return err
	}
	if stream.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("an event stream was refused: %s", stream.Status), stream.Body.Close())
	}
	return nil
}

func send(ctx context.Context, c *http.Client, method, url, body, session string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	return c.Do(req)
}

func ready(ctx context.Context, url string) bool {
	resp, err := send(ctx, http.DefaultClient, http.MethodGet, url, "", "")
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// resident is a process's memory now and at its highest, in KiB.
func resident(pid int) (now, peak int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		for name, into := range map[string]*int{"VmRSS:": &now, "VmHWM:": &peak} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				if _, err := fmt.Sscan(rest, into); err != nil {
					return 0, 0, err
				}
			}
		}
	}
	return now, peak, nil
}
