package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
)

// Pair is a watch event and a later write, which may depend on the event. A manager whose cache lacks the
// event might repeat or undo the write.
type Pair struct {
	// Write is the number of the write among the mutating calls after the given steps, from 1.
	Write int
	// Call is the write in the undisturbed run.
	Call Call
	// Object and Version identify the event by the number of the object's version.
	Object  ID
	Version int
}

// String returns, for example, "7-without-Deployment/web@2".
func (p Pair) String() string {
	return fmt.Sprintf("%d-without-%s@%d", p.Write, p.Object, p.Version)
}

// Pairs returns each create and delete of the baseline with each earlier event of the last step.
func (b *Baseline) Pairs() []Pair {
	var pairs []Pair
	for i, call := range b.Mutations() {
		if !call.CreatesOrDeletes() {
			continue
		}
		for _, v := range b.Versions {
			id := idOf(v.Object)
			if v.Revision <= b.From || v.ObservedAt.After(call.At) || ResourceOf(id.Kind) == "" || !caches(b.Scenario.Kinds, id.Kind) {
				continue
			}
			pairs = append(pairs, Pair{Write: i + 1, Call: call, Object: id, Version: v.Number})
		}
	}
	return pairs
}

// caches reports whether managers of the kinds cache another kind. Managers of SecureStorages cache only the kinds of their
// children.
func caches(kinds []string, kind string) bool {
	for _, k := range kinds {
		isExported := slices.ContainsFunc(childrenOf(securestorage.Phases()), func(child schema.GroupVersionKind) bool { return child.Kind == kind })
		if k == kind || k != SecureStorage && !isOwnerKind(kind) || k == SecureStorage && isExported {
			return true
		}
	}
	return false
}

// CreatesOrDeletes reports whether the call created or deleted an object.
func (c Call) CreatesOrDeletes() bool {
	if c.Cloud {
		return c.Mutates() && (c.Verb == http.MethodPut || c.Verb == http.MethodDelete)
	}
	return c.Verb == "delete" || c.Verb == "apply" && c.Status == http.StatusCreated
}

// StaleCaches returns the disturbance that crashes the manager before the write and restarts it with a cache
// that lacks the event, for as long as the manager has work.
func StaleCaches(p Pair) (Disturbance, *CrashAt) {
	crash := NewCrashAt(CrashStep{Call: p.Write, Mode: CrashBefore})
	s := &staleRestart{pair: p, restarted: make(chan *Manager, 1)}
	return Disturbance{
		Name: p.String(), Plan: crash, Crashes: crash.Hits,
		Restart: s.restart, Meanwhile: s.release,
	}, crash
}

type staleRestart struct {
	pair      Pair
	once      sync.Once
	restarted chan *Manager
}

func (s *staleRestart) restart(env *Environment) (*Manager, error) {
	stale := StaleCache{}
	s.once.Do(func() {
		for _, v := range env.Versions() {
			if idOf(v.Object) == s.pair.Object && v.Number == s.pair.Version {
				stale[ResourceOf(s.pair.Object.Kind)] = v.Revision - 1
			}
		}
	})
	m, err := env.StartWithStaleCache(stale)
	if err == nil {
		select {
		case s.restarted <- m:
		default:
		}
	}
	return m, err
}

// release lets the cache catch up when the manager is idle.
func (s *staleRestart) release(_ context.Context, env *Environment) error {
	const (
		longest = 2 * time.Second
		idle    = 200 * time.Millisecond
		// silence is the time without a call after which the write no longer occurs.
		silence = 15 * time.Second
	)
	var m *Manager
	calls, since := 0, time.Now()
	env.WaitUntil(Timeout, func() bool {
		if n := len(env.Calls()); n != calls {
			calls, since = n, time.Now()
		}
		select {
		case m = <-s.restarted:
		default:
		}
		return m != nil || time.Since(since) > silence
	})
	if m == nil {
		return nil // this run did not make the call
	}
	began := time.Now()
	env.WaitUntil(longest, func() bool {
		reconciled := m.Reconciles(objectName) > 0 || time.Since(began) > longest/2
		return reconciled && m.IdleFor() > idle
	})
	m.ReleaseWatch(ResourceOf(s.pair.Object.Kind))
	return nil
}
