package bridge

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

// lastWords is how long the output of a child is still read after its end, in
// case a process that left its group holds the pipe open.
const lastWords = time.Second

// CommandError says that the command cannot be run at all.
type CommandError struct {
	Command string
	// Missing tells a command that is not there from one that does not run.
	Missing bool
	Err     error
}

func (e *CommandError) Error() string {
	switch {
	case e.Missing:
		return fmt.Sprintf("the command %q was not found in the image: %v", e.Command, e.Err)
	case errors.Is(e.Err, os.ErrPermission):
		return fmt.Sprintf("the command %q may not be executed: %v", e.Command, e.Err)
	case errors.Is(e.Err, syscall.ENOEXEC):
		return fmt.Sprintf("the command %q is no program for this machine, or a script without a #! line: %v", e.Command, e.Err)
	case errors.Is(e.Err, os.ErrNotExist):
		return fmt.Sprintf("the command %q is there, but not what it needs to run, its interpreter or dynamic loader: %v", e.Command, e.Err)
	default:
		return fmt.Sprintf("the command %q cannot be run: %v", e.Command, e.Err)
	}
}

// Unwrap returns what the operating system said.
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
	lines   *lineReader
	stderr  *stderrLog

	writing  sync.Mutex
	stopping sync.Once

	// exited is closed when the process has ended; status is valid from then on.
	exited chan struct{}
	status syscall.WaitStatus
}

// start runs the command; its standard error goes to the log.
func (l *launcher) start(log logr.Logger) (*child, error) {
	path, err := exec.LookPath(l.command[0])
	if err != nil {
		missing := errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist)
		return nil, l.failed(missing, err)
	}
	p, err := openPipes()
	if err != nil {
		return nil, fmt.Errorf("opening pipes for the command: %w", err)
	}
	defer p.closeTheirs()
	c := &child{
		reaper: l.reaper, grace: l.grace, started: time.Now(),
		stdin: p.stdin, stdout: p.stdout,
		lines:  newLineReader(p.stdout, l.maxBytes),
		stderr: newStderrLog(log, l.stderrLines),
		exited: make(chan struct{}),
	}
	attr := &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: p.theirs(),
		// A group of its own, so that what it starts can be ended with it.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	}
	l.metrics.children.Inc()
	c.pid, err = l.reaper.start(path, l.command, attr, func(status syscall.WaitStatus) {
		l.metrics.children.Dec()
		c.ended(status)
	})
	if err != nil {
		l.metrics.children.Dec()
		p.closeOurs()
		return nil, l.failed(false, err)
	}
	l.metrics.starts.Inc()
	go c.stderr.copy(p.stderr)
	return c, nil
}

func (l *launcher) failed(missing bool, err error) error {
	l.metrics.startFailures.Inc()
	return &CommandError{Command: l.command[0], Missing: missing, Err: err}
}

// ended is called by the reaper.
func (c *child) ended(status syscall.WaitStatus) {
	c.status = status
	close(c.exited)
	_ = c.stdout.SetReadDeadline(time.Now().Add(lastWords))
}

// send writes one message. It blocks while the child does not read, which is
// what slows its client down, and fails once the child is being stopped.
func (c *child) send(message []byte) error {
	message = append(message, '\n')
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.stdin.Write(message); err != nil {
		return fmt.Errorf("writing to the server process: %w", err)
	}
	return nil
}

// stop ends the child, politely at first, and returns when it has ended.
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.exited:
		return true
	case <-timer.C:
		return false
	}
}

// exit describes the end of a child that has ended.
func (c *child) exit() string {
	switch {
	case c.status.Signaled():
		return "signal: " + c.status.Signal().String()
	default:
		return fmt.Sprintf("exit status %d", c.status.ExitStatus())
	}
}
