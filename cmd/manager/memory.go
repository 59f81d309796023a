package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// heapFloor is how large the heap may grow before garbage is collected, however little of it is live. A
	// manager with few objects would otherwise collect garbage many times a second while it is busy.
	heapFloor = 32 << 20
	// memoryInterval is how often the manager checks its heap.
	memoryInterval = 10 * time.Second
	// idleBytes is how much an idle manager allocates at most in an interval, to renew its Lease and to serve
	// metrics.
	idleBytes = 2 << 20
	// returnBytes is how much must have been allocated since memory was returned to make it worthwhile again.
	returnBytes = 12 << 20
)

// manageMemory adapts the garbage collector to the heap, unless the variable GOGC does: the heap may always grow
// to heapFloor, and an idle manager returns free memory to the system. GOMEMLIMIT applies in any case.
func manageMemory(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	tuneCollector(100)
	ticker := time.NewTicker(memoryInterval)
	defer ticker.Stop()
	var h heap
	for {
		if _, allocated := readHeap(); h.observe(allocated) {
			debug.FreeOSMemory()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// tuneCollector sets GOGC, and does so again after each collection, which may find another heap. An object that
// nothing refers to tells that there was one.
func tuneCollector(percent int) {
	live, _ := readHeap()
	if next := gcPercent(live); next != percent {
		debug.SetGCPercent(next)
		percent = next
	}
	runtime.AddCleanup(&[8]*int{}, tuneCollector, percent)
}

// heap is how many bytes were allocated since the start of the process: until now, and until memory was returned
// last.
type heap struct{ allocated, returned uint64 }

// observe says whether to return memory to the system now: the manager is idle, and was not before.
func (h *heap) observe(allocated uint64) bool {
	isIdle := allocated-h.allocated < idleBytes
	h.allocated = allocated
	if !isIdle || allocated-h.returned < returnBytes {
		return false
	}
	h.returned = allocated
	return true
}

// readHeap returns how many bytes were reachable at the last collection, and how many were allocated since the start.
func readHeap() (live, allocated uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// gcPercent is the GOGC with which garbage is collected when the heap is twice what is live, but not before it
// reaches heapFloor.
func gcPercent(live uint64) int {
	const twice, least = 100, 4 << 20
	return max(twice, int(heapFloor*100/max(live, least))-100)
}
