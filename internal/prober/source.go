package prober

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Source makes a controller reconcile a key when its Result changes, by
// builder.WatchesRawSource(prober.Source()). The workqueue never blocks and merges what is equal,
// so that no reconcile can hold up a probe.
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

// notify is called with the lock held, and so leaves the telling to the scheduler.
func (p *Prober) notify(key types.NamespacedName) {
	p.news[key] = struct{}{}
	p.rouse()
}

// tell passes on what has changed since the last time.
func (p *Prober) tell() {
	news, subscribers := p.collect()
	for key := range news {
		for _, subscriber := range subscribers {
			subscriber(key)
		}
	}
}

func (p *Prober) collect() (map[types.NamespacedName]struct{}, []func(types.NamespacedName)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.news) == 0 {
		return nil, nil
	}
	news := p.news
	p.news = map[types.NamespacedName]struct{}{}
	return news, slices.Clone(p.subscribers)
}
