package tenant_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

const (
	// fleet is the number of honest, and of hostile, servers, in teams namespaces each.
	fleet, teams = 50, 10
	// rounds is how many handshakes with each of them begin. The first probe may begin two.
	rounds = 5
	// probeInterval is the shortest interval that an MCPServer can have.
	probeInterval = 5 * time.Second
	// attackSize is more than a probe may read.
	attackSize = 4608 << 10
)

// TestHostileServersTakeNoMoreMemoryFromTheManager compares two managers that run as processes: one has 50 honest
// servers, the other has 50 hostile ones and an honest one beside them.
func TestHostileServersTakeNoMoreMemoryFromTheManager(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w := startCluster(t)
	program, err := deploy.Build(t.Context(), deploy.Root, t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())

	// given servers of both kinds, each at a path of its own
	honest, hostile := newFleet(t, honestToolbox()), newFleet(t, hostileServers()...)
	beside := &probed{}
	hostile.add("beside-0", honestToolbox(), beside)
	managers := map[*servers]*deploy.Manager{honest: w.startProcess(t, program, "honest", honest), hostile: w.startProcess(t, program, "hostile", hostile)}
	stalls := startWitness(t, managers[hostile])
	for kind, from := range map[string]*servers{"honest": honest, "hostile": hostile} {
		for i := range teams {
			w.createNamespace(t.Context(), g, fmt.Sprintf("%s-%d", kind, i), nil)
		}
		for i := range fleet {
			w.createServer(t.Context(), g, fmt.Sprintf("%s-%d", kind, i%teams), fmt.Sprintf("%s-%d", kind, i))
			from.expected = append(from.expected, fmt.Sprintf("%s-%d", kind, i))
		}
	}
	w.createNamespace(t.Context(), g, "beside", nil)
	w.createServer(t.Context(), g, "beside", "beside-0")

	// when every one of them has been probed some times
	for _, s := range []*servers{honest, hostile} {
		g.Eventually(s.probedAtLeast).WithArguments(rounds).Should(BeEmpty(), "servers that have not been probed %d times", rounds)
	}

	// then the hostile ones have taken no more memory,
	base, peak := peakMemory(g, managers[honest]), peakMemory(g, managers[hostile])
	t.Logf("peak of the resident memory: %d MiB with %d honest servers, %d MiB with %d hostile ones: ratio %.2f", base>>20, fleet, peak>>20, fleet, float64(peak)/float64(base))
	g.Expect(float64(peak)).To(BeNumerically("<=", 1.2*float64(base)))
	// nor delayed the probes of the one beside them.
	gap := beside.longestGap(stalls.within)
	t.Logf("longest time between two probes of the honest server beside them, with an interval of %s: %s", probeInterval, gap.Round(10*time.Millisecond))
	g.Expect(gap).To(BeNumerically("<=", 2*probeInterval))
	// A probe that takes longer than its timeout makes the server unready until the next one.
	g.Eventually(func(g Gomega) {
		server := &v1beta1.MCPServer{}
		g.Expect(w.admin.Get(t.Context(), client.ObjectKey{Namespace: "beside", Name: "beside-0"}, server)).To(Succeed())
		g.Expect(harness.IsReady(server)).To(BeTrue())
	}).Should(Succeed())
}

// startProcess runs the manager of the Deployment for the namespaces of a kind. Its probes go to the servers.
func (w *fixture) startProcess(t *testing.T, program, kind string, to *servers) *deploy.Manager {
	t.Helper()
	g := NewWithT(t)
	namespaces := []string{"beside"}
	if kind == "honest" {
		namespaces = nil
	}
	for i := range teams {
		namespaces = append(namespaces, fmt.Sprintf("%s-%d", kind, i))
	}
	pod := deploy.Pod{Program: program, Namespace: system, Name: kind, Args: []string{
		"--leader-elect=false", "--namespaces=" + strings.Join(namespaces, ","), "--mcp-probe-endpoint=" + to.http.URL,
	}}
	m, err := pod.Start(t.Context(), w.cluster)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(m.Stop()).To(Succeed()) })
	g.Eventually(func() error {
		if !m.Running() {
			return StopTrying("the manager has ended").Wrap(m.Failure(nil))
		}
		return m.Ready(t.Context())
	}).Should(Succeed())
	return m
}

func (w *fixture) createServer(ctx context.Context, g Gomega, namespace, name string) {
	server := &v1beta1.MCPServer{}
	server.Namespace, server.Name = namespace, name
	server.Spec.Image, server.Spec.Path = "registry.test/tools:1", "/"+name
	server.Spec.Protocol.Interval.Duration, server.Spec.Protocol.Timeout.Duration = probeInterval, probeInterval
	g.Expect(w.admin.Create(ctx, server)).To(Succeed())
}

// peakMemory is the greatest resident memory that a manager has had.
func peakMemory(g Gomega, m *deploy.Manager) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.PID()))
	g.Expect(err).NotTo(HaveOccurred())
	_, text, found := strings.Cut(string(status), "VmHWM:")
	g.Expect(found).To(BeTrue())
	kibibytes, err := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
	g.Expect(err).NotTo(HaveOccurred())
	return kibibytes << 10
}

// servers are MCP servers in this process, by the first element of their path.
type servers struct {
	http     *httptest.Server
	kinds    []http.Handler
	expected []string
	mu       sync.Mutex
	others   map[string]http.Handler
	probed   map[string]*probed
}

// probed is when handshakes with a server began.
type probed struct {
	mu    sync.Mutex
	times []time.Time
}

