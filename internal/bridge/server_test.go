//nolint:staticcheck // Sampling and logging are deprecated, and in use by every server of an older spec version.
package bridge

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// childMarker is the first argument that makes the test binary run as a server.
const childMarker = "play-mcp-server"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == childMarker {
		play(os.Args[2])
		return
	}
	// The race detector would delay the exit of every child by a second.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	_ = flag.Set("test.parallel", "10") // the parallel tests wait; the command line is parsed later
	os.Exit(m.Run())
}

// server is the command of a server with the given behavior.
func server(behaviour string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return []string{self, childMarker, behaviour}
}

// tinyServer responds to every request with an empty result; it needs about 1 MB of memory.
func tinyServer() []string {
	return []string{"sed", "-u", "-n",
		`s/.*"id":\([0-9]*\).*/{"jsonrpc":"2.0","id":\1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"tiny","version":"1"}}}/p`}
}

func play(behaviour string) {
	switch behaviour {
	case "sdk":
		runSDK(nil)
	case "sessions-only":
		runSDK([]string{"2025-11-25", "2025-06-18"})
	case "stateless-only":
		statelessOnly()
	case "stateless-versions-only":
		listStatelessVersionsOnly()
	case "strict":
		acceptOnlyInitialize()
	case "marked":
		markParameters()
	case "lists-nothing":
		respond(func(e *envelope) string {
			if e.Method == "tools/list" {
				return ""
			}
			return `"result":{"supportedVersions":["2026-07-28","2025-11-25"]}`
		})
	case "fails":
		fmt.Fprintln(os.Stderr, "cannot open the database")
		os.Exit(7)
	case "silent":
		waitForEnd()
	case "stops-reading":
		initializeOnce()
	case "stubborn":
		ignoreSignals()
		fallthrough
	case "deaf-to-discover":
		initializeOnly()
		if behaviour == "stubborn" {
			select {}
		}
	case "chatty":
		floodServer()
	}
}

func runSDK(versions []string) {
	s := mcp.NewServer(&mcp.Implementation{Name: "played", Version: "1.2.3"}, &mcp.ServerOptions{
		SupportedProtocolVersions: versions,
	})
	addTools(s)
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
	}
}

type toolInput struct {
	Text  string `json:"text,omitempty"`
	Count int    `json:"count,omitempty"`
}

type tool func(context.Context, *mcp.CallToolRequest, toolInput) (string, error)

