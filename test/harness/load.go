package harness

import (
	"context"
	"sync"
	"time"
)

// Load is a stream of requests.
type Load struct {
	mu     sync.Mutex
	sent   int
	failed []error
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// StartLoad sends requests one after the other, at most perSecond, until the load is stopped or the context ends.
func StartLoad(ctx context.Context, perSecond int, send func(i int) error) *Load {
	ctx, cancel := context.WithCancel(ctx)
	l := &Load{cancel: cancel}
	l.done.Go(func() {
		ticker := time.NewTicker(time.Second / time.Duration(perSecond))
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			err := send(i)
			l.mu.Lock()
			l.sent++
			if err != nil {
				l.failed = append(l.failed, err)
			}
			l.mu.Unlock()
		}
	})
	return l
}

// Count is the number of requests that are answered.
func (l *Load) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// Stop ends the load after the running request, and returns the errors of the requests.
func (l *Load) Stop() []error {
	l.cancel()
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}
