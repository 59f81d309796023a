package faults

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Pair is an event and a write that came after it: the write may rest on the event, and a manager that
// starts with a cache from before the event may do it over, or undo it.
type Pair struct {
	// Write is the number of the write among the mutating calls after what was given, from 1.
	Write int
	// Call is the write in the undisturbed run.
	Call Call
	// Object and Version are the event: the so-manyth version of the object.
	Object  ID
	Version int
}

// String is such as "7 without Deployment/web@2".
func (p Pair) String() string {
	return fmt.Sprintf("%d-without-%s@%d", p.Write, p.Object, p.Version)
}

// Pairs are all of a baseline: each create and delete, with each event that came before it in the same
// scenario.
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

// watches says whether managers of the kinds have a cache of another kind. One of SecureStorages has
// no other.
func caches(kinds []string, kind string) bool {
	for _, k := range kinds {
		if k == kind || k != SecureStorage && !isOwnerKind(kind) {
			return true
		}
	}
	return false
}

// CreatesOrDeletes says whether the call made something, or ended it.
func (c Call) CreatesOrDeletes() bool {
	if c.Cloud {
		return c.Mutates() && (c.Verb == http.MethodPut || c.Verb == http.MethodDelete)
	}
	return c.Verb == "delete" || c.Verb == "apply" && c.Status == http.StatusCreated
}

// Staleness is the disturbance of a manager that crashes before the write, and of the next one, whose
// cache begins before the event and stays there for as long as it finds something to do.
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

// letGo ends the past when the manager has done all that it finds to do there.
func (s *staleRestart) release(_ context.Context, env *Environment) error {
	const (
		longest = 2 * time.Second
		idle    = 200 * time.Millisecond
		// silence is for how long no manager calls before the write is not awaited any more.
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
		return nil // there was no such call in this run
	}
	began := time.Now()
	env.WaitUntil(longest, func() bool {
		looked := m.Reconciles(objectName) > 0 || time.Since(began) > longest/2
		return looked && m.IdleFor() > idle
	})
	m.ReleaseWatch(ResourceOf(s.pair.Object.Kind))
	return nil
}
