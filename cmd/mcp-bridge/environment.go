package main

import (
	"bytes"
	"math"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxMemory is the memory limit of the bridge if its container has none.
	maxMemory = 256 << 20
	// resolverConfig is the DNS configuration of a container.
	resolverConfig = "/etc/resolv.conf"
	// cgroup is where a container finds its resource limits.
	cgroup = "/sys/fs/cgroup"
)

// limitMemory sets the soft memory limit of the Go runtime, unless GOMEMLIMIT does, and returns it. It is not
// set in the environment, because the server may be written in Go, too.
func limitMemory(getenv func(string) string, cgroup string) int64 {
	if getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit(cgroup))
	}
	return debug.SetMemoryLimit(-1)
}

// memoryLimit is half of the memory limit of the container, and at most maxMemory. The servers need the other
// half.
func memoryLimit(cgroup string) int64 {
	for _, file := range []string{"memory.max", "memory/memory.limit_in_bytes"} { // cgroup v2 and v1
		raw, err := os.ReadFile(path.Join(cgroup, file))
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 64)
		if err == nil && limit > 0 && limit < math.MaxInt64/2 {
			return min(limit/2, maxMemory)
		}
	}
	return maxMemory
}

// withClusterDomains adds to each host name of a Service the form with the domain of the cluster, such as
// tools.acme.svc.cluster.local. The domain is known from the DNS search list, which has svc.<domain>.
func withClusterDomains(hosts []string, resolverConfig string) []string {
	raw, err := os.ReadFile(resolverConfig)
	if err != nil {
		return hosts // outside of a container there may be none
	}
	all := slices.Clone(hosts)
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "search" {
			continue
		}
		for _, search := range fields[1:] {
			domain, ok := strings.CutPrefix(search, "svc.")
			for _, host := range hosts {
				if ok && strings.HasSuffix(host, ".svc") {
					all = append(all, host+"."+domain)
				}
			}
		}
	}
	return all
}
