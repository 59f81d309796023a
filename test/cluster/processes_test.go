package cluster

import (
	"bytes"
	"fmt"
	"os"
)

// pids are the numbers of the cluster's processes.
func (c *Cluster) pids() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pids []int
	for _, r := range c.parts {
		pids = append(pids, r.process.PID())
	}
	return pids
}

// alive tells whether the process runs. One that ended counts as gone even if its
// new parent, which may be a container's first process, never asks how.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, fields, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(fields, []byte("Z"))
}
