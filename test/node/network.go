package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// The network of the sandbox consists of a bridge and has no access to the outside.
const (
	bridge      = "cni0"
	nodeAddress = "10.244.0.1"
	podRange    = "10.244.0.0/24"
	// serviceRange and dnsAddress are set by package cluster.
	serviceRange = "10.96.0.0/16"
	dnsAddress   = "10.96.0.10"
	// apiAddress is the address of the Service kubernetes.
	apiAddress = "10.96.0.1"
)

// createNetwork creates the bridge that the node and its pods share.
func createNetwork() error {
	for _, line := range []string{
		"link set lo up",
		"link add " + bridge + " type bridge",
		"addr add " + nodeAddress + "/24 dev " + bridge,
		"link set " + bridge + " up",
		// kube-proxy redirects packets to Services only if a route exists.
		"route add " + serviceRange + " dev " + bridge,
	} {
		if err := run("ip", strings.Fields(line)...); err != nil {
			return fmt.Errorf("creating the network of the sandbox: %w", err)
		}
	}
	for _, setting := range []string{
		"ipv4/ip_forward",
		// Pods on one bridge reach each other through Services only if bridged packets pass iptables.
		"bridge/bridge-nf-call-iptables",
	} {
		if err := os.WriteFile("/proc/sys/net/"+setting, []byte("1"), 0o644); err != nil {
			return fmt.Errorf("creating the network of the sandbox: %w", err)
		}
	}
	return nil
}

// Separate rejects all packets to pods from processes on the node whose group has the ID, as if they ran outside of the
// cluster, and returns a function that removes the rule.
func (n *Node) Separate(group uint32) (restore func() error, err error) {
	rule := func(action string) error {
		return run("iptables", "--wait", action, "OUTPUT", "--match", "owner", "--gid-owner", fmt.Sprint(group),
			"--out-interface", bridge, "--destination", podRange, "--jump", "REJECT")
	}
	return func() error { return rule("--delete") }, rule("--insert")
}

// run runs a program. The error contains its output.
func run(name string, args ...string) error {
	_, err := output(name, args...)
	return err
}

func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}
