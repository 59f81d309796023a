package prober

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

// serverMode is the variable by which the test binary becomes the server that a benchmark probes.
// It is a process of its own so that only the prober's time is measured.
const serverMode = "FIXPOINT_PROBER_BENCH_SERVER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(serverMode); mode != "" {
		serveForever(mode)
	}
	os.Exit(m.Run())
}

func serveForever(mode string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	handler := streamable(everything(), &mcp.StreamableHTTPOptions{Stateless: mode == "stateless"})
	panic(http.Serve(listener, handler)) //nolint:gosec // local, and ends with the benchmark
}

func serverProcess(b *testing.B, mode string) (address string) {
	b.Helper()
	g := NewWithT(b)
	command := exec.Command(os.Args[0], "-test.run=^$")
	command.Env = append(os.Environ(), serverMode+"="+mode)
	output, err := command.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(command.Start()).To(Succeed())
	b.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	_, err = fmt.Fscanln(output, &address)
	g.Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(address)
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkInterval is one interval of 30 s in the life of 2,000 servers, with the full probes that
// fall into it. "%core" is the share of one core that the prober takes, when the interval takes its
// 30 s; the clock of the benchmark goes faster.
func BenchmarkInterval(b *testing.B) {
	const (
		targets  = 2000
		interval = 30 * time.Second
		step     = 100 * time.Millisecond
	)
	for _, mode := range []string{"sessions", "stateless"} {
		b.Run(mode, func(b *testing.B) {
			g := NewWithT(b)
			address := serverProcess(b, mode)
			clock := clocktesting.NewFakeClock(time.Now())
			p, err := New(Options{Clock: clock})
			g.Expect(err).NotTo(HaveOccurred())
			for i := range targets {
				p.Set(name(fmt.Sprint(i)), Target{URL: "http://" + address, Interval: interval, Timeout: interval})
			}
			settled := func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				// The scheduler may have set its timer by a time that has passed since.
				p.rouse()
				next, ok := p.queue.next()
				return ok && next.After(clock.Now()) && len(p.queue.prompt) == 0 && p.queue.free == DefaultConcurrency
			}
			pass := func(d time.Duration) {
				for ; d > 0; d -= step {
					clock.Step(step)
					for !settled() {
						time.Sleep(time.Millisecond) //nolint:forbidigo // the benchmark's own turn, which must not burn what it measures
					}
				}
			}
			ctx := b.Context()
			go func() { _ = p.Start(ctx) }()
			pass(2 * interval)
			runtime.GC()
			began := cpuTime()
			for b.Loop() {
				pass(interval)
			}
			spent := cpuTime() - began
			b.ReportMetric(100*spent.Seconds()/float64(b.N)/interval.Seconds(), "%core")
			for i := range targets {
				result, _ := p.Result(name(fmt.Sprint(i)))
				g.Expect(result.State).To(Equal(Answering), "%v", result.Err)
			}
		})
	}
}
