package prober

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestProbesServerAndNotifiesController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := newServer()
		registry := prometheus.NewRegistry()
		p := newProber(t, Options{Metrics: registry, Dial: serveInBubble(t, streamable(server, nil))})
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		g.Expect(p.Source().Start(t.Context(), queue)).To(Succeed())
		p.Set(name("web"), Target{URL: bubbled})
		stop := start(t, p)

		request, _ := queue.Get()
		g.Expect(request.NamespacedName).To(Equal(name("web")))
		queue.Done(request)
		result, _ := p.Result(name("web"))
		g.Expect(result.State).To(Equal(Answering))
		g.Expect(result.Server.Tools).To(Equal(2))
		stop()
		synctest.Wait()
		g.Expect(sessionsOf(server)).To(BeZero())

		families, err := registry.Gather()
		g.Expect(err).NotTo(HaveOccurred())
		names := []string{}
		for _, family := range families {
			names = append(names, family.GetName())
		}
		g.Expect(names).To(ConsistOf("fixpoint_mcp_probes_total", "fixpoint_mcp_probe_duration_seconds", "fixpoint_mcp_probe_queue_delay_seconds"))
		_, err = New(Options{Metrics: registry})
		g.Expect(err).NotTo(HaveOccurred(), "a process may run one manager after another")
	})
}

func TestForgetDuringProbeLeavesNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := newServer()
		handler := streamable(server, nil)
		inSession := make(chan struct{}, 1)
		dial := serveInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.Header.Get(sessionHeader) != "" {
				_, _ = io.Copy(io.Discard, r.Body)
				inSession <- struct{}{}
				<-r.Context().Done()
				return
			}
			handler.ServeHTTP(w, r)
		}))
		p := newProber(t, Options{Dial: dial})
		p.Set(name("web"), Target{URL: bubbled})
		start(t, p)
		g.Eventually(inSession).WithTimeout(testTimeout).Should(Receive())
		g.Expect(sessionsOf(server)).To(Equal(1))
		p.Forget(name("web"))
		synctest.Wait()
		g.Expect(sessionsOf(server)).To(BeZero())
	})
}

// The manager exits after that, and would leave the sessions of running probes to the servers.
func TestProberStopsAfterTheProbesThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		p := newProber(t, Options{})
		closed := make(chan struct{})
		p.probe = func(context.Context, job) answer {
			<-closed
			return answer{}
		}
		p.Set(name("web"), Target{URL: bubbled})
		ctx, cancel := context.WithCancel(log.IntoContext(t.Context(), logr.Discard()))
		stopped := make(chan error, 1)
		go func() { stopped <- p.Start(ctx) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		early := len(stopped)
		close(closed)
		g.Expect(<-stopped).To(Succeed())
		g.Expect(early).To(BeZero(), "before the probe has closed its session")
	})
}

func TestRewriteRedirectsProbes(t *testing.T) {
	g := NewWithT(t)
	local := hostOf(t, serve(t, streamable(newServer(), nil)).URL)
	p := newProber(t, Options{Rewrite: func(u *url.URL) { u.Scheme, u.Host = "http", local }})
	p.Set(name("web"), Target{URL: "https://web.default.svc/mcp", Addresses: []string{"10.0.0.1:80", "10.0.0.2:80"}})
	start(t, p)
	g.Eventually(func() Result { r, _ := p.Result(name("web")); return r }).WithTimeout(testTimeout).
		Should(And(HaveField("State", Answering), HaveField("Answered", 2)))
}

func TestCredentialsAreSentAndNeverPrinted(t *testing.T) {
	g := NewWithT(t)
	const secret = "s3cr3t-value"
	var mu sync.Mutex
	var logs strings.Builder
	logger := funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		logs.WriteString(prefix + args + "\n")
	}, funcr.Options{Verbosity: 10})
	sent := make(chan http.Header, 10)
	echo := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent <- r.Header.Clone()
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		rpc(`"error":{"code":-32603,"message":"bad token `+secret+`"}`).ServeHTTP(w, r)
	}))
	target := Target{URL: echo.URL, Timeout: testTimeout, Interval: testTimeout, Bearer: Credential(secret + "\n")}
	p := newProber(t, Options{})
	p.Set(name("web"), target)
	ctx, cancel := context.WithCancel(log.IntoContext(t.Context(), logger))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Start(ctx)
	}()
	g.Eventually(func() *Error { r, _ := p.Result(name("web")); return r.Err }).WithTimeout(testTimeout).ShouldNot(BeNil())
	cancel()
	<-ended

	header := <-sent
	g.Expect(header.Get("Authorization")).To(Equal("Bearer " + secret))
	result, _ := p.Result(name("web"))
	shown, err := json.Marshal([]any{target, result})
	g.Expect(err).NotTo(HaveOccurred())
	hex := fmt.Sprintf("%x", secret)
	outputs := []string{string(shown), logs.String(), result.Err.Error(), fmt.Sprintf("%+v", result)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
		outputs = append(outputs, fmt.Sprintf(verb, target))
	}
	for _, output := range outputs {
		g.Expect(output).NotTo(Or(ContainSubstring(secret), ContainSubstring(hex)))
	}
}
