package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// linesShown is the number of log lines in the error of a failed process.
const linesShown = 25

// Process is a child process that is killed when this process exits, even by SIGKILL or a panic.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// ended is closed when the process has exited; err is its result.
	ended chan struct{}
	err   error
}

// StartProcess starts a program with exactly the given environment. Its output is appended to the log file.
func StartProcess(name, log string, env []string, path string, args ...string) (*Process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer output.Close()

	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, output, output
	cmd.Dir = filepath.Dir(log)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		// In a process group of its own, it does not receive Ctrl-C. This process stops the components in order.
		Setpgid: true,
	}
	p := &Process{name: name, log: log, cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	go p.live(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// live starts the process and waits for it on one locked thread: the kernel sends the death signal when the creating thread
// exits, and Go exits unlocked threads at any time.
func (p *Process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.ended)
}

// PID is the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the process has exited.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running reports whether the process runs.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Stop sends SIGTERM, and SIGKILL after the grace period. It returns no error for a process that has exited.
func (p *Process) Stop(grace time.Duration) error {
	if grace > 0 {
		_ = p.signal(syscall.SIGTERM)
		select {
		case <-p.ended:
			return nil
		case <-time.After(grace):
		}
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	<-p.ended
	return nil
}

// signal sends a signal to the whole process group.
func (p *Process) signal(sig syscall.Signal) error {
	err := syscall.Kill(-p.PID(), sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Failure adds the tail of the log to an error of the process.
func (p *Process) Failure(cause error) error {
	if !p.Running() {
		cause = &endedError{how: p.err}
	}
	return fmt.Errorf("%s: %w; the tail of its log:\n%s", p.name, cause, tail(p.log, linesShown))
}

// endedError means that a process exited unexpectedly.
type endedError struct{ how error }

func (e *endedError) Error() string {
	if e.how == nil {
		return "it exited: exit status 0"
	}
	return "it exited: " + e.how.Error()
}

// tail returns the last lines of a file, indented.
func tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return "  (" + err.Error() + ")"
	}
	content = bytes.TrimRight(content, "\n")
	if len(content) == 0 {
		return "  (it is empty)"
	}
	all := bytes.Split(content, []byte("\n"))
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "  " + string(bytes.Join(all, []byte("\n  ")))
}

// awaitReady polls until ready returns true, the process exits, or ctx is done.
func (p *Process) awaitReady(ctx context.Context, ready func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.Failure(nil)
		case <-ctx.Done():
			return p.Failure(fmt.Errorf("timed out waiting for readiness: %w", err))
		case <-ticker.C:
		}
	}
}
