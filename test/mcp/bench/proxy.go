package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// httpServerMarker is the first argument of this program when it plays an HTTP server, and the second one is its port.
const httpServerMarker = "play-http-mcp-server"

// bars of the issue that asked for the proxy.
const (
	barProxyP50     = 300 * time.Microsecond
	barProxyP99     = 2 * time.Millisecond
	barPerSecond    = 5000
	barProxyMemory  = 20_000_000 >> 10 // KiB
	forwardedFactor = 2                // times the bars of the proxy
)

// Paths of the played server: one with sessions or without by the version of the client, and a minimal one for load.
const (
	sdkPath     = "/mcp"
	minimalPath = "/minimal"
)

const (
	issuer  = "https://issuer.example"
	keyName = "bench"
)

// playHTTPServer serves an unmodified server of the SDK, and a minimal one whose own cost is small.
func playHTTPServer(port string) error {
	routes := http.NewServeMux()
	server := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	routes.Handle(sdkPath, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	routes.HandleFunc("POST "+minimalPath, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Mcp-Session-Id", "minimal")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello"}]}}`)
	})
	routes.HandleFunc("GET "+minimalPath, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	return (&http.Server{Addr: "127.0.0.1:" + port, Handler: routes, ReadHeaderTimeout: 10 * time.Second}).ListenAndServe()
}

// behind is an HTTP server with the proxy before it.
type behind struct {
	server, proxy *exec.Cmd
	// direct and proxied are the addresses without a path.
	direct, proxied string
	token           string
	client          *http.Client
}

// startBehind starts a server and the proxy, which checks tokens, limits and tools.
func startBehind(ctx context.Context, program, folder, path string) (*behind, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	keys, token, err := newToken(folder, path)
	if err != nil {
		return nil, err
	}
	var at [3]string
	for i := range at {
		if at[i], err = freeAddress(); err != nil {
			return nil, err
		}
	}
	_, port, _ := strings.Cut(at[0], ":")
	b := &behind{direct: "http://" + at[0], proxied: "http://" + at[1], token: token, client: &http.Client{Transport: withToken{token, &http.Transport{MaxIdleConnsPerHost: 64}}}}
	b.server = exec.CommandContext(ctx, self, httpServerMarker, port)
	b.proxy = exec.CommandContext(ctx, program, "proxy", "-listen", at[1], "-admin-listen", at[2], "-server-port", port, "-drain-timeout", "10ms",
		"-issuer", issuer+" "+keys, "-resource", "http://mcp.example"+path, "-scopes", "mcp", "-tool-scopes", "delete_* admin",
		"-requests-per-minute", "100000000", "-max-concurrent-calls", "1000", "-deny-tool", "delete_*")
	b.proxy.Env = append(os.Environ(), "GOMAXPROCS=1")
	b.server.Env = b.proxy.Env
	for _, cmd := range []*exec.Cmd{b.server, b.proxy} {
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, b.stop())
		}
	}
	for !ready(ctx, "http://"+at[2]+"/readyz") {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), b.stop())
		}
	}
	return b, nil
}

func (b *behind) stop() error {
	var errs []error
	for _, cmd := range []*exec.Cmd{b.proxy, b.server} {
		if cmd != nil && cmd.Process != nil {
			errs = append(errs, cmd.Process.Kill())
			_ = cmd.Wait() // It was killed.
		}
	}
	return errors.Join(errs...)
}

// newToken writes a JSON Web Key Set and returns a token that one of its keys signed.
func newToken(folder, path string) (keys, token string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: keyName, Algorithm: string(jose.ES256), Use: "sig"}}})
	if err != nil {
		return "", "", err
	}
	keys = filepath.Join(folder, "keys.json")
	if err := os.WriteFile(keys, set, 0o600); err != nil {
		return "", "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: keyName}}, (&jose.SignerOptions{}).WithType("at+jwt"))
	if err != nil {
		return "", "", err
	}
	now := time.Now()
	token, err = jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: issuer, Subject: "bench", Audience: jwt.Audience{"http://mcp.example" + path},
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(time.Hour)),
	}).Claims(map[string]any{"scope": "mcp"}).Serialize()
	return keys, token, err
}

// withToken sends an access token with each request.
type withToken struct {
	token string
	next  http.RoundTripper
}

func (t withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.token)
	return t.next.RoundTrip(r)
}

// measureProxy measures what the proxy adds to a call, what it takes on one core, and its memory.
func measureProxy(ctx context.Context, program, folder string, calls, sessions int) ([]row, error) {
	b, err := startBehind(ctx, program, folder, sdkPath)
	if err != nil {
		return nil, err
	}
	rows, err := proxyLatency(ctx, b, calls)
	if err := errors.Join(err, b.stop()); err != nil {
		return nil, err
	}
	if b, err = startBehind(ctx, program, folder, minimalPath); err != nil {
		return nil, err
	}
	load, err := proxyThroughput(ctx, b, 20*calls)
	if err := errors.Join(err, b.stop()); err != nil {
		return nil, err
	}
	rows = append(rows, load...)
	for _, kind := range []idleKind{
		{"each with an idle connection", callOnce},
		{"each with an open stream", openSession},
	} {
		if b, err = startBehind(ctx, program, folder, minimalPath); err != nil {
			return nil, err
		}
		memory, err := proxyMemory(ctx, b, sessions, kind)
		if err := errors.Join(err, b.stop()); err != nil {
			return nil, err
		}
		rows = append(rows, memory)
	}
	return rows, nil
}

func proxyLatency(ctx context.Context, b *behind, calls int) ([]row, error) {
	// Client, proxy and server run Go code on one thread each. With more, they take the processors of a small machine from
	// each other while they look for work, on both ways.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var rows []row
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		var ways [2]*mcp.ClientSession
		for i, address := range []string{b.direct, b.proxied} {
			session, err := connect(ctx, &mcp.StreamableClientTransport{Endpoint: address + sdkPath, DisableStandaloneSSE: true, HTTPClient: b.client}, version)
			if err != nil {
				return nil, err
			}
			defer session.Close()
			ways[i] = session
		}
		more, err := compare(ctx, comparison{"proxy, " + version, "direct", "through the proxy", barProxyP50, barProxyP99}, ways[0], ways[1], calls)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

const smallCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}`