func addTools(s *mcp.Server) {
	var calls atomic.Int64
	add := func(name string, run tool) {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(ctx context.Context, r *mcp.CallToolRequest, in toolInput) (*mcp.CallToolResult, any, error) {
			said, err := run(ctx, r, in)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said}}}, nil, err
		})
	}
	add("echo", func(_ context.Context, _ *mcp.CallToolRequest, in toolInput) (string, error) { return in.Text, nil })
	add("count", func(context.Context, *mcp.CallToolRequest, toolInput) (string, error) {
		return strconv.FormatInt(calls.Add(1), 10), nil
	})
	add("pid", func(context.Context, *mcp.CallToolRequest, toolInput) (string, error) {
		return strconv.Itoa(os.Getpid()), nil
	})
	add("big", func(_ context.Context, _ *mcp.CallToolRequest, in toolInput) (string, error) {
		return strings.Repeat("x", in.Count), nil
	})
	add("crash", func(context.Context, *mcp.CallToolRequest, toolInput) (string, error) {
		fmt.Fprintln(os.Stderr, "panic: out of cheese")
		os.Exit(9)
		return "", nil
	})
	add("hang", func(ctx context.Context, _ *mcp.CallToolRequest, in toolInput) (string, error) {
		fmt.Fprintln(os.Stderr, "hanging", in.Text)
		<-ctx.Done()
		fmt.Fprintln(os.Stderr, "cancelled", in.Text)
		return "", ctx.Err()
	})
	released := make(chan struct{})
	add("wait-for-release", func(context.Context, *mcp.CallToolRequest, toolInput) (string, error) {
		fmt.Fprintln(os.Stderr, "waiting for release")
		<-released
		return "released", nil
	})
	add("release", func(context.Context, *mcp.CallToolRequest, toolInput) (string, error) {
		close(released)
		return "done", nil
	})
	add("environment", func(_ context.Context, _ *mcp.CallToolRequest, in toolInput) (string, error) {
		return os.Getenv(in.Text), nil
	})
	add("grandchild", func(context.Context, *mcp.CallToolRequest, toolInput) (string, error) {
		cmd := exec.Command("sh", "-c", "trap '' TERM; echo begun; exec sleep 300")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = out.Read(make([]byte, 1)) // from then on, it ignores SIGTERM
		}
		if err != nil {
			return "", err
		}
		return strconv.Itoa(cmd.Process.Pid), nil
	})
	add("daemon", func(context.Context, *mcp.CallToolRequest, toolInput) (string, error) {
		cmd := exec.Command("sleep", "300")
		cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, &syscall.SysProcAttr{Setsid: true}
		err := cmd.Start()
		return strconv.Itoa(cmd.Process.Pid), err
	})
	add("stderr", func(_ context.Context, _ *mcp.CallToolRequest, in toolInput) (string, error) {
		for i := range in.Count {
			fmt.Fprintf(os.Stderr, "line %d\n", i)
		}
		return "", nil
	})
	add("progress", progress)
	add("logs", func(ctx context.Context, r *mcp.CallToolRequest, in toolInput) (string, error) {
		return "", r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: in.Text})
	})
	add("sample", sample)
	s.AddTool(&mcp.Tool{Name: "marked", InputSchema: json.RawMessage(markedSchema)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "elicit"}, elicit)
	mcp.AddTool(s, &mcp.Tool{Name: "grow"}, func(context.Context, *mcp.CallToolRequest, toolInput) (*mcp.CallToolResult, any, error) {
		add("grown", func(context.Context, *mcp.CallToolRequest, toolInput) (string, error) { return "", nil })
		return &mcp.CallToolResult{}, nil, nil
	})
}

func progress(ctx context.Context, r *mcp.CallToolRequest, in toolInput) (string, error) {
	for i := range in.Count {
		err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Total: float64(in.Count), Message: in.Text,
		})
		if err != nil {
			return "", err
		}
	}
	return "done", nil
}

func sample(ctx context.Context, r *mcp.CallToolRequest, in toolInput) (string, error) {
	res, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{
		MaxTokens: 10,
		Messages:  []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: in.Text}}},
	})
	if err != nil {
		return "", err
	}
	said, ok := res.Content.(*mcp.TextContent)
	if !ok {
		return "", fmt.Errorf("unexpected content %T", res.Content)
	}
	return said.Text, nil
}

// elicit sends an elicitation as the spec version defines it.
func elicit(ctx context.Context, r *mcp.CallToolRequest, in toolInput) (*mcp.CallToolResult, any, error) {
	ask := &mcp.ElicitParams{Message: in.Text, RequestedSchema: map[string]any{
		"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}},
	}}
	var answer *mcp.ElicitResult
	switch {
	case r.ProtocolVersion() < statelessVersion:
		var err error
		if answer, err = r.Session.Elicit(ctx, ask); err != nil {
			return nil, nil, err
		}
	case len(r.Params.InputResponses) == 0:
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"who": ask}}, nil, nil
	default:
		raw, err := json.Marshal(r.Params.InputResponses["who"])
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(raw)}}}, nil, nil
	}
	raw, err := json.Marshal(answer.Content)
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(raw)}}}, nil, err
}

// statelessOnly has no initialize.
func statelessOnly() {
	respond(func(e *envelope) string {
		switch e.Method {
		case methodDiscover:
			return `"result":{"supportedVersions":["2026-07-28","2027-01-15"],"capabilities":{}}`
		case methodInit:
			return `"error":{"code":-32601,"message":"unknown method"}`
		default:
			return `"result":{}`
		}
	})
}

