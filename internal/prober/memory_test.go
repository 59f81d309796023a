package prober

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// peakHeap is the greatest number of bytes in objects of the heap while each of 50 servers is probed some
// times, including its lists.
func peakHeap(t *testing.T, mode string, rounds int) uint64 {
	t.Helper()
	const servers = 50
	g := NewWithT(t)
	address := serverProcess(t, mode)
	p := newProber(t, Options{ListEvery: 1})
	var mu sync.Mutex
	probed := map[string]int{}
	p.probe = func(ctx context.Context, j job) answer {
		found := p.handshake(ctx, j)
		mu.Lock()
		defer mu.Unlock()
		probed[j.url.Host]++
		return found
	}
	for i := range servers {
		key := types.NamespacedName{Namespace: fmt.Sprintf("tenant-%d", i%10), Name: fmt.Sprintf("s%d", i)}
		p.Set(key, Target{URL: fmt.Sprintf("http://s%d.example/mcp", i), Addresses: []string{address}, Interval: 500 * time.Millisecond, Timeout: 500 * time.Millisecond, Contract: true})
	}
	runtime.GC()
	stop := start(t, p)
	heap := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	var peak uint64
	g.Eventually(func() int {
		runtimemetrics.Read(heap)
		peak = max(peak, heap[0].Value.Uint64())
		mu.Lock()
		defer mu.Unlock()
		done := 0
		for _, n := range probed {
			if n >= rounds {
				done++
			}
		}
		return done
	}).WithTimeout(2 * time.Minute).WithPolling(time.Millisecond).Should(Equal(servers))
	stop()
	return peak
}

func TestHostileServersTakeNoMoreMemoryThanHonestOnes(t *testing.T) {
	g := NewWithT(t)
	// The collector runs often, so that the peak is near what is in use.
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	_ = peakHeap(t, "honest", 1) // what is initialized once does not count
	honest := peakHeap(t, "honest", 4)
	hostile := peakHeap(t, "hostile", 4)
	t.Logf("peak of the heap: %d KiB with 50 honest servers, %d KiB with 50 hostile ones", honest>>10, hostile>>10)
	g.Expect(hostile).To(BeNumerically("<", honest*6/5))
}
