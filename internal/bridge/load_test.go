package bridge

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

var (
	loadTime     = flag.Duration("load", 2*time.Second, "`duration` of TestLoad")
	loadSessions = flag.Int("load-sessions", 100, "maximum number of sessions of TestLoad, which hostile clients fill")
)

// loadServer is tinyServer, but responds to the method flood with notifications that never end.
func loadServer() []string {
	flood := `/"flood"/{s/.*/{"jsonrpc":"2.0","method":"notifications\/message","params":{"data":"` + strings.Repeat("x", 2000) + `"}}/;:a;p;ba};`
	tiny := tinyServer()
	return append(tiny[:len(tiny)-1], flood+tiny[len(tiny)-1])
}

// load counts what the clients of TestLoad do.
type load struct {
	*served
	stop                          context.Context
	sessions, requests, cut       atomic.Int64
	slowReaders, slowWriters      atomic.Int64
	slowest, sessionsMost         atomic.Int64
	heapBefore, heapMost, fdsMost atomic.Int64
}

// Honest clients open and close sessions while others at one address leave sessions open, send and read slowly, and cut
// connections. Honest clients see no error, and nothing is left at the end.
func TestLoad(t *testing.T) {
	idle := time.Duration(*loadSessions) * 30 * time.Millisecond // enough for hostile clients to fill all places
	w := newTestBridge(t, loadServer(), func(o *Options) {
		o.MaxSessions, o.IdleTimeout = *loadSessions, idle
		o.IOTimeout, o.StopGrace = 2*time.Second, time.Second
		o.DrainIdleTimeout = 10 * time.Millisecond
		o.Log = logr.Discard() // the log of the fixture would grow
	}).serve()
	w.Eventually(func() int { return w.status(readyPath) }).Should(Equal(http.StatusOK))
	once, cancel := context.WithCancel(t.Context())
	cancel()
	(&load{served: w, stop: once}).repeatHonest(w.clientAt(honestAddress))
	noChildren := func() {
		w.Eventually(func() float64 { return w.metric("children") }).WithTimeout(idle + testTimeout).Should(BeZero())
	}
	noChildren()
	closeIdle := func() { http.DefaultClient.CloseIdleConnections() }
	closeIdle()
	fds := descriptors()
	ctx, end := context.WithTimeout(t.Context(), *loadTime)
	defer end()
	l := &load{served: w, stop: ctx}
	l.heapBefore.Store(heap())

	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() { l.repeatHonest(w.clientAt(fmt.Sprintf("127.0.0.%d", 2+i))) })
	}
	for _, hostile := range []func(*http.Client) error{l.leaveSession, l.cutConnection, l.readSlowly, l.writeSlowly} {
		clients.Go(func() { l.repeat(hostile, w.clientAt(hostileAddress)) })
	}
	clients.Go(func() { l.repeat(l.leaveSession, w.clientAt("127.0.0.99")) }) // one address may not fill all places
	clients.Go(l.watch)
	clients.Wait()

	noChildren()
	w.Expect(w.metric("sessions")).To(BeZero())
	w.Eventually(func() int {
		closeIdle() // each has a descriptor on either side
		return descriptors()
	}).Should(BeNumerically("<=", fds+1), "descriptors are left")
	w.Eventually(heap).Should(BeNumerically("<=", l.heapBefore.Load()+4<<20), "memory does not return to its base")
	w.Expect(childProcesses()).To(BeEmpty())
	t.Logf("%s: %d sessions of honest clients with %d requests and no error, slowest %s; %d sessions in total, %d at a time, %d evicted; "+
		"%d slow readers, %d slow writers, %d cut connections; heap %d KiB before, %d at most, %d after; descriptors %d before, %d at most, %d after",
		*loadTime, l.sessions.Load(), l.requests.Load(), time.Duration(l.slowest.Load()).Round(time.Millisecond),
		int(w.metric("sessions_started_total")), l.sessionsMost.Load(), int(w.metric("sessions_ended_total", reasonEvicted)),
		l.slowReaders.Load(), l.slowWriters.Load(), l.cut.Load(),
		l.heapBefore.Load()>>10, l.heapMost.Load()>>10, heap()>>10, fds, l.fdsMost.Load(), descriptors())
	w.Expect(l.sessions.Load()).To(BeNumerically(">", 0))
	w.stop()
	w.Eventually(w.done).Should(Receive(BeNil()))
}

// repeat runs a client until the end of the load.
func (l *load) repeat(client func(*http.Client) error, c *http.Client) {
	for l.stop.Err() == nil {
		if err := client(c); err != nil && l.stop.Err() == nil {
			l.t.Errorf("client failed: %v", err)
			return
		}
	}
	c.CloseIdleConnections()
}

// repeatHonest runs an honest client until the end of the load, and at least until it has succeeded once. It may begin
// again when it was too slow.
func (l *load) repeatHonest(c *http.Client) {
	for served := false; !served || l.stop.Err() == nil; {
		err := l.honest(c)
		if err != nil && !errors.Is(err, errTooSlow) {
			l.t.Errorf("honest client failed: %v", err)
			return
		}
		served = served || err == nil
	}
	c.CloseIdleConnections()
}

