package conversion

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// memory limits the memory of all requests that are served at the same time, and that of each client to half of it, so
// that a client that sends large requests slowly does not keep others from being served.
type memory struct {
	limit int64
	all   *semaphore.Weighted

	mu      sync.Mutex
	clients map[string]*share
}

// share is the memory of one client.
type share struct {
	memory   *semaphore.Weighted
	requests int
}

func newMemory(limit int64) *memory {
	return &memory{limit: limit, all: semaphore.NewWeighted(limit), clients: map[string]*share{}}
}

// request is the memory of one request.
type request struct {
	memory *memory
	client string
	share  *share
	held   int64
}

// begin returns the memory of a request of a client. It has to end.
func (m *memory) begin(client string) *request {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.clients[client] == nil {
		m.clients[client] = &share{memory: semaphore.NewWeighted(m.limit / 2)}
	}
	m.clients[client].requests++
	return &request{memory: m, client: client, share: m.clients[client]}
}

// acquire waits until the request may hold more bytes.
func (r *request) acquire(ctx context.Context, bytes int64) error {
	if err := r.share.memory.Acquire(ctx, bytes); err != nil {
		return err
	}
	if err := r.memory.all.Acquire(ctx, bytes); err != nil {
		r.share.memory.Release(bytes)
		return err
	}
	r.held += bytes
	return nil
}

// end releases the memory of a request.
func (r *request) end() {
	r.share.memory.Release(r.held)
	r.memory.all.Release(r.held)
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	if r.share.requests--; r.share.requests == 0 {
		delete(r.memory.clients, r.client)
	}
}
