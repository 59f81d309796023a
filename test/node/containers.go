package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// PID returns the first process of a container. The ID is that in the status of the pod.
func (n *Node) PID(containerID string) (int, error) {
	id := strings.TrimPrefix(containerID, "containerd://")
	out, err := output(filepath.Join(n.options.Programs, "ctr"), "--address", n.socket(), "--namespace", "k8s.io", "tasks", "ls")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != id || id == "" {
			continue
		}
		pid, err := strconv.Atoi(fields[1])
		if err != nil {
			return 0, fmt.Errorf("finding the process of container %s: %w", id, err)
		}
		return pid, nil
	}
	return 0, fmt.Errorf("finding the process of container %s: it is not running", id)
}

// Signal sends a signal to the first process of a container, for example SIGKILL or SIGSTOP.
func (n *Node) Signal(containerID string, signal syscall.Signal) error {
	pid, err := n.PID(containerID)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("sending %s to container %s: %w", signal, containerID, err)
	}
	return nil
}

// CutOff drops all packets of a container's pod to the API server, and returns a function that restores the connection.
// Probes of the pod still succeed.
func (n *Node) CutOff(containerID string) (restore func() error, err error) {
	pid, err := n.PID(containerID)
	if err != nil {
		return nil, err
	}
	// The open file keeps the namespace, even after the pod was deleted.
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, fmt.Errorf("finding the network of container %s: %w", containerID, err)
	}
	rule := func(action string) error {
		return run("nsenter", "--net="+fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), network.Fd()), "iptables", "--wait", action, "OUTPUT",
			"--destination", apiAddress, "--jump", "DROP")
	}
	if err := rule("--append"); err != nil {
		return nil, err
	}
	return func() error {
		defer network.Close()
		return rule("--delete")
	}, nil
}
