package bridge

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// reaper starts processes and waits for them all in one place: waiting for
// each in a goroutine of its own would hold a thread for each, and PID 1 has to
// wait for orphans too, which it never started.
type reaper struct {
	all bool

	mu      sync.Mutex
	running map[int]func(syscall.WaitStatus)

	signals chan os.Signal
	done    chan struct{}
}

func newReaper(all bool) *reaper {
	r := &reaper{
		all:     all,
		running: map[int]func(syscall.WaitStatus){},
		signals: make(chan os.Signal, 1),
		done:    make(chan struct{}),
	}
	signal.Notify(r.signals, syscall.SIGCHLD)
	go r.run()
	return r
}

func (r *reaper) run() {
	for {
		select {
		case <-r.signals:
			r.reap()
		case <-r.done:
			return
		}
	}
}

// close ends the waiting. Nothing may be running any more.
func (r *reaper) close() {
	signal.Stop(r.signals)
	close(r.done)
}

// start runs a program; onExit is called once it has ended and been waited for.
func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr, onExit func(syscall.WaitStatus)) (int, error) {
	// Under the lock, so that a process that ends at once is known already.
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, err
	}
	r.running[pid] = onExit
	return pid, nil
}

// kill signals the process group that the process leads, if it is still there.
func (r *reaper) kill(pid int, sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.running[pid]; ok {
		_ = syscall.Kill(-pid, sig) // It may be ending just now.
	}
}

func (r *reaper) reap() {
	for _, target := range r.targets() {
		for r.reapOne(target) {
		}
	}
}

// targets are the arguments for wait4.
func (r *reaper) targets() []int {
	if r.all {
		return []int{-1}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pids := make([]int, 0, len(r.running))
	for pid := range r.running {
		pids = append(pids, pid)
	}
	return pids
}

// reapOne reports whether another process may be waiting behind the one found.
func (r *reaper) reapOne(target int) bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(target, &status, syscall.WNOHANG, nil)
	if errors.Is(err, syscall.EINTR) {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	r.mu.Lock()
	onExit, ours := r.running[pid]
	delete(r.running, pid)
	r.mu.Unlock()
	if ours {
		// What the child has started and left behind goes with it. Its number
		// cannot have been given away in the instant since it was reaped.
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		onExit(status)
	}
	return target == -1
}