// listStatelessVersionsOnly speaks both generations, as servers of the TypeScript SDK do.
func listStatelessVersionsOnly() {
	respond(func(e *envelope) string {
		if e.Method == methodDiscover {
			return `"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}`
		}
		return `"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"both","version":"1"}}`
	})
}

// acceptOnlyInitialize writes a line that is no message, and exits on a message that is not a complete initialize.
func acceptOnlyInitialize() {
	fmt.Println("Welcome! This line is no message.")
	respond(func(e *envelope) string {
		var got mcp.InitializeParams
		err := json.Unmarshal(e.Params.raw, &got)
		if err != nil || e.Method != methodInit || got.ProtocolVersion == "" || got.Capabilities == nil || got.ClientInfo == nil {
			os.Exit(1)
		}
		return `"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"strict","version":"1"}}`
	})
}

// markParameters has tools with marked parameters on two pages. The tool rename changes the name of a header, and lists
// says how often the tools were listed.
func markParameters() {
	region, lists := "Region", 0
	respond(func(e *envelope) string {
		name, cursor := text(e.Params.Name), json.RawMessage(nil)
		_ = fields{"cursor": &cursor}.read(e.Params.raw)
		switch {
		case e.Method == methodDiscover:
			return `"result":{"supportedVersions":["2026-07-28","2025-11-25"]}`
		case e.Method == "tools/list" && cursor == nil:
			lists++
			return `"result":{"nextCursor":"second \"page\"","tools":[{"name":"broken","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}]}`
		case e.Method == "tools/list":
			return `"result":{"tools":[{"name":"plain","inputSchema":{"type":"object"}},{"name":"query","inputSchema":{"type":"object","properties":{` +
				`"region":{"type":"string","x-mcp-header":"` + region + `"}}}}]}`
		case name == "rename":
			region = "Zone"
		case name == "lists":
			return `"result":{"content":[{"type":"text","text":"` + strconv.Itoa(lists) + ` lists"}]}`
		}
		return `"result":{"content":[{"type":"text","text":"called ` + name + `"}]}`
	})
}

// respond answers each request with the members that the function returns, unless there are none.
func respond(to func(*envelope) string) {
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		e, err := parse(input.Bytes())
		if err != nil || e.kind() != request {
			continue
		}
		if members := to(&e); members != "" {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,%s}`+"\n", e.ID, members)
		}
	}
}

func waitForEnd() {
	var buf [1 << 10]byte
	for {
		if _, err := os.Stdin.Read(buf[:]); err != nil {
			return
		}
	}
}

func ignoreSignals() {
	ignore := make(chan os.Signal, 8)
	notify(ignore, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
}

// initializeOnly responds only to initialize.
func initializeOnly() {
	dec := json.NewDecoder(os.Stdin)
	for {
		var e envelope
		if dec.Decode(&e) != nil {
			return
		}
		if e.Method == methodInit {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"hand","version":"1"}}}`+"\n", e.ID)
		}
	}
}

// initializeOnce responds to initialize, and reads nothing after it.
func initializeOnce() {
	var e envelope
	if json.NewDecoder(os.Stdin).Decode(&e) == nil {
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"once","version":"1"}}}`+"\n", e.ID)
	}
	select {}
}

// floodServer responds to initialize, then floods the client.
func floodServer() {
	dec := json.NewDecoder(os.Stdin)
	for {
		var e envelope
		if dec.Decode(&e) != nil {
			return
		}
		switch e.Method {
		case methodInit:
			fmt.Println("Welcome! This line is no message.")
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"chatty","version":"1"}}}`+"\n", e.ID)
		case "flood":
			flood(e.ID)
		}
	}
}

func flood(id json.RawMessage) {
	padding := strings.Repeat("p", 10<<10)
	for i := 0; ; i++ {
		_, err := fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/flood","params":{"of":%s,"n":%d,"padding":%q}}`+"\n", id, i, padding)
		if err != nil {
			return
		}
		// The test reads the progress.
		fmt.Fprintln(os.Stderr, "flooded", i)
	}
}

// testTimeout is the timeout of Eventually, for a busy machine and the race detector.
const testTimeout = 2 * time.Minute
