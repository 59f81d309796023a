package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// stageVariable identifies which of the three processes of a sandbox this is.
	stageVariable = "FIXPOINT_NODE_STAGE"
	stageInit     = "init"
	stageInside   = "inside"

	stateVariable = "FIXPOINT_NODE_STATE"

	// stopTime is how long the program may take to exit after a signal before it is killed.
	stopTime = 45 * time.Second
)

// State returns the state directory of the sandbox, for all files that the program writes. It is empty outside.
func State() string { return os.Getenv(stateVariable) }

// Inside reports whether this program runs in a sandbox. In the first process of a sandbox it does not return: that
// process reaps orphans and exits with the program.
func Inside() bool {
	switch os.Getenv(stageVariable) {
	case stageInit:
		os.Exit(runInit())
	case stageInside:
		return true
	}
	return false
}

// Run runs this program again with the same arguments in new namespaces and returns its exit code. It forwards SIGINT and
// SIGTERM, and kills the program if it does not exit. When Run returns, no process, mount, network device or control
// group remains. The caller owns the state directory.
func Run(ctx context.Context, state string) (int, error) {
	groups, err := newCgroups(filepath.Base(state))
	if err != nil {
		return 1, err
	}
	space, code, err := runSandbox(ctx, state)
	err = errors.Join(err, groups.remove(), leftBehind(space, state))
	if err != nil {
		code = max(code, 1)
	}
	return code, err
}

// runSandbox also returns the name of the sandbox's process namespace.
func runSandbox(ctx context.Context, state string) (space string, code int, err error) {
	// The kernel sends the death signal when the creating thread exits.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stageVariable+"="+stageInit, stateVariable+"="+state)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
		// Ctrl-C reaches this process, which forwards it.
		Setpgid: true,
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return "", 1, fmt.Errorf("starting a sandbox: %w", err)
	}
	space, spaceErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", cmd.Process.Pid))
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-over:
			return
		case <-ctx.Done():
		case <-signals:
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-over:
		case <-signals: // a second signal kills immediately
			_ = cmd.Process.Kill()
		case <-time.After(stopTime):
			_ = cmd.Process.Kill()
		}
	}()
	err = cmd.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.Exited() {
		return space, exit.ExitCode(), spaceErr
	}
	if err != nil {
		return space, 1, fmt.Errorf("running a sandbox: %w", err)
	}
	return space, 0, spaceErr
}

// leftBehind checks that no process of the sandbox runs and that nothing is mounted below its directory.
func leftBehind(space, state string) error {
	var errs []error
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, process := range processes {
		if in, err := os.Readlink(process + "/ns/pid"); err == nil && in == space {
			name, _ := os.ReadFile(process + "/comm")
			errs = append(errs, fmt.Errorf("process %s (%s) of the sandbox still runs", filepath.Base(process), strings.TrimSpace(string(name))))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("reading the mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+state+"/") {
			errs = append(errs, fmt.Errorf("a mount of the sandbox remains: %s", strings.TrimSpace(line)))
		}
	}
	return errors.Join(errs...)
}

// runInit is the first process of a sandbox: it sets up the namespaces, starts the program, and reaps orphans. When it
// exits, the kernel kills all other processes.
func runInit() int {
	state := State()
	if err := setUpNamespaces(state); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := os.Setenv(stageVariable, stageInside); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	program, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, fmt.Errorf("starting the program in its sandbox: %w", err))
		return 1
	}
	go func() {
		for range signals {
			_ = syscall.Kill(program.Pid, syscall.SIGTERM)
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			fmt.Fprintln(os.Stderr, fmt.Errorf("waiting for the program in its sandbox: %w", err))
			return 1
		case pid == program.Pid && status.Exited():
			return status.ExitStatus()
		case pid == program.Pid && status.Signaled():
			fmt.Fprintf(os.Stderr, "the program in its sandbox was killed by %s\n", status.Signal())
			return 1
		}
	}
}
