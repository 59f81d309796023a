package bridge

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// reaper starts processes and waits for all of them in one goroutine. Waiting in
// a goroutine per process would block a thread each, and PID 1 must also wait for
// orphans that it did not start.
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

// close stops the reaper. No process may be running.
func (r *reaper) close() {
	signal.Stop(r.signals)
	close(r.done)
}

// start runs a program; onExit is called after it has exited and was reaped.
func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr, onExit func(syscall.WaitStatus)) (int, error) {
	// Under the lock, so that a process that exits immediately is registered.
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, err
	}
	r.running[pid] = onExit
	return pid, nil
}

// kill signals the process group of a running process.
func (r *reaper) kill(pid int, sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.running[pid]; ok {
		_ = syscall.Kill(-pid, sig) // It may be exiting.
	}
}

func (r *reaper) reap() {
	for _, target := range r.targets() {
		for r.reapOne(target) {
		}
	}
}

// targets are the pid arguments of wait4.
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

// reapOne reports whether more processes may have exited.
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
	onExit, isChild := r.running[pid]
	delete(r.running, pid)
	r.mu.Unlock()
	if isChild {
		// Kill the descendants that remain in its process group. The pid cannot
		// have been reused since the process was reaped.
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		onExit(status)
	}
	return target == -1
}
