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
	// catchUp is how long a read waits for the cache to show what the manager has written. It takes
	// milliseconds.
	catchUp = 2 * time.Second
	// behindFor is how long reads of an object do not wait any more for which one has waited in vain.
	behindFor = time.Minute
)

// patientClient is the manager's client, whose reads see the writes that went before, but which does
// not wait for that for ever.
//
// controller-runtime, as of v0.25, knows how far a cache is by the versions of the objects that it has
// been told of. If a watch breaks, and an object that we have just written is gone when all are listed
// anew, no version as young as ours comes any more: reads would wait until somebody changes another
// object of the kind, which may be never. What the cache shows is right by then; and where it is not,
// the preconditions of every write stand in for it.
type patientClient struct {
	client.Client
	clock clock.PassiveClock

	mu     sync.Mutex
	behind map[read]time.Time
}

// read is what was read in vain.
type read struct {
	kind reflect.Type
	key  client.ObjectKey
}

// newPatientClient is a [client.NewClientFunc].
func newPatientClient(cfg *rest.Config, options client.Options) (client.Client, error) {
	inner, err := client.New(cfg, options)
	if err != nil {
		return nil, err
	}
	return patiently(inner, clock.RealClock{}), nil
}

func patiently(inner client.Client, now clock.PassiveClock) *patientClient {
	return &patientClient{Client: inner, clock: now, behind: map[read]time.Time{}}
}

// Get implements [client.Reader].
func (c *patientClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return c.read(ctx, read{reflect.TypeOf(object), key}, func(ctx context.Context, patient bool) error {
		if !patient {
			opts = append(opts[:len(opts):len(opts)], client.DisableReadYourWritesConsistency)
		}
		return c.Client.Get(ctx, key, object, opts...)
	})
}

// List implements [client.Reader].
func (c *patientClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.read(ctx, read{kind: reflect.TypeOf(list)}, func(ctx context.Context, patient bool) error {
		if !patient {
			opts = append(opts[:len(opts):len(opts)], client.DisableReadYourWritesConsistency)
		}
		return c.Client.List(ctx, list, opts...)
	})
}

func (c *patientClient) read(ctx context.Context, what read, do func(ctx context.Context, patient bool) error) error {
	if c.isBehind(what) {
		return do(ctx, false)
	}
	waiting, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	err := do(waiting, true)
	if err == nil || waiting.Err() == nil || ctx.Err() != nil {
		return err
	}
	log.FromContext(ctx).Info("The cache does not show what was written; going by what it shows", "kind", what.kind.String(), "object", what.key)
	c.mu.Lock()
	c.behind[what] = c.clock.Now()
	c.mu.Unlock()
	return do(ctx, false)
}

func (c *patientClient) isBehind(what read) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, known := c.behind[what]
	if known && c.clock.Since(since) > behindFor {
		delete(c.behind, what)
		known = false
	}
	return known
}
