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

// linesShown is how much of its log a failed program's error quotes.
const linesShown = 25

// Process is a program that dies with the process that started it, however that
// one ends: SIGKILL and a panic included.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// ended is closed once the program is gone; err is then how it ended.
	ended chan struct{}
	err   error
}

// StartProcess runs a program with exactly the given environment, its output
// appended to the file log.
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
		// A group of its own: Ctrl-C reaches this process alone, which then stops
		// the others in order.
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

// live starts the program and waits for its end, all on one thread: the kernel
// sends the death signal when the thread that started the program ends, not when
// the whole process does, and Go ends threads as it likes unless they are locked.
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

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed once the program is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running tells whether the program has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Stop asks the program to end, and kills it if it has not within the grace
// period. A program that has ended already is no error.
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

// signal reaches the program's whole group, for what it may have started itself.
func (p *Process) signal(sig syscall.Signal) error {
	err := syscall.Kill(-p.PID(), sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Failure describes a program that does not do what it should, with the end of
// its log.
func (p *Process) Failure(cause error) error {
	if !p.Running() {
		cause = &endedError{how: p.err}
	}
	return fmt.Errorf("%s: %w; the end of its log:\n%s", p.name, cause, tail(p.log, linesShown))
}

// endedError says that a program ended that should run.
type endedError struct{ how error }

func (e *endedError) Error() string {
	if e.how == nil {
		return "it ended: exit status 0"
	}
	return "it ended: " + e.how.Error()
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

// awaitReady polls until ready says so, the program ends, or ctx does.
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
			return p.Failure(fmt.Errorf("not ready in time: %w", err))
		case <-ticker.C:
		}
	}
}
