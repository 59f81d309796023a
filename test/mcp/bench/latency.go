package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serverMarker is the first argument of this program when it plays the server.
const serverMarker = "play-mcp-server"

// bars of the issue that asked for the bridge.
const (
	barP50 = 500 * time.Microsecond
	barP99 = 2 * time.Millisecond
)

type input struct {
	Text string `json:"text"`
}

func playServer() {
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// measureLatency times the same calls by the same client to the same server,
// over stdio and through the bridge, in turns: machines are not equally busy at
// all times.
func measureLatency(ctx context.Context, program string, calls int) ([]row, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd, url, err := startBridge(ctx, program, nil, "--", self, serverMarker)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stopBridge(cmd) }()
	direct, err := connect(ctx, &mcp.CommandTransport{Command: exec.Command(self, serverMarker)}, "2025-11-25")
	if err != nil {
		return nil, err
	}
	defer direct.Close()
	var rows []row
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		bridged, err := connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true, HTTPClient: &http.Client{}}, version)
		if err != nil {
			return nil, err
		}
		more, err := compare(ctx, comparison{"bridge, " + version, "over stdio", "bridged", barP50, barP99}, direct, bridged, calls)
		_ = bridged.Close()
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func connect(ctx context.Context, t mcp.Transport, version string) (*mcp.ClientSession, error) {
	return mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: version})
}

// comparison names two ways of the same calls, and what the second one may add.
type comparison struct {
	what, direct, through string
	barP50, barP99        time.Duration
}

func compare(ctx context.Context, c comparison, direct, through *mcp.ClientSession, calls int) ([]row, error) {
	const turn = 100
	var first, second []time.Duration
	for len(second) < calls+turn {
		for _, way := range []struct {
			session *mcp.ClientSession
			times   *[]time.Duration
		}{{direct, &first}, {through, &second}} {
			more, err := timeCalls(ctx, way.session, turn)
			if err != nil {
				return nil, err
			}
			*way.times = append(*way.times, more...)
		}
	}
	// The first turn warms up.
	first, second = sorted(first[turn:]), sorted(second[turn:])
	line := func(name string, quantile float64, bar time.Duration) row {
		added := at(second, quantile) - at(first, quantile)
		return row{
			c.what + ": added to a tool call, " + name, "≤ " + bar.String(),
			fmt.Sprintf("%s (%s %s, %s %s)", show3(added), show3(at(first, quantile)), c.direct, show3(at(second, quantile)), c.through), added <= bar,
		}
	}
	return []row{line("p50", 0.5, c.barP50), line("p99", 0.99, c.barP99)}, nil
}

func timeCalls(ctx context.Context, s *mcp.ClientSession, n int) ([]time.Duration, error) {
	times := make([]time.Duration, 0, n)
	for range n {
		started := time.Now()
		if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: input{Text: "hello"}}); err != nil {
			return nil, err
		}
		times = append(times, time.Since(started))
	}
	return times, nil
}

func sorted(d []time.Duration) []time.Duration {
	slices.Sort(d)
	return d
}

func at(sorted []time.Duration, quantile float64) time.Duration {
	return sorted[int(float64(len(sorted)-1)*quantile)]
}

func show3(d time.Duration) string { return d.Round(time.Microsecond).String() }
