package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// sessionKeys is the Secret with the keys that the pods share. It is deleted once no pod mounts it.
var sessionKeys = sessionKeysPhase{phases.Child[*scope, *corev1ac.SecretApplyConfiguration, *corev1.Secret]{
	Name:      "SessionKeys",
	ChildName: func(s *scope) string { return sessionKeysName(s.server) },
	Desired:   func(s *scope) (*corev1ac.SecretApplyConfiguration, error) { return s.desiredSessionKeys(), nil },
	Adopt:     func(s *scope, live *corev1.Secret) phases.Verdict { return adoptSessionKeys(s.server, live) },
	Health:    func(*corev1.Secret) phases.Verdict { return phases.Done(sessionKeysApplied) },
	Ready: func(_ context.Context, s *scope, _ *corev1.Secret) phases.Verdict {
		return phases.Done(sessionKeysApplied).RecheckAfter(s.sessionKeys.again)
	},
	Prune: phases.PruneLast,
}}

const sessionKeysApplied = "Secret applied"

// The format of session keys is that of internal/peers.
const (
	sessionKeyBytes = 32
	// sessionKeyName is the layout of the name of a key: the time of its creation, in UTC. Such names sort by time.
	sessionKeyName = "20060102T150405Z"
	// sessionKeyAge is the age of the newest key at which another one is added. A pod seals with a key once all
	// pods can have read it, and opens what any key has sealed. So a key is needed for as long as sessions live after
	// the next one seals, for which it has the same time again.
	sessionKeyAge = 7 * 24 * time.Hour
	// sessionKeySkew is how far the clocks of two managers may differ.
	sessionKeySkew = time.Hour
)

// forwardsSessions reports whether every pod serves the sessions of all pods.
func forwardsSessions(server *v1beta1.MCPServer) bool {
	return server.Spec.SessionRouting == v1beta1.SessionRoutingForward && server.Spec.Transport != v1beta1.TransportSSE
}

// sessionKeysName is the name of the Secret. All other children have the name of the MCPServer, which users give to
// Secrets of their own.
func sessionKeysName(server *v1beta1.MCPServer) string { return server.Name + "-session-keys" }

// keysOfSessions are the session keys, and when to decide about them again.
type keysOfSessions struct {
	data  map[string][]byte
	again time.Duration
	// secret is the Secret that the keys were read from; none if it did not exist.
	secret types.UID
}

// rotateSessionKeys returns the keys that should exist, given those that do, and the time after which to decide again. It
// keeps what exists: the keys are random, and ids that a lost key has sealed are lost.
//
//   - A key is added if there is none, or if the newest one has the age.
//   - A key is removed when the next one has the age.
func rotateSessionKeys(data map[string][]byte, now time.Time, fresh func() []byte) keysOfSessions {
	next := map[string][]byte{}
	var created []time.Time
	for name, value := range data {
		if at, err := time.Parse(sessionKeyName, name); err == nil && len(value) == sessionKeyBytes {
			next[name] = value
			created = append(created, at)
		}
	}
	// A key of a time far ahead, when a clock was wrong, must not end the rotation until then.
	isAged := func(at time.Time) bool { return now.Sub(at) >= sessionKeyAge || at.Sub(now) > sessionKeySkew }
	if !slices.ContainsFunc(created, func(at time.Time) bool { return !isAged(at) }) {
		at := now.UTC()
		next[at.Format(sessionKeyName)] = fresh()
	}
	slices.SortFunc(created, time.Time.Compare)
	again := sessionKeyAge
	for i, at := range created {
		left := at.Add(sessionKeyAge).Sub(now)
		if left <= 0 && i > 0 {
			delete(next, created[i-1].Format(sessionKeyName))
		}
		if left > 0 {
			again = min(again, left)
		}
	}
	return keysOfSessions{data: next, again: again}
}

// newSessionKey returns a random key.
func newSessionKey() []byte {
	key := make([]byte, sessionKeyBytes)
	_, _ = rand.Read(key) // never fails
	return key
}

// desiredSessionKeys has no data before the keys are read: then it only says that the Secret is desired.
func (s *scope) desiredSessionKeys() *corev1ac.SecretApplyConfiguration {
	if !forwardsSessions(s.server) {
		return nil
	}
	return corev1ac.Secret(sessionKeysName(s.server), s.server.Namespace).
		WithLabels(labelsOf(s.server)).WithType(v1beta1.SecretTypeSessionKeys).WithData(s.sessionKeys.data)
}

// adoptSessionKeys adopts only what has the type of session keys, such as that of an MCPServer that was restored from a
// backup: another Secret may be used for something else.
func adoptSessionKeys(server *v1beta1.MCPServer, live *corev1.Secret) phases.Verdict {
	if areAdoptable(server, live) {
		return phases.Done("")
	}
	remedy := "delete it, or create an MCPServer with another name"
	if live.Type == v1beta1.SecretTypeSessionKeys {
		remedy = "delete it, or set spec.adoptionPolicy to IfUnowned"
	}
	return phases.Stalled(v1beta1.ReasonNotOwned, fmt.Sprintf(
		"Secret %s/%s exists and no controller owns it, so it is not changed; %s", live.Namespace, live.Name, remedy))
}

