package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const managerUser = "system:serviceaccount:" + systemNamespace + ":" + managerName

// write is an attempted write of a replica: a request to the API server or to the cloud.
type write struct {
	pod  string
	at   time.Time
	what string
}

func (a write) String() string {
	return fmt.Sprintf("%s %s %s", a.at.Format("15:04:05.000000"), a.pod, a.what)
}

// writes returns all writes of the managers since the mark, to Kubernetes and to the cloud, in order of time. It excludes
// those to the Lease and those that authorize metrics requests.
func (env *environment) writes(since cluster.Mark, from time.Time) []write {
	env.t.Helper()
	acts := env.apiWrites(since)
	for _, e := range env.ledger() {
		if strings.HasPrefix(e.Who, managerName) && e.Time.After(from) {
			acts = append(acts, write{pod: e.Who, at: e.Time, what: e.Method + " " + e.Resource + " in the cloud"})
		}
	}
	slices.SortStableFunc(acts, func(a, b write) int { return a.at.Compare(b.at) })
	return acts
}

func (env *environment) apiWrites(since cluster.Mark) []write {
	env.t.Helper()
	requests, err := local.Cluster.Audit().Since(since)
	env.Expect(err).NotTo(HaveOccurred())
	var acts []write
	for _, r := range requests.By(managerUser).Writes().Except("leases.coordination.k8s.io", "tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io") {
		env.Expect(r.Pod).NotTo(BeEmpty(), "%s: the audit log names the pod", r)
		acts = append(acts, write{pod: r.Pod, at: r.Received, what: r.Verb + " " + r.URI})
	}
	return acts
}

// firstWrite returns the first write after a time that fulfills a predicate.
func (env *environment) firstWrite(since cluster.Mark, moment time.Time, will func(write) bool) (write, bool) {
	env.t.Helper()
	for _, a := range env.apiWrites(since) {
		if a.at.After(moment) && will(a) {
			return a, true
		}
	}
	return write{}, false
}

// term is a period in which a process held the Lease.
type term struct {
	// identity is the name of the pod and a random suffix.
	identity string
	from     time.Time
	// fromNobody is true if the Lease had no holder before.
	fromNobody bool
}

func (t term) pod() string {
	pod, _, _ := strings.Cut(t.identity, "_")
	return pod
}

// leaseHistory lists the holders of the Lease in order.
type leaseHistory struct {
	mu    sync.Mutex
	terms []term
	// free is true while the Lease has no holder.
	free bool
}

// watchLease records the holders until the test ends.
func (env *environment) watchLease() *leaseHistory {
	h := &leaseHistory{}
	ctx, cancel := context.WithCancel(env.ctx)
	env.t.Cleanup(cancel)
	go wait.UntilWithContext(ctx, h.follow, interval)
	return h
}

// follow watches until the API server closes the watch.
func (h *leaseHistory) follow(ctx context.Context) {
	watcher, err := api.Watch(ctx, &coordinationv1.LeaseList{}, client.InNamespace(systemNamespace), client.MatchingFields{"metadata.name": controllers.LeaderElectionID})
	if err != nil {
		return
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		lease, ok := event.Object.(*coordinationv1.Lease)
		if ok {
			h.note(term{identity: ptr.Deref(lease.Spec.HolderIdentity, ""), from: ptr.Deref(lease.Spec.AcquireTime, metav1.MicroTime{}).Time})
		}
	}
}

func (h *leaseHistory) note(t term) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.identity == "" {
		h.free = true
		return
	}
	t.fromNobody, h.free = h.free, false
	if len(h.terms) == 0 || h.terms[len(h.terms)-1].identity != t.identity {
		h.terms = append(h.terms, t)
	}
}

// current returns the last term; the zero term if there is none.
func (h *leaseHistory) current() term {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.terms) == 0 {
		return term{}
	}
	return h.terms[len(h.terms)-1]
}

// next returns the term after another one; the zero term if there is none.
func (h *leaseHistory) next(after term) term {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := slices.IndexFunc(h.terms, func(t term) bool { return t.identity == after.identity })
	if at < 0 || at+1 == len(h.terms) {
		return term{}
	}
	return h.terms[at+1]
}

// overlaps returns writes of a leader after the first write of its successor, and writes of pods that did not lead.
func (h *leaseHistory) overlaps(acts []write) []write {
	h.mu.Lock()
	defer h.mu.Unlock()
	var late []write
	latest := 0
	for _, a := range acts {
		index := h.termOf(a)
		if index < latest {
			late = append(late, a)
		}
		latest = max(latest, index)
	}
	return late
}

// termStart returns when the writer acquired the Lease, or the zero time if it did not. A request of an exited process can
// arrive late, and its pod may lead again.
func (h *leaseHistory) termStart(a write) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if index := h.termOf(a); index >= 0 {
		return h.terms[index].from
	}
	return time.Time{}
}

// termOf returns the last term of the pod that had started at the time of the write, or -1.
func (h *leaseHistory) termOf(a write) int {
	for i := len(h.terms) - 1; i >= 0; i-- {
		if h.terms[i].pod() == a.pod && !h.terms[i].from.After(a.at) {
			return i
		}
	}
	return -1
}

func (h *leaseHistory) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, t := range h.terms {
		fmt.Fprintf(&b, "%s %s\n", t.from.Format("15:04:05.000000"), t.identity)
	}
	return b.String()
}
