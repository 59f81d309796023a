package prober

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// answers responds to each method with the result of a function; others get an error. The response is
// JSON, or one event if events is true.
func answers(events bool, results map[string]func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.NewDecoder(r.Body).Decode(&call)
		body := `"error":{"code":-32601,"message":"method not found"}`
		if result := results[call.Method]; result != nil {
			body = `"result":` + result()
		}
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, call.ID, body)
		if events {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: "+text+"\n\n")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	})
}

const (
	withTools      = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`
	withToolsStart = `{"protocolVersion":"2025-11-25","serverInfo":{"name":"x","version":"1"},"capabilities":{"tools":{},"experimental":{"a":`
)

func constant(text string) func() string { return func() string { return text } }

// repeated is size bytes of JSON values.
func repeated(value string, size int) string {
	return strings.TrimSuffix(strings.Repeat(value+",", size/(len(value)+1)), ",")
}

const attackSize = 4608 << 10

// emptyTools is a list of 4.5 MiB of empty tools.
func emptyTools() string { return `{"tools":[` + repeated("{}", attackSize) + `]}` }

// The exploit of a review: the list became 775 MiB of objects, and took 24 s.
func TestListOfEmptyToolsTakesNoMemory(t *testing.T) {
	for name, events := range map[string]bool{"JSON": false, "events": true} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			list := emptyTools()
			server := serve(t, answers(events, map[string]func() string{"initialize": constant(withTools), "tools/list": constant(list)}))
			target := Target{URL: server.URL, Timeout: testTimeout, Interval: testTimeout, Contract: true}
			g.Expect(probeOnce(t, target).err).To(BeNil()) // what is initialized once does not count
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)

			found := probeOnce(t, target)

			runtime.ReadMemStats(&after)
			g.Expect(found.err).To(BeNil(), "the handshake succeeds")
			g.Expect(found.server.Tools).To(Equal(NotCounted))
			g.Expect(found.listErr).To(Equal(&Error{Kind: TooLarge, Detail: "a list has more than 10000 items"}))
			g.Expect(found.listErr.Error()).To(Equal("the response is too large: a list has more than 10000 items"))
			// The server of this process formats the response twice, which is the greatest part.
			g.Expect(after.TotalAlloc - before.TotalAlloc).To(BeNumerically("<", 5*attackSize))
		})
	}
}

// honestServers have 200 tools of usual size each.
func honestServers() http.Handler {
	const tool = `{"name":"tool","description":"Reads one file of the workspace and returns its content.","inputSchema":{"type":"object","required":["path"],"properties":{"path":{"type":"string","description":"The path of the file."}}}}`
	return answers(false, map[string]func() string{
		"initialize": constant(withTools), "tools/list": constant(`{"tools":[` + repeated(tool, 200*(len(tool)+1)) + `]}`),
	})
}

// hostileServers try to make a probe use memory, each host name in another way.
func hostileServers() http.Handler {
	list := func(events bool, text string) http.Handler {
		return answers(events, map[string]func() string{"initialize": constant(withTools), "tools/list": constant(text)})
	}
	handshake := func(text string) http.Handler {
		return answers(false, map[string]func() string{"initialize": constant(text)})
	}
	pages := 0
	var mu sync.Mutex
	endless := answers(false, map[string]func() string{"initialize": constant(withTools), "tools/list": func() string {
		mu.Lock()
		defer mu.Unlock()
		pages++
		return fmt.Sprintf(`{"tools":[{}],"nextCursor":"%d-%s"}`, pages, strings.Repeat("x", maxString/2))
	}})
	servers := []http.Handler{
		list(false, emptyTools()),
		list(true, emptyTools()),
		list(false, `{"tools":[`+strings.Repeat(`[`, attackSize)),
		list(false, `{"tools":["`+strings.Repeat("x", attackSize)+`"]}`),
		list(false, `{"Tools":[`+repeated("{}", attackSize)+`]}`),
		list(false, `{"x":[`+repeated(`{"a":{}}`, attackSize)+`],"tools":[]}`),
		list(true, `{"tools":[`+repeated(`""`, attackSize)+`]}`),
		handshake(withToolsStart + `[` + repeated("{}", attackSize) + `]}}}`),
		handshake(withToolsStart + `"` + strings.Repeat("x", attackSize) + `"}}}`),
		handshake(withToolsStart + strings.Repeat(`{"a":`, attackSize/5)),
		page("application/json", `{"jsonrpc":"2.0","id":[`+repeated("{}", attackSize)+`],"result":{}}`),
		page("text/event-stream", strings.Repeat("data: {\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{\"a\":{}}}\n\n", attackSize/50)),
		page("text/event-stream", strings.Repeat("id: 1\n\n", attackSize/7)),
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := range 2000 {
				w.Header().Add("WWW-Authenticate", fmt.Sprintf("Bearer realm=%d%s", i, strings.Repeat("x", 1000)))
			}
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, repeated("{}", attackSize))
		}),
		endless,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var number int
		_, _ = fmt.Sscanf(r.Host, "s%d.", &number)
		servers[number%len(servers)].ServeHTTP(w, r)
	})
}

// heapMeter measures the greatest number of bytes in objects of the heap, whenever a connection is read or written.
type heapMeter struct {
	mu   sync.Mutex
	peak uint64
}

func (m *heapMeter) measure() {
	heap := [1]runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	m.mu.Lock()
	defer m.mu.Unlock()
	runtimemetrics.Read(heap[:])
	m.peak = max(m.peak, heap[0].Value.Uint64())
}

func (m *heapMeter) greatest() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peak
}

// dial opens a connection that is measured.
func (m *heapMeter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &meteredConn{conn, m}, nil
}

type meteredConn struct {
	net.Conn
	meter *heapMeter
}

func (c *meteredConn) Read(to []byte) (int, error) {
	defer c.meter.measure()
	return c.Conn.Read(to)
}

func (c *meteredConn) Write(from []byte) (int, error) {
	c.meter.measure()
	return c.Conn.Write(from)
}

// peakHeap is the greatest number of bytes in objects of the heap while each of some servers is probed some times,
// including its lists. One goroutine for each of ten namespaces probes its servers one after the other, so that no list
// waits for another one.
func peakHeap(t *testing.T, mode string, timeout time.Duration, rounds int) uint64 {
	t.Helper()
	const servers, namespaces = 30, 10
	address := serverProcess(t, mode)
	meter := &heapMeter{}
	p := newProber(t, Options{Dial: meter.dial})
	var jobs [servers]job
	for i := range jobs {
		key := types.NamespacedName{Namespace: fmt.Sprintf("tenant-%d", i%namespaces), Name: fmt.Sprintf("s%d", i)}
		p.Set(key, Target{URL: fmt.Sprintf("http://s%d.example/mcp", i), Addresses: []string{address}, Contract: true})
		jobs[i] = p.job(p.entries[key].members[0], time.Now())
		jobs[i].timeout = timeout
	}
	var answers [servers]answer // stay in memory, as those that a prober keeps
	runtime.GC()
	var probes sync.WaitGroup
	for n := range namespaces {
		probes.Go(func() {
			for i := n; i < rounds*servers; i += namespaces {
				found := p.handshake(t.Context(), jobs[i%servers])
				if mode == "honest" && !found.counted() {
					t.Errorf("the probe of an honest server did not read its lists: %+v", found)
				}
				answers[i%servers] = found
			}
		})
	}
	probes.Wait()
	runtime.KeepAlive(&answers)
	return meter.greatest()
}

func TestHostileServersTakeNoMoreMemoryThanHonestOnes(t *testing.T) {
	g := NewWithT(t)
	// The collector runs often, so that the peak is near what is in use.
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	_ = peakHeap(t, "honest", testTimeout, 1) // what is initialized once does not count
	honest := peakHeap(t, "honest", testTimeout, 2)
	// A timeout would only lower what hostile servers take.
	hostile := peakHeap(t, "hostile", 5*time.Second, 2)
	t.Logf("peak of the heap: %d KiB with honest servers, %d KiB with hostile ones", honest>>10, hostile>>10)
	g.Expect(hostile).To(BeNumerically("<", honest*6/5))
}
