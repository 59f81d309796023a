package bridge

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

// outputGrace is how long the output of a child is still read after its exit, in
// case another process keeps a pipe open.
const outputGrace = time.Second

// maxAnswers is the maximum number of responses of the bridge to requests of a child that the child has not read.
const maxAnswers = 100

// CommandError is the error of a command that cannot be run.
type CommandError struct {
	Command string
	// Missing is true if the command does not exist.
	Missing bool
	Err     error
}

func (e *CommandError) Error() string {
	switch {
	case e.Missing:
		return fmt.Sprintf("the command %q was not found in the image: %v", e.Command, e.Err)
	case errors.Is(e.Err, os.ErrPermission):
		return fmt.Sprintf("the command %q is not executable: %v", e.Command, e.Err)
	case errors.Is(e.Err, syscall.ENOEXEC):
		return fmt.Sprintf("the command %q is not a program for this CPU architecture, or is a script without a #! line: %v", e.Command, e.Err)
	case errors.Is(e.Err, os.ErrNotExist):
		return fmt.Sprintf("the command %q exists, but its interpreter or dynamic loader does not: %v", e.Command, e.Err)
	default:
		return fmt.Sprintf("the command %q cannot be run: %v", e.Command, e.Err)
	}
}

// Unwrap returns the error of the operating system.
func (e *CommandError) Unwrap() error { return e.Err }

// launcher starts children of one command.
type launcher struct {
	command     []string
	maxBytes    int
	stderrLines int
	grace       time.Duration
	reaper      *reaper
	metrics     *metrics
}

// child is one running process of the command.
type child struct {
	pid     int
	reaper  *reaper
	grace   time.Duration
	started time.Time
	stdin   *os.File
	stdout  *os.File
	errPipe *os.File
	lines   *lineReader
	stderr  *stderrLog

	writing  sync.Mutex
	stopping sync.Once
	// answering is the number of responses of the bridge that wait to be sent.
	answering atomic.Int32

	// exited is closed when the process has exited, and no process has its user; then status is valid.
	exited chan struct{}
	status syscall.WaitStatus
}

// start runs the command as one of the users, and copies its standard error to the log.
func (l *launcher) start(log logr.Logger, as *users) (*child, error) {
	path, err := exec.LookPath(l.command[0])
	if err != nil {
		missing := errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist)
		return nil, l.failed(missing, err)
	}
	p, err := openPipes()
	if err != nil {
		return nil, fmt.Errorf("opening pipes for the command: %w", err)
	}
	defer p.closeChildEnds()
	owner, err := as.take(log)
	if err != nil {
		p.closeBridgeEnds()
		return nil, err
	}
	c := &child{
		reaper: l.reaper, grace: l.grace, started: time.Now(),
		stdin: p.stdin, stdout: p.stdout, errPipe: p.stderr,
		lines:  newLineReader(p.stdout, l.maxBytes),
		stderr: newStderrLog(log, l.stderrLines),
		exited: make(chan struct{}),
	}
	attr := &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: p.childFiles(),
		// A separate process group, so that descendants can be killed with it.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	}
	l.metrics.children.Inc()
	c.pid, err = l.run(path, attr, p, owner, func(status syscall.WaitStatus) {
		owner.release(log)
		l.metrics.children.Dec()
		c.ended(status)
	})
	if err != nil {
		owner.release(log)
		l.metrics.children.Dec()
		p.closeBridgeEnds()
		return nil, l.failed(false, err)
	}
	l.metrics.starts.Inc()
	go c.stderr.copy(p.stderr)
	return c, nil
}

// run starts the process; onExit is called after it was reaped. The thread is that of [user.own].
func (l *launcher) run(path string, attr *syscall.ProcAttr, p *pipes, owner *user, onExit func(syscall.WaitStatus)) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := owner.own(attr, p); err != nil {
		return 0, err
	}
	// In a goroutine, because the reaper has to reap what the user leaves.
	return l.reaper.start(path, l.command, attr, func(status syscall.WaitStatus) { go onExit(status) })
}

func (l *launcher) failed(missing bool, err error) error {
	l.metrics.startFailures.Inc()
	return &CommandError{Command: l.command[0], Missing: missing, Err: err}
}

// ended is called by the reaper.
func (c *child) ended(status syscall.WaitStatus) {
	c.status = status
	close(c.exited)
	until := time.Now().Add(outputGrace)
	_ = c.stdout.SetReadDeadline(until)
	_ = c.errPipe.SetReadDeadline(until)
}

// send writes one message. It blocks while the child does not read, which
// slows the client down, and fails once the child is being stopped. If it fails, the
// child has exited or closed its standard input. It is stopped then, because requests
// that it did not read would never get a response.
func (c *child) send(message []byte) error {
	message = append(message, '\n')
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.stdin.Write(message); err != nil {
		go c.stop()
		return fmt.Errorf("writing to the server process: %w", err)
	}
	return nil
}

// answer sends a response of the bridge to a request of the child. It does not block, because a child that does not read
// must not keep its output from being read. One that does not read many of them gets no more.
func (c *child) answer(message []byte) {
	if c.answering.Add(1) > maxAnswers {
		c.answering.Add(-1)
		return
	}
	go func() {
		defer c.answering.Add(-1)
		_ = c.send(message)
	}()
}

// stop closes standard input, then sends SIGTERM and SIGKILL, and returns when the child has exited.
func (c *child) stop() {
	c.stopping.Do(func() {
		_ = c.stdin.Close()
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			if c.waitFor(c.grace) {
				return
			}
			c.reaper.kill(c.pid, sig)
		}
	})
	<-c.exited
}

func (c *child) waitFor(d time.Duration) bool {
	select {
	case <-c.exited:
		return true
	case <-time.After(d):
		return false
	}
}

// exit describes how a child exited.
func (c *child) exit() string {
	switch {
	case c.status.Signaled():
		return "signal: " + c.status.Signal().String()
	default:
		return fmt.Sprintf("exit status %d", c.status.ExitStatus())
	}
}