// proxyThroughput sends calls from several clients, and divides their number by the processor time of the proxy: the
// clients and the server need processors, too.
func proxyThroughput(ctx context.Context, b *behind, calls int) ([]row, error) {
	const clients = 16
	failed := make(chan error, clients)
	before, err := processorTime(b.proxy.Process.Pid)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range calls / clients {
				if err := callOnce(ctx, b.client, b.proxied+minimalPath); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(started)
	after, err := processorTime(b.proxy.Process.Pid)
	if err != nil {
		return nil, err
	}
	select {
	case err := <-failed:
		return nil, err
	default:
	}
	perSecond := float64(calls) / (after - before).Seconds()
	return []row{
		{"proxy: small calls per second of processor time", fmt.Sprintf("≥ %d", barPerSecond), fmt.Sprintf("%.0f", perSecond), perSecond >= barPerSecond},
		{"proxy: small calls per second, with clients and server on the same machine", "", fmt.Sprintf("%.0f", float64(calls)/took.Seconds()), true},
	}, nil
}

func callOnce(ctx context.Context, c *http.Client, url string) error {
	resp, err := send(ctx, c, http.MethodPost, url, smallCall, "")
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("a call failed: %s", resp.Status))
	}
	return errors.Join(err, resp.Body.Close())
}

// idleKind is a kind of idle sessions.
type idleKind struct {
	what string
	open func(context.Context, *http.Client, string) error
}

// proxyMemory measures what idle sessions take. Each client has connections of its own.
func proxyMemory(ctx context.Context, b *behind, sessions int, kind idleKind) (row, error) {
	empty, _, err := resident(b.proxy.Process.Pid)
	if err != nil {
		return row{}, err
	}
	for range sessions {
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		if err := kind.open(ctx, &http.Client{Transport: withToken{b.token, transport}}, b.proxied+minimalPath); err != nil {
			return row{}, err
		}
	}
	full, peak, err := resident(b.proxy.Process.Pid)
	if err != nil {
		return row{}, err
	}
	return row{
		fmt.Sprintf("proxy: memory for %d sessions, %s", sessions, kind.what), "≤ 20 MB (19.1 MiB)",
		fmt.Sprintf("%.1f MiB (%.1f MiB in all, peak %.1f MiB)", float64(full-empty)/1024, float64(full)/1024, float64(peak)/1024), full-empty <= barProxyMemory,
	}, nil
}

// processorTime is what a process has used.
func processorTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may have spaces. After it, the times in user and kernel mode are the 12th and 13th field.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const user, kernel, tick = 11, 12, 10 * time.Millisecond
	var ticks int64
	for _, i := range []int{user, kernel} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// measureForwarding times calls at the replica of a session, and at another one that forwards them.
func measureForwarding(ctx context.Context, program, folder string, calls int) ([]row, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	keys := filepath.Join(folder, "session-keys")
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	if err := errors.Join(os.Mkdir(keys, 0o700), os.WriteFile(filepath.Join(keys, time.Now().UTC().Format("20060102T150405Z")), secret, 0o600)); err != nil {
		return nil, err
	}
	var urls [2]string
	for i := range urls {
		peer, err := freeAddress()
		if err != nil {
			return nil, err
		}
		cmd, url, err := startBridge(ctx, program, nil, "-session-keys", keys, "-server-id", "bench/server", "-peer-listen", peer, "-peer-ip", "127.0.0.1", "--", self, serverMarker)
		if err != nil {
			return nil, err
		}
		defer func() { _ = stopBridge(cmd) }()
		urls[i] = url
	}
	swapped := &otherReplica{next: &http.Transport{}}
	holder, err := connect(ctx, &mcp.StreamableClientTransport{Endpoint: urls[0], DisableStandaloneSSE: true, HTTPClient: &http.Client{}}, "2025-11-25")
	if err != nil {
		return nil, err
	}
	defer holder.Close()
	other, err := connect(ctx, &mcp.StreamableClientTransport{Endpoint: urls[0], DisableStandaloneSSE: true, HTTPClient: &http.Client{Transport: swapped}}, "2025-11-25")
	if err != nil {
		return nil, err
	}
	defer other.Close()
	swapped.host = strings.TrimSuffix(strings.TrimPrefix(urls[1], "http://"), "/mcp")
	return compare(ctx, comparison{"session of another replica", "at its replica", "forwarded", forwardedFactor * barProxyP50, forwardedFactor * barProxyP99}, holder, other, calls)
}

// otherReplica sends requests to another replica once it has a host.
type otherReplica struct {
	host string
	next http.RoundTripper
}

func (o *otherReplica) RoundTrip(r *http.Request) (*http.Response, error) {
	if o.host != "" {
		r = r.Clone(r.Context())
		r.URL.Host = o.host
	}
	return o.next.RoundTrip(r)
}
