package controllers

import (
	"context"
	"reflect"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// readTimeout is how long a read waits for the cache to contain the manager's own writes, which
	// normally takes milliseconds.
	readTimeout = 2 * time.Second
	// staleFor is how long reads of an object skip the wait after one of them timed out.
	staleFor = time.Minute
)

// readTimeoutClient is the manager's client. Its reads see earlier writes of the manager, but wait
// for them for at most [readTimeout].
//
// controller-runtime, as of v0.25, tells how current a cache is by the resource versions of the
// objects in its watch events. If a watch breaks, and an object that the manager has just written is
// deleted before the next list, the cache never receives a resource version as recent as that write:
// reads would block until another object of the kind changes, possibly forever. The cache is correct
// by then; where it is not, the preconditions of every write protect against stale reads.
type readTimeoutClient struct {
	client.Client
	clock clock.PassiveClock

	mu    sync.Mutex
	stale map[read]time.Time
}

// read identifies a read that timed out.
type read struct {
	kind reflect.Type
	key  client.ObjectKey
}

// newClient is a [client.NewClientFunc].
func newClient(cfg *rest.Config, options client.Options) (client.Client, error) {
	inner, err := client.New(cfg, options)
	if err != nil {
		return nil, err
	}
	return withReadTimeout(inner, clock.RealClock{}), nil
}

func withReadTimeout(inner client.Client, now clock.PassiveClock) *readTimeoutClient {
	return &readTimeoutClient{Client: inner, clock: now, stale: map[read]time.Time{}}
}

// Get implements [client.Reader].
func (c *readTimeoutClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return c.read(ctx, read{reflect.TypeOf(object), key}, func(ctx context.Context, consistent bool) error {
		if !consistent {
			opts = append(opts[:len(opts):len(opts)], client.DisableReadYourWritesConsistency)
		}
		return c.Client.Get(ctx, key, object, opts...)
	})
}

// List implements [client.Reader].
func (c *readTimeoutClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.read(ctx, read{kind: reflect.TypeOf(list)}, func(ctx context.Context, consistent bool) error {
		if !consistent {
			opts = append(opts[:len(opts):len(opts)], client.DisableReadYourWritesConsistency)
		}
		return c.Client.List(ctx, list, opts...)
	})
}

func (c *readTimeoutClient) read(ctx context.Context, what read, do func(ctx context.Context, consistent bool) error) error {
	if c.isStale(what) {
		return do(ctx, false)
	}
	waiting, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := do(waiting, true)
	if err == nil || waiting.Err() == nil || ctx.Err() != nil {
		return err
	}
	log.FromContext(ctx).Info("Timed out waiting for the cache to contain the manager's own writes; reading the cache as it is", "kind", what.kind.String(), "object", what.key)
	c.mu.Lock()
	c.stale[what] = c.clock.Now()
	c.mu.Unlock()
	return do(ctx, false)
}

func (c *readTimeoutClient) isStale(what read) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, known := c.stale[what]
	if known && c.clock.Since(since) > staleFor {
		delete(c.stale, what)
		known = false
	}
	return known
}