func areAdoptable(server *v1beta1.MCPServer, live *corev1.Secret) bool {
	return server.Spec.AdoptionPolicy == v1beta1.AdoptionIfUnowned && live.Type == v1beta1.SecretTypeSessionKeys && metav1.GetControllerOf(live) == nil
}

// sessionKeysPhase reads the keys before its child is applied.
type sessionKeysPhase struct {
	phases.Child[*scope, *corev1ac.SecretApplyConfiguration, *corev1.Secret]
}

// Declare implements [phases.Phase].
func (k sessionKeysPhase) Declare(scheme *runtime.Scheme) (phases.Declaration[*scope], error) {
	d, err := k.Child.Declare(scheme)
	next := d.Next
	d.Next = func(ctx context.Context, r phases.Reconcile[*scope]) (phases.Next, error) {
		return r.Scope.nextWithKeys(ctx, r, next)
	}
	d.Next, d.Undo = confidentially(d.Next), confidentially(d.Undo)
	d.Observe, d.Last = confidentially(d.Observe), confidentially(d.Last)
	return d, err
}

// nextWithKeys reads the keys before it asks what is next. If the answer is about another Secret than the one with the keys,
// that one was deleted meanwhile, maybe because of a leak of its keys: they must not be in its successor.
func (s *scope) nextWithKeys(ctx context.Context, r phases.Reconcile[*scope], next phases.Question[*scope]) (phases.Next, error) {
	readers := []client.Reader{r.Cluster.Cached, r.Cluster.Uncached}
	for len(readers) > 0 {
		if verdict, err := s.readSessionKeys(ctx, readers...); err != nil || verdict != nil {
			return verdict, err
		}
		answer, err := next(ctx, r)
		apply, isApply := answer.(phases.Apply)
		if !isApply || s.sessionKeys.secret == uidOf(apply.Decision.Request.Live) {
			return answer, err
		}
		s.sessionKeys, readers = keysOfSessions{}, readers[1:]
	}
	return phases.Wait(v1beta1.ReasonRecreating, "Secret "+sessionKeysName(s.server)+" changed while it was read; reading it again", time.Second), nil
}

func uidOf(live client.Object) types.UID {
	if live == nil {
		return ""
	}
	return live.GetUID()
}

// confidentially asks a question of a phase whose child has keys: no drift contains a value, even if the user wants to see
// the values of drifts. A plan skips the question for an MCPServer that neither has session keys nor had any: the user
// may not be permitted to read Secrets.
func confidentially(question phases.Question[*scope]) phases.Question[*scope] {
	if question == nil {
		return nil
	}
	return func(ctx context.Context, r phases.Reconcile[*scope]) (phases.Next, error) {
		if r.Scope.plans && !forwardsSessions(r.Scope.server) && meta.FindStatusCondition(r.Before, v1beta1.ConditionSessionKeysReady) == nil {
			return phases.NotConfigured(), nil
		}
		r.Policies.Redact = workload.RedactDrift
		return question(ctx, r)
	}
}

// readSessionKeys reads the keys once per reconcile, and decides what they should be. If the keys in the cache have to change,
// it decides by those of the API server: another manager may have changed them, and a key must not be lost. The verdict is
// nil if the phase continues.
func (s *scope) readSessionKeys(ctx context.Context, readers ...client.Reader) (phases.Verdict, error) {
	if !forwardsSessions(s.server) || s.sessionKeys.data != nil {
		return nil, nil
	}
	for _, reader := range readers {
		existing, secret, err := s.existingSessionKeys(ctx, reader)
		switch {
		case s.references.Ignores(err):
			return phases.Done("not readable for you; assumed to be unchanged"), nil
		case err != nil:
			return nil, err
		case s.plans: // a plan creates no keys
			s.sessionKeys = keysOfSessions{data: existing, secret: secret}
			return nil, nil
		}
		s.sessionKeys = rotateSessionKeys(existing, s.clock.Now(), newSessionKey)
		s.sessionKeys.secret = secret
		if maps.EqualFunc(s.sessionKeys.data, existing, bytes.Equal) {
			break
		}
	}
	return nil, nil
}

// existingSessionKeys are the data and the UID of the Secret, unless it is not that of the MCPServer.
func (s *scope) existingSessionKeys(ctx context.Context, reader client.Reader) (map[string][]byte, types.UID, error) {
	var live corev1.Secret
	key := client.ObjectKey{Namespace: s.server.Namespace, Name: sessionKeysName(s.server)}
	if err := reader.Get(ctx, key, &live); client.IgnoreNotFound(err) != nil {
		return nil, "", fmt.Errorf("reading Secret %s: %w", key, err)
	}
	if !metav1.IsControlledBy(&live, s.server) && !areAdoptable(s.server, &live) {
		return nil, "", nil
	}
	return live.Data, live.UID, nil
}

// sessionKeysHint is what to do if the manager lacks the permission to write Secrets.
const sessionKeysHint = "set rbac.sessionKeys of the chart, or apply the component config/session-keys, or remove spec.sessionRouting"