// honest opens a session, uses it, and ends it.
func (l *load) honest(client *http.Client) error {
	c := &honestClient{Client: client, begun: time.Now()}
	reply, err := l.timed(c, initMessage, http.StatusOK)
	if err != nil {
		return err
	}
	id := reply.Header.Get(headerSession)
	if _, err := l.timed(c, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, http.StatusAccepted, headerSession, id); err != nil {
		return err
	}
	for i, size := range []int{10, 1000, 100_000, 10} {
		ping := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping","params":{"text":"%s"}}`, i, strings.Repeat("x", size))
		if _, err := l.timed(c, ping, http.StatusOK, headerSession, id); err != nil {
			return err
		}
	}
	l.sessions.Add(1)
	return l.end(client, id)
}

func (l *load) end(c *http.Client, id string) error {
	req, err := http.NewRequest(http.MethodDelete, l.url, nil)
	if err != nil {
		return err
	}
	req.Header.Set(headerSession, id)
	begun := time.Now()
	resp, err := c.Do(req)
	switch {
	case err == nil:
		return resp.Body.Close()
	case time.Since(begun) >= l.bridge.opts.IOTimeout:
		return errTooSlow
	default:
		return err
	}
}

// honestClient is an honest client in one session.
type honestClient struct {
	*http.Client
	// begun is when the last request began.
	begun time.Time
}

// errTooSlow is the error of an honest client that took longer than the limits allow. On a busy machine it may.
var errTooSlow = errors.New("the client was too slow")

// timed sends a message and expects a status.
func (l *load) timed(c *honestClient, body string, status int, headers ...string) (httpReply, error) {
	last, begun := c.begun, time.Now()
	c.begun = begun
	reply, err := l.tryPost(context.Background(), c.Client, body, headers...)
	limits := &l.bridge.opts
	switch {
	case err == nil && reply.Status == status && (body != initMessage || reply.Header.Get(headerSession) != ""):
	// The bridge measures from a later time than the client, so the limit has passed for the client, too. The connection may
	// end before the status or the headers.
	case time.Since(begun) >= limits.IOTimeout,
		err == nil && reply.Status == http.StatusNotFound && time.Since(last) >= limits.IdleTimeout:
		err = errTooSlow
	case err == nil:
		err = fmt.Errorf("status %d: %s", reply.Status, reply.Body)
	}
	l.requests.Add(1)
	l.slowest.Store(max(l.slowest.Load(), int64(time.Since(begun))))
	return reply, err
}

// leaveSession opens a session and does not end it.
func (l *load) leaveSession(c *http.Client) error {
	_, _ = l.tryPost(l.stop, c, initMessage) // It may be refused.
	return nil
}

// cutConnection disconnects during initialize.
func (l *load) cutConnection(*http.Client) error {
	conn, err := net.Dial("tcp", l.address())
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n%s",
		len(initMessage), initMessage[:len(initMessage)-int(l.cut.Add(1)%2)])
	return conn.Close()
}

// readSlowly requests messages without end, reads a few, and disconnects.
func (l *load) readSlowly(c *http.Client) error {
	ctx, cancel := context.WithTimeout(l.stop, time.Second)
	defer cancel()
	reply, _ := l.tryPost(ctx, c, initMessage)
	id := reply.Header.Get(headerSession)
	if id == "" {
		return nil // It was refused.
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, strings.NewReader(`{"jsonrpc":"2.0","id":2,"method":"flood"}`))
	if err != nil {
		return err
	}
	req.Header = http.Header{"Content-Type": {jsonType}, "Accept": {"*/*"}, headerSession: {id}}
	if resp, err := c.Do(req); err == nil {
		_, _ = bufio.NewReader(resp.Body).ReadString('\n')
		<-ctx.Done()
		_ = resp.Body.Close()
		l.slowReaders.Add(1)
	}
	return l.end(c, id)
}

// writeSlowly opens connections whose bodies do not end, and waits until the bridge closes them.
func (l *load) writeSlowly(*http.Client) error {
	var open []net.Conn
	for i := range 64 {
		conn, err := net.Dial("tcp", l.address())
		if err != nil {
			return err
		}
		open = append(open, conn)
		_, _ = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\n"+
			"Content-Length: 1000000\r\n\r\n%s", strings.Repeat(" ", i*smallMessage/32))
	}
	for _, conn := range open {
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
		l.slowWriters.Add(1)
	}
	return nil
}

func (l *load) address() string {
	return strings.TrimSuffix(strings.TrimPrefix(l.url, "http://"), "/mcp")
}

// watch records what the load needs at most.
func (l *load) watch() {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for l.stop.Err() == nil {
		<-ticker.C
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		l.heapMost.Store(max(l.heapMost.Load(), int64(stats.HeapAlloc)))
		l.fdsMost.Store(max(l.fdsMost.Load(), int64(descriptors())))
		l.sessionsMost.Store(max(l.sessionsMost.Load(), int64(l.metric("sessions"))))
	}
}

// heap is the memory in use after a garbage collection.
func heap() int64 {
	runtime.GC()
	runtime.GC() // the second one frees what sync.Pool kept
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// descriptors is the number of open file descriptors of this process.
func descriptors() int {
	open, _ := os.ReadDir("/proc/self/fd")
	return len(open)
}

// childProcesses are the processes whose parent is this one.
func childProcesses() []string {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var children []string
	for _, path := range stats {
		raw, _ := os.ReadFile(path) // it may have exited
		_, rest, _ := strings.Cut(string(raw), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			children = append(children, string(raw))
		}
	}
	return children
}
