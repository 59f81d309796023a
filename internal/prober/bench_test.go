package prober

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// serverMode is the environment variable that makes the test binary a server. The server is a separate
// process, so that only the CPU time and the memory of the prober are measured.
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
	panic(http.Serve(listener, handlerFor(mode)))
}

func handlerFor(mode string) http.Handler {
	switch mode {
	case "honest":
		return honestServers()
	case "hostile":
		return hostileServers()
	default:
		return streamable(newServer(), &mcp.StreamableHTTPOptions{Stateless: mode == "stateless"})
	}
}

func serverProcess(b testing.TB, mode string) (address string) {
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

// BenchmarkInterval probes 2,000 servers for one interval of 30 s in real time, full probes included.
// "%core" is the share of one core that the prober uses, without the servers.
func BenchmarkInterval(b *testing.B) {
	const (
		targets  = 2000
		interval = 30 * time.Second
	)
	for _, mode := range []string{"sessions", "stateless"} {
		b.Run(mode, func(b *testing.B) {
			g := NewWithT(b)
			address := serverProcess(b, mode)
			p, err := New(Options{})
			g.Expect(err).NotTo(HaveOccurred())
			for i := range targets {
				p.Set(name(fmt.Sprint(i)), Target{URL: "http://" + address, Interval: interval})
			}
			answering := func() int {
				n := 0
				for i := range targets {
					if result, _ := p.Result(name(fmt.Sprint(i))); result.State == Answering {
						n++
					}
				}
				return n
			}
			ctx := log.IntoContext(b.Context(), logr.Discard())
			go func() { _ = p.Start(ctx) }()
			g.Eventually(answering).WithTimeout(2 * interval).WithPolling(time.Second).Should(Equal(targets))
			<-time.After(interval)
			began := cpuTime()
			for b.Loop() {
				<-time.After(interval)
			}
			spent := cpuTime() - began
			b.ReportMetric(100*spent.Seconds()/float64(b.N)/interval.Seconds(), "%core")
			g.Expect(answering()).To(Equal(targets))
		})
	}
}