// newFleet serves the kinds in turn.
func newFleet(t *testing.T, kinds ...http.Handler) *servers {
	t.Helper()
	s := &servers{kinds: kinds, others: map[string]http.Handler{}, probed: map[string]*probed{}}
	s.http = httptest.NewServer(s)
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// add adds a server with a handler of its own.
func (s *servers) add(name string, handler http.Handler, record *probed) {
	s.others[name], s.probed[name] = handler, record
}

func (s *servers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.Trim(r.URL.Path, "/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if _, method := idOf(body); method == "initialize" || method == "server/discover" {
		s.recordOf(name).add(time.Now())
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	if handler := s.others[name]; handler != nil {
		handler.ServeHTTP(w, r)
		return
	}
	_, number, _ := strings.Cut(name, "-")
	i, _ := strconv.Atoi(number)
	s.kinds[i%len(s.kinds)].ServeHTTP(w, r)
}

func (s *servers) recordOf(name string) *probed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probed[name] == nil {
		s.probed[name] = &probed{}
	}
	return s.probed[name]
}

// probedAtLeast are the servers that have been probed less often, with how often.
func (s *servers) probedAtLeast(times int) []string {
	var missing []string
	for _, name := range s.expected {
		if n := s.recordOf(name).count(); n < times {
			missing = append(missing, fmt.Sprintf("%s: %d", name, n))
		}
	}
	return missing
}

func (p *probed) add(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times = append(p.times, at)
}

func (p *probed) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.times)
}

// longestGap is the longest time between two probes, or since the last one, without the stalls in that time.
func (p *probed) longestGap(stalled func(from, to time.Time) time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var gap time.Duration
	for i, at := range p.times {
		next := time.Now()
		if i+1 < len(p.times) {
			next = p.times[i+1]
		}
		gap = max(gap, next.Sub(at)-stalled(at, next))
	}
	return gap
}

// witness knows when the manager, or this process, which has its servers, did not run because the machine is busy: then
// probes are late, whatever the servers do.
type witness struct {
	mu sync.Mutex
	// answered is when the manager answered its readiness probe, after the time at which the witness began.
	answered []time.Time
}

// witnessInterval is the pause between two requests of a witness.
const witnessInterval = 250 * time.Millisecond

// startWitness asks the manager whether it is ready, until the test ends.
func startWitness(t *testing.T, m *deploy.Manager) *witness {
	t.Helper()
	w := &witness{answered: []time.Time{time.Now()}}
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		tick := time.NewTicker(witnessInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if m.Ready(ctx) == nil {
				w.add(time.Now())
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		asking.Wait()
	})
	return w
}

func (w *witness) add(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = append(w.answered, at)
}

// within is for how long, in a time, no answer arrived that should have: the part of each pause between two answers that
// is longer than two intervals.
func (w *witness) within(from, to time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var stalled time.Duration
	for i, at := range w.answered {
		begin, end := at.Add(2*witnessInterval), to
		if i+1 < len(w.answered) {
			end = w.answered[i+1]
		}
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		stalled += max(0, end.Sub(begin))
	}
	return stalled
}

const withTools = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`

// toolbox answers the two methods, and refuses others.
func toolbox(initialize, list func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id, method := idOf(body)
		switch {
		case method == "initialize":
			reply(w, id, initialize())
		case method == "tools/list":
			reply(w, id, list())
		case strings.HasPrefix(method, "notifications/"):
			w.WriteHeader(http.StatusAccepted)
		default:
			http.Error(w, "", http.StatusBadRequest)
		}
	})
}

func constant(text string) func() string { return func() string { return text } }

// repeated is about size bytes of a text.
func repeated(text string, size int) string {
	return strings.TrimSuffix(strings.Repeat(text, size/len(text)), ",")
}

// honestToolbox has 200 tools of usual size.
func honestToolbox() http.Handler {
	const tool = `{"name":"tool","description":"Reads one file of the workspace and returns its content.","inputSchema":{"type":"object","required":["path"],"properties":{"path":{"type":"string","description":"The path of the file."}}}},`
	return toolbox(constant(withTools), constant(`{"tools":[`+repeated(tool, 200*len(tool))+`]}`))
}

// hostileServers try to make the manager use memory and time, each in another way. Those that list tools report
// another version each time, so that they are listed in every probe.
func hostileServers() []http.Handler {
	var version atomic.Int32
	changing := func() string {
		return strings.Replace(withTools, `"version":"1"`, fmt.Sprintf(`"version":"%d"`, version.Add(1)), 1)
	}
	list := func(text string) http.Handler { return toolbox(changing, constant(text)) }
	handshake := func(capabilities string) http.Handler {
		return toolbox(constant(strings.Replace(withTools, `{"tools":{}}`, capabilities, 1)), constant(`{"tools":[]}`))
	}
	var cursor atomic.Int32
	return []http.Handler{
		list(`{"tools":[` + repeated("{},", attackSize) + `]}`),
		list(`{"tools":["` + strings.Repeat("x", attackSize) + `"]}`),
		list(`{"tools":[` + strings.Repeat("[", attackSize)),
		list(`{"x":[` + repeated(`{"a":{}},`, attackSize) + `],"tools":[]}`),
		toolbox(changing, func() string {
			return fmt.Sprintf(`{"tools":[{}],"nextCursor":"%d-%s"}`, cursor.Add(1), strings.Repeat("x", 2<<10))
		}),
		handshake(`{"tools":{},"experimental":{"a":[` + repeated("{},", attackSize) + `]}}`),
		handshake(`{"tools":{},"experimental":{"a":"` + strings.Repeat("x", attackSize) + `"}}`),
		handshake(strings.Repeat(`{"a":`, attackSize/5)),
		http.HandlerFunc(hang),
		http.HandlerFunc(trickle),
	}
}

// hang never answers.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// trickle answers one byte at a time, and never ends.
func trickle(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := io.WriteString(w, " "); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}
