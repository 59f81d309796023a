package prober

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Source enqueues a key when its Result changes; use it with builder.WatchesRawSource. The workqueue never
// blocks and deduplicates keys, so reconciles do not delay probes.
func (p *Prober) Source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		p.subscribe(func(key types.NamespacedName) {
			if ctx.Err() == nil {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
		})
		return nil
	})
}

func (p *Prober) subscribe(subscriber func(types.NamespacedName)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subscribers = append(p.subscribers, subscriber)
}

// markChanged is called with the lock held, so the scheduler notifies the subscribers later.
func (p *Prober) markChanged(key types.NamespacedName) {
	p.changed[key] = struct{}{}
	p.wakeScheduler()
}

// notifySubscribers notifies the subscribers of all changed keys.
func (p *Prober) notifySubscribers() {
	changed, subscribers := p.collect()
	for key := range changed {
		for _, subscriber := range subscribers {
			subscriber(key)
		}
	}
}

func (p *Prober) collect() (map[types.NamespacedName]struct{}, []func(types.NamespacedName)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.changed) == 0 {
		return nil, nil
	}
	changed := p.changed
	p.changed = map[types.NamespacedName]struct{}{}
	return changed, slices.Clone(p.subscribers)
}
